"""Kernels that copy elements on a device, by their size and the number of axes; each is compiled once."""

from __future__ import annotations

from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.dtype import DTYPES
from ...compiler.backends import backend_of
from ...compiler.kernels import kernel_cache
from ...runtime.cuda.context import Context
from ...runtime.cuda.module import Function, functions_of
from ...te.build import KernelBuilder
from ...te.loops import Kernel

THREADS = 256
_ELEMENTS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
_functions: dict[tuple[Context, int, int], Function] = {}


def copying(context: Context, width: int, rank: int) -> Function:
    """The kernel for elements of so many bytes along so many axes, ready on a device."""
    key = context, width, rank
    found = _functions.get(key)
    if found is None:
        code = kernel_cache.compiled(copy_kernel(width, rank), CudaTarget.create())
        found = _functions[key] = functions_of(context, [code.code], [code.name])[code.name]
    return found


def forget() -> None:
    """Lets the code go that is ready."""
    _functions.clear()


def copy_kernel(width: int, rank: int) -> Kernel:
    """y[...] = x[...], a thread for each element; sizes of the memory, where the first element is in it, extents and
    steps are scalars."""
    b = KernelBuilder("copy")
    total = b.scalar("total")
    spans, starts = ([b.scalar(f"{what}_{side}") for side in "yx"] for what in ("span", "start"))
    extents = [b.scalar(f"n{axis}") for axis in range(rank)]
    steps = [[b.scalar(f"{side}{axis}") for axis in range(rank)] for side in "yx"]
    dtype = DTYPES[_ELEMENTS[width]]
    y, x = (b.arg(side, dtype, (span,), alignment=width) for side, span in zip("yx", spans))
    with b.block("block", (total + (THREADS - 1)) // THREADS) as block, b.thread("thread", THREADS) as thread:
        number: Any = b.let("number", block * THREADS + thread)
        with b.when(number < total):
            places, rest = list[Any](starts), number
            for axis in reversed(range(rank)):
                index: Any = rest if axis == 0 else b.let(f"i{axis}", rest % extents[axis])
                rest = rest if axis == 0 else b.let(f"rest{axis}", rest // extents[axis])
                places = [place + index * step[axis] for place, step in zip(places, steps)]
            b.store(y, places[0], x[places[1]])
    made = b.finish()
    return backend_of(CudaTarget.create()).lowering.bind(made, CudaTarget.create())
