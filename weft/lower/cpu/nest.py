"""Pieces of loop nests: vector loops with their tails, outer loops as one parallel loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any, NamedTuple

from ...te.expr import Expr, Var, as_expr, minimum
from ...te.extents import is_open
from ...te.loops import Buffer, For, If, Kernel, Let, Parallel, Seq, Stmt
from ...te.simplify_loops import sequence, simplify_statement
from ...te.visit import substitute
from .long_sums import finished

BLOCK_ELEMENTS = 4096  # what one turn of the parallel loop does when there is only one axis
LONGEST = 1 << 40  # no axis has as many turns


class Axis(NamedTuple):
    """A loop variable and how many turns it makes: a number, or a size that is an argument."""

    var: Var
    extent: Any


def turns_of(axes: Iterable[Axis]) -> dict[Var, tuple[int, int]]:
    """The first and the last turn of each axis, as far as they are known."""
    return {axis.var: (0, LONGEST if is_open(axis.extent) else max(axis.extent - 1, 0)) for axis in axes}


def simplified(body: Stmt, axes: Iterable[Axis]) -> Stmt:
    """The body simplified with what its axes count."""
    return simplify_statement(body, turns_of(axes))


def vector_loop(axis: Axis, lanes: int, body: Stmt) -> Stmt:
    """The loop in steps of `lanes`, then once with as many lanes as are left."""
    if is_open(axis.extent):
        return open_vector_loop(axis.var, as_expr(0), as_expr(axis.extent), lanes, body)
    full, rest = divmod(axis.extent, lanes)
    parts: list[Stmt] = []
    if full:
        outer, lane = Var(f"{axis.var.name}_o"), Var(f"{axis.var.name}_v")
        inner = substitute(body, {axis.var: outer * lanes + lane})
        parts.append(For(outer, as_expr(full), For(lane, as_expr(lanes), inner, "vector")))
    if rest:
        lane = Var(f"{axis.var.name}_t")
        inner = substitute(body, {axis.var: lane + full * lanes})
        parts.append(For(lane, as_expr(rest), inner, "vector" if rest > 1 else "serial"))
    return sequence(parts)


def open_vector_loop(var: Var, start: Expr, end: Expr, lanes: int, body: Stmt) -> Stmt:
    """var = start .. end - 1 in lanes; in the last turn only those before the end do anything."""
    turn, lane, rest, full, last = Var("turn"), Var("lane"), Var("lane"), Var("full"), Var("last")

    def at(index: Expr) -> Stmt:
        return substitute(body, {var: index})

    main = For(turn, full, For(lane, as_expr(lanes), at(start + turn * lanes + lane), "vector"))
    tail = For(rest, as_expr(lanes), If(last + rest < end, at(last + rest)), "vector")
    both = Let(last, start + full * lanes, Seq((main, If(last < end, tail))))
    return Let(full, (end - start) // lanes, both)


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


def in_blocks(axis: Axis, lanes: int, body: Stmt) -> tuple[Axis, Stmt]:
    """One long vector loop as blocks, which threads can share, and what one block does."""
    block = max(BLOCK_ELEMENTS // lanes, 1) * lanes
    if is_open(axis.extent):
        number, first = Var("block"), Var("first")
        end = minimum(first + block, as_expr(axis.extent))
        inner = Let(first, number * block, open_vector_loop(axis.var, first, end, lanes, body))
        return Axis(number, (axis.extent + (block - 1)) // block), inner
    return cut(axis, block, body, lambda part, stmt: vector_loop(part, lanes, stmt))


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
