"""Rows: how elements lie in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....base.dtype import INT64
from ....base.errors import RunError, Unsupported
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import CHANNELS_LAST, layout_of
from ...tensor.tensor import Tensor, wrap
from ...tensor.viewing import in_order
from ..math.cast import clone
from ..operands import sizes_of
from ..table import row

_COLLAPSE = Op.get("collapse_sum")


@row(space=None)
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """Itself if its elements lie in order, row by row or as a memory format says, else a copy in which they do

    >>> import weft
    >>> x = weft.zeros(2, 3).t()
    >>> x.is_contiguous(), x.contiguous().is_contiguous()
    (False, True)
    >>> weft.zeros(2, 3, 4, 5).contiguous(memory_format=weft.channels_last).stride()
    (60, 1, 15, 3)
    """
    if getattr(memory_format, "name", "") not in CHANNELS_LAST:
        return input if layout_of(input).flags.c_contiguous else in_order(input)
    return input if input.is_contiguous(memory_format) else clone(input, memory_format=memory_format)


@row(space=None)
def resize_(input: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Gives a tensor another size; its storage grows if it must, what is new is not set"""
    if getattr(memory_format, "name", "") in CHANNELS_LAST:
        raise Unsupported("resize_ lays elements out row by row", hint="contiguous(memory_format=...) reorders them")
    if input.requires_grad:
        raise RunError("cannot resize variables that require grad")
    shape = sizes_of(sizes)
    if any(size < 0 for size in shape):
        raise RunError(f"Trying to create tensor with negative dimension: {list(shape)}")
    if shape == input._shape:
        return input
    held = input.untyped_storage()
    start = input._start or 0
    needed = start + math.prod(shape) * input.itemsize
    if held.nbytes() < needed:
        held.resize_(needed)
    input._look_at(held, shape, start)
    return input


@row
def resize_as_(input: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Gives a tensor the size of another"""
    return resize_(input, the_template._shape, memory_format=memory_format)


@row(space=None)
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sum over what a tensor of that size would broadcast along"""
    shape, have = sizes_of(size), input._shape
    lead = len(have) - len(shape)
    if lead < 0 or any(want not in (1, dim) for want, dim in zip(shape, have[lead:])):
        raise RunError(f"size {list(shape)} is not expandable to size {list(have)}.")
    if shape == have and shape:
        return input
    if input._dtype.kind in "biu":
        input = input._cast(INT64)
    like = wrap(np.broadcast_to(np.zeros((), input._dtype), shape))
    return apply(_COLLAPSE, None, [input, like])[0]
