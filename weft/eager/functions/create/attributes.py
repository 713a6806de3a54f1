"""Rows: where a tensor is, what it is not, and what it is equal to in size and memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from ....base.errors import InvalidType, RunError
from ... import devices
from ...tensor.device import CPU, located, require_cpu
from ...tensor.device import device as Device
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, bind, wrap
from ...tensor.typed_tensor import made_as
from ...tensor.types import as_dtype, memory_format
from ..math.cast import clone
from ..table import named, row
from .create import memory_order


def _is_on(kind: str) -> property:
    def answer(self: Tensor) -> bool:
        return self.device.type == kind

    return property(answer)


def _no(self: Tensor) -> bool:
    return False


def _nameless(self: Tensor) -> None:
    return None


bind(**{f"is_{kind}": _is_on(kind) for kind in "cpu cuda ipu maia meta mps mtia vulkan xla xpu".split()})
bind(**{f"is_{what}": property(_no) for what in "mkldnn nested quantized sparse sparse_csr".split()})
bind(name=property(_nameless))


# Devices.


@row(space=None)
def cpu(input: Tensor, memory_format: Any = None) -> Tensor:
    """In the memory of the processor; itself if it is there"""
    if not input.is_cpu:
        return devices.moved(input, CPU)
    return input if memory_format is None else clone(input, memory_format=memory_format)


@row(space=None)
def cuda(input: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
    """In the memory of a GPU; itself if it is there"""
    where = located("cuda" if device is None else device)
    if where == CPU:
        raise RunError(f"Invalid device, must be cuda device, but got {device!r}")
    return devices.moved(input, where)


def _device_method(name: str) -> None:
    def moved(input: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Tensor:
        require_cpu(Device(name))
        return input

    row(named(moved, name, f"Refused: there is no device {name}"), space=None)


for _name in ("ipu", "mtia", "xpu"):
    _device_method(_name)


@row
def get_device(input: Tensor) -> int:
    """The number of the device; that of the processor is -1"""
    return -1 if input.is_cpu else input.device.index or 0


@row
def is_distributed(input: Tensor) -> bool:
    """False: a tensor is in one process"""
    return False


@row
def is_inference(input: Tensor) -> bool:
    """Whether it was made in inference mode"""
    return input._inference


@row(space=None)
def to_dense(input: Tensor, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
    """Itself, in another dtype if one is given: every tensor is dense"""
    return input if dtype is None else input._cast(as_dtype(dtype).numpy)


@row(space=None)
def dense_dim(input: Tensor) -> int:
    """How many dimensions are dense, which are all"""
    return input.ndim


@row(space=None)
def sparse_dim(input: Tensor) -> int:
    """How many dimensions are sparse, which is none"""
    return 0


# Questions.


@row
def is_nonzero(input: Tensor) -> bool:
    """Whether the only element is not zero"""
    return bool(input)


@row
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape"""
    return input._shape == other._shape


@row(space=None)
def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """Whether both are the same view of the same storage"""
    first, second = array_of(input), array_of(tensor)
    if input.untyped_storage().data_ptr() != tensor.untyped_storage().data_ptr():
        return False
    same = first.shape == second.shape and first.strides == second.strides
    return same and input.storage_offset() == tensor.storage_offset()


@row(method=False)
def numel(input: Tensor) -> int:
    """How many elements there are"""
    return input.numel()


@row(method=False)
def detach(input: Tensor) -> Tensor:
    """The same memory, outside the graph"""
    return input.detach()


@row(space=None)
def const_data_ptr(input: Tensor) -> int:
    """The address of the first element, to read from"""
    return input.data_ptr()


@row(space=None)
def dim_order(input: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Dimensions from the outermost in memory to the innermost"""
    if isinstance(ambiguity_check, bool):
        ambiguous = ambiguity_check and _has_several_orders(input)
    elif isinstance(ambiguity_check, list) and all(isinstance(one, memory_format) for one in ambiguity_check):
        ambiguous = sum(input.is_contiguous(one) for one in ambiguity_check) != 1
    else:
        raise InvalidType("The ambiguity_check argument must be a bool or a list of memory formats")
    if ambiguous:
        raise RunError(
            "The tensor does not have unique dim order, or cannot map to exact one of the given memory formats."
        )
    return tuple(memory_order(array_of(input)))


def _has_several_orders(input: Tensor) -> bool:
    strides = array_of(input).strides
    return 1 in input._shape or any(a == b for a, b in pairwise(strides))


# Tensors made the old way, and positions in a number known beforehand.


@row(space=None)
def new(input: Tensor, *arguments: Any, device: Any = None) -> Tensor:
    """A tensor of the same dtype from nothing, sizes, a sequence, a storage or a tensor"""
    if len(arguments) == 1 and type(arguments[0]) is tuple:
        arguments = (list(arguments[0]),)
    return devices.moved(made_as(input.dtype, *arguments), located(device))


@row
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """Where the first `size` elements are that are not zero, a row each; the rest is filled"""
    if size < 0:
        raise RunError("nonzero_static: 'size' must be an non-negative integer")
    places = np.argwhere(array_of(input))[:size]
    made = np.full((size, input.ndim), fill_value, np.int64)
    made[: len(places)] = places
    return wrap(made)
