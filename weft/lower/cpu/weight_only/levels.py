"""The template of _level_matmul: levels of rows times panels of levels, with what follows.

A turn takes a panel of a few vectors of columns, whose levels lie in memory one after the other, so that a product of
few rows reads its weights as one stream. Sums of a group are exact in int32; then they are floats times the factors of
the row and of the columns."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32, INT32
from ....base.shape import is_static
from ....core.fused import FusedGroup
from ....core.ir import Fact, NodeEntry
from ....core.op import Op
from ....core.symbol import Symbol
from ....ops.nn.level_panels import QUAD, ZEROS
from ....te.build import KernelBuilder
from ....te.expr import Expr, cast, const
from ....te.intrinsics import dot_bytes
from ....te.loops import Buffer, Kernel
from ....te.transform import lower_vectors
from ...epilogue import Epilogue, static_spec
from ...group import Facts, LoweredKernel, kernel_name
from ..layouts import as_written
from ..stage import lower_group
from ..tile import balanced, registers
from ..tile_walk import choose, leading_index, total_of
from .streams import streamed_work

VECTORS = 4  # of columns in a panel
LOWER_HALVES = 0x0F0F0F0F
MAX_ROWS = 4  # of a tile of as many vectors as rows allow
OTHERS = 4  # registers for what is not a sum
AHEAD_BYTES = 4096  # how far ahead weights are asked for
ROUGHLY = 2  # products in the time of one of floats


def level_rule(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """dense_levels as a product with panels."""
    data, weight, scale = inputs
    shape = facts[0].shape
    if not is_static(shape) or not prod(shape):
        return None
    attrs = {"bits": params.bits, "group": params.group}
    lanes = VECTORS * target.lanes(FLOAT32)
    panels = Op.get("_level_panels")(weight, depth=shape[-1], lanes=lanes, **attrs)
    scales = Op.get("_pack_panels")(scale, lanes=lanes, transposed=True)
    rows = Op.get("_row_levels")(as_written(data, facts[0]), group=params.group)
    made: Symbol = Op.get("_level_matmul")(*rows, panels, scales, units=params.units, **attrs)
    return made


def level_product_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group whose master is a _level_matmul; the generic ones for other vectors than panels are made
    for, and for nothing at all."""
    node = group.anchor
    (panels, _), (made, _) = (static_spec(fact(entry)) for entry in (node.inputs[3], NodeEntry(node)))
    if panels[2] != VECTORS * target.lanes(FLOAT32) or len(group.outputs) > 1 or not prod(made) or not prod(panels):
        return lower_group(group, fact, target)
    return [_LevelProduct(group, fact, target).lowered()]


