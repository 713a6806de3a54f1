"""Runs loop IR on numpy arrays, slowly and with every index checked: the meaning of a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..base.errors import InvalidValue, OutOfRange
from .grid import grid_of
from .interpret_grid import run_grid
from .loops import Buffer, Kernel
from .steps import Array, Frame, compile_steps, evaluate, run
from .verify import verify


def run_kernel(
    kernel: Kernel,
    arrays: Sequence[Array],
    scalars: Sequence[int] = (),
    begin: int = 0,
    end: int | None = None,
    seed: int = 0,
) -> None:
    """Runs iterations begin .. end - 1 of a kernel (all of them by default) on arrays, in place.

    An array has the shape and strides of its buffer, or one dimension: then it is the memory that
    the buffer's strides address.

    Of a kernel with a grid, the only iteration is all of its blocks. `seed` decides the order that
    they, and their threads between barriers, run in; no right kernel depends on it, and what it
    does wrong with memory or barriers is an error that names the threads.

    >>> from .build import KernelBuilder
    >>> b = KernelBuilder("double")
    >>> x = b.arg("x", "float32", (3,))
    >>> with b.loop("i", 3) as i:
    ...     b.store(x, i, x[i] * 2)
    >>> data = np.arange(3, dtype="float32")
    >>> run_kernel(b.finish(), [data])
    >>> data.tolist()
    [0.0, 2.0, 4.0]
    """
    if len(arrays) != len(kernel.buffers) or len(scalars) != len(kernel.scalars):
        raise InvalidValue(
            f"kernel {kernel.name} takes {len(kernel.buffers)} arrays and {len(kernel.scalars)} "
            f"scalars, not {len(arrays)} and {len(scalars)}"
        )
    verify(kernel)
    frame = Frame(kernel.name)
    for var, scalar in zip(kernel.scalars, scalars):
        frame.values[var] = var.dtype.type(scalar)
    with np.errstate(all="ignore"):
        for buffer, array in zip(kernel.buffers, arrays):
            _bind(frame, buffer, array)
        _run_range(kernel, frame, begin, end, seed)


def _run_range(kernel: Kernel, frame: Frame, begin: int, end: int | None, seed: int) -> None:
    whole = 1 if kernel.parallel is None else int(evaluate(kernel.parallel.extent, frame))
    stop = whole if end is None else end
    if not 0 <= begin <= stop <= whole and begin != stop:
        raise OutOfRange(f"iterations {begin}..{stop} of kernel {kernel.name}, which has {whole}")
    grid = grid_of(kernel)
    steps = compile_steps(kernel.body)
    for iteration in range(begin, stop):
        if kernel.parallel is not None:
            frame.values[kernel.parallel.var] = np.int64(iteration)
        if grid is None:
            run(steps, frame)
        else:
            run_grid(grid, steps, frame, seed)


def _bind(frame: Frame, buffer: Buffer, array: Array) -> None:
    """Makes an array the memory of an argument, seen through the buffer's shape and strides."""
    where = f"{frame.where}, buffer {buffer.name}"
    if array.dtype != buffer.dtype:
        raise InvalidValue(f"array of {array.dtype} for {buffer.dtype}", where=where)
    shape = tuple(int(evaluate(extent, frame)) for extent in buffer.shape)
    strides = tuple(int(evaluate(stride, frame)) * array.itemsize for stride in buffer.strides)
    frame.shapes[buffer] = shape
    if array.shape == shape and (array.size <= 1 or _same_strides(array, strides)):
        frame.arrays[buffer] = array
        return
    last = sum((extent - 1) * stride for extent, stride in zip(shape, strides)) // array.itemsize
    fits = 0 in shape or (min(strides, default=0) >= 0 and last < array.size)
    if array.ndim != 1 or array.strides[0] != array.itemsize or not fits:
        raise InvalidValue(
            f"array of shape {array.shape} and strides {array.strides} for {shape}, {strides}",
            where=where,
            hint="pass an array of the buffer's shape and strides, or its memory as a flat one",
        )
    frame.arrays[buffer] = np.lib.stride_tricks.as_strided(array, shape, strides)


def _same_strides(array: Array, strides: tuple[int, ...]) -> bool:
    return all(a == b for a, b, extent in zip(array.strides, strides, array.shape) if extent > 1)
