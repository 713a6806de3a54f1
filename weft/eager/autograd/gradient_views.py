"""Steps of a gradient that only show elements of their first input in other places, as views:
nobody writes to a gradient on its way, so it need not be copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...core.op import Op
from ...ops.shape import join, pad, part, transform  # noqa: F401  operators named here
from ...ops.shape.expand import expanded_view
from ...ops.shape.join import part_views, split_views
from ...ops.shape.pad import inner_view
from ...ops.shape.part import part_view
from ...ops.shape.transform import transpose_view

Array = np.ndarray[Any, Any]
View = Callable[[Any, Sequence[Array]], Sequence[Array] | None]


def _inner(params: Any, arrays: Sequence[Array]) -> Sequence[Array] | None:
    return [inner_view(params, arrays[0])] if params.mode == "constant" else None


VIEWS: dict[Op, View] = {
    Op.get(name): view
    for name, view in {
        "expand_like": lambda params, arrays: [expanded_view(params, arrays[0], arrays[1].shape)],
        "transpose": lambda params, arrays: [transpose_view(params, arrays[0])],
        "part": lambda params, arrays: [part_view(params, arrays[0])],
        "_concatenate_grad": lambda params, arrays: part_views(params, *arrays),
        "_pad_grad": _inner,
        "split": lambda params, arrays: split_views(params, arrays[0]),
    }.items()
}


def _reshaped(op: Op, params: Any, arrays: Sequence[Array]) -> Sequence[Array]:
    shapes = [array.shape for array in arrays]
    return [arrays[0].reshape(Op.shape[op](params, shapes, [None])[1][0])]


def views_of(op: Op) -> View | None:
    """What gives an operator's outputs as views of its first input, or None where they are not; if
    there is such a thing."""
    if op not in VIEWS and Op.alias.get(op) == {0: 0}:
        return partial(_reshaped, op)
    return VIEWS.get(op)
