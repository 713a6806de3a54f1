"""Transposition through registers: where neighbours in the output are far apart in an input, whose own neighbours lie
along another axis, squares of both axes are read along one and written along the other. Extents and strides are numbers
or arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ...te.expr import Expr, Load, Ramp, Shuffle, Var, as_expr, minimum
from ...te.extents import is_open
from ...te.loops import Alloc, For, If, Let, Stmt, Store, buffer
from ...te.simplify_loops import sequence, statements
from ...te.visit import free_of, loads, masked_load, rewrite, same, substitute
from ..access import accessed, step
from ..axes import Axis
from .matrices.pack import transposed
from .nest import lane_loop

ROW = 4  # squares along the innermost axis that one turn makes
SIZES = (2, 4, 8, 16)  # lanes, from which squares are made
LEAST_LANES = 4  # for which they pay where extents are known
OPEN_BYTES = 32  # of vectors at most where extents are arguments: three ports exchange lanes of such
BLOCK = 64  # neighbours that a turn reads of each line, where it is an argument how many there are
GROUP = 4  # lanes that instructions interleave


class Squares(NamedTuple):
    """Which loads jump along the innermost axis, and along which axis their elements are neighbours."""

    jumping: list[Load]  # of one element
    along: Axis
    lanes: int


def squares_of(axes: Sequence[Axis], body: Stmt, lanes: int) -> Squares | None:
    """None where no element is read so, or more than one, or where an axis is known to be too short: about lengths that
    are arguments nothing is asked."""
    stored = _stored(body)
    if len(axes) < 2 or lanes not in SIZES or stored is None or stored.mask is not None:
        return None
    inner, reads = axes[-1], [load for load in loads(body) if accessed(load).scope == "arg"]
    jumping = [load for load in reads if step(load, inner.var) not in (-1, 0, 1)]
    along = next((axis for axis in axes[:-1] if all(step(load, axis.var) == 1 for load in jumping)), None)
    if not jumping or along is None or step(stored, inner.var) != 1:
        return None
    first, *others = jumping
    alike = all(accessed(x) is accessed(first) and all(map(same, x.indices, first.indices)) for x in others)
    plain = first.mask is None and first.dtype == stored.buffer.dtype
    named = [node.var for node in statements(body) if isinstance(node, Let)]
    runs = [index for index in first.indices if not free_of(index, [along.var])]
    plain = plain and all(free_of(index, named) for index in first.indices)  # it is read before those have values
    short = any(not is_open(axis.extent) and axis.extent < lanes for axis in (inner, along))
    return Squares(jumping, along, lanes) if alike and plain and len(runs) == 1 and not short else None


def _stored(body: Stmt) -> Store | None:
    """What a body stores, after it has given names to values."""
    while isinstance(body, Let):
        body = body.body
    return body if isinstance(body, Store) else None


def in_squares(axes: Sequence[Axis], found: Squares, body: Stmt) -> tuple[list[Axis], Stmt]:
    """Outer loops, and what they do: a few squares, and at the ends what is left, element by element."""
    inner, along, lanes = axes[-1], found.along, found.lanes
    down, across = (Axis(Var("line"), _blocks(along, lanes)), Axis(Var("part"), _blocks(inner, ROW * lanes)))
    outer = [axis for axis in axes[:-1] if axis is not along]
    choices = []
    for i, rows in _ranges(along, down, lanes):
        parts = [_block(inner, found, body, (i, rows), part) for part in _ranges(inner, across, ROW * lanes)]
        choices.append(parts[0] if len(parts) == 1 else If(across.var < across.extent - 1, parts[0], parts[1]))
    stmt = choices[0] if len(choices) == 1 else If(down.var < down.extent - 1, choices[0], choices[1])
    return [*outer, down, across], stmt


def in_open_squares(axes: Sequence[Axis], found: Squares, body: Stmt) -> tuple[list[Axis], Stmt]:
    """The same where extents are arguments: a turn takes a few lines of what is read. Squares at the ends ask what is
    there."""
    inner, (_, along, lanes) = axes[-1], found
    block, line, part, number, i, j = (Var(name) for name in ("block", "line", "part", "square", "i", "j"))
    height, width = as_expr(along.extent), as_expr(inner.extent)
    whole = For(number, as_expr(ROW), _square(inner, found, body, i, j + number * lanes))
    left = minimum((width - j + (lanes - 1)) // lanes, ROW)
    at_end = For(number, left, _square(inner, found, body, i, j + number * lanes, (height, width)))
    stmt: Stmt = If((i + lanes <= height) & (j + ROW * lanes <= width), whole, at_end)
    lines = minimum((height - block * BLOCK + (lanes - 1)) // lanes, BLOCK // lanes)
    stmt = For(line, lines, Let(i, block * BLOCK + line * lanes, stmt))
    stmt = For(part, (width + (ROW * lanes - 1)) // (ROW * lanes), Let(j, part * (ROW * lanes), stmt))
    outer = [axis for axis in axes[:-1] if axis is not along]
    return [*outer, Axis(block, (along.extent + (BLOCK - 1)) // BLOCK)], stmt


def _blocks(axis: Axis, size: int) -> int:
    return -(-axis.extent // size)


def _ranges(axis: Axis, blocks: Axis, size: int) -> list[tuple[Expr, int]]:
    """Where a block begins, and how many turns it has: of all blocks, or of all and of the last."""
    full, rest = divmod(axis.extent, size)
    last = [(as_expr(full * size), rest)] if rest else []
    return [*([(blocks.var * size, size)] if full else []), *last]


def _block(inner: Axis, found: Squares, body: Stmt, rows: tuple[Expr, int], columns: tuple[Expr, int]) -> Stmt:
    """The body for a range of both axes."""
    (i, height), (j, width), (_, along, lanes) = rows, columns, found
    whole = width // lanes if height == lanes else 0
    made: list[Stmt] = []
    if whole:
        number = Var("square")
        square = _square(inner, found, body, i, j + number * lanes)
        made.append(For(number, as_expr(whole), square) if whole > 1 else substitute(square, {number: as_expr(0)}))
    if width > whole * lanes:
        line = Var(along.var.name)
        rest = substitute(body, {along.var: i + line, inner.var: j + inner.var})
        made.append(For(line, as_expr(height), lane_loop(inner.var, whole * lanes, width, lanes, rest)))
    return sequence(made)


def _square(inner: Axis, found: Squares, body: Stmt, i: Expr, j: Expr, ends: tuple[Expr, Expr] | None = None) -> Stmt:
    """Reads vectors along one axis, and writes as many along the other; of both only what is before its end."""
    _, along, lanes = found
    load = found.jumping[0]
    lets: list[tuple[Var, Expr]] = []
    numbers = Ramp(as_expr(0), as_expr(1), lanes)

    def named(value: Expr) -> Expr:
        lets.append((Var("v", value.dtype, value.lanes), value))
        return lets[-1][0]

    def run(indices: Sequence[Expr], over: Var, at: dict[Var, Expr]) -> list[Expr]:
        """Where neighbours along an axis are."""
        moved = [(index, substitute(index, at)) for index in indices]
        return [place if free_of(index, [over]) else Ramp(place, as_expr(1), lanes) for index, place in moved]

    def row(number: int) -> Expr:
        place = j + number if ends is None else minimum(j + number, ends[1] - 1)
        at = run(load.indices, along.var, {along.var: i, inner.var: place})
        return named(masked_load(accessed(load), at, None if ends is None else numbers < ends[0] - i))

    columns = transposed_lanes([row(number) for number in range(lanes)], named)
    if isinstance(body, Store) and any(body.value is load for load in found.jumping):
        stores: list[Stmt] = []
        for number, column in enumerate(columns):
            at = run(body.indices, inner.var, {along.var: i + number, inner.var: j})
            if ends is None:
                stores.append(Store(body.buffer, tuple(at), column))
            else:
                own = Store(body.buffer, tuple(at), column, numbers < ends[1] - j)
                stores.append(If(i + number < ends[0], own))
        stmt: Stmt = sequence(stores)
        return _with_lets(lets, stmt)
    kept = buffer("square", load.dtype, (lanes, lanes), scope="scratch", alignment=64)
    keep: list[Stmt] = [
        Store(kept, (as_expr(number), Ramp(as_expr(0), as_expr(1), lanes)), c) for number, c in enumerate(columns)
    ]
    line, lane = Var("line"), Var("lane")
    read = kept[line, lane]
    finish = rewrite(body, lambda node: read if any(node is load for load in found.jumping) else node)
    finish = substitute(finish, {along.var: i + line, inner.var: j + lane})
    lines = as_expr(lanes)
    if ends is not None:
        lines, finish = minimum(ends[0] - i, lanes), If(j + lane < ends[1], finish)
    finish = For(line, lines, For(lane, as_expr(lanes), finish, "vector"))
    return Alloc(kept, sequence([_with_lets(lets, sequence(keep)), finish]))


def _with_lets(lets: Sequence[tuple[Var, Expr]], body: Stmt) -> Stmt:
    for var, value in reversed(lets):
        body = Let(var, value, body)
    return body


def transposed_lanes(rows: Sequence[Expr], named: Callable[[Expr], Expr]) -> list[Expr]:
    """Vectors of the columns of a square whose rows are given: within groups of four lanes, then groups as wholes."""
    fours = zip(*[transposed(rows[first : first + GROUP], named) for first in range(0, len(rows), GROUP)])
    by_column = [_groups(list(vectors), named) for vectors in fours]
    return [by_column[column % GROUP][column // GROUP] for column in range(len(rows))]


def _groups(vectors: list[Expr], named: Callable[[Expr], Expr]) -> list[Expr]:
    """Vectors of the first groups of all, of the second ones, and so on."""
    if len(vectors) == 1:
        return vectors
    found = []
    for parity in (0, 1):
        every_second = range(parity * GROUP, 2 * vectors[0].lanes, 2 * GROUP)
        order = tuple(first + lane for first in every_second for lane in range(GROUP))
        pairs = zip(vectors[::2], vectors[1::2])
        found.append(_groups([named(Shuffle(x, y, order)) for x, y in pairs], named))
    return [vector for pair in zip(*found) for vector in pair]
