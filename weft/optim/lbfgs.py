"""L-BFGS: steps along a direction that the last gradients tell of the curvature, by a line search if wanted."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

from ..base.errors import InvalidValue, RunError
from ..eager.autograd.modes import enable_grad, no_grad
from ..eager.tensor.tensor import Tensor
from .element_wise import real
from .optimizer import Closure, F, Optimizer, ParamsT, check_lr

__all__ = ["LBFGS"]


class LBFGS(Optimizer):
    """L-BFGS: each iteration goes along -H g, where H follows from the last `history_size` changes of parameters and
    gradients; `line_search_fn="strong_wolfe"` looks for a length that satisfies Wolfe's conditions.

    A step runs up to `max_iter` iterations, and calls the closure, which computes the loss and its gradients, often.

    >>> import weft
    >>> w = weft.tensor([3.0, -2.0], requires_grad=True)
    >>> optimizer = LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - weft.tensor([1.0, 2.0])) ** 4).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure)
    tensor(272., grad_fn=<SumBackward0>)
    >>> bool(closure() < 1e-4)
    True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
    ) -> None:
        check_lr(lr)
        defaults = {
            "lr": lr,
            "max_iter": max_iter,
            "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad,
            "tolerance_change": tolerance_change,
            "history_size": history_size,
            "line_search_fn": line_search_fn,
        }
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise InvalidValue("LBFGS doesn't support per-parameter options (parameter groups)")

    def step(self, closure: Closure) -> Any:  # type: ignore[override]
        """Runs the iterations of one step; gives the loss before them."""
        with no_grad():
            return self._step(closure)

    def _step(self, closure: Closure) -> Any:
        (group,) = self.param_groups
        lr = float(group["lr"])
        state = self.state[group["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)

        def evaluate() -> Any:
            with enable_grad():
                return closure()

        first = evaluate()
        loss, grad, evaluations = float(first), self._flat_grad(), 1
        state["func_evals"] += 1
        iterations = 0
        done = _largest(grad) <= group["tolerance_grad"]
        while not done and iterations < group["max_iter"]:
            iterations += 1
            state["n_iter"] += 1
            direction = _direction(state, grad, group["history_size"])
            loss_before = loss
            state["prev_flat_grad"], state["prev_loss"] = grad.clone(), loss
            length = min(1.0, 1.0 / float(grad.abs().sum())) * lr if state["n_iter"] == 1 else lr
            state["d"], state["t"] = direction, length
            slope = float(grad.dot(direction))
            if slope > -group["tolerance_change"]:
                break
            start, most = _Point(0.0, loss, grad, slope), min(MOST, group["max_eval"] - evaluations)
            point, used = self._go(evaluate, direction, start, length, most, iterations == group["max_iter"])
            loss, grad = point.loss, point.grad
            state["t"] = length = point.at
            evaluations += used
            state["func_evals"] += used
            done = (
                evaluations >= group["max_eval"]
                or _largest(grad) <= group["tolerance_grad"]
                or _largest(direction * length) <= group["tolerance_change"]
                or abs(loss - loss_before) < group["tolerance_change"]
            )
        return first

    def _go(
        self, evaluate: Closure, direction: Tensor, start: _Point, length: float, most: int, is_last: bool
    ) -> tuple[_Point, int]:
        """Moves the parameters along a direction. Gives where they are, as far as that is still asked for, and how
        often the loss was evaluated."""
        search = self.param_groups[0]["line_search_fn"]
        if search is None:
            self._move(direction, length)
            if is_last:
                return start._replace(at=length), 0
            return _Point(length, float(evaluate()), self._flat_grad(), 0.0), 1
        if search != "strong_wolfe":
            raise _UnknownSearch("only 'strong_wolfe' is supported", why=f"line_search_fn={search!r}")
        point, used = self._searched(evaluate, direction, start, length, most)
        self._move(direction, point.at)
        return point, used

    def _flat_grad(self) -> Tensor:
        """All gradients as one vector; those that there are none of are zeros."""
        params = self.param_groups[0]["params"]
        grads = [F.zeros_like(p) if p.grad is None else p.grad for p in params]
        made: Tensor = F.cat([real(grad).reshape(-1) for grad in grads])
        return made

    def _move(self, direction: Tensor, length: float) -> None:
        """p + length * direction, the direction being one vector for all parameters."""
        at = 0
        for p in self.param_groups[0]["params"]:
            whole = real(p)
            size = whole.numel()
            whole.add_(direction[at : at + size].view_as(whole), alpha=length)
            at += size

    def _searched(
        self, evaluate: Closure, direction: Tensor, start: _Point, length: float, most: int
    ) -> tuple[_Point, int]:
        """The point that a line search finds, and how often it evaluated the loss."""
        params = self.param_groups[0]["params"]
        before = [p.clone() for p in params]

        def at(length: float) -> _Point:
            self._move(direction, length)
            loss, grad = float(evaluate()), self._flat_grad()
            for p, old in zip(params, before):
                p.copy_(old)
            return _Point(length, loss, grad, float(grad.dot(direction)))

        return strong_wolfe(at, start, length, _largest(direction), most)


class _UnknownSearch(InvalidValue, RunError):
    """The name of a line search that there is not."""


def _largest(x: Tensor) -> float:
    return float(x.abs().max())


def _direction(state: dict[str, Any], grad: Tensor, history: int) -> Tensor:
    """-H g by two passes over the changes that are kept: `old_dirs` of gradients, `old_stps` of parameters."""
    if state["n_iter"] == 1:
        state.update(old_dirs=[], old_stps=[], ro=[], H_diag=1)
        return grad.neg()  # type: ignore[no-any-return]
    changes, steps, factors = state["old_dirs"], state["old_stps"], state["ro"]
    change, step = grad - state["prev_flat_grad"], state["d"] * state["t"]
    curvature = change.dot(step)
    if float(curvature) > 1e-10:
        for kept in (changes, steps, factors):
            del kept[: len(kept) - history + 1]
        changes.append(change)
        steps.append(step)
        factors.append(1.0 / curvature)
        state["H_diag"] = curvature / change.dot(change)
    q: Tensor = grad.neg()
    weights = []
    for change, step, factor in zip(reversed(changes), reversed(steps), reversed(factors)):
        weights.append(step.dot(q) * factor)
        q = q - weights[-1] * change
    q = q * state["H_diag"]
    for change, step, factor, weight in zip(changes, steps, factors, reversed(weights)):
        q = q + step * (weight - change.dot(q) * factor)
    return q


class _Point(NamedTuple):
    """A place on the line: how far along, the loss there, its gradient, and the slope along the line."""

    at: float
    loss: float
    grad: Tensor
    slope: float


MOST = 25  # turns of one search
C1, C2 = 1e-4, 0.9  # of Wolfe's conditions: how much less the loss must be, and how much flatter


def strong_wolfe(
    evaluate: Callable[[float], _Point],
    start: _Point,
    length: float,
    reach: float,
    most: int = MOST,
    tolerance: float = 1e-9,
) -> tuple[_Point, int]:
    """A point whose loss is at most f + C1 * t * slope and whose slope is at most C2 of that of the start, if there is
    one to be found in `most` turns; `reach` is how far the parameter moves that moves most, for a length of 1."""

    def too_high(point: _Point) -> bool:
        return point.loss > start.loss + C1 * point.at * start.slope

    def is_flat(point: _Point) -> bool:
        return abs(point.slope) <= -C2 * start.slope

    before, now, turns = start, evaluate(length), 0
    while turns < most:  # until a minimum lies between two points
        if too_high(now) or (turns > 1 and now.loss >= before.loss) or (now.slope >= 0 and not is_flat(now)):
            break
        if is_flat(now):
            return now, turns + 1
        bounds = now.at + 0.01 * (now.at - before.at), now.at * 10
        before, now = now, evaluate(_cubic_minimum(before, now, bounds))
        turns += 1
    else:
        before = start
    low, high = (before, now) if before.loss <= now.loss else (now, before)
    was_near = False
    while turns < most and abs(high.at - low.at) * reach >= tolerance:
        length, was_near = _inside(low, high, was_near)
        now = evaluate(length)
        turns += 1
        if too_high(now) or now.loss >= low.loss:
            low, high = (low, now) if low.loss <= now.loss else (now, low)
            continue
        if is_flat(now):
            return now, turns + 1
        if now.slope * (high.at - low.at) >= 0:
            high = low
        low = now
    return low, turns + 1


def _inside(low: _Point, high: _Point, was_near: bool) -> tuple[float, bool]:
    """Where to look between two points, and whether that is near to one of them; the second time in a row it is moved
    away by a tenth."""
    left, right = sorted((low.at, high.at))
    length = _cubic_minimum(low, high, (left, right))
    margin = 0.1 * (right - left)
    if min(right - length, length - left) >= margin:
        return length, False
    if was_near or length >= right or length <= left:
        return (right - margin if abs(length - right) < abs(length - left) else left + margin), False
    return length, True


def _cubic_minimum(a: _Point, b: _Point, bounds: tuple[float, float]) -> float:
    """Where the cubic through two points with their slopes has its minimum, within bounds; their middle if it has
    none."""
    if a.at > b.at:
        a, b = b, a
    if a.at == b.at:
        return a.at
    mean = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.at - b.at)
    square = mean * mean - a.slope * b.slope
    below = b.slope - a.slope + 2 * sqrt(square) if square >= 0 else 0.0
    if not below:
        return (bounds[0] + bounds[1]) / 2
    place = b.at - (b.at - a.at) * ((b.slope + sqrt(square) - mean) / below)
    return min(max(place, bounds[0]), bounds[1])
