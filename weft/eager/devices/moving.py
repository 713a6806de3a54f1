"""Tensors from one device to another, with gradients that go the other way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...core.plan import Plan
from ...runtime.cuda.array import shared_from
from ...runtime.cuda.context import platform
from ..autograd.modes import modes
from ..autograd.node import Grad, Node
from ..functions.around import ALWAYS, LAYERS
from ..recording import Recording
from ..tensor.device import CPU, device
from ..tensor.tensor import Tensor, wrap
from . import copies, kernels, programs, scalars
from .calls import CALLS, around, host_of
from .calls import applied as applied
from .memory import OnDevice, over, uploaded


class ToCopyBackward0(Node):
    """The backward call of a move: the gradient goes to where the tensor came from."""

    where: device

    def name(self) -> str:
        return "ToCopyBackward0"

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        (grad,) = grads
        return (None if grad is None else moved(grad, self.where),)


def moved(tensor: Tensor, where: device) -> Tensor:
    """A copy of a tensor on a device; itself if it is there."""
    if tensor.device == where:
        return tensor
    trace = modes.trace
    made = wrap(trace.moved(tensor, where) if isinstance(trace, Recording) else memory_at(where, tensor._array))
    if modes.grad and tensor.requires_grad:
        node = ToCopyBackward0((tensor._edge(),), ((tensor._shape, tensor._dtype),))
        node.where = tensor.device
        made._requires_grad, made._grad_fn = True, node
    return made


def memory_at(where: device, memory: Any) -> Any:
    """A copy of memory on a device."""
    if where == CPU:
        return host_of(memory)
    begin()
    number = where.index or 0
    if isinstance(memory, OnDevice) and memory.index == number:
        return memory.copy()
    return uploaded(number, host_of(memory))


def placed(tensor: Tensor, where: device) -> Tensor:
    """A new tensor, which is a leaf, on a device."""
    if where == CPU:
        return tensor
    if isinstance(modes.trace, Recording):
        begin()
        modes.trace.bring(tensor, where.index or 0)
    else:
        tensor._array = memory_at(where, tensor._array)
    return tensor


def begin() -> None:
    """From now on, calls of functions look where their tensors are."""
    platform()
    if around not in LAYERS:
        LAYERS.insert(0, around)
        ALWAYS.append(around)


def fused(plan: Plan, tensors: Sequence[Tensor]) -> list[Tensor] | None:
    """The results of a plan on tensors of a device, by one program; None where its steps go one by one."""
    return CALLS.fused(plan, tensors)


def shared(value: Any) -> Tensor:
    """A tensor over the memory of an array of another library on a device."""
    begin()
    return wrap(over(shared_from(value)))


def forget() -> None:
    """Lets programs and numbers go that are kept for the next calls."""
    for module in (programs, kernels, scalars, copies):
        module.forget()
