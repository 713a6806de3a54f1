"""Rows: how elements lie in memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....base.dtype import INT64
from ....base.errors import RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.tensor import Tensor, wrap
from ...tensor.viewing import in_order
from ..operands import sizes_of
from ..table import row

_COLLAPSE = Op.get("collapse_sum")


@row(space=None)
def contiguous(input: Tensor, memory_format: Any = None) -> Tensor:
    """Itself if its elements lie in order, else a copy in which they do"""
    if input._array.flags.c_contiguous:
        return input
    return in_order(input)


@row(space=None)
def resize_(input: Tensor, *sizes: Any, memory_format: Any = None) -> Tensor:
    """Gives a tensor another size; its storage grows if it must, what is new is not set"""
    if input.requires_grad:
        raise RunError("cannot resize variables that require grad")
    shape = sizes_of(sizes)
    if any(size < 0 for size in shape):
        raise RunError(f"Trying to create tensor with negative dimension: {list(shape)}")
    if shape == input._array.shape:
        return input
    held = input.untyped_storage()
    kind, start = input._array.dtype, input._start or 0
    needed = start + math.prod(shape) * kind.itemsize
    if held.nbytes() < needed:
        held.resize_(needed)
    memory = held._bytes if 0 not in shape else np.empty(0, np.uint8)
    input._array = np.ndarray(shape, kind, memory, start if 0 not in shape else 0)
    return input


@row
def resize_as_(input: Tensor, the_template: Tensor, memory_format: Any = None) -> Tensor:
    """Gives a tensor the size of another"""
    return resize_(input, the_template._array.shape)


@row(space=None)
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sum over what a tensor of that size would broadcast along"""
    shape, have = sizes_of(size), input._array.shape
    lead = len(have) - len(shape)
    if lead < 0 or any(want not in (1, dim) for want, dim in zip(shape, have[lead:])):
        raise RunError(f"size {list(shape)} is not expandable to size {list(have)}.")
    if shape == have and shape:
        return input
    if input._array.dtype.kind in "biu":
        input = input._cast(INT64)
    like = wrap(np.broadcast_to(np.zeros((), input._array.dtype), shape))
    return apply(_COLLAPSE, None, [input, like])[0]
