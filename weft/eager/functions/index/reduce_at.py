"""Rows: elements of a source reduced into those of another tensor, at positions that are given."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....base.dtype import is_float
from ....base.errors import RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, wrap
from ..operands import must_be_real
from ..shape.parts import zeros_but
from ..shape.shape import reshape
from ..table import row
from .index import along, at_elements, copied, element_places, first_part, multiplied

_ADD, _DIV, _WHERE = (Op.get(name) for name in ("broadcast_add", "broadcast_div", "broadcast_where"))


def _reduced(data: Tensor, places: Array, values: Tensor, reduce: str, include: bool) -> Tensor:
    """A copy in which the elements of given numbers are reduced with values; without `include`,
    what was there does not count."""
    touched = np.zeros(data.numel(), bool)
    touched[places.reshape(-1)] = True
    touched = touched.reshape(data._shape)
    if reduce == "prod":
        start = data if include else _kept(data, ~touched, 1)
        return multiplied(start, places, values)
    if reduce in ("amax", "amin"):
        return _extreme(data, places, values, reduce, touched, include)
    start = data if include else _kept(data, ~touched, 0)
    total = apply(_ADD, None, [start, zeros_but(data._shape, places, values)])[0]
    return total if reduce == "sum" else _mean(total, places, touched, include)


def _kept(data: Tensor, mask: Array, other: float) -> Tensor:
    """The elements where a mask holds, a number elsewhere."""
    fill = wrap(np.asarray(other, data._dtype))
    return apply(_WHERE, None, [wrap(mask), data, fill])[0]


def _mean(total: Tensor, places: Array, touched: Array, include: bool) -> Tensor:
    kind = total._dtype
    counts = np.bincount(places.reshape(-1), minlength=touched.size).reshape(touched.shape)
    counts = np.maximum(counts + include, 1).astype(kind)
    if not is_float(kind):
        return wrap(array_of(total) // counts)
    return apply(_DIV, None, [total, wrap(counts)])[0]


def _extreme(data: Tensor, places: Array, values: Tensor, reduce: str, touched: Array, include: bool) -> Tensor:
    """Equal extremes share the gradient: the result is their mean."""
    fold = np.maximum if reduce == "amax" else np.minimum
    result = array_of(data).copy().reshape(-1)
    flat, where = array_of(values).reshape(-1), places.reshape(-1)
    if not include:
        result[where] = flat
    fold.at(result, where, flat)
    best = result.reshape(data._shape)
    if not (data._requires_grad or values._requires_grad):
        return wrap(best)
    own = (array_of(data) == best) & (~touched | include)
    theirs = array_of(values) == result[where].reshape(values._shape)
    total = apply(_ADD, None, [_kept(data, own, 0), zeros_but(best.shape, places, _kept(values, theirs, 0))])[0]
    counts = own + np.bincount(where, theirs.reshape(-1), best.size).reshape(best.shape)
    return apply(_DIV, None, [total, wrap(np.maximum(counts, 1).astype(best.dtype))])[0]


_REDUCES = ("sum", "prod", "mean", "amax", "amin")


def _must_reduce(name: str, reduce: str, allowed: Sequence[str]) -> None:
    if reduce not in allowed:
        raise RunError(f"{name}: reduce argument must be one of {', '.join(allowed)}, got {reduce}")


@row(inplace=True, out=True)
def scatter_reduce(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy in which input[index[i, j], j] is reduced with src[i, j], along axis 0"""
    must_be_real("scatter_reduce", input, src)
    _must_reduce("scatter_reduce", reduce, _REDUCES)
    data, axis, where = at_elements(input, dim, index, "scatter")
    if src._dtype != input._dtype:
        raise RunError("scatter(): Expected self.dtype to be equal to src.dtype")
    if not where.numel():
        return copied(input)
    values = first_part(src, where._shape, "scatter_reduce")
    places = element_places(data._shape, axis, array_of(where))
    return reshape(_reduced(data, places, values, reduce, include_self), input._shape)


@row(inplace=True, out=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """A copy in which slices of an axis are reduced with those of a source"""
    must_be_real("index_reduce", input, source)
    _must_reduce("index_reduce", reduce, _REDUCES[1:])
    data, axis, where = along(input, dim, index, "index_reduce")
    if source._dtype != input._dtype:
        raise RunError("index_reduce(): self and source expected to have the same dtype")
    shape = list(data._shape)
    shape[axis] = where.size
    if list(source._shape or (1,)) != shape:
        raise RunError(
            "index_reduce(): Source/destination tensor must have same slice shapes.",
            why=f"the source is {list(source.shape)}, not {shape}",
        )
    if not where.size:
        return copied(input)
    rows = where.reshape([-1 if at == axis else 1 for at in range(len(shape))])
    places = element_places(data._shape, axis, np.broadcast_to(rows, shape))
    made = _reduced(data, places, reshape(source, shape), reduce, include_self)
    return reshape(made, input._shape)
