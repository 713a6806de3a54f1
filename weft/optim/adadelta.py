"""Steps in the units of the parameters: scaled by the steps before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["Adadelta"]


class Adadelta(ElementWise):
    """Adadelta: with means v of g*g and u of d*d, d = sqrt(u + eps) / sqrt(v + eps) * g and p - lr * d."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check("Invalid rho value", rho, 0.0 <= rho <= 1.0)
        check("Invalid epsilon value", eps, eps >= 0.0)
        check("Invalid weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr,
            "rho": rho,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "capturable": capturable,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("square_avg", "acc_delta")

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        numbers = {
            "weight_decay": group["weight_decay"],
            "lr": group["lr"],
            "rho": group["rho"],
            "taken": 1 - group["rho"],
            "eps": group["eps"],
        }
        return numbers, (scalars[0] + 1,)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, square: Any, steps: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        square = n.rho * square + n.taken * (g * g)
        delta = m.sqrt(steps + n.eps) / m.sqrt(square + n.eps) * g
        return p - n.lr * delta, square, n.rho * steps + n.taken * (delta * delta)
