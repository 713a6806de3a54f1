"""Loops bound to a grid: the elements of some axes as threads, and kernels that were written for CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.dtype import DTYPES
from ...te.expr import Const, Expr, Var, as_expr, cast
from ...te.extents import is_open, is_same
from ...te.grid import grid_of
from ...te.loops import Buffer, For, If, Kernel, Let, Stmt, WholeKernel
from ...te.transform import legalise
from ..axes import Axis
from ..long_sums import finished

THREADS = 256  # of a block that does element-wise work
FEWEST = 64  # of a block of a kernel that does not fill the GPU
NARROW = 1 << 31  # numbers below it are divided in 32 bits
UINT32 = DTYPES["uint32"]


def over_elements(name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, target: CudaTarget) -> Kernel:
    """A kernel that has a thread for each element of some axes, in row-major order."""
    total: Any = prod(axis.extent for axis in axes)
    number = Var("element")
    return on_grid(name, buffers, number, total, numbered(axes, number, total, body), target)


def on_grid(name: str, buffers: Sequence[Buffer], var: Var, total: Any, body: Stmt, target: CudaTarget) -> Kernel:
    """A kernel whose threads are the turns of a loop, so many in all."""
    threads = threads_for(total, target)
    block, thread = Var("block"), Var("thread")
    inside: Stmt = body
    if is_open(total) or isinstance(total, Expr) or total % threads:
        inside = If(var < as_expr(total), inside)
    inside = Let(var, block * threads + thread, inside)
    blocks = (as_expr(total) + (threads - 1)) // threads
    return gridded(name, buffers, block, blocks, thread, threads, inside)


def threads_for(total: Any, target: CudaTarget) -> int:
    """How many threads a block has: fewer where all of them would not fill the GPU else."""
    if is_open(total) or isinstance(total, Expr):
        return THREADS
    threads = THREADS
    while threads > FEWEST and total < threads * target.sms:
        threads //= 2
    return threads


def gridded(
    name: str, buffers: Sequence[Buffer], block: Var, blocks: Expr, thread: Var, threads: int, body: Stmt
) -> Kernel:
    """A kernel of one axis of blocks and one of threads, ready for code generation."""
    nest = For(block, blocks, For(thread, as_expr(threads), body, "thread.x"), "block.x")
    return ready(Kernel(name, tuple(buffers), nest))


def ready(kernel: Kernel) -> Kernel:
    """The kernel as code generation takes it: long sums in blocks, vector loops as vectors."""
    return legalise(finished(kernel))


def numbered(axes: Sequence[Axis], number: Var, total: Any, body: Stmt) -> Stmt:
    """The body with the indices of the element that has a row-major number."""
    inner: Any = 1
    for place, axis in reversed(list(enumerate(axes))):
        index = quotient(number, inner, total)
        body = Let(axis.var, index if place == 0 else remainder(index, axis.extent, total), body)
        inner = inner * axis.extent
    return body


def quotient(number: Expr, divisor: Any, bound: Any) -> Expr:
    """number // divisor, in 32 bits where the number is known to be below 2**31."""
    if is_same(divisor, 1):
        return number
    if _is_wide(bound):
        return number // as_expr(divisor)
    return cast(cast(number, UINT32) // as_expr(divisor, UINT32), "int64")


def remainder(number: Expr, divisor: Any, bound: Any) -> Expr:
    """number % divisor, the same way."""
    if _is_wide(bound):
        return number % as_expr(divisor)
    return cast(cast(number, UINT32) % as_expr(divisor, UINT32), "int64")


def _is_wide(bound: Any) -> bool:
    """Whether numbers below a bound may take more than 31 bits. Of an open one that is asked: it seldom is."""
    return isinstance(bound, Expr) or bool(bound >= NARROW)


def bound_to_grid(kernel: Kernel, target: CudaTarget) -> Kernel:
    """A kernel whose turns of the parallel loop are threads, or which one thread runs."""
    if isinstance(kernel.body, WholeKernel):
        return kernel
    if grid_of(kernel) is not None:
        return kernel
    if kernel.parallel is None:
        lone = gridded(kernel.name, kernel.buffers, Var("block"), as_expr(1), Var("thread"), 1, kernel.body)
        return replace(lone, scalars=kernel.scalars)
    extent = kernel.parallel.extent
    total: Any = int(extent.value) if isinstance(extent, Const) else extent
    made = on_grid(kernel.name, kernel.buffers, kernel.parallel.var, total, kernel.body, target)
    return replace(made, scalars=kernel.scalars)
