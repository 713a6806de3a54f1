"""Rows: running results, of all elements along a dimension up to each one."""

from __future__ import annotations

from typing import Any

from ....base.dtype import is_float
from ....base.errors import Unsupported
from ....core.op import Op
from ....ops.nn.recurrence import AxisAttrs, CumprodAttrs
from ....ops.reduce.scan import CumsumAttrs
from ....ops.shape.index import GatherAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor, axis_of
from ..math.cast import clone
from ..operands import must_be_real
from ..reducing import counted
from ..table import row
from .extreme import ValuesIndices, alone

_CUMSUM, _CUMPROD, _LOGCUMSUMEXP, _CUMMAX, _CUMMIN, _GATHER = (
    Op.get(name) for name in "cumsum cumprod logcumsumexp cummax_index cummin_index gather_elements".split()
)


@row(inplace=True, out=True)
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """the sum of all elements up to each one

    >>> import weft
    >>> weft.cumsum(weft.tensor([1, 2, 3, 4]), dim=0)
    tensor([ 1,  3,  6, 10])
    """
    return _scanned(_CUMSUM, CumsumAttrs, counted(input, dtype), dim)


@row(inplace=True, out=True)
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """the product of all elements up to each one

    >>> import weft
    >>> weft.cumprod(weft.tensor([1, 2, 3, 4]), dim=0)
    tensor([ 1,  2,  6, 24])
    """
    return _scanned(_CUMPROD, CumprodAttrs, counted(input, dtype), dim)


@row(out=True)
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the sum of exp of all elements up to each one"""
    if not is_float(input._dtype):
        raise Unsupported(f"logcumsumexp is not implemented for {input.dtype.title!r}")
    return _scanned(_LOGCUMSUMEXP, AxisAttrs, input, dim)


def _scanned(op: Op, attrs: Any, input: Tensor, dim: int) -> Tensor:
    axis = axis_of(dim, input.ndim)
    return apply(op, attrs(axis=axis), [input])[0] if input.ndim else clone(input)


@row(out=True)
def cummax(input: Tensor, dim: int) -> ValuesIndices:
    """the largest of all elements up to each one, and where it stands"""
    return _running(_CUMMAX, input, dim)


@row(out=True)
def cummin(input: Tensor, dim: int) -> ValuesIndices:
    """the smallest of all elements up to each one, and where it stands"""
    return _running(_CUMMIN, input, dim)


def _running(op: Op, input: Tensor, dim: int) -> ValuesIndices:
    must_be_real(op.name, input)
    axis = axis_of(dim, input.ndim)
    if not input.ndim:
        return alone(input)
    places = apply(op, AxisAttrs(axis=axis), [input])[0]
    return ValuesIndices(apply(_GATHER, GatherAttrs(axis=axis), [input, places])[0], places)
