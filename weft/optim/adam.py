"""Adam: steps scaled by running means of gradients and of their squares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.errors import InvalidValue
from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, check_betas, check_scalar_options, check_ways, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["Adam"]


class Adam(ElementWise):
    """Adam: with means m of g and v of g*g, p - lr * m' / (sqrt(v') + eps), where m' = m / (1 - beta1^t) and
    v' = v / (1 - beta2^t); amsgrad takes the largest v so far.

    >>> import weft
    >>> w = weft.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = Adam([w], lr=0.1)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w
    tensor([ 0.9000, -1.9000], requires_grad=True)
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        check_scalar_options(foreach, capturable, lr=lr)
        check_lr(lr)
        check("Invalid epsilon value", eps, eps >= 0.0)
        check_betas(betas)
        check("Invalid weight_decay value", weight_decay, weight_decay >= 0.0)
        if isinstance(betas[0], Tensor) != isinstance(betas[1], Tensor):
            raise InvalidValue("betas must be either both floats or both Tensors")
        check_scalar_options(foreach, capturable, **{"betas[0]": betas[0], "betas[1]": betas[1]})
        check_ways(foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("exp_avg", "exp_avg_sq", "max_exp_avg_sq") if group["amsgrad"] else ("exp_avg", "exp_avg_sq")

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        step, lr, (beta1, beta2) = scalars[0] + 1, group["lr"], group["betas"]
        numbers = {
            "weight_decay": group["weight_decay"],
            "shrink": 1 - lr * group["weight_decay"],
            "taken": 1 - beta1,
            "beta2": beta2,
            "taken2": 1 - beta2,
            "eps": group["eps"],
            "rate": lr / (1 - beta1**step),
            "scale": (1 - beta2**step) ** 0.5,
        }
        return numbers, (step,)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, *means: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        mean, square = mean_and_square(n, g, *means[:2])
        if "amsgrad" not in on:
            return p - n.rate * (mean / (m.sqrt(square) / n.scale + n.eps)), mean, square
        largest = m.maximum(means[2], square)
        return p - n.rate * (mean / (m.sqrt(largest) / n.scale + n.eps)), mean, square, largest


def mean_and_square(n: Any, g: Any, mean: Any, square: Any) -> tuple[Any, Any]:
    """Running means of a gradient and of its square: m + (1 - beta1) * (g - m), beta2 * v + (1 - beta2) * g * g."""
    return mean + n.taken * (g - mean), n.beta2 * square + n.taken2 * (g * g)
