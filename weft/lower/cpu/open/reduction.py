"""Reductions of element-wise terms as open kernels: sizes and strides are arguments.

Short runs of terms are combined in their own dtype, as trees, and each run is folded into a wider
total: a sum of float32 costs little more than its loads and is exact but for its runs' roundings.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT64, INT32, INT64, DType, is_float
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, as_expr, cast, minimum
from ....te.loops import Buffer, Kernel, Seq, Store
from ....te.reducers import combine, identity
from ....te.transform import lower_vectors
from .nest import vector_loop
from .pointwise import row_starts

RUNS = (16, 4, 1)  # terms that are combined before they join the total
COLUMN_RUNS = (8, 1)  # the same of terms below one another
CALL_RUNS = (4, 1)  # the same where a term is a function
FOLDED = 32  # runs that make a part of the total
CHUNK = 1 << 15  # elements side by side of one turn, where there are many
CHUNK_ROWS = 128  # elements below one another
BLOCK = 512  # neighbours that have their totals in scratch
SCALARS = 4  # lanes whose totals are combined one by one

Terms = Callable[..., Sequence[Expr]]


class Reduction(NamedTuple):
    """What is combined: so many terms of one element of each operand, which a name tells from
    others, and how many functions they take."""

    name: str
    combiner: str
    terms: Terms = lambda x: (x,)
    number: int = 1
    calls: int = 0


class Form(NamedTuple):
    """How a kernel walks: how many axes lie around those it reduces; for each operand whether
    neighbours along the innermost axis are neighbours in memory, or one and the same element;
    whether the innermost axis is kept (columns) or reduced (rows); whether the reduced one comes
    in chunks; whether columns are apart in memory, by steps that are arguments."""

    outer: int
    dense: tuple[bool, ...]
    columns: bool
    chunked: bool
    apart: bool = False


class Widths(NamedTuple):
    """What terms and totals are kept in, and what is written: a total, or a result, which may be
    the mean."""

    term: DType
    total: DType
    result: DType
    mean: bool = False


def term_and_total(combiner: str, dtype: DType) -> tuple[DType, DType]:
    """What terms of a dtype are combined in, and what runs of them are folded into."""
    if combiner in ("max", "min"):
        return dtype, dtype
    if is_float(dtype):
        return (dtype if combiner == "sum" else FLOAT64), FLOAT64
    return (INT32 if combiner == "sum" and dtype.itemsize <= 2 else INT64), INT64


def reduction_kernel(
    reduction: Reduction, dtypes: Sequence[DType], form: Form, widths: Widths, target: CpuTarget
) -> Kernel:
    """Scalars: the extents of the outer axes, that of the reduced axis, how many chunks it has, for
    columns the extent of the kept axis; then for each operand its strides along the outer axes, for
    columns along the reduced one, and where they are apart along the kept one. A result for each
    term, of all outer indices, chunks and columns in order. A turn is a chunk of a row, or of a
    block of columns."""
    b = KernelBuilder(reduction.name)
    extents = [b.scalar(f"n{axis}") for axis in range(form.outer)]
    count, chunks = b.scalar("count"), b.scalar("chunks")
    inner = b.scalar("inner") if form.columns else as_expr(1)
    strides = [
        [b.scalar(f"s{number}_{axis}") for axis in range(form.outer)]
        + [b.scalar(f"{axis}{number}") for axis in ("k" * form.columns + "j" * form.apart)]
        for number in range(len(dtypes))
    ]
    size = as_expr(1)
    for extent in (*extents, count, inner):
        size = size * extent
    operands = [b.arg(f"x{number}", dtype, (size,)) for number, dtype in enumerate(dtypes)]
    results = [b.arg(f"y{number}", widths.result, (size,)) for number in range(reduction.number)]
    runs = CALL_RUNS if reduction.calls else COLUMN_RUNS if form.columns else RUNS
    body = _Body(
        b, reduction, widths, form, operands, results, runs, min(target.lanes(dtype) for dtype in dtypes), count
    )
    (_columns if form.columns else _rows)(body, extents, chunks, inner, strides)
    return lower_vectors(b.finish())


class _Body(NamedTuple):
    b: KernelBuilder
    reduction: Reduction
    widths: Widths
    form: Form
    operands: list[Buffer]
    results: list[Buffer]
    runs: tuple[int, ...]
    lanes: int
    length: Expr

    def run(self, at: Callable[[int], Sequence[Expr]], length: int) -> list[Expr]:
        """The terms of some elements, combined as a tree, as totals."""
        made = [self.reduction.terms(*at(number)) for number in range(length)]
        term, total = self.widths.term, self.widths.total
        return [
            cast(_tree(self.reduction.combiner, [cast(value, term) for value in each]), total) for each in zip(*made)
        ]

    def start(self, totals: Sequence[Buffer]) -> None:
        for total in totals:
            self.b.store(total, (), identity(self.reduction.combiner, total.dtype))

    def folded(self, total: Expr, value: Expr) -> Expr:
        return combine(self.reduction.combiner, total, value)

    def fold(self, totals: Sequence[Buffer], values: Sequence[Expr]) -> None:
        for total, value in zip(totals, values):
            self.b.store(total, (), self.folded(total[()], value))

    def registers(self, name: str) -> list[Buffer]:
        kind = self.widths.total
        return [self.b.alloc(name, kind, (), scope="register") for _ in self.results]

    def written(self, total: Expr) -> Expr:
        if self.widths.mean:
            total = total / cast(self.length, total.dtype)
        return cast(total, self.widths.result)


def _tree(combiner: str, items: Sequence[Expr]) -> Expr:
    """All items combined, neighbours first."""
    while len(items) > 1:
        pairs = [combine(combiner, a, b) for a, b in zip(items[::2], items[1::2])]
        items = [*pairs, *items[len(pairs) * 2 :]]
    return items[0]


def _product(factors: Sequence[Expr]) -> Expr:
    size = as_expr(1)
    for factor in factors:
        size = size * factor
    return size


def _rows(body: _Body, extents: Sequence[Expr], chunks: Expr, inner: Expr, strides: Sequence[Any]) -> None:
    b, lanes = body.b, body.lanes
    with b.parallel("p", _product(extents) * chunks) as p:
        row, first, count = p, as_expr(0), body.length
        if body.form.chunked:
            row = b.let("row", p // chunks)
            first = b.let("first", p % chunks * CHUNK)
            count = b.let("own", minimum(as_expr(CHUNK), body.length - first))
        starts = row_starts(b, row, extents, strides)
        read = _reader(body, starts, first)
        shares = [b.alloc("shares", body.widths.total, (lanes,)) for _ in body.results]
        with b.vector("lane", lanes) as lane:
            totals = body.registers("total")
            body.start(totals)
            done = _whole_runs(body, totals, count, lambda element: read(element + lane))
            with b.when(done + lane < count):
                body.fold(totals, body.run(lambda _: read(done + lane), 1))
            for share, total in zip(shares, totals):
                b.store(share, lane, total[()])
        for result, share in zip(body.results, shares):
            b.store(result, p, body.written(_over_lanes(body, share)))


def _reader(body: _Body, starts: Sequence[Expr], first: Expr) -> Callable[[Expr], list[Expr]]:
    """The elements of the operands at a place in a row; what is the same for all of it is read
    once."""
    places = [
        body.b.let("at", start + first) if dense else body.b.let("same", operand[start])
        for operand, start, dense in zip(body.operands, starts, body.form.dense)
    ]

    def read(element: Expr) -> list[Expr]:
        return [
            operand[place + element] if dense else place
            for operand, place, dense in zip(body.operands, places, body.form.dense)
        ]

    return read


def _whole_runs(body: _Body, totals: Sequence[Buffer], count: Expr, read: Callable[[Expr], list[Expr]]) -> Expr:
    """Whole vectors, most of them in long runs; how many elements that are."""
    b, lanes = body.b, body.lanes
    done = as_expr(0)
    for length in body.runs:
        size = length * lanes
        turns = b.let("turns", (count - done) // size)
        base = done

        def at(turn: Expr, size: int = size, base: Expr = base) -> Callable[[int], list[Expr]]:
            return lambda number: read(base + turn * size + number * lanes)

        if length == body.runs[0]:
            with b.loop("fold", (turns + (FOLDED - 1)) // FOLDED) as fold:
                parts = body.registers("part")
                body.start(parts)
                begin = b.let("begin", fold * FOLDED)
                with b.loop("turn", minimum(as_expr(FOLDED), turns - begin)) as turn:
                    body.fold(parts, body.run(at(begin + turn), length))
                body.fold(totals, [part[()] for part in parts])
        else:
            with b.loop("turn", turns) as turn:
                body.fold(totals, body.run(at(turn), length))
        done = b.let("done", done + turns * size)
    return done


def _over_lanes(body: _Body, shares: Buffer) -> Expr:
    """The shares of all lanes combined: halves of them, then one by one."""
    b, lanes, combiner = body.b, body.lanes, body.reduction.combiner
    while lanes > SCALARS:
        lanes //= 2
        with b.vector("lane", lanes) as lane:
            b.store(shares, lane, combine(combiner, shares[lane], shares[lane + lanes]))
    items = [b.let("share", shares[lane]) for lane in range(lanes)]
    return b.let("whole", _tree(combiner, items))


def _columns(body: _Body, extents: Sequence[Expr], chunks: Expr, inner: Expr, strides: Sequence[Any]) -> None:
    b = body.b
    blocks = (inner + (BLOCK - 1)) // BLOCK
    with b.parallel("p", _product(extents) * chunks * blocks) as p:
        block = b.let("block", p % blocks * BLOCK)
        place, chunk, rows = b.let("place", p // blocks), as_expr(0), body.length
        outside = place
        if body.form.chunked:
            chunk = b.let("chunk", place % chunks * CHUNK_ROWS)
            rows = b.let("rows", minimum(as_expr(CHUNK_ROWS), body.length - chunk))
            outside = b.let("outside", place // chunks)
        inside = len(extents)
        around, steps = [own[:inside] for own in strides], [own[inside] for own in strides]
        if body.form.apart:
            beside = [own[-1] for own in strides]
        else:
            beside = [as_expr(int(dense)) for dense in body.form.dense]
        starts = row_starts(b, outside, extents, around)
        starts = [
            b.let("start", start + chunk * step + block * next) for start, step, next in zip(starts, steps, beside)
        ]
        width = b.let("width", minimum(as_expr(BLOCK), inner - block))
        kind = body.widths.total
        totals = [b.alloc("totals", kind, (BLOCK,)) for _ in body.results]
        j = Var("j")

        def each(stores: Sequence[Store]) -> None:
            b.emit(vector_loop(j, as_expr(0), width, body.lanes, Seq(tuple(stores))))

        each([Store(t, (j,), identity(body.reduction.combiner, kind)) for t in totals])
        done = as_expr(0)
        for length in body.runs:
            turns = b.let("turns", (rows - done) // length)
            with b.loop("turn", turns) as turn:
                row = b.let("row", done + turn * length)
                values = body.run(partial(_below, body, starts, steps, beside, row, j), length)
                each([Store(t, (j,), body.folded(t[j], v)) for t, v in zip(totals, values)])
            done = b.let("done", done + turns * length)
        to = b.let("to", place * inner + block)
        written = zip(body.results, totals)
        each([Store(y, (to + j,), body.written(total[j])) for y, total in written])


def _below(
    body: _Body, starts: Sequence[Expr], steps: Sequence[Expr], beside: Sequence[Expr], row: Expr, j: Expr, number: int
) -> list[Expr]:
    """The elements of the operands so many rows below one of a block."""
    return [
        operand[start + (row + number) * step + j * next]
        for operand, start, step, next in zip(body.operands, starts, steps, beside)
    ]
