"""Runs one loop-IR kernel on the GPU that is here: arrays are copied there and back."""

from __future__ import annotations

from functools import cache

import numpy as np

from weft.base.cuda_target import CudaTarget
from weft.base.plan import BufferRef, KernelStep
from weft.codegen.cuda.compile import CODEGEN
from weft.runtime.cuda.array import device_empty
from weft.runtime.cuda.context import platform
from weft.runtime.cuda.graph import PreparedKernel
from weft.runtime.cuda.module import functions_of
from weft.runtime.cuda.stream import current_stream


@cache
def target():
    return CudaTarget.create()


def prepared(kernel, addresses, scalars=()):
    """A kernel with its arguments, ready to be launched, and its function."""
    context = platform().context()
    code = CODEGEN.code(kernel, CODEGEN.assemble(CODEGEN.emit(kernel, target()), target()))
    function = functions_of(context, [code.code], [kernel.name])[kernel.name]
    buffers = tuple(BufferRef(number) for number in range(len(addresses)))
    step = KernelStep(kernel.name, buffers, tuple(scalars), code.launch)
    return PreparedKernel(context, function, step, lambda slot: addresses[slot]), function


def run_on_gpu(kernel, arrays) -> None:
    """Runs a kernel on arrays, in place."""
    stream = current_stream()
    held = [device_empty((max(array.nbytes, 16),), "uint8") for array in arrays]
    for memory, array in zip(held, arrays):
        padded = np.full(memory.shape, 0xFF, np.uint8)
        padded[: array.nbytes] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        memory.copyfrom(padded)
    launched, _ = prepared(kernel, [memory.address for memory in held])
    if all(launched.step.launch.blocks):
        launched.launch(stream)
    stream.synchronize()
    for memory, array in zip(held, arrays):
        if array.nbytes:
            array[...] = memory.numpy()[: array.nbytes].view(array.dtype).reshape(array.shape)
