"""Adam that begins without the scale, whose variance is too large at first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .adam import mean_and_square
from .element_wise import ElementWise, check_betas, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["RAdam"]


class RAdam(ElementWise):
    """RAdam: with rho = 2 / (1 - beta2) - 1 and rho_t = rho - 2 * t * beta2^t / (1 - beta2^t), Adam's step times
    sqrt((rho_t - 4) * (rho_t - 2) * rho / ((rho - 4) * (rho - 2) * rho_t)) where rho_t > 5, else p - lr * m'.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
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
            "decoupled_weight_decay": decoupled_weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        step, lr, (beta1, beta2) = scalars[0] + 1, group["lr"], group["betas"]
        rate, correction = lr / (1 - beta1**step), 1 - beta2**step
        limit = 2 / (1 - beta2) - 1
        length = limit - 2 * step * beta2**step / correction
        numbers = {
            "weight_decay": group["weight_decay"],
            "shrink": 1 - lr * group["weight_decay"],
            "taken": 1 - beta1,
            "beta2": beta2,
            "taken2": 1 - beta2,
            "eps": 1.0,
            "scaled": 0.0,
            "plain": rate,
        }
        if length > 5.0:
            ratio = (length - 4) * (length - 2) * limit / ((limit - 4) * (limit - 2) * length)
            numbers.update(eps=group["eps"], scaled=rate * (ratio * correction) ** 0.5, plain=0.0)
        return numbers, (step,)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, mean: Any, square: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        mean, square = mean_and_square(n, g, mean, square)
        return p - mean * (n.scaled / (m.sqrt(square) + n.eps) + n.plain), mean, square
