"""A step of a parameter on a device: its rule is one program of the device, whose numbers are inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..base.kept import Kept
from ..eager import devices
from ..eager.functions.fusion import plan_of
from ..eager.tensor.tensor import Tensor, wrap
from .optimizer import F

_plans: Kept[Any] = Kept(256)


def stepped_there(
    rule: Callable[..., Any], on: frozenset[str], numbers: Mapping[str, Any], tensors: Sequence[Tensor]
) -> list[Tensor] | None:
    """The new parameter and states, given the gradient, the parameter and its states; None where the rule is no single
    computation of elements."""
    kind = tensors[0]._dtype
    given = [*tensors, *[wrap(np.array(value, kind)) for value in numbers.values()]]
    names, count = tuple(numbers), len(tensors)

    def step(g: Tensor, p: Tensor, *rest: Tensor) -> Any:
        values = dict(zip(names, rest[count - 2 :]))
        return rule(F, on, SimpleNamespace(**values), p, g, *rest[: count - 2])

    key = (rule, on, names, tuple([(tensor._shape, tensor._dtype) for tensor in tensors]))
    found = _plans.find(key, lambda: plan_of(step, given) or ())
    if not found:
        return None
    plan, constants = found
    made: list[Tensor] | None = devices.fused(plan, [*given, *constants])
    return made