class _LevelProduct:
    def __init__(self, group: FusedGroup, fact: Facts, target: CpuTarget) -> None:
        node = group.anchor
        specs = [static_spec(fact(entry)) for entry in (*node.inputs, NodeEntry(node))]
        (levels, _), _, _, (panels, _), (scales, scale_dtype), (made, _) = specs
        self.params: Any = node.params
        self.leading, self.units = made[:-1], made[-1]
        self.rows, self.quads, self.groups = prod(self.leading), levels[-1] // QUAD, scales[1]
        self.lanes, self.panel, self.steps, self.count = target.lanes(FLOAT32), panels[2], panels[1], panels[0]
        self.sums_held = (registers(target) - OTHERS) // 3  # with two of integers each
        self.b = b = KernelBuilder(kernel_name(group))
        each = (self.rows * self.groups,)
        self.levels = b.arg("levels", INT32, (self.rows * 2 * self.quads,), alignment=1)
        self.factors, self.sums = b.arg("factors", FLOAT32, each), b.arg("sums", INT32, each)
        self.panels = b.arg("panels", INT32, (prod(panels) // QUAD,))
        self.scales = b.arg("scales", scale_dtype, (prod(scales),))
        self.epilogue = Epilogue(b, group, fact)
        self.out = self.epilogue.result((self.rows * self.units,))
        self.arguments = (*node.inputs, *self.epilogue.arguments)
        computed = self.rows * levels[-1] * self.units // ROUGHLY
        self.work = max(computed, streamed_work(prod(panels), target))

    def lowered(self) -> LoweredKernel:
        return LoweredKernel(lower_vectors(self._kernel()), self.arguments, self.work)

    def _kernel(self) -> Kernel:
        """A turn is a panel; its rows come in tiles, of as many vectors of columns as registers have sums for."""
        b = self.b
        tiles = balanced(self.rows, MAX_ROWS)
        with b.parallel("panel", self.count) as panel, b.loop("tile", total_of(tiles)) as tile:
            choose(b, tile, tiles, lambda rows, first: self._parts_of_panel(panel, b.let("row", first), rows))
        return b.finish()

    def _parts_of_panel(self, panel: Expr, row: Expr, rows: int) -> None:
        vectors = next(n for n in (VECTORS, 2, 1) if n * rows <= self.sums_held or n == 1)
        with self.b.loop("part", self.panel // (vectors * self.lanes)) as part:
            self._tile(panel, part * vectors, vectors, row, rows)

    def _tile(self, panel: Expr, first: Expr, vectors: int, row: Expr, rows: int) -> None:
        b, count = self.b, rows * vectors
        places = [leading_index(b, row + i, self.leading) for i in range(rows)]
        column = b.let("column", first * self.lanes)
        with b.vector("lane", self.lanes) as lane:
            acc = b.registers("acc", FLOAT32, (count,))
            with b.loop("group", self.groups) as group:
                self._group(panel, group, column, vectors, row, rows, lane, acc)
            for v in range(vectors):
                unit = b.let("unit", panel * self.panel + column + v * self.lanes + lane)
                if self.units % self.panel:
                    with b.when(unit < self.units):
                        self._finish(unit, row, places, acc, vectors, v)
                else:
                    self._finish(unit, row, places, acc, vectors, v)

    def _group(
        self, panel: Expr, group: Expr, column: Expr, vectors: int, row: Expr, rows: int, lane: Expr, acc: Buffer
    ) -> None:
        b, bits, count = self.b, self.params.bits, rows * vectors
        high, low = (b.registers(name, INT32, (count,)) for name in ("high", "low"))
        steps = self.params.group * bits // (8 * QUAD)
        at = b.let("at", (panel * self.steps + group * steps) * self.panel + column)
        fours = b.let("fours", row * (2 * self.quads) + group * (self.params.group // QUAD))
        for step in range(steps):
            for v in range(vectors):
                first = at + (step * self.panel + v * self.lanes)
                b.prefetch(self.panels, first + AHEAD_BYTES // QUAD)
                stored = b.let("w", self.panels[first + lane])
                for part, weights in enumerate(self._parts(stored)):
                    number = step * (8 // bits) + part
                    for i in range(rows):
                        x = fours + (i * 2 * self.quads + number)
                        for sums, four in ((high, self.levels[x]), (low, self.levels[x + self.quads])):
                            b.store(sums, i * vectors + v, dot_bytes(sums[i * vectors + v], weights, four))
        scales = b.let("at", (panel * self.groups + group) * self.panel + column)
        for i in range(rows):
            each = (row + i) * self.groups + group
            factor, total = b.let("factor", self.factors[each]), b.let("sum", self.sums[each] * ZEROS[bits])
            for v in range(vectors):
                place = i * vectors + v
                products = cast(high[place] * 256 + low[place] - total, FLOAT32)
                scale = cast(self.scales[scales + (v * self.lanes + lane)], FLOAT32) * factor
                b.store(acc, place, acc[place] + products * scale)

    def _parts(self, stored: Expr) -> list[Expr]:
        """Four levels a lane, those that come first in front."""
        if self.params.bits == 8:
            return [stored]
        b = self.b
        lower = const(LOWER_HALVES, INT32)
        return [b.let("w", stored & lower), b.let("w", (stored >> const(4, INT32)) & lower)]

    def _finish(self, unit: Expr, row: Expr, places: list[list[Expr]], acc: Buffer, vectors: int, v: int) -> None:
        b = self.b
        for i, place in enumerate(places):
            value = b.let("y", acc[i * vectors + v])
            b.store(self.out, (row + i) * self.units + unit, self.epilogue.finished(value, [*place, unit]))


LEVEL_RULES = {"dense_levels": level_rule}
