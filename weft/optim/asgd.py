"""Gradient descent whose average is kept beside the parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.tensor.tensor import Tensor
from .element_wise import ElementWise, directed
from .optimizer import Group, ParamsT, check, check_lr

__all__ = ["ASGD"]


class ASGD(ElementWise):
    """Averaged SGD: p * (1 - lambd * eta) - eta * g with eta = lr / (1 + lambd * lr * t)^alpha; from step t0 on
    `state[p]["ax"]` is the mean of the parameters, before that the parameters.
    """

    scalars = ("step", "eta", "mu")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        check_lr(lr)
        check("Invalid weight_decay value", weight_decay, weight_decay >= 0.0)
        defaults = {
            "lr": lr,
            "lambd": lambd,
            "alpha": alpha,
            "t0": t0,
            "weight_decay": weight_decay,
            "foreach": foreach,
            "maximize": maximize,
            "differentiable": differentiable,
            "capturable": capturable,
        }
        super().__init__(params, defaults)

    def _slots(self, group: Group) -> tuple[str, ...]:
        return ("ax",)

    def _first(self, group: Group) -> dict[str, float]:
        return {"step": 0.0, "eta": group["lr"], "mu": 1.0}

    def _advance(self, group: Group, fresh: bool, rounded: Callable[[float], float], *scalars: float) -> Any:
        (before, eta, mu), lr = scalars, group["lr"]
        step = before + 1
        numbers = {
            "weight_decay": group["weight_decay"],
            "shrink": 1 - group["lambd"] * eta,
            "eta": eta,
            "mu": mu,
            "kept": 1 - mu,
        }
        eta = lr / (1 + group["lambd"] * lr * step) ** group["alpha"]
        return numbers, (step, eta, 1 / max(1.0, step - group["t0"]))

    @staticmethod
    def rule(m: Any, on: frozenset[str], n: Any, p: Any, g: Any, average: Any) -> tuple[Any, ...]:
        p, g = directed(on, n, p, g)
        p = p * n.shrink - n.eta * g
        return p, n.kept * average + n.mu * p
