"""Steps scaled by all squares of gradients so far."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, check_ways, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["Adagrad"]


class Adagrad(ElementWise):
    """Adagrad: with s the sum of g*g, p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr(lr)
        check("Invalid lr_decay value", lr_decay, lr_decay >= 0.0)
        check("Invalid weight_decay value", weight_decay, weight_decay >= 0.0)
        check("Invalid initial_accumulator_value value", initial_accumulator_value, initial_accumulator_value >= 0.0)
        check("Invalid epsilon value", eps, eps >= 0.0)
        check_ways(foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "lr_decay": lr_decay,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
            "eps": eps,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "fused": fused,
        }
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        super().add_param_group(param_group)
        for p in param_group["params"]:
            self._state_of(param_group, ("sum",), p)  # its states begin before the first step

    def share_memory(self) -> None:
        """Puts the sums where other processes can write to them."""
        for p in self._parameters():
            self.state[p]["sum"].share_memory_()

    def _first(self, group: Group) -> dict[str, float]:
        return {"step": 0.0, "sum": group["initial_accumulator_value"]}

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("sum",)

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        step = scalars[0] + 1
        numbers = {
            "weight_decay": group["weight_decay"],
            "rate": group["lr"] / (1 + (step - 1) * group["lr_decay"]),
            "eps": group["eps"],
        }
        return numbers, (step,)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, total: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        total = total + g * g
        return p - n.rate * (g / (m.sqrt(total) + n.eps)), total
