"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, Numbers, check_ways, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["SGD"]


class SGD(ElementWise):
    """Stochastic gradient descent: p - lr * g, or with momentum b = momentum * b + (1 - dampening) * g and
    p - lr * b; Nesterov's goes along g + momentum * b.

    >>> import weft
    >>> w = weft.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = SGD([w], lr=0.1, momentum=0.9)
    >>> for _ in range(3):
    ...     optimizer.zero_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w
    tensor([ 0.0620, -0.1240], requires_grad=True)
    """

    scalars = ()

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float | Tensor = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check("Invalid momentum value", momentum, momentum >= 0.0)
        check("Invalid weight_decay value", weight_decay, float(weight_decay) >= 0.0)
        check(
            "Nesterov momentum requires a momentum and zero dampening",
            f"momentum={momentum}, dampening={dampening}",
            not nesterov or (momentum > 0 and dampening == 0),
        )
        check_ways(foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("momentum_buffer",) if group["momentum"] else ()

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        numbers: Numbers = {"lr": group["lr"], "weight_decay": group["weight_decay"], "momentum": group["momentum"]}
        # The first step's buffer is the gradient, whatever the dampening.
        kept, taken = (0.0, 1.0) if fresh else (group["momentum"], 1 - group["dampening"])
        return {**numbers, "kept": kept, "taken": taken}, ()

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, *buffers: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        if "momentum" not in on:
            return (p - n.lr * g,)
        buffer = n.kept * buffers[0] + n.taken * g
        g = g + n.momentum * buffer if "nesterov" in on else buffer
        return p - n.lr * g, buffer
