"""Pictures whose channels are next to each other, in what rules of layouts put together."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.op import Op
from ...core.symbol import Symbol
from ...ops.shape import pad, slicing, transform  # noqa: F401  the operators used here

NHWC = {"layout": "NHWC", "kernel_layout": "OHWI", "out_layout": "NHWC"}
RESULT_CHANNELS = 8  # what results are multiples of, so that they are stored by tensor maps


def stored_last(pictures: Symbol) -> Symbol:
    """Says that pictures are stored with their channels last: what is written in NCHW comes so, what has no layout is
    taken so."""
    return Op.get("__layout_transform__")(pictures, src_layout="NHWC", dst_layout="NHWC")


def nameless(value: Symbol, shape: Sequence[int]) -> Symbol:
    """A tensor whose axes have no names: what is done to them says nothing about layouts."""
    return Op.get("reshape")(value, shape=tuple(shape))


def as_stored(pictures: Symbol, shape: Sequence[int]) -> Symbol:
    """Pictures with channels last as a tensor whose axes have no names."""
    return nameless(stored_last(pictures), shape)


def with_zeros(value: Symbol, axis: int, more: int, rank: int = 4) -> Symbol:
    """A tensor with some zeros behind it, along an axis."""
    if not more:
        return value
    return Op.get("pad")(value, pad_width=tuple((0, more if n == axis else 0) for n in range(rank)))


def sliced(value: Symbol, begin: Sequence[int], end: Sequence[int]) -> Symbol:
    """A part of a tensor."""
    return Op.get("strided_slice")(value, begin=tuple(begin), end=tuple(end))
