"""Products with levels as kernels like them. A build puts these in place of dense_levels, after gradients are taken:
they have none.

Rows become levels too, of 16 bits with a factor for each group, so that all sums of a group are exact integers: a
level x of a row is 256 high + low, one byte each, and with levels w that are stored without a sign as w + zero

    sum of x w = 256 sum of high (w + zero) + sum of low (w + zero) - zero sum of x

16 bits round a number by at most the largest of its group over 65024, which is less than rounding errors of float32
make of a sum of products."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ... import te
from ...base.dtype import FLOAT32, INT32
from ...base.errors import ShapeError
from ...base.shape import ceil_div_dims, mul_dims, unify_dim
from ...core.schema import INT, attr, schema
from .._families import INJECTIVE, OUT_FUSABLE, Array, Dtypes, Inferred, Shapes, define, ranked
from .._kernels import Body, Spec, Written
from .level_products import FLOAT16, HALF, INT8, UINT8, WEIGHT_DTYPES, LevelAttrs, check_levels, needs

LARGEST = 32512  # 127 * 256: what the largest number of a group becomes
SMALLEST = 1e-30  # groups of smaller numbers are zeros
TOGETHER = 16  # groups of a row that are scaled at once
QUAD = 4  # bytes that are multiplied and summed together
ZEROS = {8: 128, 4: HALF}  # what is added to levels


# Weights.


@schema
class LevelPanelAttrs:
    bits: int = attr(INT, "of a level: 8 or 4", low=4, high=8)
    group: int = attr(INT, "products that share a scale", low=8, high=128)
    depth: int = attr(INT, "levels of a column", low=1)
    lanes: int = attr(INT, "columns in a panel", low=1)


def _steps(params: LevelPanelAttrs) -> int:
    """Fours of bytes that a column has, with zeros up to the end of its last group."""
    return -(-params.depth // params.group) * params.group * params.bits // (8 * QUAD)


def _panels_shape(params: LevelPanelAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    check_levels(params)
    units, columns = ranked(ins[0], 2, "the weight")
    columns = unify_dim(columns, params.depth if params.bits == 8 else -(-params.depth // 2))
    return [(units, columns)], [(ceil_div_dims(units, params.lanes), _steps(params), params.lanes, QUAD)]


def _panels_dtype(params: LevelPanelAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    needs(f"levels of {params.bits} bits", ins[0], WEIGHT_DTYPES[params.bits])
    return [WEIGHT_DTYPES[params.bits]], [UINT8]


def _panels_reference(params: LevelPanelAttrs, weight: Array) -> Array:
    units, steps = weight.shape[0], _steps(params)
    panels = -(-units // params.lanes)
    depth = steps * QUAD * 8 // params.bits
    levels = np.full((panels * params.lanes, depth), ZEROS[params.bits], np.uint8)
    if params.bits == 8:
        levels[:units, : params.depth] = weight.view(np.uint8) ^ 128
    else:
        both = np.stack([weight & 15, weight >> 4], -1).reshape(units, -1)
        levels[:units, : params.depth] = both[:, : params.depth]
        eights = levels.reshape(panels * params.lanes, steps, 2, QUAD)
        levels = eights[:, :, 0] | eights[:, :, 1] << 4
    return np.ascontiguousarray(levels.reshape(panels, params.lanes, steps, QUAD).swapaxes(1, 2))


def _panels_compute(params: LevelPanelAttrs, weight: te.Tensor) -> te.Tensor:
    units = weight.shape[0]
    (shape,) = _panels_shape(params, [weight.shape], [None])[1]
    zero = ZEROS[params.bits]

    def level(unit: te.Expr, k: te.Expr) -> te.Expr:
        """A level plus zero, which lies where nothing is."""
        inside = te.all_of([unit < units, k < params.depth])
        if params.bits == 8:
            return te.cast(te.read_or(weight, (unit, k), inside, 0), INT32) + zero & 255
        both = te.cast(te.read_or(weight, (unit, k // 2), inside, zero | zero << 4), INT32)
        return both >> te.cast(k % 2 * 4, INT32) & 15

    def element(panel: te.Expr, step: te.Expr, lane: te.Expr, byte: te.Expr) -> te.Expr:
        unit = panel * params.lanes + lane
        if params.bits == 8:
            return te.cast(level(unit, step * QUAD + byte), UINT8)
        first = step * (2 * QUAD) + byte
        return te.cast(level(unit, first) | level(unit, first + QUAD) << 4, UINT8)

    return te.compute(shape, element, name="level_panels")


level_panels = define(
    "_level_panels",
    "Levels (units, k) as panels of columns, without a sign: out[p, s, l] has four bytes of column p * lanes + l, one "
    "level each, or two of 4 bits of which those in the upper halves come four later.",
    inputs={"weight": "levels as dense_levels takes them"},
    named=False,
    attrs=LevelPanelAttrs,
    pattern=INJECTIVE,
    shape=_panels_shape,
    dtype=_panels_dtype,
    reference=_panels_reference,
    compute=_panels_compute,
)


# Rows.


@schema
class RowLevelAttrs:
    group: int = attr(INT, "numbers that share a factor: a multiple of 8", low=8, high=128)


def _rows_shape(params: RowLevelAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return [None], [None, None, None]
    if not ins[0]:
        raise ShapeError("levels of rows need at least one dimension")
    if params.group % 8:
        raise ShapeError(f"groups of {params.group} numbers", why="a group is a multiple of 8")
    *leading, depth = ins[0]
    groups = ceil_div_dims(depth, params.group)
    return [ins[0]], [(*leading, 2, mul_dims(groups, params.group)), (*leading, groups), (*leading, groups)]


def _rows_dtype(params: RowLevelAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    needs("rows", ins[0], FLOAT32)
    return [FLOAT32], [INT8, FLOAT32, INT32]


def _rows_reference(params: RowLevelAttrs, x: Array) -> tuple[Array, Array, Array]:
    *leading, depth = x.shape
    groups = -(-depth // params.group)
    wide = np.zeros((*leading, groups * params.group), np.float32)
    wide[..., :depth] = x
    parts = wide.reshape(*leading, groups, params.group)
    largest = np.abs(parts).max(-1, initial=0).astype(np.float32)
    usable = np.isfinite(largest) & (largest > SMALLEST)
    inverse = np.where(usable, np.float32(LARGEST) / np.where(usable, largest, 1), 0).astype(np.float32)
    levels = np.rint(np.where(usable[..., None], parts, 0) * inverse[..., None]).astype(np.int32)
    low = (levels + 128 & 255) - 128
    bytes_ = np.stack([levels - low >> 8, low], -3).reshape(*leading, 2, groups * params.group)
    factors = np.where(np.isfinite(largest), largest * np.float32(1 / LARGEST), np.float32(np.nan))
    return bytes_.astype(np.int8), factors.astype(np.float32), levels.sum(-1, dtype=np.int32)


def _rows_kernels(params: RowLevelAttrs, inputs: list[Spec], outputs: list[Spec]) -> list[Written]:
    body = Body("row_levels", inputs, outputs)
    *leading, depth = inputs[0][0]
    rows, groups = math.prod(leading), outputs[1][0][-1]
    views = {0: (rows * depth,), 1: (rows, 2, groups * params.group), 2: (rows, groups), 3: (rows, groups)}
    with body.kernel(views, work=2 * rows * depth) as (b, x, levels, factors, sums), b.parallel("row", rows) as row:
        write = _RowLevels(b, (x, levels, factors, sums), depth, params.group, row)
        full, rest = divmod(groups, TOGETHER)
        with b.loop("some", full) as some:
            write.groups(some * TOGETHER, TOGETHER)
        if rest:
            write.groups(te.as_expr(full * TOGETHER), rest)
    return body.kernels


class _RowLevels:
    """Writes the levels of a row, some groups at a time. What a group has in its lanes is combined with groups in the
    lanes, so that nothing waits for sums across lanes."""

    def __init__(self, b: te.KernelBuilder, buffers: Sequence[te.Buffer], depth: int, group: int, row: te.Expr) -> None:
        self.b, self.depth, self.group, self.row = b, depth, group, row
        self.x, self.levels, self.factors, self.sums = buffers
        self.lanes = next(n for n in (16, 8) if group % n == 0)
        shape = (TOGETHER, self.lanes)
        self.tops, self.counts = b.alloc("tops", FLOAT32, shape), b.alloc("counts", INT32, shape)
        self.inverses = b.alloc("inverses", FLOAT32, (TOGETHER,))

    def groups(self, first: te.Expr, count: int) -> None:
        """The groups from one on."""
        b = self.b
        with b.loop("group", count) as part, b.vector("lane", self.lanes) as lane:
            top: te.Expr = te.const(0, FLOAT32)
            for at in self._places(first + part, lane):
                top = b.let("top", te.max(top, te.abs(self._number(at))))
            b.store(self.tops, (part, lane), top)
        with self._each(count) as part:
            self._scale(first, part)
        with b.loop("group", count) as part, b.vector("lane", self.lanes) as lane:
            total: te.Expr = te.const(0, INT32)
            inverse = b.let("inverse", self.inverses[part])
            for at in self._places(first + part, lane):
                value = te.select(te.compare("ne", inverse, te.const(0, FLOAT32)), self._number(at), 0.0)
                level = b.let("level", te.cast(te.round(value * inverse), INT32))
                low = b.let("low", ((level + 128) & 255) - 128)
                b.store(self.levels, (self.row, 0, at), te.cast((level - low) >> 8, INT8))
                b.store(self.levels, (self.row, 1, at), te.cast(low, INT8))
                total = b.let("total", total + level)
            b.store(self.counts, (part, lane), total)
        with self._each(count) as part:
            total = self.counts[part, 0]
            for number in range(1, self.lanes):
                total = b.let("total", total + self.counts[part, number])
            b.store(self.sums, (self.row, first + part), total)

    def _places(self, group: te.Expr, lane: te.Expr) -> list[te.Expr]:
        return [group * self.group + (first + lane) for first in range(0, self.group, self.lanes)]

    def _number(self, at: te.Expr) -> te.Expr:
        place = self.row * self.depth + at
        return te.read_or(self.x, (place,), at < self.depth, 0) if self.depth % self.group else self.x[place]

    @contextmanager
    def _each(self, count: int) -> Iterator[te.Expr]:
        with self.b.loop("group", 1) if count == 1 else self.b.vector("group", count) as part:
            yield part

    def _scale(self, first: te.Expr, part: te.Expr) -> None:
        b = self.b
        most: te.Expr = self.tops[part, 0]
        for lane in range(1, self.lanes):
            most = b.let("most", te.max(most, self.tops[part, lane]))
        usable = (most > SMALLEST) & te.isfinite(most)
        zero = te.const(0, FLOAT32)
        b.store(self.inverses, part, te.select(usable, te.const(LARGEST, FLOAT32) / most, zero))
        kept = te.select(te.isfinite(most), most * te.const(1 / LARGEST, FLOAT32), te.const(float("nan"), FLOAT32))
        b.store(self.factors, (self.row, first + part), kept)


row_levels = define(
    "_row_levels",
    "Rows as levels of 16 bits: the high bytes of each row, then the low ones, with zeros up to the end of the last "
    "group; a factor for each group, NaN where it has numbers that are not finite; the sum of the levels of each.",
    inputs={"data": "rows, of float32"},
    attrs=RowLevelAttrs,
    shape=_rows_shape,
    dtype=_rows_dtype,
    reference=_rows_reference,
    kernels=_rows_kernels,
    output_names=["levels", "factors", "sums"],
)


# Products.


def _matmul_shape(params: LevelAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    check_levels(params)
    levels, _, _, panels, scales = ins
    if levels is None or panels is None or scales is None:
        return list(ins), [None]
    *leading, two, depth = ranked_rows(levels)
    unify_dim(two, 2)
    count, steps, lanes, four = ranked(panels, 4, "the panels")
    unify_dim(four, QUAD)
    unify_dim(mul_dims(steps, 8 * QUAD // params.bits), depth)
    if lanes == 0:
        raise ShapeError("panels without columns")
    if isinstance(lanes, int):
        unify_dim(count, -(-params.units // lanes))
    groups = ceil_div_dims(depth, params.group)
    each = (*leading, groups)
    return [levels, each, each, panels, (count, groups, lanes)], [(*leading, params.units)]


def ranked_rows(levels: tuple[int | str | None, ...]) -> tuple[int | str | None, ...]:
    """The shape of levels of rows."""
    if len(levels) < 2:
        raise ShapeError("levels of rows have two axes or more")
    return levels


def _matmul_dtype(params: LevelAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    for what, dtype, wanted in zip(("levels", "factors", "sums", "panels"), ins, (INT8, FLOAT32, INT32, UINT8)):
        needs(what, dtype, wanted)
    needs("scales", ins[4], FLOAT32, FLOAT16)
    return [INT8, FLOAT32, INT32, UINT8, ins[4]], [FLOAT32]


def _weights(params: LevelAttrs, panels: Array) -> Array:
    """Levels with their sign: (units, k)."""
    count, steps, lanes, _ = panels.shape
    columns = panels.swapaxes(1, 2).reshape(count * lanes, steps, QUAD).astype(np.int64)
    if params.bits == 4:
        columns = np.stack([columns & 15, columns >> 4], 2)
    return columns.reshape(count * lanes, -1)[: params.units] - ZEROS[params.bits]


def _matmul_reference(
    params: LevelAttrs, levels: Array, factors: Array, sums: Array, panels: Array, scales: Array
) -> Array:
    weights = _weights(params, panels)
    rows = levels[..., 0, :].astype(np.float64) * 256 + levels[..., 1, :]
    rows = rows * np.repeat(factors.astype(np.float64), params.group, -1)
    columns = scales.swapaxes(1, 2).reshape(-1, scales.shape[1])[: params.units].astype(np.float64)
    return np.matmul(rows, (weights * np.repeat(columns, params.group, 1)).T).astype(np.float32)


def _matmul_compute(
    params: LevelAttrs, levels: te.Tensor, factors: te.Tensor, sums: te.Tensor, panels: te.Tensor, scales: te.Tensor
) -> te.Tensor:
    lanes, zero = panels.shape[2], ZEROS[params.bits]
    k = te.reduce_axis(levels.shape[-1])

    def weight(unit: te.Expr) -> te.Expr:
        panel, lane = unit // lanes, unit % lanes
        if params.bits == 8:
            return te.cast(panels[panel, k.var // QUAD, lane, k.var % QUAD], INT32) - zero
        both = te.cast(panels[panel, k.var // (2 * QUAD), lane, k.var % QUAD], INT32)
        return (both >> te.cast(k.var // QUAD % 2 * 4, INT32) & 15) - zero

    def element(*index: te.Expr) -> te.Expr:
        *at, unit = index
        group = k.var // params.group
        high, low = (te.cast(levels[(*at, part, k.var)], INT32) for part in (0, 1))
        factor = factors[(*at, group)] * te.cast(scales[unit // lanes, group, unit % lanes], FLOAT32)
        return te.sum(te.cast((high * 256 + low) * weight(unit), FLOAT32) * factor, k)

    return te.compute((*levels.shape[:-2], params.units), element, name="level_product")


level_matmul = define(
    "_level_matmul",
    "Sums of products of levels of rows and of columns, times the factors and scales of their groups.",
    inputs={
        "levels": "of rows, from _row_levels",
        "factors": "of their groups",
        "sums": "of the levels of each group",
        "panels": "from _level_panels",
        "scales": "(panels, groups, lanes), of float32 or float16",
    },
    named=False,
    attrs=LevelAttrs,
    pattern=OUT_FUSABLE,
    shape=_matmul_shape,
    dtype=_matmul_dtype,
    reference=_matmul_reference,
    compute=_matmul_compute,
)
