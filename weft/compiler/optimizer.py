"""Optimisers as graphs: a loss comes in, updates of its variables go out. Compiled by `build`, each
run is a step of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import ops as ops  # optimisers name operators
from ..base.errors import InvalidType, InvalidValue, Unsupported
from ..core.op import Op
from ..core.symbol import Group, Symbol, Variable
from ..passes.gradient import gradients
from .lr_scheduler import BASE_RATE, LRScheduler

__all__ = ["SGD", "Adam", "Optimizer"]


def __dir__() -> list[str]:
    return list(__all__)


Variables = Symbol | Sequence[Symbol] | None


class Optimizer:
    """What all optimisers share: the rate, the count of updates, and what is done to gradients.

    A gradient g of v counts as clip(rescale_grad * g, -clip_gradient, clip_gradient) + wd * v.
    With a scheduler the rate starts at its `base_lr`, or at `learning_rate` if that was left open.
    The count is a variable `<name>_t`, which lives where the model's variables do.
    """

    def __init__(
        self,
        learning_rate: float = 0.01,
        lr_scheduler: LRScheduler | None = None,
        rescale_grad: float = 1,
        clip_gradient: float | None = None,
        wd: float = 0,
        name: str = "Optimizer",
    ) -> None:
        if lr_scheduler is not None and not isinstance(lr_scheduler, LRScheduler):
            raise InvalidType(f"lr_scheduler is a {type(lr_scheduler).__name__}, no LRScheduler")
        if clip_gradient is not None and not clip_gradient > 0:
            raise InvalidValue(f"clip_gradient is {clip_gradient}", why="a limit is above 0")
        self.name = name
        self.lr = learning_rate
        self.lr_scheduler = lr_scheduler
        self.rescale_grad = rescale_grad
        self.clip_gradient = clip_gradient
        self.wd = wd
        if lr_scheduler is not None and lr_scheduler.base_lr == BASE_RATE:
            lr_scheduler.base_lr = learning_rate
        self.t = Variable(f"{name}_t", init=np.zeros(1, "int32"), shape=(1,), dtype="int32")
        self.update_t = Op.get("_assign")(self.t, self.t + 1, name=f"{name}_update_t")

    def minimize(self, obj: Symbol, var: Variables = None) -> Symbol:
        """Updates that make `obj` smaller: a group with the new value of each variable of `var`, by
        default of all inputs of `obj`."""
        variables = _variables(obj, var)
        step = self._step()
        slopes = [self._slope(grad) for grad in gradients(obj, variables)]
        return Group([step(*pair) for pair in zip(variables, slopes)])

    def _step(self) -> Callable[[Symbol, Symbol], Symbol]:
        """A function from a variable and its gradient to the variable's update."""
        raise Unsupported(f"{type(self).__name__} does not say how variables are updated")

    def _slope(self, grad: Symbol) -> Symbol:
        if self.rescale_grad != 1:
            grad = grad * self.rescale_grad
        if self.clip_gradient is not None:
            limit = self.clip_gradient
            grad = Op.get("clip")(grad, a_min=-limit, a_max=limit)
        return grad

    def _decayed(self, variable: Symbol, by: Symbol) -> Symbol:
        """by + wd * variable"""
        return by + variable * self.wd if self.wd else by

    def _count(self) -> Symbol:
        """The number of the update, a float64: what follows is too small a change for float32."""
        return Op.get("cast")(self.update_t, dtype="float64")

    def _rate(self) -> Symbol | float:
        return self.lr if self.lr_scheduler is None else self.lr_scheduler(self._count())

    def _moved(self, variable: Symbol, rate: Symbol | float, by: Symbol) -> Symbol:
        """variable <- variable - rate * by"""
        if isinstance(rate, Symbol):
            rate = Op.get("cast_like")(Op.get("reshape")(rate, shape=()), variable)
        return Op.get("_assign")(variable, variable - by * rate)


class SGD(Optimizer):
    """Gradient descent: v <- v - lr * (gradient + wd * v).

    >>> import weft
    >>> w, x = weft.symbol.Variable("w"), weft.symbol.Variable("x")
    >>> SGD(learning_rate=0.1).minimize(weft.symbol.sum(w * x), w).list_input_names("aux_state")
    ['w']
    """

    def __init__(self, name: str = "SGD", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)

    def _step(self) -> Callable[[Symbol, Symbol], Symbol]:
        rate = self._rate()
        return lambda variable, slope: self._moved(variable, rate, self._decayed(variable, slope))


class Adam(Optimizer):
    """Steps scaled by running moments of the gradient, which begin at zero.

    m <- beta1 * m + (1 - beta1) * g,  s <- beta2 * s + (1 - beta2) * g * g
    v <- v - lr * sqrt(1 - beta2 ** t) / (1 - beta1 ** t) * (m / (sqrt(s) + epsilon) + wd * v)

    The moments of the i-th variable are variables `<name>_m<i>` and `<name>_v<i>`.
    """

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        name: str = "Adam",
        **kwargs: Any,
    ) -> None:
        super().__init__(learning_rate=learning_rate, name=name, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self._moments = 0

    def _step(self) -> Callable[[Symbol, Symbol], Symbol]:
        count = self._count()
        correction = Op.get("sqrt")(1 - self.beta2**count) / (1 - self.beta1**count)
        rate = correction * self._rate()

        def step(variable: Symbol, slope: Symbol) -> Symbol:
            number, self._moments = self._moments, self._moments + 1
            first = self._moment(f"{self.name}_m{number}", variable, slope, self.beta1)
            second = self._moment(f"{self.name}_v{number}", variable, slope * slope, self.beta2)
            by = first / (Op.get("sqrt")(second) + self.epsilon)
            return self._moved(variable, rate, self._decayed(variable, by))

        return step

    def _moment(self, name: str, variable: Symbol, value: Symbol, keep: float) -> Symbol:
        """The update of a running mean."""
        moment = Variable(name, init=Op.get("zeros_like")(variable))
        return Op.get("_assign")(moment, moment * keep + value * (1 - keep))


def _variables(obj: Symbol, var: Variables) -> list[Symbol]:
    chosen = obj.list_input_variables() if var is None else var
    found = [single for symbol in _listed(chosen) for single in symbol]
    for symbol in found:
        if symbol.outputs[0].node.op is not None:
            raise InvalidValue(f"{symbol} is no variable", why="only variables can be updated")
    return found


def _listed(symbols: Symbol | Sequence[Symbol]) -> list[Symbol]:
    made = [symbols] if isinstance(symbols, Symbol) else list(symbols)
    for symbol in made:
        if not isinstance(symbol, Symbol):
            raise InvalidType(f"var has a {type(symbol).__name__}, and takes symbols")
    return made
