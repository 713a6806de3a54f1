"""Columns of a matrix with any strides become panels: [panel][k][width of a tile], in order, in the dtype of those."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ....te.build import KernelBuilder
from ....te.expr import Expr, ExprLike, Shuffle, as_expr, binary, cast, const, select
from ....te.loops import Buffer
from ....te.visit import masked_load
from ..tile import TileSize
from ..tile_walk import ceil_div, lanes_from

GROUP_BYTES = 16  # within which machines exchange lanes at full speed
VECTOR_BYTES = 32  # of vectors that are transposed: three ports exchange lanes of these, one of 64
CHUNK = 64  # products after which the next columns are transposed: their part stays in a cache


class Columns(NamedTuple):
    """Some columns of a matrix, or rows: `number` from element `first` on, `depth` products of each."""

    source: Buffer
    first: Expr
    product_step: Expr
    column_step: Expr
    number: Expr
    depth: Expr


def pack_panel(b: KernelBuilder, size: TileSize, columns: Columns, panels: Buffer, at: Expr) -> None:
    """Stores panels[at + k * width + column]; lanes without a column are 0."""
    with b.when(columns.column_step.equal(1)):
        _copy(b, size, columns, panels, at, 1)
    with b.otherwise():
        group = GROUP_BYTES // panels.dtype.itemsize
        runs = columns.product_step.equal(1)
        done = b.let("done", select(runs, columns.depth // group * group, 0))
        _transpose(b, size, columns, panels, at, done)
        first = columns.first + done * columns.product_step
        rest = columns._replace(first=b.let("first", first), depth=columns.depth - done)
        _copy(b, size, rest, panels, at + done * size.width, columns.column_step)


def _copy(b: KernelBuilder, size: TileSize, columns: Columns, panels: Buffer, at: Expr, step: ExprLike) -> None:
    masks = [b.let("mask", lanes_from(v * size.lanes, size.lanes) < columns.number) for v in range(size.vectors)]
    with b.loop("k", columns.depth) as k:
        first = b.let("first", columns.first + k * columns.product_step)
        for v, mask in enumerate(masks):
            index = lanes_from(first + as_expr(step) * (v * size.lanes), size.lanes, step)
            value = masked_load(columns.source, (index,), mask)
            to = at + k * size.width + v * size.lanes
            b.store(panels, lanes_from(to, size.lanes), cast(value, panels.dtype))


def _transpose(b: KernelBuilder, size: TileSize, columns: Columns, panels: Buffer, at: Expr, done: Expr) -> None:
    """Packs some products, which are side by side, of all columns."""
    item = panels.dtype.itemsize
    group, lanes = GROUP_BYTES // item, min(size.lanes, VECTOR_BYTES // item)
    places = b.alloc("places", "int64", (lanes,))
    used = b.let("used", binary("min", ceil_div(columns.number, lanes), size.width // lanes))
    with b.loop("chunk", ceil_div(done, CHUNK)) as chunk:
        start = b.let("start", chunk * CHUNK)
        steps = b.let("steps", binary("min", done - start, CHUNK) // group)
        with b.loop("group", used) as number:
            for lane in range(lanes):
                column = binary("min", number * lanes + lane, columns.number - 1)
                b.store(places, lane, columns.first + start + column * columns.column_step)
            rows = [b.let("row", places[lane]) for lane in range(lanes)]
            with b.loop("line", CHUNK * item // 64) as line:
                for row in rows:
                    b.prefetch(columns.source, row + CHUNK + line * (64 // item), level=2)
            to = b.let("to", at + start * size.width + number * lanes)
            with b.loop("step", steps) as step:
                _transpose_step(b, columns.source, rows, group, step, panels, to, size.width)
        with b.loop("group", size.width // lanes - used) as number:
            to = b.let("to", at + start * size.width + (used + number) * lanes)
            with b.loop("k", steps * group) as k:
                zero = const(0, panels.dtype)
                b.store(panels, lanes_from(to + k * size.width, lanes), zero)


def _transpose_step(
    b: KernelBuilder, source: Buffer, rows: Sequence[Expr], group: int, step: Expr, panels: Buffer, to: Expr, width: int
) -> None:
    lines = []
    for j in range(group):
        runs = [source[lanes_from(rows[q + j] + step * group, group)] for q in range(0, len(rows), group)]
        parts = [cast(run, panels.dtype) for run in runs]
        joined = parts[0]
        if len(parts) == 2:
            joined = Shuffle(parts[0], parts[1], tuple(range(2 * group)))
        lines.append(b.let("line", joined))
    for t, line in enumerate(transposed(lines, partial(b.let, "t"))):
        b.store(panels, lanes_from(to + (step * group + t) * width, len(rows)), line)


def transposed(lines: Sequence[Expr], named: Callable[[Expr], Expr]) -> list[Expr]:
    """A square of lanes transposed, and others beside it: lines[i][q + j] goes to [j][q + i]."""
    count, lanes = len(lines), lines[0].lanes
    half = count // 2
    low: list[int] = []
    for first in range(0, lanes, count):
        for lane in range(first, first + half):
            low += [lane, lanes + lane]
    high = [lane + half for lane in low]
    vectors = list(lines)
    for _ in range(count.bit_length() - 1):
        pairs = [(vectors[i], vectors[i + half]) for i in range(half)]
        vectors = [named(Shuffle(x, y, tuple(o))) for x, y in pairs for o in (low, high)]
    return vectors
