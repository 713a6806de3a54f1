"""Schedules that go up and down, and change momenta the other way."""

from __future__ import annotations

from collections.abc import Callable
from math import floor
from typing import Any, Literal

from ..base.errors import InvalidValue
from .optimizer import Group, Optimizer
from .schedule import LRScheduler, attributes, checked, cosine, for_groups, line, set_option

__all__ = ["CyclicLR", "OneCycleLR"]


class _Cyclic(LRScheduler):
    """Schedules that change momenta, too: the first of `betas`, if the optimiser has those."""

    use_beta1: bool
    cycle_momentum: bool

    def _begin_momenta(self, base: Any, most: Any, last_epoch: int) -> tuple[Any, Any]:
        """Begins with the largest momenta."""
        defaults = self.optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise InvalidValue("optimizer must support momentum or beta1 with `cycle_momentum` option enabled")
        self.use_beta1 = "betas" in defaults
        lows, highs = (
            for_groups(self.optimizer, "base_momentum", base),
            for_groups(self.optimizer, "max_momentum", most),
        )
        if last_epoch == -1:
            for low, high, group in zip(lows, highs, self.optimizer.param_groups):
                self._set_momentum(group, high)
                group["max_momentum"], group["base_momentum"] = high, low
        return lows, highs

    def _set_momentum(self, group: Group, momentum: Any) -> None:
        if self.use_beta1:
            group["betas"] = (momentum, *group["betas"][1:])
        else:
            group["momentum"] = momentum


