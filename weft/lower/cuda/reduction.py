"""Reductions of rows: the threads of a warp or a block share the elements that become one element of the result.

Each thread combines every so many-th vector, then all threads what they have. What is not a row (neighbours in memory
belong to different results, or there are few elements to combine) has a thread for each element of the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from ...base.cuda_target import CudaTarget
from ...te.build import KernelBuilder
from ...te.expr import Binary, Const, Expr, Load, Ramp, Var, as_expr, minimum, widen
from ...te.extents import is_open
from ...te.loops import WARP, Alloc, Buffer, For, Kernel, Let, Seq, Stmt, Store
from ...te.reducers import COMBINERS, combine, identity
from ...te.visit import loads, rewrite, substitute
from ..access import accessed, step
from ..axes import Axis
from .grid import quotient, ready, remainder
from .totals import block_total, lanes_total

SHORTEST = 64  # elements that are worth a warp
WARP_LONGEST = 2048  # elements that are not worth a block
WARPS = 4  # of a block whose warps have a row each
BLOCK = 256  # threads that share a row
SIDE_BY_SIDE = 4  # vectors that a thread loads before it combines them
_COMBINERS = {combiner.op: name for name, combiner in COMBINERS.items()}


class Sum(NamedTuple):
    """One reduction of a stage: the loops, the register it goes into, what is combined and how."""

    axes: list[Axis]
    total: Buffer
    combiner: str
    value: Expr

    @property
    def length(self) -> int:
        """How many elements are combined."""
        return prod(axis.extent for axis in self.axes)


class Row(NamedTuple):
    """A stage whose elements are each some reductions, then stores."""

    sums: list[Sum]
    after: list[Stmt]


def found_row(body: Stmt) -> Row | None:
    """The body of a stage at one element of its result as reductions and what follows; None where it is otherwise."""
    totals: dict[Buffer, None] = {}
    while isinstance(body, Alloc):
        totals[body.buffer] = None
        body = body.body
    sums, after = list[Sum](), list[Stmt]()
    for stmt in body.body if isinstance(body, Seq) else (body,):
        if isinstance(stmt, For):
            made = _found_sum(stmt, totals)
            if made is None or after:
                return None
            sums.append(made)
        elif not (isinstance(stmt, Store) and stmt.buffer in totals and isinstance(stmt.value, Const)):
            after.append(stmt)
    return Row(sums, after) if sums else None


def _found_sum(loop: Stmt, totals: Mapping[Buffer, None]) -> Sum | None:
    axes: list[Axis] = []
    while isinstance(loop, For):
        if loop.kind != "serial" or not isinstance(loop.extent, Const):
            return None
        axes.append(Axis(loop.var, int(loop.extent.value)))
        loop = loop.body
    lets: list[Let] = []
    while isinstance(loop, Let):
        lets.append(loop)
        loop = loop.body
    if not isinstance(loop, Store) or loop.buffer not in totals or loop.mask is not None:
        return None
    step_ = loop.value
    if not isinstance(step_, Binary) or step_.op not in _COMBINERS or not _reads(step_.a, loop.buffer):
        return None
    value = step_.b
    for let in reversed(lets):
        value = substitute(value, {let.var: let.value})
    if any(_reads(node, total) for node in loads(value) for total in totals):
        return None  # it takes up an earlier total
    return Sum(axes, loop.buffer, _COMBINERS[step_.op], value)


def _reads(node: Expr, total: Buffer) -> bool:
    return isinstance(node, Load) and node.source is total


def is_worth_rows(row: Row, axes: Sequence[Axis], target: CudaTarget) -> bool:
    """Whether threads should share the elements of a result: there are many of them, and they are in line in memory, or
    results are too few to fill the GPU, which is told of numbers alone."""
    known = not any(is_open(axis.extent) for axis in axes)
    few = known and prod(axis.extent for axis in axes) < 64 * target.sms
    return all(_is_worth_row(each, axes, few) for each in row.sums)


def _is_worth_row(each: Sum, axes: Sequence[Axis], few: bool) -> bool:
    reads = [load for load in loads(each.value) if accessed(load).scope == "arg"]
    in_line = all(step(load, each.axes[-1].var) in (0, 1) for load in reads)
    beside = any(step(load, axis.var) == 1 for load in reads for axis in axes[-1:])
    if each.length < SHORTEST or (beside and not few):
        return False
    return in_line or (few and not beside and each.length >= 4 * SHORTEST)


def row_reduction(name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], row: Row, target: CudaTarget) -> Kernel:
    """The kernel: a warp or a block for each element of the result."""
    results: Any = prod(axis.extent for axis in axes)
    threads = WARP if max(each.length for each in row.sums) <= WARP_LONGEST else BLOCK
    rows = WARPS if threads == WARP else 1
    b, warps = KernelBuilder(name), threads // WARP
    with b.block("block", -(-results // rows)) as block:
        held = [b.alloc("parts", s.total.dtype, (warps,), scope="shared") if warps > 1 else None for s in row.sums]
        with b.thread("warp", rows, "y") as warp, b.thread("thread", threads) as thread:
            number = b.let("row", block * rows + warp)
            safe = b.let("safe", minimum(number, as_expr(results - 1)))
            at = indices_of(b, axes, safe, results)
            totals: dict[Buffer, Buffer] = {}
            for each, parts in zip(row.sums, held):
                share = share_of(b, each, at, thread, threads, target)
                block_total(b, each.combiner, share, parts, thread, warps)
                totals[each.total] = share
            with b.when((thread < 1) & (number < results)):
                for stmt in row.after:
                    b.emit(with_totals(substitute(stmt, at), totals))
    return ready(Kernel(name, tuple(buffers), b.finish().body))


def indices_of(b: KernelBuilder, axes: Sequence[Axis], number: Expr, total: Any) -> dict[Var, Expr]:
    """The index along each axis of the element that has a row-major number."""
    at: dict[Var, Expr] = {}
    inner: Any = 1
    for place, axis in reversed(list(enumerate(axes))):
        index = quotient(number, inner, total)
        at[axis.var] = b.let(axis.var.name, index if place == 0 else remainder(index, axis.extent, total))
        inner *= axis.extent
    return at


def with_totals(stmt: Stmt, totals: Mapping[Buffer, Buffer]) -> Stmt:
    def read(node: Any) -> Any:
        return totals[node.source][()] if isinstance(node, Load) and node.source in totals else node  # type: ignore[index]

    return rewrite(stmt, read)


def share_of(
    b: KernelBuilder, each: Sum, at: Mapping[Var, Expr], thread: Expr, threads: int, target: CudaTarget
) -> Buffer:
    """A register with what this thread combines: every so many-th vector of the row."""
    lanes, name, dtype = _lanes(each, target), each.total.name, each.total.dtype
    value = substitute(each.value, at)
    empty = identity(each.combiner, dtype)
    total = b.alloc(name, dtype, (), scope="register", lanes=lanes)
    b.store(total, (), empty)

    def add(vector: Expr) -> None:
        item = widen(_element(each, value, vector, lanes), lanes)
        b.store(total, (), combine(each.combiner, total[()], item))

    full, rest = divmod(each.length // lanes, threads * SIDE_BY_SIDE)
    if full:
        with b.loop("turn", full) as turn:
            for beside in range(SIDE_BY_SIDE):
                add(turn * (threads * SIDE_BY_SIDE) + (thread + beside * threads))
    if rest:
        first = full * threads * SIDE_BY_SIDE
        with b.loop("last", (as_expr(rest - 1 + threads) - thread) // threads) as last:
            add(last * threads + thread + first)
    share = b.alloc("share", dtype, (), scope="register")
    b.store(share, (), lanes_total(each.combiner, total[()]))
    return share


def _element(each: Sum, value: Expr, vector: Expr, lanes: int) -> Expr:
    """What is combined at so many neighbours of a row."""
    at: dict[Var, Expr] = {}
    rest, inner = vector, each.axes[-1].extent // lanes
    for axis in reversed(each.axes[1:]):
        extent = inner if axis is each.axes[-1] else axis.extent
        at[axis.var], rest = remainder(rest, extent, each.length), quotient(rest, extent, each.length)
    at[each.axes[0].var] = rest
    last = each.axes[-1].var
    if lanes > 1:
        at[last] = Ramp(at[last] * lanes, as_expr(1), lanes)
    return substitute(value, at)


def _lanes(each: Sum, target: CudaTarget) -> int:
    """How many neighbours a thread reads at once: where they are in line, and all rows begin at a multiple of them."""
    reads = [load for load in loads(each.value) if accessed(load).scope == "arg"]
    inner = each.axes[-1]
    if not reads or any(load.mask is not None or step(load, inner.var) not in (0, 1) for load in reads):
        return 1
    lanes = min(target.lanes(load.dtype) for load in reads)
    while lanes > 1 and inner.extent % lanes:
        lanes //= 2
    return lanes
