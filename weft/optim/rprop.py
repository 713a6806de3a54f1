"""Steps by the signs of gradients alone, each element with a size of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["Rprop"]


class Rprop(ElementWise):
    """Rprop: a step size grows by etas[1] while the sign of g stays the same and shrinks by etas[0] when it changes,
    within step_sizes; p - sign(g) * size, and no step where the sign has changed.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        check_lr(lr)
        check("Invalid eta values", f"{etas[0]}, {etas[1]}", 0.0 < etas[0] < 1.0 < etas[1])
        defaults = {
            "lr": lr,
            "etas": etas,
            "step_sizes": step_sizes,
            "capturable": capturable,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("prev", "step_size")

    def _first(self, group: Group) -> dict[str, float]:
        return {"step": 0.0, "step_size": group["lr"]}

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        numbers = {
            "shrink": group["etas"][0],
            "grow": group["etas"][1],
            "least": group["step_sizes"][0],
            "most": group["step_sizes"][1],
        }
        return numbers, (scalars[0] + 1,)

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, before: Any, size: Any) -> tuple[Any, ...]:
        g = -g if "maximize" in on else g
        agree = m.sign(g * before)
        factor = m.where(agree > 0, n.grow, m.where(agree < 0, n.shrink, agree + 1))
        size = m.clamp(size * factor, n.least, n.most)
        g = m.where(agree < 0, 0.0, g)
        return p - m.sign(g) * size, g, size
