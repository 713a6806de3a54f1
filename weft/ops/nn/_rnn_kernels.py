"""The loops of recurrent layers: some sequences a thread, which takes all steps of them. How many steps and sequences
there are may be arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import DType
from .._kernels import Body, variable, wide_dtype

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}  # of a cell
KEPT = {"lstm": 4, "gru": 4, "rnn_tanh": 1, "rnn_relu": 1}  # that a gradient reads
LANES = 16
PANEL = 2 * LANES  # columns of packed weights that lie together
ROWS = (4, 2)  # sequences that a product takes at once, if they are a multiple of it
ALONE = 2  # panels that it takes at once for a sequence alone
GROUPS = 8  # blocks of sequences that a thread takes one after the other, at most
CACHED = 1 << 20  # bytes of weights that stay near a core


def limited(params: Any) -> bool:
    """Whether the cells of lstm are clipped."""
    return params.clip_min > -np.inf or params.clip_max < np.inf


Element = Callable[[te.Expr], None]
Value = Callable[[te.Expr, te.Expr], te.Expr]
Visit = Callable[[te.Expr, te.Expr], None]


def _nothing(n: te.Expr, j: te.Expr) -> None:
    """What is done for sequences that go on, where only those that have ended matter."""


class _Layer:
    """The kernel of a layer while it is written: its sizes, its buffers by name, and what the steps
    of some sequences do."""

    def __init__(self, params: Any, names: Sequence[str], inputs: Any, results: Any, outputs: Any):
        specs = dict(zip(names, inputs))
        (self.steps, self.batch, wide), self.dtype = specs["gates"]
        self.wide, self.state = int(wide), int(specs["state"][0][1])
        self.size = self.wide // GATES[params.mode]
        self.params = params
        self.type: DType = wide_dtype(self.dtype)
        self.block = int(specs["packed_weight"][0][2]) if "packed_weight" in specs else PANEL
        self.body = Body("rnn", inputs, outputs)
        self.views = {i: shape for i, (shape, _) in enumerate([*inputs, *outputs])}
        self.keys = [*names, *(f"out_{name}" for name in results)]
        self.at: dict[str, Any] = {}
        self.turn: te.Expr | None = None  # that is being written

    def temporary(self, name: str, *shape: int) -> None:
        self.views[self.body.temporary(shape, self.type)] = shape
        self.keys.append(name)

    def written(self, work: int, write: Callable[[], None]) -> Any:
        """The kernel, in which `write` writes what is done with some sequences: first for blocks of several, then for
        those left, one at a time."""
        rows = next((rows for rows in ROWS if not te.is_open(self.batch) and self.batch % rows == 0), ROWS[0])
        blocks, rest = divmod(self.batch, rows)
        groups: Any = 1
        if self.state * self.wide * self.type.itemsize > CACHED:  # weights are read once for all blocks of a thread
            groups = te.lesser(GROUPS, te.greater((blocks + 1) // 2, 1))
        turns = (blocks + (groups - 1)) // groups
        with self.body.kernel(self.views, work) as (b, *buffers):
            self.b = b
            self.at = dict(zip(self.keys, buffers))
            with b.parallel("p", turns + rest) as p:
                if te.is_open(blocks) or blocks:
                    with b.when(p < turns):
                        first = b.let("first_block", p * groups)
                        count = b.let("groups", te.min(te.as_expr(groups), blocks - first))
                        self._write_at(first * rows, rows, count, write)
                if te.is_open(rest) or rest:
                    with b.when(p >= turns):
                        self._write_at(p + (blocks * rows - turns), 1, te.as_expr(1), write)
        return self.body.kernels

    def _write_at(self, first: te.Expr, rows: int, groups: te.Expr, write: Callable[[], None]) -> None:
        self.first, self.rows, self.groups = self.b.let("first", first), rows, groups
        write()

    def wide_of(self, name: str, *index: te.ExprLike) -> te.Expr:
        return te.cast(self.at[name][index], self.type)

    def put(self, name: str, index: Sequence[te.ExprLike], value: te.ExprLike) -> None:
        buffer = self.at[name]
        self.b.store(buffer, index, te.cast(te.as_expr(value, self.type), buffer.dtype))

    def each(self, extent: int, visit: Element) -> None:
        """visit(j) for all j, many at once."""
        full, rest = divmod(extent, LANES)
        if full:
            with self.b.loop("block", full) as block, self.b.vector("lane", LANES) as lane:
                visit(block * LANES + lane)
        if rest:
            with self.b.vector("lane", rest) as lane:
                visit(lane + full * LANES)

    # Steps

    def run_steps(self, step: Callable[[], None], skip: Callable[[], None], back: bool = False) -> None:
        """Writes step() for each turn that some sequence takes, from the last on if they go back; skip() for those
        that none takes."""
        b, lengths = self.b, self.params.lengths
        count = self._longest() if lengths else te.as_expr(self.steps)
        with b.loop("turn", count) as turn:
            self.turn = b.let("turn", count - 1 - turn) if back else turn
            step()
        if lengths:
            with b.loop("turn", self.steps - count) as turn:
                self.turn = b.let("turn", count + turn)
                skip()
        self.turn = None

    def _longest(self) -> te.Expr:
        longest = variable(self.b, "longest", 0)
        with self.b.loop("row", self.groups * self.rows) as row:
            self.b.store(longest, (), te.max(longest[()], self._end(self.first + row)))
        return self.b.let("steps", longest[()])

    def _end(self, n: te.Expr) -> te.Expr:
        """How many steps a sequence takes."""
        length = te.cast(self.at["length"][n], "int64")
        return te.min(te.max(length, 0), self.steps)

    def each_row(self, extent: int, visit: Visit, skip: Visit | None = None) -> None:
        """visit(n, j) for each sequence and all j; during a turn `time` is the step that the sequence takes then, and
        skip(n, j) is for those that have ended."""
        b = self.b
        with b.loop("row", self.groups * self.rows) as row:
            n = b.let("n", self.first + row)
            if self.turn is None or not self.params.lengths:
                turn = te.as_expr(0) if self.turn is None else self.turn
                self.time = self.steps - 1 - turn if self.params.reverse else turn
                self.each(extent, lambda j: visit(n, j))
                return
            end = b.let("end", self._end(n))
            with b.when(self.turn < end):
                self.time = b.let("time", end - 1 - self.turn) if self.params.reverse else self.turn
                self.each(extent, lambda j: visit(n, j))
            if skip is not None:
                with b.otherwise():
                    self.time = self.turn
                    self.each(extent, lambda j: skip(n, j))

    def zero(self, name: str) -> Visit:
        """Puts 0 at the step that is being taken."""
        return lambda n, j: self.put(name, (self.time, n, j), 0)

    # Products

    def pack(self, names: Sequence[str], turned: bool = False) -> None:
        """Copies matrices, with their axes swapped if they are turned, so that the columns that are
        taken at once lie together."""
        for name in names:
            shape, _ = self.body.specs[self.keys.index(name)]
            depth, width = map(int, shape[::-1] if turned else shape)
            packed = self.body.temporary((-(-width // self.block), depth, self.block), self.type)
            self.views[packed] = self.body.specs[packed][0]
            self.keys.append(f"packed_{name}")
            views = {self.keys.index(name): shape, packed: self.views[packed]}
            with self.body.kernel(views, depth * width) as (b, source, target):
                self._pack(b, source, target, depth, width, turned)

    def _pack(self, b: Any, source: Any, target: Any, depth: int, width: int, turned: bool) -> None:
        """Reads along rows, whichever way they go."""

        def copy(block: te.Expr, k: te.ExprLike, at: te.ExprLike) -> None:
            column = block * self.block + at
            b.store(target, (block, k, at), te.cast(source[(column, k) if turned else (k, column)], self.type))

        full, rest = divmod(width, self.block)
        with b.parallel("block", full + (rest > 0)) as block:
            for count, chosen in ((self.block, block < full), (rest, block >= full)):
                if not count:
                    continue
                with b.when(chosen):
                    if turned:
                        self._each_vector(b, depth, count, lambda k, at: copy(block, k, at))
                    else:
                        self._each_vector(b, count, depth, lambda at, k: copy(block, k, at))

    def _each_vector(self, b: Any, length: int, rows: int, visit: Visit) -> None:
        """visit(i, row) for all i below a length, many at once, and all rows."""
        full, rest = divmod(length, LANES)
        if full:
            with b.loop("part", full) as part, b.loop("row", rows) as row, b.vector("lane", LANES) as lane:
                visit(part * LANES + lane, row)
        if rest:
            with b.loop("row", rows) as row, b.vector("lane", rest) as lane:
                visit(lane + full * LANES, row)

    def live_product(self, left: str, right: str, target: str, begin: Any = None) -> None:
        """target[n] = left[n] right (+ begin(n, j)), for sequences that take the turn."""
        if not self.params.lengths:
            self.product(left, right, target, begin)
            return
        self.product(left, right, "made", begin)
        width = int(self.at[target].shape[1].value)
        self.each_row(width, lambda n, j: self.put(target, (n, j), self.at["made"][n, j]))

    def product(
        self, left: str, right: str, target: str, begin: Any = None, columns: tuple[int, int] | None = None
    ) -> None:
        """target[n] = left[n] right (+ begin(n, j)), for all sequences here; at least some columns."""
        width = int(self.at[target].shape[1].value)
        start, stop = columns or (0, width)
        full, rest = divmod(width, self.block)
        low, high = start // self.block, min(-(-stop // self.block), full)
        at_once = ALONE if self.rows == 1 else 1
        turns, left_over = divmod(max(high - low, 0), at_once)
        vectors = self.block // LANES
        call = (left, right, target, begin)
        if turns:
            with self.b.loop("columns", turns) as turn:
                self._groups_of(turn * at_once + low, (0, at_once * vectors, LANES), *call)
        if left_over:
            self._groups_of(te.as_expr(low + turns * at_once), (0, left_over * vectors, LANES), *call)
        for part in [(0, rest // LANES, LANES), (rest // LANES * LANES, 1, rest % LANES)]:
            if part[1] * part[2] and stop > full * self.block:
                self._groups_of(te.as_expr(full), part, *call)

    def _groups_of(self, block: te.Expr, part: tuple[int, int, int], *call: Any) -> None:
        with self.b.loop("group", self.groups) as group:
            first = self.b.let("start", self.first + group * self.rows)
            self._columns(block, first, part, *call)

    def _columns(
        self, block: te.Expr, start: te.Expr, part: tuple[int, int, int], left: str, right: str, target: str, begin: Any
    ) -> None:
        """Some columns of a product, for sequences from `start` on. `part` says where they begin in
        a packed block, and how many vectors of how many lanes they are, those of the next blocks among them."""
        first, vectors, lanes = part
        b, rows, packed = self.b, range(self.rows), self.at[f"packed_{right}"]
        with b.vector("lane", lanes) as lane:
            offsets = [divmod(first + v * lanes, self.block) for v in range(vectors)]
            inside = [(block + panel, lane + offset) for panel, offset in offsets]
            places = [panel * self.block + at for panel, at in inside]
            acc = b.alloc("acc", self.type, (self.rows * vectors,), scope="register")
            for row in rows:
                for v, j in enumerate(places):
                    value = te.const(0, self.type) if begin is None else begin(start + row, j)
                    b.store(acc, row * vectors + v, value)
            with b.loop("k", packed.shape[1]) as k:
                columns = [b.let("w", te.cast(packed[panel, k, at], self.type)) for panel, at in inside]
                for row in rows:
                    value = b.let("x", self.at[left][start + row, k])
                    for v, column in enumerate(columns):
                        at = row * vectors + v
                        b.store(acc, at, acc[at] + value * column)
            for row in rows:
                for v, j in enumerate(places):
                    b.store(self.at[target], (start + row, j), acc[row * vectors + v])

    # Cells

    def bias(self, n: te.Expr, j: te.Expr) -> te.Expr:
        return self.wide_of("bias", j)

    def start(self) -> None:
        self.each_row(self.state, lambda n, j: self.put("h", (n, j), self.wide_of("state", n, j)))
        if "c" in self.at:
            self.each_row(self.size, lambda n, j: self.put("c", (n, j), self.wide_of("cell", n, j)))

    def forward(self, keep: Callable[..., None] | None = None) -> None:
        """h and c after a step, from those before; keep(n, j, gates) sees what is kept."""
        if self.params.reset_first:
            self._reset_products()
        else:
            self.product("h", "weight", "own", self.bias)
        target = "raw" if self.params.projected else "h"

        def cell(n: te.Expr, j: te.Expr) -> None:
            parts = [j + k * self.size for k in range(GATES[self.params.mode])]
            gates = [self.wide_of("gates", self.time, n, part) for part in parts]
            recurrent = [self.at["own"][n, part] for part in parts]
            acts, new = self._cell(n, j, gates, recurrent)
            if keep is not None:
                keep(n, j, acts)
            self.put(target, (n, j), new)

        self.each_row(self.size, cell)
        if self.params.projected:
            self.live_product("raw", "projection", "h")

    def _reset_products(self) -> None:
        """What the state adds to r and z, then what it adds to n once r has acted on it."""
        self.product("h", "weight", "own", self.bias, (0, 2 * self.size))

        def reset(n: te.Expr, j: te.Expr) -> None:
            r = te.sigmoid(self.wide_of("gates", self.time, n, j) + self.at["own"][n, j])
            self.put("reset", (n, j), r * self.at["h"][n, j])
            self.put("own_z", (n, j), self.at["own"][n, j + self.size])  # which the next product may write over

        self.each_row(self.size, reset)
        self.product("reset", "weight", "own", self.bias, (2 * self.size, 3 * self.size))

    def _cell(self, n: te.Expr, j: te.Expr, gates: list[Any], recurrent: list[Any]) -> Any:
        """Gates to keep and the new output; the cell is changed in place."""
        b, mode = self.b, self.params.mode
        if mode == "lstm":
            i, f, g, o = (a + h for a, h in zip(gates, recurrent))
            i, f, o = (b.let("gate", te.sigmoid(gate)) for gate in (i, f, o))
            g = b.let("gate", te.tanh(g))
            c = b.let("c", self.clipped(f * self.at["c"][n, j] + i * g))
            self.put("c", (n, j), c)
            return [i, f, g, o], b.let("new", o * te.tanh(c))
        if mode == "gru" and self.params.reset_first:
            z = b.let("gate", te.sigmoid(gates[1] + self.at["own_z"][n, j]))
            value = b.let("gate", te.tanh(gates[2] + recurrent[2]))
            return [], b.let("new", value + z * (self.at["h"][n, j] - value))
        if mode == "gru":
            r, z = (b.let("gate", te.sigmoid(a + h)) for a, h in zip(gates[:2], recurrent))
            value = b.let("gate", te.tanh(gates[2] + r * recurrent[2]))
            new = b.let("new", value + z * (self.at["h"][n, j] - value))
            return [r, z, value, recurrent[2]], new
        total = b.let("total", gates[0] + recurrent[0])
        new = te.tanh(total) if mode == "rnn_tanh" else te.select(total < 0.0, 0.0, total)
        new = b.let("new", new)
        return [new], new

    def clipped(self, cell: te.Expr) -> te.Expr:
        low, high = self.params.clip_min, self.params.clip_max
        if not limited(self.params):
            return cell
        cell = self.b.let("plain", cell)
        made = te.select(cell < low, low, te.select(cell > high, high, cell))
        return te.select(te.isnan(cell), low, made) if self.params.clip_nan else made


def forward_kernels(params: Any, names: Any, inputs: Any, results: Any, outputs: Any) -> Any:
    """The kernel of rnn, and of the one whose weight is packed."""
    layer = _Layer(params, names, inputs, results, outputs)
    layer.pack([name for name in ("weight", "projection") if name in names])
    layer.temporary("h", layer.batch, layer.state)
    layer.temporary("own", layer.batch, layer.wide)
    if params.mode == "lstm":
        layer.temporary("c", layer.batch, layer.size)
    if params.projected:
        layer.temporary("raw", layer.batch, layer.size)
    if params.projected and params.lengths:
        layer.temporary("made", layer.batch, layer.state)
    if params.reset_first:
        layer.temporary("reset", layer.batch, layer.size)
        layer.temporary("own_z", layer.batch, layer.size)

    kept = (2 if params.mode == "lstm" else 1) if params.kept else 0

    def keep(n: te.Expr, j: te.Expr, gates: Any) -> None:
        for k, gate in enumerate(gates):
            layer.put("out_kept_gates", (layer.time, n, j + k * layer.size), gate)
        if params.mode == "lstm":
            layer.put("out_kept_cells", (layer.time, n, j), layer.at["c"][n, j])

    made = lambda n, j: layer.put("out_output", (layer.time, n, j), layer.at["h"][n, j])

    def finish(visit: Visit) -> None:
        """Puts what a step made where it belongs, and zeros for sequences that have ended."""
        layer.each_row(layer.state, visit, layer.zero("out_output"))
        for name, width in zip(results[-kept:] if kept and params.lengths else (), (KEPT[params.mode], 1)):
            layer.each_row(width * layer.size, _nothing, layer.zero(f"out_{name}"))

    def step() -> None:
        layer.forward(keep if params.kept else None)
        finish(made)

    def write() -> None:
        layer.start()
        layer.run_steps(step, lambda: finish(_nothing))
        last = lambda name, kept: lambda n, j: layer.put(name, (n, j), layer.at[kept][n, j])
        layer.each_row(layer.state, last("out_state", "h"))
        if params.mode == "lstm":
            layer.each_row(layer.size, last("out_cell", "c"))

    work = layer.steps * layer.batch * layer.wide * (2 * layer.state + 16)
    return layer.written(work, write)


class _Backward(_Layer):
    """The gradient, from what was kept of steps."""

    def ago(self, of: str, first: str) -> Value:
        """What a value was before a step."""
        assert self.turn is not None
        past = self.time + 1 if self.params.reverse else self.time - 1
        past = self.b.let("past", te.min(te.max(past, 0), self.steps - 1))
        begins = self.b.let("begins", self.turn.equal(0))
        return lambda n, j: te.select(begins, self.wide_of(first, n, j), self.wide_of(of, past, n, j))

    def step_back(self) -> None:
        projected, gru = self.params.projected, self.params.mode == "gru"

        def gather(n: te.Expr, j: te.Expr) -> None:
            total = self.wide_of("output_grad", self.time, n, j) + self.at["h"][n, j]
            self.put("d", (n, j), total)
            self.put("out_before", (self.time, n, j), self.ago("output", "state")(n, j))
            if projected:
                self.put("out_output", (self.time, n, j), total)

        self.each_row(self.state, gather)
        if projected:
            self.product("d", "projection", "raw")
        self.each_row(self.size, self._cell_back)
        self.live_product("own", "weight", "h", self._carried if gru else None)
        self.skip_back()

    def skip_back(self) -> None:
        """Zeros for sequences that have ended."""
        if not self.params.lengths:
            return
        widths = {"out_gates": self.wide, "out_before": self.state}
        if self.params.mode == "gru":
            widths["out_hidden"] = self.wide
        if self.params.projected:
            widths |= {"out_output": self.state, "out_raw": self.size}
        for name, width in widths.items():
            self.each_row(width, _nothing, self.zero(name))

    def _carried(self, n: te.Expr, j: te.Expr) -> te.Expr:
        """What gru carries past its gates."""
        return self.at["raw"][n, j]

    def _cell_back(self, n: te.Expr, j: te.Expr) -> None:
        """Gradients of the gates: "own" of the state's part, and what is carried on."""
        b, size, mode, time = self.b, self.size, self.params.mode, self.time
        kept = [b.let("gate", self.wide_of("kept_gates", time, n, j + k * size)) for k in range(KEPT[mode])]
        d = b.let("d", self.at["raw" if self.params.projected else "d"][n, j])
        if mode == "lstm":
            hidden = grads = self._lstm_back(n, j, kept, d)
        elif mode == "gru":
            r, z, value, recurrent = kept
            change = b.let("change", d * (1.0 - z) * (1.0 - value * value))
            of_z = d * (self.ago("output", "state")(n, j) - value) * z * (1.0 - z)
            grads = [b.let("g", part) for part in (change * recurrent * r * (1.0 - r), of_z, change)]
            hidden = [*grads[:2], b.let("g", change * r)]
            self.put("raw", (n, j), d * z)
        else:
            (out,) = kept
            slope = d * (1.0 - out * out)
            slope = slope if mode == "rnn_tanh" else te.select(out > 0.0, d, 0.0)
            hidden = grads = [b.let("g", slope)]
            if self.params.projected:
                self.put("out_raw", (time, n, j), out)
        for k in range(GATES[mode]):
            self.put("out_gates", (time, n, j + k * size), grads[k])
            self.put("own", (n, j + k * size), hidden[k])
            if mode == "gru":
                self.put("out_hidden", (time, n, j + k * size), hidden[k])

    def _lstm_back(self, n: te.Expr, j: te.Expr, gates: Any, d: Any) -> list[Any]:
        b = self.b
        i, f, g, o = gates
        before = b.let("before", self.ago("kept_cells", "cell")(n, j))
        plain = b.let("plain", f * before + i * g)
        level = b.let("level", te.tanh(self.clipped(plain)))
        total = self.at["c"][n, j] + d * o * (1.0 - level * level)
        low, high = self.params.clip_min, self.params.clip_max
        if limited(self.params):
            total = te.select((plain >= low) & (plain <= high), total, 0.0)
        total = b.let("total", total)
        self.put("c", (n, j), total * f)
        if self.params.projected:
            self.put("out_raw", (self.time, n, j), o * level)
        parts = total * g * i * (1.0 - i), total * before * f * (1.0 - f), total * i * (1.0 - g * g)
        return [b.let("g", part) for part in (*parts, d * level * o * (1.0 - o))]


