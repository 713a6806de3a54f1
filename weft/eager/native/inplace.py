"""Large element-wise results written where they belong, without a result beside it: in place and to
`out=`. Optimisers live on these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..autograd.modes import modes
from ..functions.fusion import Call, Fused
from ..tensor.inplace import check_writable, place_in_graph
from ..tensor.memory import array_of
from ..tensor.tensor import Tensor, wrap
from .calls import Array, Declined, attempted
from .strides import is_writable


def _write(function: Fused, target: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Writes the result of a function to the target. Declined are targets of another shape or dtype, and such as
    share memory with an operand in another order, or as the gradient needs what is overwritten."""
    array = array_of(target)
    if not is_writable(array):
        raise Declined("strides")
    call, tensors = function.call(args, kwargs)
    if call is None:
        raise Declined("compute")
    if call.shape != array.shape:
        raise Declined("shapes")
    if call.dtype != array.dtype:
        raise Declined("dtype")
    if not all([operand is array or _apart(operand, array) for operand in map(array_of, tensors)]):
        raise Declined("overlap")
    if modes.grad and (target.requires_grad or any([t.requires_grad for t in tensors])):
        _write_recorded(call, tensors, target)
    else:
        call.run(tensors, array)
        target._counter[0] += 1


write_native = attempted("write", _write)


def _write_recorded(call: Call, tensors: Sequence[Tensor], target: Tensor) -> None:
    """The same with a node of the graph, which may save the memory as it is afterwards only."""
    check_writable(target, True)
    if not call.maker.differentiable:
        raise Declined("operator")
    output = wrap(target._array)
    output._counter = target._counter
    target._counter[0] += 1
    call.record(tensors, output)
    for saved in getattr(output._grad_fn, "saved", None) or ():
        if not saved.is_output and np.may_share_memory(saved.array, target._array):
            target._counter[0] -= 1
            raise Declined("saved")
    call.run(tensors, array_of(target))
    place_in_graph(target, output)


def _apart(operand: Array, target: Array) -> bool:
    """Whether no element is written before another that needs it is computed."""
    if not np.may_share_memory(operand, target):
        return True
    here, there = (x.__array_interface__["data"][0] for x in (operand, target))
    return here == there and operand.strides == target.strides and operand.shape == target.shape
