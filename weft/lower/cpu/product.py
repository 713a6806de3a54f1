"""The template of _packed_matmul: rows times packed panels of columns, with what follows.

A tile of some rows and a few panels stays in registers while the products are summed. All tiles of
a chunk of rows run for the same panels, which come from the second cache after the first of them;
each tile asks for a share of the panels that are next. Long sums are cut into blocks, so that the
rows' part of a block stays in that cache as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32
from ...base.shape import is_static
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...te.build import KernelBuilder
from ...te.expr import Expr, as_expr, const
from ...te.extents import is_open, lesser
from ...te.loops import Buffer
from ..epilogue import Epilogue
from ..group import LoweredKernel, kernel_name
from .long_sums import finished
from .stage import lower_group
from .tile import balanced, registers
from .tile_walk import Sizes, choose, counted, leading_index, tiles_and_rest, total_of

MANY_ROWS = 60  # what a tile is chosen for where the number of rows is an argument
MAX_ROWS, MAX_PANELS = 8, 8  # of a tile; more rows may not fit the ways of the first cache
PANEL_COST = 2.0  # of a vector of weights, which comes from the second cache, over a broadcast
LONG_SUM = 1536  # products, from which on a sum is cut
BLOCK = 384  # products of a block
MAX_BLOCKS = 512  # so that rounding errors of adding them up stay small
UNROLL = 4
NEAR_LINES = 16  # how far ahead weights are asked for that are read once
TOGETHER = (4, 2)  # groups of panels for one block of products, as pieces allow
PIECES = 8  # turns of the parallel loop that keep threads busy


class ProductPlan(NamedTuple):
    """`tiles` and `groups`: (rows of a tile, how many), (panels side by side, how many)."""

    rows: Any
    depth: int
    columns: int
    lanes: int
    tiles: Sizes
    groups: tuple[tuple[int, int], ...]
    chunk: Any  # tiles that run for the same panels
    rows_first: bool  # whether all panels run for a chunk, before the next chunk
    block: int  # products summed at a time
    together: int  # groups of panels for each block of products

    @property
    def weights(self) -> int:
        """Elements of all panels."""
        return -(-self.columns // self.lanes) * self.depth * self.lanes


def product_kernels(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group whose master is a _packed_matmul, or the generic ones for other dtypes
    than float32, and for nothing at all."""
    node = group.master
    assert node is not None
    data, weight = (fact(entry) for entry in node.inputs)
    assert is_static(data.shape)
    assert is_static(weight.shape)
    made = fact(group.outputs[0])
    lanes = weight.shape[2]
    suits = data.dtype == made.dtype == FLOAT32 and lanes == target.lanes(FLOAT32)
    if not suits or len(group.outputs) > 1 or not prod(data.shape):
        return lower_group(group, fact, target)
    plan = plan_product(prod(data.shape[:-1]), data.shape[-1], node.params.units, lanes, target)
    return [_lowered(plan, group, fact)]


def _lowered(plan: ProductPlan, group: FusedGroup, fact: Callable[[NodeEntry], Fact]) -> LoweredKernel:
    node, shape = group.master, fact(group.outputs[0]).shape
    assert node is not None
    assert is_static(shape)
    b = KernelBuilder(kernel_name(group))
    data = b.arg("data", FLOAT32, (plan.rows * plan.depth,))
    weight = b.arg("weight", FLOAT32, (plan.weights,))
    epilogue = Epilogue(b, group, fact)
    out = b.arg("out", FLOAT32, (plan.rows * plan.columns,))
    leading = epilogue.shape(shape)[:-1]

    def finish(row: Expr) -> Callable[[Expr, Expr], Expr]:
        at = leading_index(b, row, leading)
        return lambda value, column: epilogue.finished(value, [*at, column])

    PanelProduct(b, plan, (data, weight, out), finish).write()
    arguments = (*node.inputs, *epilogue.arguments, group.outputs[0])
    return LoweredKernel(finished(b.finish()), arguments, plan.rows * plan.depth * plan.columns)


