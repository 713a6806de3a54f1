"""Steps scaled by the root of a running mean of squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["RMSprop"]


class RMSprop(ElementWise):
    """RMSprop: with a mean v of g*g, d = g / (sqrt(v) + eps) and p - lr * d, or with momentum b = momentum * b + d and
    p - lr * b; centred, v less the square of the mean of g stands under the root.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check("Invalid epsilon value", eps, eps >= 0.0)
        check("Invalid momentum value", momentum, momentum >= 0.0)
        check("Invalid weight_decay value", weight_decay, weight_decay >= 0.0)
        check("Invalid alpha value", alpha, alpha >= 0.0)
        defaults = {
            "lr": lr,
            "alpha": alpha,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum": momentum,
            "centered": centered,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        more = (("momentum_buffer", group["momentum"]), ("grad_avg", group["centered"]))
        return ("square_avg", *[name for name, wanted in more if wanted])

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        numbers = {
            "weight_decay": group["weight_decay"],
            "lr": group["lr"],
            "alpha": group["alpha"],
            "taken": 1 - group["alpha"],
            "eps": group["eps"],
            "momentum": group["momentum"],
        }
        return numbers, (scalars[0] + 1,)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, square: Any, *more: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        buffer = more[0] if "momentum" in on else None
        mean = more[-1] if "centered" in on else None
        square = n.alpha * square + n.taken * (g * g)
        if mean is not None:
            mean = mean + n.taken * (g - mean)
        step = g / (m.sqrt(square if mean is None else square - mean * mean) + n.eps)
        if buffer is not None:
            step = buffer = n.momentum * buffer + step
        return p - n.lr * step, square, *[state for state in (buffer, mean) if state is not None]
