"""Normalisations and their gradients as open kernels.

Elements that are normalised together are a set: a row, whose elements each have their own scale, or
parts, each of some segments of neighbours in memory, with one scale for all of a part. Sums are
taken in float64 over short sums in the dtype of the data; a set is read from memory once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT64, DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, as_expr, minimum
from ....te.loops import Buffer, Kernel, Seq, Stmt, Store
from ....te.transform import lower_vectors
from .hoist import vector_loop
from .row_sums import Segments, Values, down_columns, over_segments

COLUMN = as_expr(1)  # the number of segments where each lane has a column of its own
Read = Callable[[Expr, Expr], Expr]
Element = Callable[[Expr], Expr]


class _Sets(NamedTuple):
    """Scalars that say where the parts of a set lie: how many sets there are, how many of them
    before the step between neighbours changes; parts, segments of a part, elements of a segment;
    then segments and elements of them as all of a set is read, and the steps in memory."""

    sets: Expr
    groups: Expr
    parts: Expr
    segments: Expr
    length: Expr
    whole_segments: Expr
    whole_length: Expr
    outer_step: Expr
    group_step: Expr
    part_step: Expr
    segment_step: Expr


class _Matrix(NamedTuple):
    """Sets that are columns, as many as there are lanes at least."""

    rows: Expr
    columns: Expr


class _Moments(NamedTuple):
    """Of a set, in float64 and in the dtype of the data: the mean (None where it is not taken away)
    and the reciprocal of the deviation."""

    mean: Expr | None
    variance: Expr
    scale: Expr


class _NormBuilder:
    def __init__(self, name: str, dtype: DType, target: CpuTarget) -> None:
        self.b, self.dtype, self.lanes = KernelBuilder(name), dtype, target.lanes(dtype)

    def scalars(self, kind: type) -> tuple[Expr, ...]:
        made: tuple[Expr, ...] = kind(*[self.b.scalar(field) for field in kind._fields])  # type: ignore[attr-defined]
        return made

    def args(self, size: Expr, *names: str) -> list[Buffer]:
        return [self.b.arg(name, self.dtype, (size,)) for name in names]

    def sums(self, segments: Segments, values: Values, number: int) -> list[Expr]:
        dtypes = (self.dtype, FLOAT64)
        if segments.number is COLUMN:
            rows = segments.length
            return down_columns(self.b, "sum", dtypes, rows, lambda j: values(j, j), number)
        return over_segments(self.b, "sum", dtypes, segments, self.lanes, values, number)

    def moments(self, read: Read, segments: Segments, count: Expr, centred: bool, epsilon: Expr) -> _Moments:
        """The mean, then the squares of what is left of elements without it."""
        if not centred:
            (squares,) = self.sums(segments, lambda s, j: [read(s, j) * read(s, j)], 1)
            return self.scaled(None, squares / count, epsilon)
        near = self.near(read, segments, count)

        def around(segment: Expr, j: Expr) -> list[Expr]:
            left = self.b.let("left", read(segment, j) - near)
            return [left, left * left]

        left, squares = self.sums(segments, around, 2)
        return self.corrected(near, left, squares, count, epsilon)

    def near(self, read: Read, segments: Segments, count: Expr) -> Expr:
        """The mean, rounded."""
        (total,) = self.sums(segments, lambda s, j: [read(s, j)], 1)
        return self.narrow("near", total / count)

    def corrected(self, near: Expr, left: Expr, squares: Expr, count: Expr, epsilon: Expr) -> _Moments:
        """From the sums of x - near and its square."""
        mean = self.b.let("mean", te.cast(near, FLOAT64) + left / count)
        variance = self.b.let("variance", (squares - left * left / count) / count)
        return self.scaled(mean, te.select(variance < 0, te.const(0, FLOAT64), variance), epsilon)

    def scaled(self, mean: Expr | None, variance: Expr, epsilon: Expr) -> _Moments:
        spread = self.b.let("spread", variance)
        scale = self.b.let("scale", 1 / te.sqrt(spread + epsilon))
        return _Moments(mean, spread, scale)

    def narrow(self, name: str, value: Expr) -> Expr:
        return self.b.let(name, te.cast(value, self.dtype))

    def each(self, length: Expr, body: Callable[[Expr], list[Stmt]]) -> None:
        """What is stored for every element of a segment."""
        j = Var("j")
        stores = body(j)
        made = stores[0] if len(stores) == 1 else Seq(tuple(stores))
        self.b.emit(vector_loop(j, as_expr(0), length, self.lanes, made))


# Rows, with a scale for each element of a row.


class _Rows(NamedTuple):
    rows: Expr
    length: Expr
    groups: Expr  # rows that have their own scales, over and over


def row_norm_kernel(centred: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta, or without mean and beta. Buffers: x,
    gamma, beta, epsilon in float64, result."""
    w = _NormBuilder("row_norm", dtype, target)
    b, (rows, length, groups) = w.b, w.scalars(_Rows)
    (x,), (gamma, beta) = w.args(rows * length, "x"), w.args(groups * length, "gamma", "beta")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (y,) = w.args(rows * length, "y")
    with b.parallel("row", rows) as row:
        start, own_scales = b.let("start", row * length), b.let("scales", row % groups * length)
        count = b.let("count", te.cast(length, FLOAT64))
        own = w.moments(lambda _, j: x[start + j], Segments(1, length), count, centred, epsilon[0])
        scale = w.narrow("narrow_scale", own.scale)
        mean = None if own.mean is None else w.narrow("narrow_mean", own.mean)

        def element(j: Expr) -> list[Stmt]:
            value = x[start + j] if mean is None else x[start + j] - mean
            value = value * scale * gamma[own_scales + j]
            shifted = value if mean is None else value + beta[own_scales + j]
            return [Store(y, (start + j,), shifted)]

        w.each(length, element)
    return lower_vectors(b.finish())


