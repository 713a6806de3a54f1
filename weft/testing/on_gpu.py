"""Runs one loop-IR kernel on the GPU that is here: arrays are copied there and back."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from ..base.cuda_target import CudaTarget
from ..base.plan import BufferRef, KernelStep
from ..codegen.cuda.compile import CODEGEN
from ..runtime.cuda.array import device_empty
from ..runtime.cuda.context import platform
from ..runtime.cuda.graph import PreparedKernel
from ..runtime.cuda.module import functions_of
from ..runtime.cuda.stream import current_stream
from ..te.loops import Kernel

Array = np.ndarray[Any, np.dtype[Any]]


@cache
def gpu_target() -> CudaTarget:
    """The GPU that is here."""
    return CudaTarget.create()


def prepared(kernel: Kernel, addresses: Sequence[int], target: CudaTarget | None = None) -> PreparedKernel:
    """A kernel without scalars, with its arguments at these addresses, ready to be launched. `target`: what its code is
    made for, else the GPU that is here; GPUs run code of older ones whose name has no letter behind."""
    context, target = platform().context(), target or gpu_target()
    code = CODEGEN.code(kernel, CODEGEN.assemble(CODEGEN.emit(kernel, target), target))
    function = functions_of(context, [code.code], [kernel.name])[kernel.name]
    buffers = tuple(BufferRef(number) for number in range(len(addresses)))
    assert code.launch is not None
    step = KernelStep(kernel.name, buffers, (), code.launch, maps=code.maps)
    with context:  # in which tensor maps are encoded
        return PreparedKernel(context, function, step, addresses)


def run_on_gpu(kernel: Kernel, arrays: Sequence[Array], target: CudaTarget | None = None) -> None:
    """Runs a kernel on arrays, in place; what lies behind them on the device is no number."""
    stream = current_stream()
    held = [device_empty((max(array.nbytes, 16),), "uint8") for array in arrays]
    for memory, array in zip(held, arrays):
        padded = np.full(memory.shape, 0xFF, np.uint8)
        padded[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory.copyfrom(padded)
    launch = prepared(kernel, [memory.address for memory in held], target)
    if all(launch.step.launch.blocks):
        with stream.context:
            launch.launch(stream)
    stream.synchronize()
    for memory, array in zip(held, arrays):
        if array.nbytes:
            array[...] = memory.numpy()[: array.nbytes].view(array.dtype).reshape(array.shape)
