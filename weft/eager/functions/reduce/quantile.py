"""Rows: quantiles, differences over distances, and the parts of floating numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import INT64, is_float
from ....base.errors import RunError
from ...tensor.tensor import Tensor, axis_of, wrap
from ...tensor.types import get_default_dtype
from ..index.index import gather
from ..index.sort import sort
from ..math.arithmetic import add, div, lerp, mul, sub
from ..math.compare import choose, lt, ne
from ..math.unary import ceil, floor, round
from ..operands import floating, in_dtype, must_be_tensors
from ..reducing import dims_of
from ..shape.join import cat
from ..shape.parts import narrow
from ..shape.shape import movedim, reshape
from ..table import row
from .reduce import any as any_along
from .reduce import sum as sum_along

INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _must_be_quantiles(name: str, input: Tensor, q: Any, interpolation: str) -> Tensor:
    """The quantiles as a tensor."""
    if input._array.dtype not in (np.float32, np.float64):
        raise RunError(f"{name}() input tensor must be either float or double dtype")
    if not input._array.size:
        raise RunError(f"{name}() input tensor must be non-empty")
    if interpolation not in INTERPOLATIONS:
        raise RunError(f"{name}() interpolation must be one of {', '.join(INTERPOLATIONS)}, but got {interpolation}")
    quantiles = q if isinstance(q, Tensor) else in_dtype(q, input._array.dtype)
    if quantiles._array.ndim > 1:
        raise RunError(f"{name}() q must be a scalar or 1D tensor")
    if quantiles._array.dtype != input._array.dtype:
        raise RunError(f"{name}() q tensor must be same dtype as the input tensor")
    if not ((quantiles._array >= 0) & (quantiles._array <= 1)).all():
        raise RunError(f"{name}() q values must be in the range [0, 1]")
    return quantiles


def _quantile(name: str, input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Tensor:
    quantiles = _must_be_quantiles(name, input, q, interpolation)
    rank = input._array.ndim
    axis = None if dim is None else axis_of(dim, rank)
    rows = reshape(input, (-1,)) if axis is None or not rank else movedim(input, axis, -1)
    ordered = sort(rows, -1)[0]
    ranks = _ranks(name, ordered, reshape(quantiles, (-1,)))
    found = _between(ordered, ranks, interpolation)
    made = movedim(found, -1, 0)
    kept = [1] * rank if axis is None else [n if k != axis else 1 for k, n in enumerate(input.shape)]
    left = list(made._array.shape[1:])
    lead = [made._array.shape[0]] if quantiles._array.ndim else []
    return reshape(made, (*lead, *(kept if keepdim else left)))


def _ranks(name: str, ordered: Tensor, quantiles: Tensor) -> Tensor:
    """Places among the ordered elements; of a row with NaN the last, unless these do not count."""
    nan = ne(ordered, ordered)
    last = ordered._array.shape[-1] - 1
    if name == "nanquantile":
        count = sum_along(nan, -1, True)._cast(ordered._array.dtype)
        highest = sub(float(last), count)
        return mul(quantiles, choose(lt(highest, 0), 0.0, highest))
    ranks = mul(quantiles, float(last))
    return choose(any_along(nan, -1, True), float(last), ranks)


def _between(ordered: Tensor, ranks: Tensor, interpolation: str) -> Tensor:
    whole = {"lower": floor, "higher": ceil, "nearest": round}.get(interpolation)
    if whole is not None:
        return gather(ordered, -1, whole(ranks)._cast(INT64))
    low, high = floor(ranks).detach(), ceil(ranks).detach()
    below, above = (gather(ordered, -1, place._cast(INT64)) for place in (low, high))
    weight = sub(ranks, low) if interpolation == "linear" else 0.5
    return lerp(below, above, weight)


@row(out=True)
def quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """the number that a share q of the elements is below, along a dimension or of everything"""
    return _quantile("quantile", input, q, dim, keepdim, interpolation)


@row(out=True)
def nanquantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """the quantile of what is not NaN"""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation)


# Slopes.


@row(method=False)
def gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> tuple[Tensor, ...]:
    """the slope along each dimension, by differences of second order"""
    must_be_tensors("gradient", input=input)
    axes = _given_axes(dim, input._array.ndim)
    if edge_order not in (1, 2):
        raise RunError("gradient only supports edge_order=1 and edge_order=2.")
    distances = _distances(spacing, axes, input)
    for axis in axes:
        if input._array.shape[axis] < edge_order + 1:
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
        if isinstance(each, Tensor) and each._array.shape != (input._array.shape[axis],):
            raise RunError(
                "gradient expected each element of spacing to have as many elements as the dimension it belongs to"
            )
    return list(spacing)


def _slope(x: Tensor, axis: int, h: Any, edge_order: int) -> Tensor:
    size = x._array.shape[axis]
    at = lambda start, count: narrow(x, axis, start, count)
    if isinstance(h, Tensor):
        shape = [-1 if k == axis else 1 for k in range(x._array.ndim)]
        gaps = reshape(sub(narrow(h, 0, 1, size - 1), narrow(h, 0, 0, size - 1)), shape)
    else:
        gaps = wrap(
            np.full([size - 1 if k == axis else 1 for k in range(x._array.ndim)], h, get_default_dtype().numpy)
        )._cast(x._array.dtype)
    before, after = (narrow(gaps, axis, k, size - 2) for k in (0, 1)) if size > 2 else (None, None)
    steps = div(sub(at(1, size - 1), at(0, size - 1)), gaps)
    parts = [_edge(steps, gaps, axis, 0, edge_order)]
    if size > 2:
        left, right = (narrow(steps, axis, k, size - 2) for k in (0, 1))
        total = add(before, after)
        parts.append(div(add(mul(left, after), mul(right, before)), total))
    parts.append(_edge(steps, gaps, axis, size - 2, edge_order))
    return cat(parts, axis)


def _edge(steps: Tensor, gaps: Tensor, axis: int, place: int, order: int) -> Tensor:
    """The slope at an end: of the last step, or of the parabola through three points."""
    own = narrow(steps, axis, place, 1)
    if order == 1:
        return own
    inner = place + 1 if place == 0 else place - 1
    other, gap, beyond = (narrow(t, axis, k, 1) for t, k in ((steps, inner), (gaps, place), (gaps, inner)))
    return add(own, div(mul(sub(own, other), gap), add(gap, beyond)))


# Parts of numbers.


class Frexp(NamedTuple):
    """A number is mantissa * 2**exponent."""

    mantissa: Tensor
    exponent: Tensor


@row(out=True)
def frexp(input: Tensor) -> Frexp:
    """the mantissa, between a half and one, and the exponent"""
    if not is_float(input._array.dtype):
        raise RunError("frexp() only supports floating-point dtypes")
    exponent = np.frexp(input._array)[1].astype(np.int32)
    half = exponent // 2
    scales = [np.exp2(-part).astype(input._array.dtype) for part in (half, exponent - half)]
    mantissa = mul(mul(input, wrap(scales[0])), wrap(scales[1]))
    return Frexp(mantissa, wrap(exponent))