class CyclicLR(_Cyclic):
    """lr goes from base_lr up to max_lr in `step_size_up` steps, down again in `step_size_down`, and so on. The height
    is the full one (triangular), half that of the cycle before (triangular2), gamma^step of it (exp_range), or what
    `scale_fn` says of the cycle or the step."""

    _scale_fn_custom: Any = None

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float | list[float],
        max_lr: float | list[float],
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: Literal["triangular", "triangular2", "exp_range"] = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[float], float] | None = None,
        scale_mode: Literal["cycle", "iterations"] = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = checked(optimizer)
        base_lrs = for_groups(self.optimizer, "base_lr", base_lr)
        if last_epoch == -1:
            for lr, group in zip(base_lrs, optimizer.param_groups):
                set_option(group, "lr", lr)
        self.max_lrs = for_groups(self.optimizer, "max_lr", max_lr)
        up, down = float(step_size_up), float(step_size_up if step_size_down is None else step_size_down)
        self.total_size, self.step_ratio = up + down, up / (up + down)
        if scale_fn is None and mode not in ("triangular", "triangular2", "exp_range"):
            raise InvalidValue("mode is invalid and scale_fn is None", hint="triangular, triangular2 or exp_range")
        self.mode, self.gamma = mode, gamma
        self._scale_fn_custom = scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.base_momentums, self.max_momentums = self._begin_momenta(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: float) -> float:
        """How high the cycle or step x goes."""
        if self._scale_fn_custom is not None:
            return float(self._scale_fn_custom(x))
        if self.mode == "triangular":
            return 1.0
        return 2.0 ** (1 - x) if self.mode == "triangular2" else float(self.gamma**x)

    def get_lr(self) -> list[Any]:
        self._lrs()
        turns = 1 + self.last_epoch / self.total_size
        cycle = floor(turns)
        x = turns - cycle
        height = x / self.step_ratio if x <= self.step_ratio else (x - 1) / (self.step_ratio - 1)
        height *= self.scale_fn(cycle if self.scale_mode == "cycle" else self.last_epoch)
        if self.cycle_momentum:
            groups = self.optimizer.param_groups
            for low, high, group in zip(self.base_momentums, self.max_momentums, groups):
                self._set_momentum(group, high - (high - low) * height)
        return [low + (high - low) * height for low, high in zip(self.base_lrs, self.max_lrs)]

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        state.pop("_scale_fn_custom", None)
        custom = self._scale_fn_custom
        return {**state, "_scale_fn_custom": None if custom is None else attributes(custom)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        state = dict(state_dict)
        saved = state.pop("_scale_fn_custom", None)
        super().load_state_dict(state)
        if saved is not None:
            self._scale_fn_custom.__dict__.update(saved)


class OneCycleLR(_Cyclic):
    """lr goes from max_lr / div_factor up to max_lr in the first `pct_start` of all steps, then down to the
    final_div_factor-th of what it began with; momenta go the other way. With three phases it comes down as slowly as it
    went up, and then falls.

    >>> import weft
    >>> optimizer = weft.optim.SGD([weft.zeros(2, requires_grad=True)], lr=0.1, momentum=0.9)
    >>> schedule = OneCycleLR(optimizer, max_lr=1.0, total_steps=10, anneal_strategy="linear")
    >>> for _ in range(2):
    ...     optimizer.step()
    ...     schedule.step()
    >>> print(f"{schedule.get_last_lr()[0]:.3f} {optimizer.param_groups[0]['momentum']:.3f}")
    1.000 0.850
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: Literal["cos", "linear"] = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = checked(optimizer)
        self.total_steps = _total_steps(total_steps, epochs, steps_per_epoch)
        rising = float(pct_start * self.total_steps) - 1
        ends = [rising, 2 * rising, self.total_steps - 1] if three_phase else [rising, self.total_steps - 1]
        lrs = ["initial_lr", "max_lr", "initial_lr", "min_lr"] if three_phase else ["initial_lr", "max_lr", "min_lr"]
        momenta = ["max_momentum", "base_momentum", "max_momentum", "max_momentum"]
        self._schedule_phases: list[dict[str, Any]] = [
            {
                "end_step": end,
                "start_lr": lrs[number],
                "end_lr": lrs[number + 1],
                "start_momentum": momenta[number],
                "end_momentum": momenta[number + 1],
            }
            for number, end in enumerate(ends)
        ]
        if not isinstance(pct_start, float) or not 0 <= pct_start <= 1:
            raise InvalidValue(f"Expected float between 0 and 1 pct_start, but got {pct_start}")
        if anneal_strategy not in ("cos", "linear"):
            raise InvalidValue(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        self._anneal_func_type = anneal_strategy
        highs = for_groups(self.optimizer, "max_lr", max_lr)
        if last_epoch == -1:
            for high, group in zip(highs, optimizer.param_groups):
                group["initial_lr"] = high / div_factor
                group["max_lr"] = high
                group["min_lr"] = group["initial_lr"] / final_div_factor
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self._begin_momenta(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        self._lrs()
        step, begin = self.last_epoch, 0.0
        if step > self.total_steps:
            raise InvalidValue(f"Tried to step {step} times. The specified number of total steps is {self.total_steps}")
        for phase in self._schedule_phases[:-1]:
            if step <= phase["end_step"]:
                break
            begin = phase["end_step"]
        else:
            phase = self._schedule_phases[-1]
        part = (step - begin) / (phase["end_step"] - begin)
        between = cosine if self._anneal_func_type == "cos" else line
        groups = self.optimizer.param_groups
        if self.cycle_momentum:
            for group in groups:
                self._set_momentum(group, between(group[phase["start_momentum"]], group[phase["end_momentum"]], part))
        return [between(group[phase["start_lr"]], group[phase["end_lr"]], part) for group in groups]


def _total_steps(total: int | None, epochs: int | None, steps_per_epoch: int | None) -> int:
    if total is not None:
        return _positive("total_steps", total)
    if epochs is None or steps_per_epoch is None:
        raise InvalidValue("You must define either total_steps OR (epochs AND steps_per_epoch)")
    return _positive("epochs", epochs) * _positive("steps_per_epoch", steps_per_epoch)


def _positive(name: str, value: Any) -> int:
    if not isinstance(value, int) or value <= 0:
        raise InvalidValue(f"Expected positive integer {name}, but got {value}")
    return value
