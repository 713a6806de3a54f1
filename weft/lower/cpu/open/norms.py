"""Normalisations and their gradients as open kernels.

Elements that are normalised together are a set: a row, whose elements each have their own scale, or
parts, each of some segments of neighbours in memory, with one scale for all of a part. Sums are
taken in float64 over short sums in the dtype of the data; a set is read from memory once.
"""

from __future__ import annotations

from collections.abc import Callable
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


# Sets of parts, with a scale for each part.


class _Place:
    """Where a set lies: element j of a segment of a part, and the channel that has its scale."""

    def __init__(self, b: KernelBuilder, sets: _Sets, number: Expr) -> None:
        outer, group = number // sets.groups, number % sets.groups
        self.sets, self.b = sets, b
        self.start = b.let("start", outer * sets.outer_step + group * sets.group_step)
        self.channel = b.let("channel", group * sets.parts)
        self.first = b.let("first", number * sets.parts)
        self.count = b.let("count", te.cast(sets.whole_segments * sets.whole_length, FLOAT64))

    def whole(self) -> Segments:
        return Segments(self.sets.whole_segments, self.sets.whole_length)

    def at(self, segment: Expr, j: Expr) -> Expr:
        return self.start + segment * self.sets.segment_step + j


def part_norm_kernel(dtype: DType, target: CpuTarget) -> Kernel:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta. Buffers: x, gamma, beta, epsilon in
    float64, result, then mean and variance of each set."""
    w = _NormBuilder("part_norm", dtype, target)
    b, sets = w.b, _Sets(*w.scalars(_Sets))
    size = sets.sets * sets.whole_segments * sets.whole_length
    (x,), (gamma, beta) = w.args(size, "x"), w.args(sets.sets * sets.parts, "gamma", "beta")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (y,), (means, variances) = w.args(size, "y"), w.args(sets.sets, "means", "variances")
    with b.parallel("number", sets.sets) as number:
        place = _Place(b, sets, number)
        read = lambda segment, j: x[place.at(segment, j)]
        own = w.moments(read, place.whole(), place.count, True, epsilon[0])
        assert own.mean is not None
        mean = w.narrow("narrow_mean", own.mean)
        b.store(means, number, mean)
        b.store(variances, number, te.cast(own.variance, dtype))
        with b.loop("part", sets.parts) as part:
            channel = b.let("own_channel", place.channel + part)
            scale = w.narrow("own_scale", own.scale * te.cast(gamma[channel], FLOAT64))
            shift = b.let("shift", beta[channel])
            with b.loop("segment", sets.segments) as segment:
                at = b.let("at", place.at(segment, part * sets.part_step))
                w.each(sets.length, lambda j: [Store(y, (at + j,), (x[at + j] - mean) * scale + shift)])
    return lower_vectors(b.finish())


def part_norm_grad_kernel(given: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """dx = (h - mean h - n mean(h n)) / std + (dmean + 2 dvariance (x - mean)) / count with h =
    gamma g and n = (x - mean) / std; and the sums of g n and g of each part.

    Buffers: g, x, gamma, epsilon in float64, dx, sums of g n, sums of g; and where moments are
    given: mean, variance, dmean and dvariance of each set.
    """
    w = _NormBuilder("part_norm_grad", dtype, target)
    b, sets = w.b, _Sets(*w.scalars(_Sets))
    size = sets.sets * sets.whole_segments * sets.whole_length
    (g, x), (gamma,) = w.args(size, "g", "x"), w.args(sets.sets * sets.parts, "gamma")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (dx,), (dgamma, dbeta) = w.args(size, "dx"), w.args(sets.sets * sets.parts, "dgamma", "dbeta")
    names = ("means", "variances", "to_means", "to_variances") if given else ()
    vectors = w.args(sets.sets, *names)
    with b.parallel("number", sets.sets) as number:
        place = _Place(b, sets, number)
        if given:
            mean_of, variance_of, to_mean, to_variance = (te.cast(vector[number], FLOAT64) for vector in vectors)
            own = w.scaled(mean_of, variance_of, epsilon[0])
        else:
            read = lambda segment, j: x[place.at(segment, j)]
            own = w.moments(read, place.whole(), place.count, True, epsilon[0])
            to_mean = to_variance = te.const(0, FLOAT64)
        assert own.mean is not None
        mean = w.narrow("narrow_mean", own.mean)
        shared, even = (b.alloc(name, FLOAT64, (), scope="register") for name in ("shared", "even"))
        for total in (shared, even):
            b.store(total, (), te.const(0, FLOAT64))
        with b.loop("part", sets.parts) as part:
            offset = b.let("offset", part * sets.part_step)

            def products(segment: Expr, j: Expr) -> list[Expr]:
                at = b.let("at", place.at(segment, offset + j))
                return [g[at] * (x[at] - mean), g[at]]

            along, plain = w.sums(Segments(sets.segments, sets.length), products, 2)
            b.store(dgamma, place.first + part, te.cast(along * own.scale, dtype))
            b.store(dbeta, place.first + part, te.cast(plain, dtype))
            factor = b.let("factor", te.cast(gamma[place.channel + part], FLOAT64))
            b.store(shared, (), shared[()] + factor * along)
            b.store(even, (), even[()] + factor * plain)
        cubed = own.scale * own.scale * own.scale
        slope = w.narrow("slope", (shared[()] * cubed - to_variance * 2) / place.count)
        level = w.narrow("level", (even[()] * own.scale - to_mean) / place.count)
        with b.loop("part", sets.parts) as part:
            scale = w.narrow("own_scale", own.scale * te.cast(gamma[place.channel + part], FLOAT64))
            with b.loop("segment", sets.segments) as segment:
                at = b.let("at", place.at(segment, part * sets.part_step))

                def element(j: Expr) -> list[Stmt]:
                    rest = (x[at + j] - mean) * slope + level
                    return [Store(dx, (at + j,), g[at + j] * scale - rest)]

                w.each(sets.length, element)
    return lower_vectors(b.finish())


# Sets that are columns of a matrix.


class _Matrix(NamedTuple):
    """Rows, columns (as many as there are lanes at least), and where the lanes of a turn begin: the
    last ones where the columns do not come out even."""

    rows: Expr
    columns: Expr

    def turns(self, lanes: int) -> Expr:
        return (self.columns + (lanes - 1)) // lanes

    def first(self, turn: Expr, lanes: int) -> Expr:
        return minimum(turn * lanes, self.columns - lanes)


def column_norm_kernel(dtype: DType, target: CpuTarget) -> Kernel:
    """gamma (x - mean) / sqrt(variance + epsilon) + beta for each column. Buffers: x, gamma, beta,
    epsilon in float64, result, then mean and variance."""
    w = _NormBuilder("column_norm", dtype, target)
    b, lanes, matrix = w.b, w.lanes, _Matrix(*w.scalars(_Matrix))
    rows, columns = matrix
    (x,), (gamma, beta) = w.args(rows * columns, "x"), w.args(columns, "gamma", "beta")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (y,), (means, variances) = w.args(rows * columns, "y"), w.args(columns, "means", "variances")
    with b.parallel("turn", matrix.turns(lanes)) as turn:
        first = b.let("first_column", matrix.first(turn, lanes))
        count = b.let("count", te.cast(rows, FLOAT64))
        with b.vector("lane", lanes) as lane:
            column = first + lane
            read = lambda _, row: x[row * columns + column]
            own = w.moments(read, Segments(COLUMN, rows), count, True, epsilon[0])
            assert own.mean is not None
            mean = w.narrow("narrow_mean", own.mean)
            b.store(means, column, mean)
            b.store(variances, column, te.cast(own.variance, dtype))
            scale = w.narrow("own_scale", own.scale * te.cast(gamma[column], FLOAT64))
            shift = b.let("shift", beta[column])
            with b.loop("row", rows) as row:
                at = row * columns + column
                b.store(y, at, (x[at] - mean) * scale + shift)
    return lower_vectors(b.finish())


def column_norm_grad_kernel(dtype: DType, target: CpuTarget) -> Kernel:
    """As `part_norm_grad_kernel` with moments given, for each column. Buffers: g, x, gamma, epsilon
    in float64, dx, dgamma, dbeta, mean, variance, dmean, dvariance."""
    w = _NormBuilder("column_norm_grad", dtype, target)
    b, lanes, matrix = w.b, w.lanes, _Matrix(*w.scalars(_Matrix))
    rows, columns = matrix
    (g, x), (gamma,) = w.args(rows * columns, "g", "x"), w.args(columns, "gamma")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (dx,), (dgamma, dbeta) = w.args(rows * columns, "dx"), w.args(columns, "dgamma", "dbeta")
    vectors = w.args(columns, "means", "variances", "to_means", "to_variances")
    with b.parallel("turn", matrix.turns(lanes)) as turn:
        first = b.let("first_column", matrix.first(turn, lanes))
        count = b.let("count", te.cast(rows, FLOAT64))
        with b.vector("lane", lanes) as lane:
            column = first + lane
            mean_of, variance, to_mean, to_variance = (te.cast(vector[column], FLOAT64) for vector in vectors)
            own = w.scaled(mean_of, variance, epsilon[0])
            mean = w.narrow("narrow_mean", mean_of)

            def products(_: Expr, row: Expr) -> list[Expr]:
                at = row * columns + column
                return [g[at] * (x[at] - mean), g[at]]

            along, plain = w.sums(Segments(COLUMN, rows), products, 2)
            b.store(dgamma, column, te.cast(along * own.scale, dtype))
            b.store(dbeta, column, te.cast(plain, dtype))
            inner = b.let("inner", own.scale * te.cast(gamma[column], FLOAT64))
            bent = along * inner * own.scale * own.scale
            slope = w.narrow("slope", (bent - to_variance * 2) / count)
            level = w.narrow("level", (plain * inner - to_mean) / count)
            scale = w.narrow("own_scale", inner)
            with b.loop("row", rows) as row:
                at = row * columns + column
                b.store(dx, at, g[at] * scale - ((x[at] - mean) * slope + level))
    return lower_vectors(b.finish())
