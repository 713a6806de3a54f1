"""Copies and pickles of tensors, in which tensors that share memory go on sharing it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import RunError
from .. import devices
from .device import located
from .memory import layout_of, memory_of
from .storage import UntypedStorage
from .tensor import Tensor, bind, wrap
from .types import as_dtype


def over_storage(storage: UntypedStorage, like: Tensor) -> Tensor:
    """A tensor that looks at a storage as another does at its own."""
    memory: Any = memory_of(like)
    like.untyped_storage()  # which settles where in it the tensor starts
    start = like._start or 0
    made = wrap(memory)
    made._look_at(storage, memory.shape, start, memory.strides)
    layout_of(made).flags.writeable = memory.flags.writeable
    made._storage, made._start = storage, start
    storage._adopt(made)
    return made


def copied(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """A copy whose storage is copied once for all tensors of a structure."""
    if not tensor.is_leaf:
        raise RunError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.",
            hint="detach() it first",
        )
    made = over_storage(tensor.untyped_storage().__deepcopy__(memo), tensor)
    if tensor.grad is not None:
        made._grad = copied(tensor.grad, memo)
    made.__class__ = type(tensor)
    return made.requires_grad_() if tensor.requires_grad else made


def deepcopy(tensor: Tensor, memo: dict[int, Any]) -> Tensor:
    """`copy.deepcopy` of a tensor."""
    if id(tensor) not in memo:
        memo[id(tensor)] = copied(tensor, memo)
    made: Tensor = memo[id(tensor)]
    return made


def reduced(tensor: Tensor) -> tuple[Any, ...]:
    """How Python's pickle takes a tensor apart."""
    storage, memory = tensor.untyped_storage(), memory_of(tensor)
    place = (tensor._start or 0, memory.shape, memory.strides)
    parts = (storage, tensor.dtype.name, place, tensor.requires_grad, type(tensor))
    return rebuilt, parts if tensor.is_cpu else (*parts, str(tensor.device))


def rebuilt(
    storage: UntypedStorage, kind: str, place: Any, requires_grad: bool, family: type = Tensor, where: str = "cpu"
) -> Tensor:
    """The tensor that `reduced` took apart."""
    start, shape, strides = place
    memory = storage._bytes if 0 not in shape else np.empty(0, np.uint8)
    made = wrap(np.ndarray(shape, as_dtype(kind).numpy, memory, start, strides))
    made._storage, made._start = storage, start
    made.__class__ = family
    storage._adopt(made)
    if where != "cpu":
        made.data = devices.moved(made, located(where))
    return made.requires_grad_() if requires_grad else made


bind(__deepcopy__=deepcopy, __reduce__=reduced)
