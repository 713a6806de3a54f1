"""Rows: memory shared with other libraries through DLPack, both ways."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base import dlpack
from ....base.device import Device
from ....base.errors import NoAttribute, RunError
from ... import devices
from ...tensor.memory import array_of, memory_of
from ...tensor.tensor import Tensor, bind, wrap
from ..table import row

_CUDA = Device("cuda").device_type


@row(name="__dlpack__", space=None)
def _exported(
    self: Tensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> object:
    """A capsule over the same memory, for another library to take over"""
    if self.requires_grad:
        raise dlpack.DLPackError(
            "Can't export tensors that require gradient, use tensor.detach()",
            why="the other library would change values that autograd keeps",
        )
    memory: Any = memory_of(self)
    if hasattr(memory, "as_array"):
        return memory.as_array().__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device, copy=copy)
    if stream is not None:
        raise dlpack.DLPackError(f"a tensor of the CPU has no streams, got stream={stream!r}")
    if dl_device is not None and tuple(dl_device) != dlpack.CPU:
        raise dlpack.DLPackError(f"cannot export to device {tuple(dl_device)}", why="weft exports to the CPU, (1, 0)")
    memory = array_of(self).copy() if copy else array_of(self)
    return dlpack.to_dlpack(memory, max_version, copied=bool(copy))


@row(name="__dlpack_device__", space=None)
def _device_of(self: Tensor) -> tuple[int, int]:
    """The device as DLPack numbers it"""
    memory: Any = memory_of(self)
    return memory.as_array().__dlpack_device__() if hasattr(memory, "as_array") else dlpack.CPU


@row(method=False)
def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of an object with `__dlpack__`, or of a capsule"""
    where = getattr(ext_tensor, "__dlpack_device__", lambda: dlpack.CPU)()
    if where[0] == _CUDA:
        there: Tensor = devices.shared(ext_tensor)
        return there.clone() if copy else there
    memory = dlpack.from_dlpack(ext_tensor)
    return wrap(np.array(memory) if copy else memory)


def _interface(self: Tensor) -> dict[str, Any]:
    """The memory of a GPU, as libraries of Python share it; tensors of the processor have none."""
    memory: Any = memory_of(self)
    if not hasattr(memory, "as_array"):
        raise NoAttribute("Can't get __cuda_array_interface__ on non-CUDA tensor type", hint="tensor.cuda()")
    if self.requires_grad:
        raise RunError("Can't get __cuda_array_interface__ on Variable that requires grad.", hint="detach() it first")
    found: dict[str, Any] = memory.as_array().__cuda_array_interface__
    return found


bind(__cuda_array_interface__=property(_interface))


@row(method=False)
def to_dlpack(input: Tensor) -> object:
    """A capsule over the tensor's memory"""
    return _exported(input)
