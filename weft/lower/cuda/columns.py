"""Reductions across rows of memory: neighbouring threads have neighbouring elements of the result, and many threads
share what becomes one of them.

What a warp reads at once lies in line. Threads of a block that share an element combine by halves in shared memory, in
an order that never changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from ...base.cuda_target import CudaTarget
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr, minimum
from ...te.extents import is_open
from ...te.loops import WARP, Buffer, Kernel
from ...te.reducers import combine
from ...te.visit import loads, substitute
from ..access import accessed, step
from ..axes import Axis
from .grid import ready
from .reduction import Row, indices_of, share_of, with_totals

SHORTEST = 64  # elements that are worth sharing
# What fills a GPU, the same for all of them: how sums are shared decides their bits.
MANY = 1 << 16  # results, of which a thread for each does
THREADS = 1 << 18
BLOCKS = 128
MOST = 1024  # threads of a block
LEAST = 4  # elements of a thread
SECTOR = 32  # bytes that memory gives at once
SHARED = 32 << 10  # bytes of a block


class Cut(NamedTuple):
    """Threads of a block: so many beside each other, and so many that share each result."""

    across: int
    deep: int


def is_worth_columns(row: Row, axes: Sequence[Axis]) -> bool:
    """Whether neighbours of the result are summed up from neighbours in memory, too few to fill the GPU alone."""
    if not axes or any(is_open(axis.extent) for axis in axes):
        return False
    if prod(axis.extent for axis in axes) >= MANY:
        return False
    return all(each.length >= SHORTEST and _is_beside(each.value, axes[-1]) for each in row.sums)


def _is_beside(value: Expr, axis: Axis) -> bool:
    reads = [load for load in loads(value) if accessed(load).scope == "arg"]
    steps = [step(load, axis.var) for load in reads]
    return 1 in steps and all(each in (0, 1) for each in steps)


def cut_columns(row: Row, axes: Sequence[Axis]) -> Cut:
    """Warps beside each other, or parts of warps where those would be on few multiprocessors; and as many threads for a
    result as fill the GPU, each with some elements."""
    results = prod(axis.extent for axis in axes)
    reads = [load for each in row.sums for load in loads(each.value) if accessed(load).scope == "arg"]
    across, least = WARP, SECTOR // min(load.dtype.itemsize for load in reads)
    while across > least and -(-results // across) < BLOCKS:
        across //= 2
    shared = SHARED // sum(each.total.dtype.itemsize for each in row.sums)
    most = min(MOST, shared) // across, min(each.length for each in row.sums) // LEAST
    deep = 1
    while 2 * deep <= min(most) and results * deep < THREADS:
        deep *= 2
    return Cut(across, deep)


def column_reduction(
    name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], row: Row, target: CudaTarget
) -> Kernel:
    """The kernel: a column of threads for each element of the result."""
    results = prod(axis.extent for axis in axes)
    across, deep = cut_columns(row, axes)
    b = KernelBuilder(name)
    with b.block("block", -(-results // across)) as block:
        held = [b.alloc("parts", each.total.dtype, (deep * across,), scope="shared") for each in row.sums]
        with b.thread("part", deep, "y") as part, b.thread("column", across) as column:
            number = b.let("number", block * across + column)
            at = indices_of(b, axes, b.let("safe", minimum(number, as_expr(results - 1))), results)
            shares = [share_of(b, each, at, part, deep, target) for each in row.sums]
            for parts, share in zip(held, shares):
                b.store(parts, part * across + column, share[()])
            left = deep
            while left > 1:
                left //= 2
                b.barrier()
                with b.when(part < left):
                    for each, parts in zip(row.sums, held):
                        mine = part * across + column
                        b.store(parts, mine, combine(each.combiner, parts[mine], parts[mine + left * across]))
            with b.when((part < 1) & (number < results)):
                for parts, share in zip(held, shares):
                    b.store(share, (), parts[column])
                totals = {each.total: share for each, share in zip(row.sums, shares)}
                for stmt in row.after:
                    b.emit(with_totals(substitute(stmt, at), totals))
    return ready(Kernel(name, tuple(buffers), b.finish().body))
