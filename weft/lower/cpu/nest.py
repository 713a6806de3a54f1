"""Pieces of loop nests: vector loops with their tails, outer loops as one parallel loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from ...te.build import KernelBuilder
from ...te.expr import Const, Expr, ExprLike, Var, as_expr, minimum
from ...te.extents import is_open
from ...te.loops import Buffer, For, If, Kernel, Let, Parallel, Seq, Stmt
from ...te.simplify_loops import sequence
from ...te.visit import substitute
from ..axes import Axis
from ..long_sums import finished

BLOCK_ELEMENTS = 4096  # what one turn of the parallel loop does when there is only one axis


LaneLoop = Callable[[Var, ExprLike, ExprLike, int, Stmt], Stmt]


def lane_loop(var: Var, start: ExprLike, end: ExprLike, lanes: int, body: Stmt) -> Stmt:
    """var = start .. end - 1 in lanes. In the last turn there are as many as are left, where that is a number, else
    only those before the end do anything."""
    start, end = as_expr(start), as_expr(end)
    turn, lane, rest = (Var(f"{var.name}_{letter}") for letter in "ovt")

    def at(index: Expr) -> Stmt:
        return substitute(body, {var: index})

    def turns(count: Expr) -> Stmt:
        return For(turn, count, For(lane, as_expr(lanes), at(start + turn * lanes + lane), "vector"))

    if isinstance(start, Const) and isinstance(end, Const):
        full, left = divmod(int(end.value) - int(start.value), lanes)
        tail = For(rest, as_expr(left), at(start + full * lanes + rest), "vector" if left > 1 else "serial")
        return sequence([*([turns(as_expr(full))] if full else []), *([tail] if left else [])])
    count, last = Var("full"), Var("last")
    tail = For(rest, as_expr(lanes), If(last + rest < end, at(last + rest)), "vector")
    both = Let(last, start + count * lanes, Seq((turns(count), If(last < end, tail))))
    return Let(count, (end - start) // lanes, both)


def finished_kernel(name: str, buffers: Sequence[Buffer], outer: Sequence[Axis], body: Stmt) -> Kernel:
    """A kernel whose outer loops are one parallel loop, ready for code generation."""
    if not outer:
        return finished(Kernel(name, tuple(buffers), body))
    var = Var("p")
    total = prod(axis.extent for axis in outer)
    for number, axis in reversed(list(enumerate(outer))):
        rest = prod(after.extent for after in outer[number + 1 :])
        index: Expr = var // rest if is_open(rest) or rest > 1 else var
        body = Let(axis.var, index if axis is outer[0] else index % axis.extent, body)
    return finished(Kernel(name, tuple(buffers), body, Parallel(var, as_expr(total))))


def in_blocks(
    axis: Axis, lanes: int, body: Stmt, elements: int = BLOCK_ELEMENTS, loop: LaneLoop = lane_loop
) -> tuple[Axis, Stmt]:
    """One long vector loop as blocks of about so many elements, which threads can share, and what one block does."""
    block = max(elements // lanes, 1) * lanes
    if is_open(axis.extent):
        number, first = Var("block"), Var("first")
        end = minimum(first + block, as_expr(axis.extent))
        inner = Let(first, number * block, loop(axis.var, first, end, lanes, body))
        return Axis(number, (axis.extent + (block - 1)) // block), inner
    return cut(axis, block, body, lambda part, stmt: loop(part.var, 0, part.extent, lanes, stmt))


def cut(axis: Axis, block: int, body: Stmt, make: Callable[[Axis, Stmt], Stmt]) -> tuple[Axis, Stmt]:
    """A loop as blocks of turns: the axis that counts them, and what one block does, as `make` says
    of the turns in it and the body there. The last block may be shorter."""
    full, rest = divmod(axis.extent, block)
    number = Var("block")
    inner = Axis(Var(axis.var.name), block)
    whole = make(inner, substitute(body, {axis.var: number * block + inner.var}))
    if not rest:
        return Axis(number, full), whole
    last = Axis(Var(axis.var.name), rest)
    tail = make(last, substitute(body, {axis.var: last.var + full * block}))
    if not full:
        return Axis(number, 1), tail
    return Axis(number, full + 1), If(number < full, whole, tail)


def coordinates(b: KernelBuilder, number: Expr, extents: Sequence[Any]) -> list[Expr]:
    """The indices of an element that is given by its row-major number."""
    index: list[Expr] = []
    for extent in reversed(extents[1:]):
        index.append(b.let("i", number % extent))
        number = b.let("rest", number // extent)
    return [number, *reversed(index)] if extents else []


def row_starts(b: KernelBuilder, row: Expr, extents: Sequence[Expr], strides: Sequence[Sequence[Expr]]) -> list[Expr]:
    """Where the row of that number begins, for operands with these strides."""
    index = coordinates(b, row, extents)
    return [b.let("start", sum([i * step for i, step in zip(index, steps)], as_expr(0))) for steps in strides]
