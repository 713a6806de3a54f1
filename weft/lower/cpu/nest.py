"""Pieces of loop nests: vector loops with their tails, outer loops as one parallel loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import NamedTuple

from ...te.expr import Expr, Var, as_expr
from ...te.loops import Buffer, For, If, Kernel, Let, Parallel, Stmt
from ...te.simplify_loops import sequence, simplify_statement
from ...te.visit import substitute
from .long_sums import finished

BLOCK_ELEMENTS = 4096  # what one turn of the parallel loop does when there is only one axis


class Axis(NamedTuple):
    var: Var
    extent: int


def simplified(body: Stmt, axes: Iterable[Axis]) -> Stmt:
    """The body simplified with what its axes count."""
    return simplify_statement(body, {axis.var: (0, max(axis.extent - 1, 0)) for axis in axes})


def vector_loop(axis: Axis, lanes: int, body: Stmt) -> Stmt:
    """The loop in steps of `lanes`, then once with as many lanes as are left."""
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


def finished_kernel(name: str, buffers: Sequence[Buffer], outer: Sequence[Axis], body: Stmt) -> Kernel:
    """A kernel whose outer loops are one parallel loop, ready for code generation."""
    if not outer:
        return finished(Kernel(name, tuple(buffers), body))
    var = Var("p")
    rest = prod(axis.extent for axis in outer)
    total = rest
    indices: list[tuple[Var, Expr]] = []
    for axis in outer:
        rest //= max(axis.extent, 1)
        index: Expr = var // rest if rest != 1 else var
        indices.append((axis.var, index if axis is outer[0] else index % axis.extent))
    for axis_var, value in reversed(indices):
        body = Let(axis_var, value, body)
    return finished(Kernel(name, tuple(buffers), body, Parallel(var, as_expr(total))))


def in_blocks(axis: Axis, lanes: int, body: Stmt) -> tuple[Axis, Stmt]:
    """One long vector loop as blocks, which threads can share, and what one block does."""
    block = max(BLOCK_ELEMENTS // lanes, 1) * lanes
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
