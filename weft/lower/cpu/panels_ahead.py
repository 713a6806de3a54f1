"""Asks for the weights that register tiles read next. All tiles of a panel read the same weights, the first of them
from far memory; each of them asks for a share of the panel that follows, which is in the second cache when its turn
comes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base.shape import numel
from ...te.expr import Expr, Load, Var, as_expr
from ...te.extents import at_least, is_open
from ...te.loops import Buffer, For, Let, Prefetch, Stmt
from ...te.simplify_loops import sequence, statements
from ...te.visit import rewrite, substitute
from ..access import accessed, step
from ..axes import Axis


class Following(NamedTuple):
    """The panel that comes after the one at hand: where its indices are others, and over which of the loops outside of
    tiles, outermost first, a panel stays the same."""

    indices: dict[Var, Expr]
    repeats: Sequence[Axis]


class Tiles(NamedTuple):
    """The tile at hand among those that follow each other in the innermost loop."""

    number: Expr
    total: Any


class Lines(NamedTuple):
    """The vectors of a panel that one turn of its innermost loop reads: `beside` each other along `axis` from `first`
    on, `turns` of the unrolled loop over `inner`, of which every `apart`-th begins a line of memory."""

    axis: Var
    first: Expr
    beside: int
    inner: Var
    turns: int
    apart: int

    @property
    def total(self) -> int:
        return self.beside * -(-self.turns // self.apart)


def bytes_of(source: Buffer) -> int:
    return numel(tuple([at_least(extent) for extent in source.shape])) * source.dtype.itemsize


def following(weights: Load, panel: dict[Var, Expr], outer: Sequence[Axis], panels_outside: bool) -> Following:
    """What comes after a panel: `panel` has the indices of the next one along the axis of panels. Where those are
    outside, loops over other axes on which weights depend go on first."""
    if not panels_outside:
        return Following(panel, ())
    repeats: list[Axis] = []
    for axis in reversed(outer):
        if step(weights, axis.var) != 0:
            return Following({axis.var: axis.var + 1}, repeats[::-1])
        repeats.append(axis)
    return Following(panel, repeats[::-1])


def asking(stmt: Stmt, weights: Load, lane: Var, lines: Lines, after: Following, tiles: Tiles) -> Stmt:
    """A tile that asks for its share of the panel that comes next, in each turn of its innermost loop. What lies beyond
    the last panel is asked for in vain: often it is what the next kernel reads."""
    number, times = tiles.number, tiles.total
    for axis in reversed(after.repeats):
        number, times = number + axis.var * times, times * axis.extent
    share = 1 if is_open(times) else -(-lines.total // times)
    places: list[tuple[Var, Expr]] = []
    asked: list[Stmt] = []
    deep = lines.total // lines.beside
    first = after.indices.get(lines.axis, lines.first)
    for part in range(share):
        line, beside, turn = Var("line"), Var("beside"), Var("turn")
        places += [(line, (number * share + part) % lines.total), (beside, line // deep)]
        places.append((turn, line % deep * lines.apart))
        moved = {**after.indices, lines.axis: first + beside, lines.inner: turn, lane: as_expr(0)}
        asked.append(Prefetch(accessed(weights), tuple(substitute(at, moved) for at in weights.indices), level=2))

    def with_asked(node: object) -> object:
        if isinstance(node, For) and isinstance(node.body, For) and node.body.var is lines.inner:
            return For(node.var, node.extent, sequence([*asked, node.body]), node.kind)
        return node

    made = rewrite(stmt, with_asked)
    for var, value in reversed(places):
        made = Let(var, value, made)
    return made


def unrolled_loop(body: Stmt) -> For | None:
    """The innermost loop, if it is unrolled inside another one."""
    loops = [node for node in statements(body) if isinstance(node, For)]
    return loops[-1] if len(loops) > 1 and loops[-1].kind == "unroll" else None
