"""From the sums of a tile to what is stored of them: the group's expression for each pair of neighbours that a thread
has, then either stores by each thread, or a staged tile that is copied as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....base.dtype import DType
from ....te.expr import Expr, Ramp, Var, all_of, as_expr, cast, widen
from ....te.extents import is_multiple, may_exceed
from ....te.linear import Linear, scalar
from ....te.tensor_cores.layouts import PANEL_BYTES, PANEL_ROWS, WARPGROUP, accumulator_row, lesser, matrix_address
from ....te.tensor_cores.product import Product, Summed
from ....te.visit import loads, substitute
from ...builder import Value
from . import asm
from .frame import Frame, address_of
from .writer import UINT32, Writer, u32

if TYPE_CHECKING:
    from .product import ProductWriter

GROUP_BARRIER = 1  # the first of the named barriers that the threads of one warpgroup meet at
PAIR = 2


class Sums:
    """Where the sums of a tile belong, and the expression of the result for some neighbours at a time."""

    def __init__(self, frame: Frame, plan: Summed, tile: tuple[int, int], batch: Expr, row: Expr, column: Expr) -> None:
        self.frame, self.plan, self.w = frame, plan, frame.w
        self.tile_rows, self.tile_width = tile
        self.batch, self.row, self.column = batch, row, column
        self._forms: dict[int, tuple[Expr, Var, Var, Var | None]] = {}
        self._reads = bool(loads(self.plan.store.value))
        self.w.e.variables[self.plan.batch_at] = scalar(Linear(0, {self.w.wide(batch): 1}))

    @property
    def dtype(self) -> DType:
        return self.plan.store.buffer.dtype

    def result(self, sums: Sequence[Value], row: Expr, unit: Expr, more: int, beside: Value | None = None) -> Value:
        """What is stored of neighbours in a row. Their first column is `unit` times their number, and `more`; where
        there are rows or columns that the result has not, others are read for them."""
        lanes, plan, w = len(sums), self.plan, self.w
        value, column, total, other = self._form(lanes)
        if self._reads and not is_multiple(plan.rows, self.tile_rows):
            row = lesser(row, w.count(plan.rows - 1))
        at = Linear(more, {w.wide(unit): lanes})
        if self._reads and not is_multiple(plan.columns, self.tile_width):
            at = Linear(0, {w.wide(lesser(unit + more // lanes, w.count(plan.columns // lanes - 1))): lanes})
        w.e.variables[plan.row_at] = scalar(Linear(0, {w.wide(row): 1}))
        w.e.variables[column] = scalar(at)
        w.e.variables[total] = w.vector(sums) if lanes > 1 else sums[0]
        if other is not None and beside is not None:
            w.e.variables[other] = beside
        return w.value(value)

    def _form(self, lanes: int) -> tuple[Expr, Var, Var, Var | None]:
        if lanes not in self._forms:
            plan = self.plan
            column, total = Var("column"), Var("total", plan.total.dtype, lanes)
            at: Expr = Ramp(column, as_expr(1), lanes) if lanes > 1 else column
            stands: dict[Var, Expr] = {plan.column_at: at, plan.total: total}
            other = None
            if plan.beside is not None:
                other = stands[plan.beside.value] = Var("beside", plan.beside.value.dtype, lanes)
            value = widen(substitute(plan.store.value, stands), lanes)
            self._forms[lanes] = value, column, total, other
        return self._forms[lanes]


class GroupSums(Sums):
    """Those of a warpgroup. A tensor that is read beside is copied to where results are staged."""

    plan: Product

    def __init__(self, product: ProductWriter, batch: Expr, row: Expr, column: Expr) -> None:
        tile = product.tile.rows, product.tile.width
        super().__init__(product.frame, product.plan, tile, batch, row, column)
        self.product = product

    @property
    def staged(self) -> Expr:
        """The memory in which this warpgroup stages results."""
        product = self.product
        own = product.tile.own_rows * product.memory.columns * self.dtype.itemsize
        return product.base + product.memory.staged + product.warpgroup * own

    @property
    def arrived(self) -> Expr:
        """The barrier that a tensor beside completes."""
        return self.product.other + self.product.warpgroup * 8

    def panels(self, first: int = 0) -> list[tuple[Expr, Expr, Expr]]:
        """Where panels of 64 columns and rows are staged, and their first column and row."""
        tile, found = self.product.tile, []
        for panel in range(self.product.memory.columns // PANEL_ROWS):
            for block in range(tile.blocks):
                at = self.staged + (panel * tile.blocks + block) * PANEL_BYTES
                found.append((at, self.column + first + panel * PANEL_ROWS, self.row + block * PANEL_ROWS))
        return found

    def copy_beside(self) -> None:
        """Begins to copy the tensor that is read beside."""
        w, plan, tile = self.w, self.plan, self.product.tile
        assert plan.beside is not None
        with w.when(self.product.is_first):
            w.asm(asm.STORES_READ)
            size = tile.own_rows * self.product.memory.columns * self.dtype.itemsize
            w.asm(asm.EXPECT.format(bytes=size), self.arrived)
            for at, column, row in self.panels():
                chosen = self.product.frame.maps[plan.beside.map]
                w.asm(asm.tile_load(3), at, chosen, column, row, self.batch, self.arrived)


def store_pairs(sums: GroupSums, values: Sequence[Value]) -> None:
    """Each thread stores its pairs: four threads fill 32 bytes of float32."""
    w, tile, product = sums.w, sums.product.tile, sums.product
    rows = [
        sums.row + accumulator_row(product.thread, 2 * half % 4) + half // 2 * PANEL_ROWS
        for half in range(2 * tile.blocks)
    ]
    rows = [w.let("row", row) for row in rows]
    unit = w.let("unit", sums.column // PAIR + product.thread % 4)
    starts = [_address(sums, row, unit, PAIR) for row in rows]
    for j in range(tile.width // 8):
        for half, row in enumerate(rows):
            first = half // 2 * tile.width // 2 + 4 * j + half % 2 * 2
            made = sums.result(values[first : first + 2], row, unit, 8 * j)
            inside = _inside(sums, row, unit * PAIR + 8 * j)
            store_run(w, sums.dtype, w.lanes_of(made), starts[half], 8 * j * sums.dtype.itemsize, inside)


def _inside(sums: GroupSums, row: Expr, column: Expr) -> Expr | None:
    plan, asked = sums.plan, None
    if not is_multiple(plan.rows, plan.tile.rows):
        asked = row < sums.w.count(plan.rows)
    if not is_multiple(plan.columns, plan.tile.width):
        within = column < sums.w.count(plan.columns)
        asked = within if asked is None else asked & within
    return asked


def _address(sums: Sums, row: Expr, unit: Expr, lanes: int) -> Value:
    """Of an element of the result, as a number."""
    w, plan, b = sums.w, sums.plan, sums.w.b
    start = address_of(sums.frame, plan.store.buffer)
    line = w.wide(row)
    if may_exceed(plan.batch, 1):
        line = b.binary("add", line, b.binary("mul", w.wide(sums.batch), w.long(plan.rows)))
    offset = b.binary("mul", line, w.long(plan.columns * sums.dtype.itemsize))
    within = b.binary("mul", w.wide(unit), b.const("i64", 1, lanes * sums.dtype.itemsize))
    return b.binary("add", b.binary("add", start, offset), within)


def store_run(
    w: Writer, dtype: DType, values: Sequence[Value], address: Value, offset: int, inside: Expr | None
) -> None:
    """Neighbours into memory, at most 16 bytes at a time."""
    words, kind = list(values), "b32" if dtype.itemsize == 2 else "f32"
    if dtype.itemsize == 2 and len(words) == 1:
        words, kind = [w.b.convert("trunc", w.packed(words[0], words[0], dtype), "i16")], "b16"
    elif dtype.itemsize == 2:
        words = [w.packed(words[i], words[i + 1], dtype) for i in range(0, len(words), 2)]
    for first in range(0, len(words), 4):
        some = words[first : first + 4]
        names = ", ".join(f"${1 + n}" for n in range(len(some)))
        vector, braces = (f".v{len(some)}", f"{{{names}}}") if len(some) > 1 else ("", names)
        text = f"st.global{vector}.{kind} [$0+{offset + 4 * first}], {braces};"
        if inside is None:
            w.asm(text, address, *some)
        else:
            guard = f"{{ .reg .pred p;\nsetp.ne.b32 p, ${1 + len(some)}, 0;\n@p {text} }}"
            w.asm(guard, address, *some, cast(inside, UINT32))


def finish_runs(
    sums: Sums,
    thread: Expr,
    threads: int,
    rows: int,
    lanes: int,
    first_row: Expr,
    total: Callable[[Expr, Expr], list[Value]],
    whole: bool = False,
    at_once: int = 0,
) -> None:
    """Rows of sums, from `first_row` on, finished and stored by so many threads in runs of neighbours. `total` gives
    the sums of a row and a run. `whole`: all of the tile is in the result. So many runs of a thread are `at_once`
    without a loop; 0: all."""
    w, across = sums.w, sums.tile_width // lanes
    runs = rows * across
    turns = -(-runs // threads)
    last = w.let("last", w.count(sums.plan.columns // lanes) - sums.column // lanes)

    def one(number: Expr) -> None:
        own_row, run = w.let("own_row", number // across), w.let("run", number % across)
        asked = [] if whole else [first_row + own_row < w.count(sums.plan.rows), run < last]
        asked += [number < runs] if runs % threads else []
        _finish_run(sums, first_row + own_row, run, lanes, lambda: total(own_row, run), asked)

    if not at_once or turns <= at_once:
        for first in range(0, runs, threads):
            one(thread + first)
        return
    part = next(part for part in range(at_once, 0, -1) if turns % part == 0)
    with w.repeat(lambda k: k.first < runs, first=u32(0)) as k:
        for turn in range(part):
            one(thread + k.first + turn * threads)
        k.next(first=k.first + part * threads)


def _finish_run(
    sums: Sums, row: Expr, run: Expr, lanes: int, total: Callable[[], list[Value]], asked: Sequence[Expr]
) -> None:
    w, unit = sums.w, sums.w.let("unit", sums.column // lanes + run)

    def finish() -> None:
        made = sums.result(total(), row, unit, 0)
        store_run(w, sums.dtype, w.lanes_of(made), _address(sums, row, unit, lanes), 0, None)

    condition = all_of(asked)
    if condition is None:
        finish()
        return
    with w.when(condition):
        finish()


def store_staged(sums: GroupSums, values: Sequence[Value], beside_phase: Expr) -> None:
    """Results of 16 bits, a part of the columns at a time: into shared memory as matrices, from there as boxes."""
    w, plan, product = sums.w, sums.plan, sums.product
    tile, columns = product.tile, product.memory.columns
    meeting = w.let("meeting", product.warpgroup + GROUP_BARRIER)
    unit = w.let("unit", sums.column // PAIR + product.thread % 4)
    places = [w.let("place", sums.staged + matrix_address(product.thread, group)) for group in range(4)]
    if plan.beside is not None:
        w.asm(asm.WAIT, sums.arrived, beside_phase)
    for part in range(tile.width // columns):
        if plan.beside is None:
            with w.when(product.is_first):
                w.asm(asm.STORES_READ)
            w.asm(f"bar.sync $0, {WARPGROUP};", meeting)
        for group in range(columns // 16):
            for block in range(tile.blocks):
                first = block * tile.width // 2 + part * columns // 2 + 8 * group
                at = places[group % 4] + (group // 4 * tile.blocks + block) * PANEL_BYTES
                _stage_group(sums, values[first : first + 8], block, unit, part * columns + 16 * group, at)
        w.asm(asm.WRITES_SEEN)
        w.asm(f"bar.sync $0, {WARPGROUP};", meeting)
        with w.when(product.is_first):
            for at, column, row in sums.panels(part * columns):
                w.asm(asm.tile_store(3), product.frame.maps[plan.out_map or 0], column, row, sums.batch, at)
            w.asm(asm.COMMIT_STORES)


def _stage_group(sums: GroupSums, values: Sequence[Value], block: int, unit: Expr, more: int, at: Expr) -> None:
    """16 columns: four pairs of a thread, in two rows."""
    w, plan, product = sums.w, sums.plan, sums.product
    others: list[Value | None] = [None] * 4
    if plan.beside is not None:
        words = w.read_many(asm.LOAD_MATRIX, ["i32"] * 4, at, early=False)
        others = [w.pair(*w.unpacked(word, plan.beside.value.dtype)) for word in words]
    packed = []
    for number in range(4):
        row = sums.row + block * PANEL_ROWS + accumulator_row(product.thread, 2 * number)
        pair = sums.result(values[2 * number : 2 * number + 2], row, unit, more + number // 2 * 8, others[number])
        packed.append(w.packed(w.b.extract(pair, 0), w.b.extract(pair, 1), sums.dtype))
    w.asm(asm.STORE_MATRIX, at, *packed)
