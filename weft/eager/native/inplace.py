"""Large element-wise results written where they belong, without a result beside it: in place and to
`out=`. Optimisers live on these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..functions.fusion import Call, Fused
from ..tensor.inplace import check_writable, place_in_graph
from ..tensor.tensor import Tensor, wrap
from .pointwise import is_writable

Array = np.ndarray[Any, Any]

WRITTEN_FROM = 1 << 14  # elements


def write_native(function: Fused, target: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the result of a function was written to the target here. It was not if the target is
    small, of another shape or dtype, or shares memory with an operand in another order, and if its
    gradient needs what is overwritten."""
    array = target._array
    if array.size < WRITTEN_FROM or not is_writable(array):
        return False
    call, tensors = function.call(args, kwargs)
    if call is None or call.shape != array.shape or call.dtype != array.dtype:
        return False
    for tensor in tensors:
        if tensor._array is not array and not _apart(tensor._array, array):
            return False
    if modes.grad and (target.requires_grad or any([t.requires_grad for t in tensors])):
        return _write_recorded(call, tensors, target)
    call.run(tensors, array)
    target._counter[0] += 1
    return True


def _write_recorded(call: Call, tensors: Sequence[Tensor], target: Tensor) -> bool:
    """The same with a node of the graph, which may save the memory as it is afterwards only."""
    check_writable(target, True)
    if not call.maker.differentiable:
        return False
    output = wrap(target._array)
    output._counter = target._counter
    target._counter[0] += 1
    call.record(tensors, output)
    for saved in getattr(output._grad_fn, "saved", None) or ():
        if not saved.is_output and np.may_share_memory(saved.array, target._array):
            target._counter[0] -= 1
            return False
    call.run(tensors, target._array)
    place_in_graph(target, output)
    return True


def _apart(operand: Array, target: Array) -> bool:
    """Whether no element is written before another that needs it is computed."""
    if not np.may_share_memory(operand, target):
        return True
    here, there = (x.__array_interface__["data"][0] for x in (operand, target))
    return here == there and operand.strides == target.strides and operand.shape == target.shape