def backward_kernels(params: Any, names: Any, inputs: Any, results: Any, outputs: Any) -> Any:
    """The kernel of _rnn_grad."""
    layer = _Backward(params, names, inputs, results, outputs)
    steps, batch, size = layer.steps, layer.batch, layer.size
    layer.pack(["weight", *(["projection"] if params.projected else [])], turned=True)
    for name in ("h", "d"):
        layer.temporary(name, batch, layer.state)
    layer.temporary("own", batch, layer.wide)
    if params.mode == "lstm":
        layer.temporary("c", batch, size)
    if params.projected or params.mode == "gru":
        layer.temporary("raw", batch, size)
    if params.lengths:
        layer.temporary("made", batch, layer.state)

    def copy(source: str, target: str, extent: int) -> None:
        layer.each_row(extent, lambda n, j: layer.put(target, (n, j), layer.wide_of(source, n, j)))

    def write() -> None:
        copy("state_grad", "h", layer.state)
        if params.mode == "lstm":
            copy("cell_grad", "c", size)
        layer.run_steps(layer.step_back, layer.skip_back, back=True)
        copy("h", "out_state", layer.state)
        if params.mode == "lstm":
            copy("c", "out_cell", size)

    work = steps * batch * layer.wide * (2 * layer.state + 32)
    return layer.written(work, write)
