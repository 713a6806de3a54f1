"""Adam with Nesterov momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .adam import mean_and_square
from .element_wise import ElementWise, check_betas, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["NAdam"]


class NAdam(ElementWise):
    """NAdam: with mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2), M_t = mu_1 ... mu_t, means m of g and v of g*g,
    p - lr * ((1 - mu_t) / (1 - M_t) * g + mu_{t+1} / (1 - M_{t+1}) * m) / (sqrt(v / (1 - beta2^t)) + eps).
    """

    scalars = ("step", "mu_product")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum_decay: float = 4e-3,
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
        check("Invalid momentum_decay value", momentum_decay, momentum_decay >= 0.0)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "momentum_decay": momentum_decay,
            "decoupled_weight_decay": decoupled_weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq")

    def _first(self, group: Group) -> dict[str, float]:
        return {"step": 0.0, "mu_product": 1.0}

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        (before, product), lr, (beta1, beta2) = scalars, group["lr"], group["betas"]
        step = before + 1
        now, following = (beta1 * (1 - 0.5 * 0.96 ** (t * group["momentum_decay"])) for t in (step, step + 1))
        product = rounded(product * rounded(now))
        numbers = {
            "weight_decay": group["weight_decay"],
            "shrink": 1 - lr * group["weight_decay"],
            "taken": 1 - beta1,
            "beta2": beta2,
            "taken2": 1 - beta2,
            "eps": group["eps"],
            "correction": 1 - beta2**step,
            "of_gradient": lr * (1 - now) / (1 - product),
            "of_mean": lr * following / (1 - product * following),
        }
        return numbers, (step, product)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, mean: Any, square: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        mean, square = mean_and_square(n, g, mean, square)
        scale = m.sqrt(square / n.correction) + n.eps
        return p - n.of_gradient * (g / scale) - n.of_mean * (mean / scale), mean, square
