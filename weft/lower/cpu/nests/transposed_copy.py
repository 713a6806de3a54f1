"""Copies between memory with other fast axes: out[..., i, ..., j] = x[..., i, ..., j], where the
elements of x are neighbours along i, and those of out along j, in squares that go through
registers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import UNBOUNDED, KernelBuilder
from ....te.expr import Expr, Shuffle, binary, select
from ....te.loops import Buffer, Kernel
from ....te.transform import lower_vectors
from ....te.visit import masked_load
from ..matrices.pack import GROUP_BYTES, VECTOR_BYTES, transposed
from ..nest import row_starts
from ..tile_walk import ceil_div, clamped, lanes_from

BLOCK = 64  # elements along i of a turn: a few whole cache lines of x


def transposed_copy(dtype: DType, rank: int, target: CpuTarget) -> Kernel:
    """Scalars: the extents of i and j, the step of out along i and that of x along j, and for each
    of `rank` more axes its extent and the steps of x and out. A turn is a block of i."""
    b = KernelBuilder("transposed_copy")
    rows, columns = b.scalar("rows"), b.scalar("columns")
    out_step, step = b.scalar("out_step"), b.scalar("step")
    axes = [[b.scalar(f"{name}{axis}") for name in "nxy"] for axis in range(rank)]
    x, out = b.arg("x", dtype, (UNBOUNDED,)), b.arg("out", dtype, (UNBOUNDED,))
    group, line = GROUP_BYTES // dtype.itemsize, target.facts.line_bytes // dtype.itemsize
    lanes = min(target.lanes(dtype), VECTOR_BYTES // dtype.itemsize)
    turns = ceil_div(rows, BLOCK)
    for extent, _, _ in axes:
        turns = turns * extent
    with b.parallel("p", turns) as p:
        first = b.let("first", p % ceil_div(rows, BLOCK) * BLOCK)
        places = _starts(b, p // ceil_div(rows, BLOCK), axes)
        count = b.let("count", binary("min", rows - first, BLOCK))
        read = b.let("read", places[0] + first)
        write = b.let("write", places[1] + first * out_step)
        with b.loop("line", ceil_div(columns, line)) as number:
            j = b.let("j", number * line)
            wide = b.let("wide", columns - j)
            lines = [b.let("row", read + (j + clamped(k, wide)) * step) for k in range(line)]
            to = b.let("to", write + j)
            with b.loop("group", select(wide >= line, count // group, 0)) as part:
                i = b.let("i", part * group)
                _square(b, x, [at + i for at in lines], out, to + i * out_step, out_step, lanes)
            done = b.let("done", select(wide >= line, count // group * group, 0))
            with b.loop("group", ceil_div(count - done, group)) as part:
                i = b.let("i", done + part * group)
                limits = b.let("left", count - i), wide
                at = [at + i for at in lines]
                _square(b, x, at, out, to + i * out_step, out_step, lanes, limits)
    return lower_vectors(b.finish())


def _starts(b: KernelBuilder, number: Expr, axes: Sequence[Sequence[Expr]]) -> list[Expr]:
    """Where x and out begin for one turn of the further axes."""
    extents, *steps = zip(*axes) if axes else ((), (), ())
    return row_starts(b, number, extents, steps)


def _square(
    b: KernelBuilder,
    x: Buffer,
    rows: Sequence[Expr],
    out: Buffer,
    to: Expr,
    out_step: Expr,
    lanes: int,
    limits: tuple[Expr, Expr] | None = None,
) -> None:
    """A group of elements of each row becomes lines; at the border, only what is inside."""
    group = GROUP_BYTES // x.dtype.itemsize
    inside = None if limits is None else b.let("inside", lanes_from(0, group) < limits[0])
    for first in range(0, len(rows), lanes):
        lines = []
        for k in range(group):
            parts = [masked_load(x, (lanes_from(rows[first + q + k], group),), inside) for q in range(0, lanes, group)]
            joined = parts[0] if len(parts) == 1 else Shuffle(parts[0], parts[1], tuple(range(2 * group)))
            lines.append(b.let("line", joined))
        for k, line in enumerate(transposed(lines, partial(b.let, "t"))):
            index = lanes_from(to + k * out_step + first, lanes)
            if limits is None:
                b.store(out, index, line)
                continue
            with b.when(limits[0] > k):
                b.store(out, index, line, mask=lanes_from(first, lanes) < limits[1])