class _RowBlocks(NamedTuple):
    rows: Expr
    length: Expr
    groups: Expr
    block: Expr  # rows of one turn, a multiple of the groups


def row_norm_grad_kernel(centred: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """dx = (h - mean h - n mean(h n)) / std with h = gamma g and n = (x - mean) / std, or without
    means; and the sums of g n and g over each block of rows. Buffers: g, x, gamma, epsilon in
    float64, dx, sums of g n, sums of g."""
    w = _NormBuilder("row_norm_grad", dtype, target)
    b, (rows, length, groups, block) = w.b, w.scalars(_RowBlocks)
    blocks, scales = (rows + (block - 1)) // block, groups * length
    (g, x), (gamma,) = w.args(rows * length, "g", "x"), w.args(scales, "gamma")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (dx,), (dgamma, dbeta) = w.args(rows * length, "dx"), w.args(blocks * scales, "dgamma", "dbeta")
    zero = te.const(0, dtype)
    with b.parallel("number", blocks) as number:
        cleared = b.let("cleared", number * scales)
        w.each(scales, lambda j: [Store(to, (cleared + j,), zero) for to in (dgamma, dbeta)])
        first = b.let("first", number * block)
        with b.loop("row", minimum(rows - first, block)) as row:
            start = b.let("start", (first + row) * length)
            group = b.let("group", row % groups * length)
            own = b.let("own", cleared + group)
            inner: Element = lambda j: g[start + j] * gamma[group + j]
            read: Element = lambda j: x[start + j]
            left, scale, slope, level = _row_slopes(w, read, inner, length, epsilon[0], centred)

            def element(j: Expr) -> list[Stmt]:
                value = inner(j) * scale - (left(j) * slope + level)
                along = dgamma[own + j] + g[start + j] * (left(j) * scale)
                made = [Store(dx, (start + j,), value), Store(dgamma, (own + j,), along)]
                if centred:
                    made.append(Store(dbeta, (own + j,), dbeta[own + j] + g[start + j]))
                return list(made)

            w.each(length, element)
    return lower_vectors(b.finish())


def _row_slopes(
    w: _NormBuilder, x: Element, h: Element, length: Expr, epsilon: Expr, centred: bool
) -> tuple[Element, Expr, Expr, Expr]:
    """x - mean at an element, the reciprocal of the deviation, and what dx loses: slope and level
    in x - mean."""
    b, segments = w.b, Segments(1, length)
    count = b.let("count", te.cast(length, FLOAT64))
    near = w.near(lambda _, j: x(j), segments, count) if centred else None

    def parts(_: Expr, j: Expr) -> list[Expr]:
        left = b.let("left", x(j) if near is None else x(j) - near)
        inner = b.let("inner", h(j))
        return [left * left, inner * left, *([] if near is None else [left, inner])]

    squares, along, *rest = w.sums(segments, parts, 4 if centred else 2)
    if near is None:
        own = w.scaled(None, squares / count, epsilon)
        level: Expr = te.const(0, w.dtype)
    else:
        own = w.corrected(near, rest[0], squares, count, epsilon)
        along = along - rest[1] * (rest[0] / count)
        level = w.narrow("level", rest[1] * own.scale / count)
    slope = w.narrow("slope", along * own.scale * own.scale * own.scale / count)
    scale = w.narrow("narrow_scale", own.scale)
    mean = None if own.mean is None else w.narrow("narrow_mean", own.mean)
    return lambda j: x(j) if mean is None else x(j) - mean, scale, slope, level


# Sets with one scale for all elements of a part: parts that lie anywhere, or columns of a matrix.


class _Place(NamedTuple):
    """A set: its number, the first of its parts and of the channels that have their scales, and how many parts there
    are; the segments of all of it, their elements, and where they are in memory; the segments of one part, where
    that begins, and what is done to each of its elements."""

    number: Expr
    first: Expr
    channel: Expr
    parts: Expr
    whole: Segments
    elements: Expr
    at: Read
    part: Segments
    offset: Element
    each: Callable[[Expr, Callable[[Expr], list[Stmt]]], None]


@contextmanager
def _part_place(w: _NormBuilder, sets: _Sets) -> Iterator[_Place]:
    b = w.b
    with b.parallel("number", sets.sets) as number:
        outer, group = number // sets.groups, number % sets.groups
        start = b.let("start", outer * sets.outer_step + group * sets.group_step)
        channel, first = b.let("channel", group * sets.parts), b.let("first", number * sets.parts)
        count = b.let("count", te.cast(sets.whole_segments * sets.whole_length, FLOAT64))
        at: Read = lambda segment, j: start + segment * sets.segment_step + j

        def each(part: Expr, body: Callable[[Expr], list[Stmt]]) -> None:
            with b.loop("segment", sets.segments) as segment:
                begin = b.let("at", at(segment, part * sets.part_step))
                w.each(sets.length, lambda j: body(begin + j))

        whole, own = Segments(sets.whole_segments, sets.whole_length), Segments(sets.segments, sets.length)
        yield _Place(
            number, first, channel, sets.parts, whole, count, at, own, lambda part: part * sets.part_step, each
        )


@contextmanager
def _column_place(w: _NormBuilder, matrix: _Matrix) -> Iterator[_Place]:
    """A column in each lane; where they do not come out even, the last turn has the last ones."""
    b, lanes, (rows, columns) = w.b, w.lanes, matrix
    with b.parallel("turn", (columns + (lanes - 1)) // lanes) as turn:
        first = b.let("first_column", minimum(turn * lanes, columns - lanes))
        count = b.let("count", te.cast(rows, FLOAT64))
        with b.vector("lane", lanes) as lane:
            column, whole = first + lane, Segments(COLUMN, rows)

            def each(_: Expr, body: Callable[[Expr], list[Stmt]]) -> None:
                with b.loop("row", rows) as row:
                    for store in body(row * columns + column):
                        b.emit(store)

            at: Read = lambda _, row: row * columns + column
            yield _Place(column, column, column, COLUMN, whole, count, at, whole, lambda _: as_expr(0), each)


def _placed(w: _NormBuilder, columns: bool) -> tuple[Expr, Expr, Expr, AbstractContextManager[_Place]]:
    """How many elements, sets and parts there are, and a set."""
    if columns:
        matrix = _Matrix(*w.scalars(_Matrix))
        return matrix.rows * matrix.columns, matrix.columns, matrix.columns, _column_place(w, matrix)
    sets = _Sets(*w.scalars(_Sets))
    size = sets.sets * sets.whole_segments * sets.whole_length
    return size, sets.sets, sets.sets * sets.parts, _part_place(w, sets)


def norm_kernel(columns: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta. Buffers: x, gamma, beta, epsilon in
    float64, result, then mean and variance of each set."""
    w = _NormBuilder("norm", dtype, target)
    b, (size, sets, parts, places) = w.b, _placed(w, columns)
    (x,), (gamma, beta) = w.args(size, "x"), w.args(parts, "gamma", "beta")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (y,), (means, variances) = w.args(size, "y"), w.args(sets, "means", "variances")
    with places as place:
        own = w.moments(lambda s, j: x[place.at(s, j)], place.whole, place.elements, True, epsilon[0])
        assert own.mean is not None
        mean = w.narrow("narrow_mean", own.mean)
        b.store(means, place.number, mean)
        b.store(variances, place.number, te.cast(own.variance, dtype))
        with b.loop("part", place.parts) as part:
            channel = b.let("own_channel", place.channel + part)
            scale = w.narrow("own_scale", own.scale * te.cast(gamma[channel], FLOAT64))
            shift = b.let("shift", beta[channel])
            place.each(part, lambda at: [Store(y, (at,), (x[at] - mean) * scale + shift)])
    return lower_vectors(b.finish())


def norm_grad_kernel(columns: bool, given: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """dx = (h - mean h - n mean(h n)) / std + (dmean + 2 dvariance (x - mean)) / count with h =
    gamma g and n = (x - mean) / std; and the sums of g n and g of each part.

    Buffers: g, x, gamma, epsilon in float64, dx, sums of g n, sums of g; and where moments are
    given: mean, variance, dmean and dvariance of each set.
    """
    w = _NormBuilder("norm_grad", dtype, target)
    b, (size, sets, parts, places) = w.b, _placed(w, columns)
    (g, x), (gamma,) = w.args(size, "g", "x"), w.args(parts, "gamma")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (dx,), (dgamma, dbeta) = w.args(size, "dx"), w.args(parts, "dgamma", "dbeta")
    names = ("means", "variances", "to_means", "to_variances") if given else ()
    vectors = w.args(sets, *names)
    with places as place:
        if given:
            moments = (te.cast(vector[place.number], FLOAT64) for vector in vectors)
            mean_of, variance_of, to_mean, to_variance = moments
            own = w.scaled(mean_of, variance_of, epsilon[0])
        else:
            own = w.moments(lambda s, j: x[place.at(s, j)], place.whole, place.elements, True, epsilon[0])
            to_mean = to_variance = te.const(0, FLOAT64)
        assert own.mean is not None
        mean = w.narrow("narrow_mean", own.mean)
        shared, even = (b.alloc(name, FLOAT64, (), scope="register") for name in ("shared", "even"))
        for total in (shared, even):
            b.store(total, (), te.const(0, FLOAT64))
        with b.loop("part", place.parts) as part:
            offset = b.let("offset", place.offset(part))

            def products(segment: Expr, j: Expr) -> list[Expr]:
                at = b.let("at", place.at(segment, offset + j))
                return [g[at] * (x[at] - mean), g[at]]

            along, plain = w.sums(place.part, products, 2)
            b.store(dgamma, place.first + part, te.cast(along * own.scale, dtype))
            b.store(dbeta, place.first + part, te.cast(plain, dtype))
            factor = b.let("factor", te.cast(gamma[place.channel + part], FLOAT64))
            b.store(shared, (), shared[()] + factor * along)
            b.store(even, (), even[()] + factor * plain)
        cubed = own.scale * own.scale * own.scale
        slope = w.narrow("slope", (shared[()] * cubed - to_variance * 2) / place.elements)
        level = w.narrow("level", (even[()] * own.scale - to_mean) / place.elements)
        with b.loop("part", place.parts) as part:
            scale = w.narrow("own_scale", own.scale * te.cast(gamma[place.channel + part], FLOAT64))
            place.each(part, lambda at: [Store(dx, (at,), g[at] * scale - ((x[at] - mean) * slope + level))])
    return lower_vectors(b.finish())
