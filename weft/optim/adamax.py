"""Adam with the largest gradient in place of the mean of squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, check_betas, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["Adamax"]


class Adamax(ElementWise):
    """Adamax: with a mean m of g and u = max(beta2 * u, |g| + eps), p - lr / (1 - beta1^t) * m / u."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check("Invalid epsilon value", eps, eps >= 0.0)
        check_betas(betas)
        check("Invalid weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_inf")

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        step, (beta1, beta2) = scalars[0] + 1, group["betas"]
        numbers = {
            "weight_decay": group["weight_decay"],
            "taken": 1 - beta1,
            "beta2": beta2,
            "eps": group["eps"],
            "rate": group["lr"] / (1 - beta1**step),
        }
        return numbers, (step,)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, mean: Any, largest: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        mean = mean + n.taken * (g - mean)
        largest = m.maximum(n.beta2 * largest, m.abs(g) + n.eps)
        return p - n.rate * (mean / largest), mean, largest
