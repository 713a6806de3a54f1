"""Names of the extents of a model's inputs: every dimension that is open gets one from which it can be told."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..base.expression import PLAIN_NAME
from ..base.extents import Extent, names_of
from ..base.shape import Dim, Shape
from .emitter import FreshNames


def plainly_named(shapes: Mapping[str, Shape]) -> dict[str, Shape]:
    """Shapes in which what is unknown has a name, and names have no odd characters. An expression stays if its names
    are those of other dimensions; else it is a name like others.

    >>> plainly_named({"x": ("batch size", None, "past + 1"), "y": ("past", "a*b", 3)})
    {'x': ('batch_size', 'x_1', 'past + 1'), 'y': ('past', 'a_b', 3)}
    """
    texts = [dim for shape in shapes.values() for dim in shape or () if isinstance(dim, str)]
    plain = {text for text in texts if PLAIN_NAME.fullmatch(text)}
    fresh = FreshNames()
    for name in plain:
        fresh.take(name)
    made = {
        text: Extent.of(text).dim if names_of(text) <= plain else fresh.fresh(_sanitised(text))
        for text in dict.fromkeys(texts)
    }

    def named(name: str, axis: int, dim: Dim) -> Dim:
        if dim is None:
            return fresh.fresh(f"{_sanitised(name)}_{axis}")
        return made[dim] if isinstance(dim, str) else dim

    return {
        name: None if shape is None else tuple(named(name, axis, dim) for axis, dim in enumerate(shape))
        for name, shape in shapes.items()
    }


def _sanitised(text: str) -> str:
    word = re.sub(r"\W+", "_", text).strip("_")
    return word if PLAIN_NAME.fullmatch(word) else f"n{word}"
