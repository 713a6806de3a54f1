"""Rows: functions that give views, as functions that give copies of them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..core.op import Op
from .dispatch import apply
from .rows_parts import as_strided, diagonal, select, split, split_with_sizes, unbind, unfold
from .rows_shape import expand, permute, squeeze, t, transpose, unsqueeze, view
from .table import row
from .tensor import Tensor

_COPY = Op.get("copy")


def alias(input: Tensor) -> Tensor:
    """The tensor"""
    return input


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
    alias, as_strided, diagonal, expand, permute, select, split, split_with_sizes, squeeze, t,
    transpose, unbind, unfold, unsqueeze, view,
):  # fmt: skip
    _copying(_function, f"{_function.__name__}_copy")
