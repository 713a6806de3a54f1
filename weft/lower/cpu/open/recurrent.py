"""The steps of a recurrent layer as open kernels, forward and backward.

For each step, and for some cells at a time, a register tile makes the product of states (backward:
of the gates' gradients) and packed weights; what a cell does follows while the sums are in a cache.
Sequences are rows that lie step after step, `size` cells each; those that take part in a step are
the first ones. A table says where they are:

    place, rows    the first row of the step, and how many there are
    past, before   the same of the step whose state it starts from; other rows start from the first
    next, after    the same of the step that starts from it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from .... import te
from ....base.cpu_target import CpuTarget
from ....base.dtype import INT64, DType
from ....ops.nn._rnn_kernels import GATES, KEPT
from ....te.build import KernelBuilder
from ....te.expr import Expr, Var, binary, select
from ....te.loops import Buffer, Kernel
from ....te.visit import masked_load
from ..tile import registers
from .operands import UNBOUNDED
from .tile import Sums, TileSize, ceil_div, clamped, lanes_from

COLUMNS = 6  # of the table
BESIDE = 4  # vectors of cells in a tile, where a cell has one sum
OTHERS = 8  # registers beside those of the sums


def step_tile(target: CpuTarget, dtype: DType, sums: int) -> TileSize:
    """The tile of a product whose cells have some sums each."""
    vectors = sums if sums > 1 else BESIDE
    return TileSize((registers(target) - OTHERS) // vectors, vectors, target.lanes(dtype))


def tile_cells(size: TileSize, sums: int) -> int:
    """How many cells a tile is wide."""
    return size.lanes if sums > 1 else size.width


def pack_kernel(dtype: DType, sums: int, target: CpuTarget) -> Kernel:
    """Weights as [tile][k][vector]: the vectors of a tile are the sums of its cells, or of cells
    that follow each other. Scalars: cells, products, elements between products, between cells and
    between sums of a cell, tiles."""
    b, size = KernelBuilder("pack_weights"), step_tile(target, dtype, sums)
    names = ("cells", "depth", "product_step", "cell_step", "sum_step", "tiles")
    cells, depth, product_step, cell_step, sum_step, tiles = (b.scalar(name) for name in names)
    source, packed = (b.arg(name, dtype, (UNBOUNDED,)) for name in ("source", "packed"))
    with b.parallel("tile", tiles) as tile, b.loop("vector", size.vectors) as vector:
        beside = 0 if sums > 1 else vector * size.lanes
        first = b.let("first", tile * tile_cells(size, sums) + beside)
        start = b.let("start", first * cell_step + (vector * sum_step if sums > 1 else 0))
        mask = b.let("mask", lanes_from(first, size.lanes) < cells)
        with b.loop("k", depth) as k:
            index = lanes_from(start + k * product_step, size.lanes, cell_step)
            to = ((tile * depth + k) * size.vectors + vector) * size.lanes
            value = masked_load(source, (index,), mask)
            b.store(packed, lanes_from(to, size.lanes), value)
    return b.finish()


class _Arguments(NamedTuple):
    """The scalars, in their order."""

    batch: Var
    cells: Var
    depth: Var  # products of a sum; none where the caller has made them
    bias_step: Var  # from row to row: none, or a sum's beginning is given for each row
    total: Var  # rows of all steps
    first: Var  # step of this call
    steps: Var
    turn_rows: Var
    row_turns: Var
    turn_tiles: Var
    tiles: Var
    turns: Var


class _Row(NamedTuple):
    """A row and some cells of it while what they do is written."""

    number: Var  # among those of its step
    at: Var  # among all
    cells: Expr
    mask: Expr
    sums: list[Expr]


class _Steps:
    """A kernel that goes through steps in the order of its table."""

    def __init__(self, name: str, mode: str, dtype: DType, sums: int, target: CpuTarget) -> None:
        self.b, self.mode, self.dtype, self.sums = KernelBuilder(name), mode, dtype, sums
        self.size = step_tile(target, dtype, sums)
        self.given = _Arguments(*[self.b.scalar(name) for name in _Arguments._fields])
        self.table = self.b.arg("table", INT64, (UNBOUNDED,))
        self.weights = self.arg("weights")

    def arg(self, name: str) -> Buffer:
        return self.b.arg(name, self.dtype, (UNBOUNDED,))

    def kernel(self) -> Kernel:
        b, given = self.b, self.given
        with b.parallel("turn", given.turns) as turn:
            first_row = b.let("first_row", turn % given.row_turns * given.turn_rows)
            first_tile = b.let("first_tile", turn // given.row_turns * given.turn_tiles)
            last_tile = binary("min", first_tile + given.turn_tiles, given.tiles)
            tiles = b.let("tiles", last_tile - first_tile)
            edge = b.alloc("edge", self.dtype, (self.size.rows * self.size.width,), alignment=64)
            with b.loop("step", given.steps) as step:
                self.read_table(b.let("now", given.first + step))
                rows = binary("min", self.rows - first_row, given.turn_rows)
                rows = b.let("rows", binary("max", rows, 0))
                with b.loop("tile", tiles) as number:
                    tile = b.let("tile", first_tile + number)
                    with self._even_rows(rows) as (row, left):
                        self._tile(tile, b.let("row", first_row + row), left, edge)
        return b.finish()

    def read_table(self, step: Expr) -> None:
        values = [self.b.let("entry", self.table[step * COLUMNS + i]) for i in range(COLUMNS)]
        self.place, self.rows, self.past, self.before, self.next, self.after = values

    @contextmanager
    def _even_rows(self, rows: Expr) -> Iterator[tuple[Var, Var]]:
        """Tiles of about as many rows each: the first, and how many."""
        b = self.b
        count = b.let("count", ceil_div(rows, self.size.rows))
        each = b.let("each", (rows + count - 1) // binary("max", count, 1))
        with b.loop("part", count) as part:
            row = b.let("row", part * each)
            yield row, b.let("left", binary("min", each, rows - row))

    def _tile(self, tile: Expr, row: Expr, left: Expr, edge: Buffer) -> None:
        b, size = self.b, self.size
        source, depth, places = self.operand(row, left)
        first = b.let("first", tile * (self.whole_depth() * size.width))

        def write(rows: int) -> None:
            kind = size._replace(rows=rows)
            starts = [b.let("start", places[i]) for i in range(rows)]
            sums = Sums(b, self.dtype, kind)
            sums.fill(lambda i, v: te.const(0, self.dtype))
            read = lambda i, k: source[starts[i] + k]
            sums.add_products(depth, read, self.weights, first, size.width, unroll=1)
            for i in range(rows):
                for v in range(size.vectors):
                    index = lanes_from(i * size.width + v * size.lanes, size.lanes)
                    b.store(edge, index, sums[i, v])

        self._choose(left, self.size.rows, write)
        with b.loop("i", left) as i:
            number = b.let("number", row + i)
            self._cells(tile, number, b.let("at", self.place + number), i, edge)

    def _choose(self, left: Expr, rows: int, write: Callable[[int], None]) -> None:
        if rows == 1:
            write(1)
            return
        smaller = rows - 2 if rows > 4 else rows // 2
        with self.b.when(left > smaller):
            write(rows)
        with self.b.otherwise():
            self._choose(left, smaller, write)

    def row_places(self, left: Expr, place: Callable[[Expr], Expr]) -> Buffer:
        """Where the rows of a tile begin, by way of memory; the last one for those beyond it."""
        b = self.b
        places = b.alloc("places", INT64, (self.size.rows,))
        with b.loop("i", self.size.rows) as i:
            b.store(places, i, place(b.let("number", clamped(i, left))))
        return places

    def _cells(self, tile: Expr, number: Var, at: Var, i: Expr, edge: Buffer) -> None:
        b, size = self.b, self.size

        def mine(v: Any) -> Expr:
            return edge[lanes_from(i * size.width + v * size.lanes, size.lanes)]

        if self.sums > 1:
            first, sums = b.let("first", tile * size.lanes), [mine(v) for v in range(self.sums)]
            cells = lanes_from(first, size.lanes)
            self.cell(_Row(number, at, cells, b.let("mask", cells < self.given.cells), sums))
            return
        beside = binary("min", ceil_div(self.given.cells, size.lanes) - tile * size.vectors, BESIDE)
        with b.loop("vector", beside) as v:
            cells = lanes_from(b.let("first", tile * size.width + v * size.lanes), size.lanes)
            mask = b.let("mask", cells < self.given.cells)
            self.cell(_Row(number, at, cells, mask, [mine(v)]))

    def load(self, buffer: Buffer, start: Any, row: _Row) -> Var:
        """What a buffer has for the cells of a row, that begins there."""
        return self.b.let("x", masked_load(buffer, (row.cells + start,), row.mask))

    def store(self, buffer: Buffer, start: Any, row: _Row, value: Expr) -> None:
        self.b.store(buffer, row.cells + start, value, row.mask)

    def operand(self, row: Expr, left: Expr) -> tuple[Buffer, Expr, Buffer]:
        """What rows are multiplied with weights, the length of them, and where they begin."""
        raise NotImplementedError

    def whole_depth(self) -> Expr:
        raise NotImplementedError

    def cell(self, row: _Row) -> None:
        raise NotImplementedError


class _Forward(_Steps):
    """Rows of `states` and `cells` behind those of all steps are what sequences begin with."""

    def __init__(self, mode: str, kept: bool, dtype: DType, target: CpuTarget) -> None:
        super().__init__(f"{mode}_steps", mode, dtype, GATES[mode], target)
        self.gates, self.bias, self.states = map(self.arg, ("gates", "bias", "states"))
        self.cells = self.arg("cells") if mode == "lstm" else None
        self.kept = self.arg("kept") if kept else None

    def whole_depth(self) -> Expr:
        return self.given.cells

    def source(self, number: Expr) -> Expr:
        """The row that a sequence goes on from."""
        return select(number < self.before, self.past, self.given.total) + number

    def operand(self, row: Expr, left: Expr) -> tuple[Buffer, Expr, Buffer]:
        cells = self.given.cells
        places = self.row_places(left, lambda i: self.source(row + i) * cells)
        return self.states, self.given.depth, places

    def cell(self, row: _Row) -> None:
        b, count, size = self.b, GATES[self.mode], self.given.cells
        begin = b.let("begin", row.number * self.given.bias_step)
        biases = [self.load(self.bias, begin + g * size, row) for g in range(count)]
        own = [b.let("h", total + bias) for total, bias in zip(row.sums, biases)]
        first = b.let("first", row.at * (count * size))
        x = [self.load(self.gates, first + g * size, row) for g in range(count)]
        source = b.let("source", self.source(row.number) * size)
        kept, new = getattr(self, f"_{self.mode}")(row, x, own, source)
        self.store(self.states, row.at * size, row, new)
        if self.kept is not None:
            first = b.let("first", row.at * (KEPT[self.mode] * size))
            for g, value in enumerate(kept):
                self.store(self.kept, first + g * size, row, value)

    def _lstm(self, row: _Row, x: list[Var], own: list[Var], source: Expr) -> Any:
        b, cells = self.b, self.cells
        assert cells is not None
        i, f, o = (b.let("gate", te.sigmoid(x[g] + own[g])) for g in (0, 1, 3))
        g = b.let("gate", te.tanh(x[2] + own[2]))
        c = b.let("c", f * self.load(cells, source, row) + i * g)
        self.store(cells, row.at * self.given.cells, row, c)
        return [i, f, g, o], o * te.tanh(c)

    def _gru(self, row: _Row, x: list[Var], own: list[Var], source: Expr) -> Any:
        b = self.b
        r, z = (b.let("gate", te.sigmoid(x[g] + own[g])) for g in (0, 1))
        n = b.let("gate", te.tanh(x[2] + r * own[2]))
        return [r, z, n, own[2]], n + z * (self.load(self.states, source, row) - n)

    def _rnn_tanh(self, row: _Row, x: list[Var], own: list[Var], source: Expr) -> Any:
        new = self.b.let("new", te.tanh(x[0] + own[0]))
        return [new], new

    def _rnn_relu(self, row: _Row, x: list[Var], own: list[Var], source: Expr) -> Any:
        total = self.b.let("total", x[0] + own[0])
        new = self.b.let("new", select(total < 0.0, te.const(0, self.dtype), total))
        return [new], new


class _Backward(_Steps):
    """`carried` and `cells_grad` hold, for each sequence, the gradients that go on to the step
    before, products with weights aside. `first` is what sequences began with: cells of lstm, states
    of gru; `ago` the same after every step."""

    def __init__(self, mode: str, dtype: DType, target: CpuTarget) -> None:
        super().__init__(f"{mode}_steps_back", mode, dtype, 1, target)
        self.grads, self.kept, self.made = map(self.arg, ("output_grad", "kept", "gates_grad"))
        self.carried = self.arg("carried")
        if mode in ("lstm", "gru"):
            self.ago, self.first = self.arg("ago"), self.arg("first_value")
        self.cells_grad = self.arg("cells_grad") if mode == "lstm" else None
        self.hidden = self.arg("hidden_grad") if mode == "gru" else self.made

    def whole_depth(self) -> Expr:
        return self.given.cells * GATES[self.mode]

    def operand(self, row: Expr, left: Expr) -> tuple[Buffer, Expr, Buffer]:
        wide = self.whole_depth()
        last = binary("max", self.after - 1, 0)
        place = lambda i: (self.next + binary("min", row + i, last)) * wide
        depth = self.b.let("depth", select(row < self.after, wide, 0))
        return self.hidden, depth, self.row_places(left, place)

    def cell(self, row: _Row) -> None:
        b, size = self.b, self.given.cells
        mine = b.let("mine", row.number * size)
        back = select(row.number < self.after, row.sums[0], te.const(0, self.dtype))
        given = self.load(self.grads, row.at * size, row) + self.load(self.carried, mine, row)
        d = b.let("d", given + back)
        first = b.let("first", row.at * (KEPT[self.mode] * size))
        kept = [self.load(self.kept, first + g * size, row) for g in range(KEPT[self.mode])]
        made, hidden, carried = getattr(self, f"_{self.mode}")(row, mine, d, kept)
        self.store(self.carried, mine, row, carried)
        first = b.let("first", row.at * self.whole_depth())
        for g, value in enumerate(made):
            self.store(self.made, first + g * size, row, value)
        for g, value in enumerate(hidden):
            self.store(self.hidden, first + g * size, row, value)

    def _before(self, row: _Row, mine: Expr) -> Expr:
        goes_on = self.b.let("goes_on", row.number < self.before)
        place = select(goes_on, self.past + row.number, 0) * self.given.cells
        old, first = self.load(self.ago, place, row), self.load(self.first, mine, row)
        return self.b.let("before", select(goes_on, old, first))

    def _lstm(self, row: _Row, mine: Expr, d: Expr, kept: list[Var]) -> Any:
        b, cells_grad = self.b, self.cells_grad
        assert cells_grad is not None
        i, f, g, o = kept
        c = self._before(row, mine)
        level = b.let("level", te.tanh(f * c + i * g))
        through = self.load(cells_grad, mine, row) + d * o * (1.0 - level * level)
        total = b.let("total", through)
        self.store(cells_grad, mine, row, total * f)
        parts = total * g * i * (1.0 - i), total * c * f * (1.0 - f), total * i * (1.0 - g * g)
        return [*parts, d * level * o * (1.0 - o)], [], self._nothing()

    def _gru(self, row: _Row, mine: Expr, d: Expr, kept: list[Var]) -> Any:
        b = self.b
        r, z, n, own = kept
        change = b.let("change", d * (1.0 - z) * (1.0 - n * n))
        of_r = b.let("of_r", change * own * r * (1.0 - r))
        of_z = b.let("of_z", d * (self._before(row, mine) - n) * z * (1.0 - z))
        return [of_r, of_z, change], [of_r, of_z, change * r], d * z

    def _rnn_tanh(self, row: _Row, mine: Expr, d: Expr, kept: list[Var]) -> Any:
        return [d * (1.0 - kept[0] * kept[0])], [], self._nothing()

    def _rnn_relu(self, row: _Row, mine: Expr, d: Expr, kept: list[Var]) -> Any:
        return [select(kept[0] > 0.0, d, self._nothing())], [], self._nothing()

    def _nothing(self) -> Expr:
        return te.const(0, self.dtype)


def forward_kernel(mode: str, kept: bool, dtype: DType, target: CpuTarget) -> Kernel:
    """Buffers: table, weights, gates, bias, states, cells (lstm), kept gates (if wanted)."""
    return _Forward(mode, kept, dtype, target).kernel()


def backward_kernel(mode: str, dtype: DType, target: CpuTarget) -> Kernel:
    """Buffers: table, weights, gradient of outputs, kept gates, gradient of gates, carried; then
    ago and first (lstm, gru), gradient of cells (lstm), that of the state's part (gru)."""
    return _Backward(mode, dtype, target).kernel()
