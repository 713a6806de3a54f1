"""Rows: functions that give views, as functions that give copies of them."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from typing import Any

from ....base.errors import RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.tensor import Tensor, axis_of
from ..math.complex import view_as_complex, view_as_real
from ..table import row
from .parts import as_strided, diagonal, select, split, split_with_sizes, unbind, unfold
from .shape import expand, permute, squeeze, t, transpose, unsqueeze, view

_COPY = Op.get("copy")


def alias(input: Tensor) -> Tensor:
    """The tensor"""
    return input


def detach(input: Tensor) -> Tensor:
    """The same memory, outside the graph"""
    return input.detach()


def slice(input: Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Tensor:
    """Every step-th place of an axis from a start to before an end"""
    axis = axis_of(dim, input.ndim)
    if not input.ndim:
        raise RunError("slice() cannot be applied to a 0-dim tensor.")
    if step <= 0:
        raise RunError("slice step must be positive")
    index = (_every,) * axis + (builtins.slice(start, end, step),)
    made: Tensor = input[index]
    return made


_every = builtins.slice(None)


def _copying(function: Callable[..., Any], name: str) -> Any:
    @functools.wraps(function)
    def copied(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        if isinstance(made, tuple):
            return tuple(apply(_COPY, None, [part])[0] for part in made)
        return apply(_COPY, None, [made])[0]

    copied.__name__ = copied.__qualname__ = name
    copied.__doc__ = f"`{function.__name__}` in memory of its own"
    return row(copied, method=False, out=True)


for _function in (
    alias,
    as_strided,
    detach,
    diagonal,
    expand,
    permute,
    select,
    slice,
    split,
    split_with_sizes,
    squeeze,
    t,
    transpose,
    unbind,
    unfold,
    unsqueeze,
    view,
    view_as_complex,
    view_as_real,
):
    _copying(_function, f"{_function.__name__}_copy")