def plan_product(rows: Any, depth: int, columns: int, lanes: int, target: CpuTarget) -> ProductPlan:
    """Tiles of rows and panels, and the order to run them in."""
    panels = columns // lanes
    a, p = tile_of(MANY_ROWS if is_open(rows) else rows, max(panels, 1), registers(target))
    cached = target.caches[1]  # bytes of rows that stay in the second cache
    tiles = tiles_and_rest(rows, a) if is_open(rows) else balanced(rows, a)
    count = total_of(tiles)
    groups = balanced(panels, p) if panels else ()
    if columns % lanes:
        groups = (*groups, (0, 1))  # what is left of a panel
    sets = sum(n for _, n in groups)
    long = depth >= LONG_SUM and (is_open(rows) or depth * rows * 4 > cached)
    block = max(BLOCK, -(-depth // MAX_BLOCKS)) if long else depth
    fitting = max(cached // (block * 4 * a), 1)
    if is_open(rows):
        shares = -(-PIECES // sets)  # of the rows, so that threads are busy
        chunk = lesser(fitting, (count + (shares - 1)) // shares)
        together = next((n for n in TOGETHER if sets >= n * PIECES), 1) if long else 1
        return ProductPlan(rows, depth, columns, lanes, tiles, groups, chunk, True, block, together)
    chunk = -(-count // -(-count // fitting))
    chunks = -(-count // chunk)
    together = next((n for n in TOGETHER if sets * chunks >= n * PIECES), 1) if long else 1
    rows_first = chunk < count
    if sets * chunks < PIECES:
        chunk = -(-count // min(-(-PIECES // sets), count))
    return ProductPlan(rows, depth, columns, lanes, tiles, groups, chunk, rows_first, block, together)


def tile_of(rows: int, panels: int, budget: int) -> tuple[int, int]:
    """Rows and panels of a tile: as few loads for a product as the registers allow; all rows, so
    that weights are read once, where two panels fit beside them."""
    if rows * 2 + 3 <= budget:
        return rows, min((budget - 1) // (rows + 1), MAX_PANELS, panels)
    best = (float("inf"), 1, 1)
    for p in range(1, min(MAX_PANELS, panels) + 1):
        for a in range(1, min(MAX_ROWS, rows) + 1):
            if a * p + p + 1 <= budget:
                cost = PANEL_COST * -(-rows // a) / rows + -(-panels // p) / panels
                best = min(best, (cost, a, p))
    return best[1:]


class _Part(NamedTuple):
    """What tiles of all sizes have in common: `panels` from number `panel` on, `depth` products
    from number `start` on."""

    panels: int
    lanes: int
    panel: Expr
    start: Expr
    depth: int
    is_first: bool  # whether sums begin here, and whether they are complete after it
    is_last: bool


class PanelProduct:
    """Writes rows times panels into a kernel: the matrices are flat, in order of memory, `batch` of each one behind the
    other. `finish(value, row, column)` is what is stored of a sum, by a function made once for a row."""

    def __init__(
        self,
        b: KernelBuilder,
        plan: ProductPlan,
        matrices: tuple[Buffer, Buffer, Buffer],
        finish: Callable[[Expr], Callable[[Expr, Expr], Expr]] | None = None,
        batch: int = 1,
    ) -> None:
        self.b, self.plan, self.finish, self.batch = b, plan, finish, batch
        self.data, self.weight, self.out = matrices

    def write(self) -> None:
        b, plan = self.b, self.plan
        sets = -(-total_of(plan.groups) // plan.together)
        chunks = (total_of(plan.tiles) + (plan.chunk - 1)) // plan.chunk
        with b.parallel("p", self.batch * sets * chunks) as turn:
            p = turn
            self.data_start = self.weight_start = self.out_start = as_expr(0)
            if self.batch > 1:
                number = b.let("matrix", turn // (sets * chunks))
                p = b.let("p", turn % (sets * chunks))
                self.data_start = b.let("data", number * (plan.rows * plan.depth))
                self.weight_start = b.let("weight", number * plan.weights)
                self.out_start = b.let("out", number * (plan.rows * plan.columns))
            chunk, number = (p // sets, p % sets) if plan.rows_first else (p % chunks, p // chunks)
            self.first_tile = b.let("first", chunk * plan.chunk)
            self.first_group = b.let("first", number * plan.together)
            last = (plan.depth - 1) // plan.block * plan.block
            if last:
                self._block(as_expr(0), plan.block, True, False)
            if last > plan.block:
                with b.loop("block", last // plan.block - 1) as block:
                    self._block((block + 1) * plan.block, plan.block, False, False)
            self._block(as_expr(last), plan.depth - last, not last, True)

    def _block(self, start: Expr, depth: int, is_first: bool, is_last: bool) -> None:
        """Some products of every sum, for all panels and rows of this turn."""
        b, plan = self.b, self.plan

        def tiles(panels: int, panel: Expr) -> None:
            lanes = plan.lanes if panels else plan.columns % plan.lanes
            part = _Part(max(panels, 1), lanes, panel, start, depth, is_first, is_last)
            with counted(b, self.first_tile, plan.chunk, total_of(plan.tiles)) as tile:
                choose(b, tile, plan.tiles, lambda rows, row: self._tile(part, rows, row, tile))

        with counted(b, self.first_group, plan.together, total_of(plan.groups)) as group:
            choose(b, group, plan.groups, tiles)

    # A tile

    def _tile(self, part: _Part, rows: int, first: Expr, tile: Expr) -> None:
        b, plan = self.b, self.plan
        row = b.let("row", first)
        with self._lanes(part.lanes) as lane:
            columns = [(part.panel + v) * plan.lanes + lane for v in range(part.panels)]
            acc = b.alloc("acc", FLOAT32, (rows * part.panels,), scope="register")
            for place in range(rows * part.panels):
                b.store(acc, place, const(0, FLOAT32))
            self._sum(part, rows, row, tile, acc, lane)
            for i in range(rows):
                finish = self.finish(row + i) if self.finish is not None and part.is_last else None
                for v, column in enumerate(columns):
                    value: Expr = acc[i * part.panels + v]
                    at = self._in_batch(self.out_start, (row + i) * plan.columns + column)
                    if not part.is_first:
                        value = value + self.out[at]
                    if finish is not None:
                        value = finish(b.let("y", value), column)
                    b.store(self.out, at, value)

    def _in_batch(self, start: Expr, place: Expr) -> Expr:
        return start + place if self.batch > 1 else place

    @contextmanager
    def _lanes(self, lanes: int) -> Iterator[Expr]:
        if lanes == 1:
            yield as_expr(0)
        else:
            with self.b.vector("lane", lanes) as lane:
                yield lane

    def _sum(self, part: _Part, rows: int, row: Expr, tile: Expr, acc: Buffer, lane: Expr) -> None:
        b, plan = self.b, self.plan
        panel = (part.panel * plan.depth + part.start) * plan.lanes
        weight = b.let("w", self._in_batch(self.weight_start, panel))
        data = b.let("x", self._in_batch(self.data_start, row * plan.depth + part.start))

        def step(k: Expr) -> None:
            vectors = [
                b.let("v", self.weight[weight + (k + v * plan.depth) * plan.lanes + lane]) for v in range(part.panels)
            ]
            for i in range(rows):
                x = b.let("d", self.data[data + i * plan.depth + k])
                for v, vector in enumerate(vectors):
                    place = i * part.panels + v
                    b.store(acc, place, acc[place] + x * vector)

        turns, rest = divmod(part.depth, UNROLL)
        if turns:
            with b.loop("k", turns) as turn:
                self._ask(part, tile, weight, turn, turns)
                for number in range(UNROLL):
                    step(turn * UNROLL + number)
        for number in range(rest):
            step(as_expr(turns * UNROLL + number))

    def _ask(self, part: _Part, tile: Expr, weight: Expr, turn: Expr, turns: int) -> None:
        """Asks for weights: those soon to be read where few rows read them, else a share of the
        panels that come after these."""
        b, plan = self.b, self.plan
        if not is_open(plan.rows) and total_of(plan.tiles) <= 2:
            for number in range(UNROLL * part.panels):
                v, ahead = divmod(number, UNROLL)
                line = turn * UNROLL + (v * plan.depth + ahead + NEAR_LINES)
                b.prefetch(self.weight, weight + line * plan.lanes)
            return
        done = tile - self.first_tile if plan.rows_first else tile
        line = b.let("line", done * turns + turn)
        there = line // part.depth * plan.depth + line % part.depth
        next_panel = weight + (there + part.panels * plan.depth) * plan.lanes
        b.prefetch(self.weight, next_panel, level=2)
