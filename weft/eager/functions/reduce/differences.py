"""Rows: differences of neighbours along dimensions, and slopes made of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.dtype import BOOL
from ....base.errors import RunError
from ...tensor.tensor import Tensor, axis_of, wrap
from ...tensor.types import get_default_dtype
from ..math.arithmetic import add, div, mul, sub
from ..math.cast import clone
from ..math.compare import ne
from ..operands import floating, must_be_tensors
from ..reducing import dims_of
from ..shape.join import cat
from ..shape.parts import narrow
from ..shape.shape import reshape
from ..table import row


@row(out=True)
def diff(
    input: Tensor, n: int = 1, dim: int = -1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """the differences of neighbours along a dimension, n times

    >>> import weft
    >>> weft.diff(weft.tensor([1, 4, 9]))
    tensor([3, 5])
    """
    must_be_tensors("diff", input=input)
    if not input.ndim:
        raise RunError("diff expects input to be at least one-dimensional")
    axis = axis_of(dim, input.ndim)
    if n < 0:
        raise RunError(f"order must be non-negative but got {n}")
    parts = [part for part in (prepend, input, append) if part is not None]
    for part in parts:
        if part.ndim != input.ndim:
            raise RunError("diff expects prepend or append to be the same dimension as input")
    if not n:
        return clone(input)
    result = cat(parts, axis) if len(parts) > 1 else input
    for _ in range(min(n, result._shape[axis])):
        result = _stepwise(result, axis)
    return result


def _stepwise(input: Tensor, axis: int) -> Tensor:
    size = input._shape[axis]
    if size == 0:
        return input
    after, before = narrow(input, axis, 1, size - 1), narrow(input, axis, 0, size - 1)
    return ne(after, before) if input._dtype == BOOL else sub(after, before)


# Slopes.


@row(method=False)
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """the slope along each dimension, by differences of second order"""
    must_be_tensors("gradient", input=input)
    axes = _given_axes(dim, input.ndim)
    if edge_order not in (1, 2):
        raise RunError("gradient only supports edge_order=1 and edge_order=2.")
    distances = _distances(spacing, axes, input)
    for axis in axes:
        if input._shape[axis] < edge_order + 1:
            raise RunError("gradient expected each dimension size to be at least edge_order+1")
    values = floating(input)
    return tuple(_slope(values, axis, h, edge_order) for axis, h in zip(axes, distances))


def _given_axes(dim: Any, rank: int) -> Sequence[int]:
    if isinstance(dim, int):
        return (axis_of(dim, rank),)
    if dim is None:
        return range(rank)
    dims_of(dim, rank)  # refuses repeated ones
    return [axis_of(each, rank) for each in dim]


def _distances(spacing: Any, axes: Sequence[int], input: Tensor) -> list[Any]:
    """For each axis a number, or the coordinates."""
    if spacing is None:
        return [1] * len(axes)
    if not isinstance(spacing, (list, tuple)):
        if isinstance(spacing, Tensor):
            raise RunError("gradient expected spacing to be a number or a list")
        return [spacing] * len(axes)
    if len(spacing) != len(axes):
        raise RunError(
            "gradient expected spacing to be unspecified, a scalar, or a list of length "
            f"{len(axes)}, but got a list of length {len(spacing)}"
        )
    for axis, each in zip(axes, spacing):
        if isinstance(each, Tensor) and each._shape != (input._shape[axis],):
            raise RunError(
                "gradient expected each element of spacing to have as many elements as the dimension it belongs to"
            )
    return list(spacing)


def _slope(x: Tensor, axis: int, h: Any, edge_order: int) -> Tensor:
    size, shape = x._shape[axis], [-1 if k == axis else 1 for k in range(x.ndim)]
    if isinstance(h, Tensor):
        gaps = sub(narrow(h, 0, 1, size - 1), narrow(h, 0, 0, size - 1))
    else:
        gaps = wrap(np.full(size - 1, h, get_default_dtype().numpy))._cast(x._dtype)
    gaps = reshape(gaps, shape)
    steps = div(_stepwise(x, axis), gaps)
    parts = [_edge(steps, gaps, axis, 0, edge_order)]
    if size > 2:
        before, after = (narrow(gaps, axis, k, size - 2) for k in (0, 1))
        left, right = (narrow(steps, axis, k, size - 2) for k in (0, 1))
        parts.append(div(add(mul(left, after), mul(right, before)), add(before, after)))
    parts.append(_edge(steps, gaps, axis, size - 2, edge_order))
    return cat(parts, axis)


def _edge(steps: Tensor, gaps: Tensor, axis: int, place: int, order: int) -> Tensor:
    """The slope at an end: of the last step, or of the parabola through three points."""
    step = narrow(steps, axis, place, 1)
    if order == 1:
        return step
    inner = place + 1 if place == 0 else place - 1
    other, gap, beyond = (narrow(t, axis, k, 1) for t, k in ((steps, inner), (gaps, place), (gaps, inner)))
    return add(step, div(mul(sub(step, other), gap), add(gap, beyond)))
