"""Gradients of normalisations, whose sizes are arguments: those of data, and in the same walk the sums that scales and
shifts have for gradients.

Elements that are normalised together are a set: a row, whose elements each have their own scale, or parts, with one
scale for all of a part. Sums are taken in float64 over short sums in the dtype of the data; a set is read from memory
once.
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
from ..nests.hoist import vector_loop
from .row_sums import Values, accumulators, join, over_row

Element = Callable[[Expr], Expr]


class _Moments(NamedTuple):
    """Of a set, in float64: the mean (None where it is not taken away) and the reciprocal of the deviation."""

    mean: Expr | None
    scale: Expr


class _NormBuilder:
    def __init__(self, name: str, dtype: DType, target: CpuTarget) -> None:
        self.b, self.dtype, self.lanes = KernelBuilder(name), dtype, target.lanes(dtype)

    def args(self, size: Expr, *names: str) -> list[Buffer]:
        return [self.b.arg(name, self.dtype, (size,)) for name in names]

    def sums(self, length: Expr, values: Values, number: int) -> list[Expr]:
        return over_row(self.b, "sum", (self.dtype, FLOAT64), length, self.lanes, values, number)

    def near(self, read: Element, length: Expr, count: Expr) -> Expr:
        """The mean, rounded."""
        (total,) = self.sums(length, lambda j: [read(j)], 1)
        return self.narrow("near", total / count)

    def corrected(self, near: Expr, left: Expr, squares: Expr, count: Expr, epsilon: Expr) -> _Moments:
        """From the sums of x - near and its square."""
        mean = self.b.let("mean", te.cast(near, FLOAT64) + left / count)
        variance = self.b.let("variance", (squares - left * left / count) / count)
        return self.scaled(mean, te.select(variance < 0, te.const(0, FLOAT64), variance), epsilon)

    def scaled(self, mean: Expr | None, variance: Expr, epsilon: Expr) -> _Moments:
        spread = self.b.let("spread", variance)
        return _Moments(mean, self.b.let("scale", 1 / te.sqrt(spread + epsilon)))

    def narrow(self, name: str, value: Expr) -> Expr:
        return self.b.let(name, te.cast(value, self.dtype))

    def each(self, length: Expr, body: Callable[[Expr], list[Stmt]]) -> None:
        """What is stored for every element of a row."""
        j = Var("j")
        stores = body(j)
        made = stores[0] if len(stores) == 1 else Seq(tuple(stores))
        self.b.emit(vector_loop(j, as_expr(0), length, self.lanes, made))


def row_norm_grad_kernel(centred: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """dx = (h - mean h - n mean(h n)) / std with h = gamma g and n = (x - mean) / std, or without
    means; and the sums of g n and g over each block of rows, which is a multiple of the groups: of
    rows that have their own scales, over and over. Buffers: g, x, gamma, epsilon in
    float64, dx, sums of g n, sums of g."""
    w = _NormBuilder("row_norm_grad", dtype, target)
    b = w.b
    rows, length, groups, block = (b.scalar(name) for name in ("rows", "length", "groups", "block"))
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
    b = w.b
    count = b.let("count", te.cast(length, FLOAT64))
    near = w.near(x, length, count) if centred else None

    def parts(j: Expr) -> list[Expr]:
        left = b.let("left", x(j) if near is None else x(j) - near)
        inner = b.let("inner", h(j))
        return [left * left, inner * left, *([] if near is None else [left, inner])]

    squares, along, *rest = w.sums(length, parts, 4 if centred else 2)
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


def norm_grad_kernel(dtype: DType, target: CpuTarget) -> Kernel:
    """The same of sets of parts, with a scale for each part of a group of sets, and the sums of each part. Buffers: g,
    x, gamma, epsilon in float64, dx, sums of g n, sums of g."""
    w = _NormBuilder("norm_grad", dtype, target)
    b = w.b
    sets, groups, parts, length = (b.scalar(name) for name in ("sets", "groups", "parts", "length"))
    whole = parts * length
    (g, x), (gamma,) = w.args(sets * whole, "g", "x"), w.args(groups * parts, "gamma")
    epsilon = b.arg("epsilon", FLOAT64, (1,))
    (dx,), (dgamma, dbeta) = w.args(sets * whole, "dx"), w.args(sets * parts, "dgamma", "dbeta")
    with b.parallel("number", sets) as number:
        start, first = b.let("start", number * whole), b.let("first", number * parts)
        channel = b.let("channel", number % groups * parts)
        count = b.let("count", te.cast(whole, FLOAT64))
        near = w.near(lambda j: x[start + j], whole, count)

        def around(j: Expr) -> list[Expr]:
            left = b.let("left", x[start + j] - near)
            return [left, left * left]

        rest, squares = w.sums(whole, around, 2)
        own = w.corrected(near, rest, squares, count, epsilon[0])
        assert own.mean is not None
        mean = w.narrow("narrow_mean", own.mean)
        shared, even = accumulators(b, "shared", "sum", FLOAT64, 2)
        with b.loop("part", parts) as part:
            begin = b.let("begin", start + part * length)
            along, plain = w.sums(length, lambda j: [g[begin + j] * (x[begin + j] - mean), g[begin + j]], 2)
            b.store(dgamma, first + part, te.cast(along * own.scale, dtype))
            b.store(dbeta, first + part, te.cast(plain, dtype))
            factor = b.let("factor", te.cast(gamma[channel + part], FLOAT64))
            join(b, "sum", (shared, even), (factor * along, factor * plain))
        slope = w.narrow("slope", shared[()] * own.scale * own.scale * own.scale / count)
        level = w.narrow("level", even[()] * own.scale / count)
        with b.loop("part", parts) as part:
            begin = b.let("begin", start + part * length)
            scale = w.narrow("own_scale", own.scale * te.cast(gamma[channel + part], FLOAT64))

            def element(j: Expr) -> list[Stmt]:
                at = begin + j
                return [Store(dx, (at,), g[at] * scale - ((x[at] - mean) * slope + level))]

            w.each(length, element)
    return lower_vectors(b.finish())
