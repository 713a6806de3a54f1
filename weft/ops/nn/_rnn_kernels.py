"""The loops of recurrent layers: a block of sequences a thread, which takes all steps of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import DType
from .._kernels import Body, wide_dtype

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}  # of a cell
KEPT = {"lstm": 4, "gru": 4, "rnn_tanh": 1, "rnn_relu": 1}  # that a gradient reads
LANES = 16
ROWS = (4, 2, 1)  # sequences that a product may take at once
GROUPS = 8  # blocks of them that a thread takes one after the other, at most
CACHED = 1 << 20  # bytes of weights that stay near a core


def limited(params: Any) -> bool:
    """Whether the cells of lstm are clipped."""
    return params.clip_min > -np.inf or params.clip_max < np.inf


def rows_at_once(params: Any, batch: int) -> int:
    """Sequences that a product takes at once."""
    return 1 if params.lengths else next(rows for rows in ROWS if batch % rows == 0)


def panel_width(params: Any, batch: int) -> int:
    """Columns of packed weights that lie together."""
    return LANES * (4 if rows_at_once(params, batch) == 1 else 2)


Element = Callable[[te.Expr], None]
Value = Callable[[te.Expr, te.Expr], te.Expr]


class _Layer:
    """The kernel of a layer while it is written: its sizes, its buffers by name, and what the steps
    of a block of sequences do."""

    def __init__(self, params: Any, names: Sequence[str], inputs: Any, results: Any, outputs: Any):
        specs = dict(zip(names, inputs))
        (self.steps, self.batch, self.wide), self.dtype = specs["gates"]
        self.size = self.wide // GATES[params.mode]
        self.state = specs["state"][0][1]
        self.params = params
        self.type: DType = wide_dtype(self.dtype)
        self.rows = rows_at_once(params, self.batch)
        self.groups = 1 if params.lengths else self._groups()
        # columns of a product taken at once
        self.block = specs["packed_weight"][0][2] if "packed_weight" in specs else panel_width(params, self.batch)
        self.body = Body("rnn", inputs, outputs)
        self.views = {i: shape for i, (shape, _) in enumerate([*inputs, *outputs])}
        self.keys = [*names, *(f"out_{name}" for name in results)]
        self.at: dict[str, Any] = {}

    def _groups(self) -> int:
        """Blocks of sequences that a thread takes: several where the weights fit no cache, so that
        they are read once for all of them."""
        blocks = self.batch // self.rows
        if self.state * self.wide * self.type.itemsize <= CACHED:
            return 1
        return next(n for n in range(GROUPS, 0, -1) if blocks % n == 0)

    def temporary(self, name: str, *shape: int) -> None:
        self.views[self.body.temporary(shape, self.type)] = shape
        self.keys.append(name)

    def written(self, work: int, write: Callable[[], None]) -> Any:
        with self.body.kernel(self.views, work) as (b, *buffers):
            self.b = b
            self.at = dict(zip(self.keys, buffers))
            with b.parallel("p", self.batch // (self.rows * self.groups)) as p:
                self.first = b.let("first", p * (self.rows * self.groups))
                write()
        return self.body.kernels

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

    def each_row(self, extent: int, visit: Callable[[te.Expr, te.Expr], None]) -> None:
        with self.b.loop("row", self.rows * self.groups) as row:
            n = self.b.let("n", self.first + row)
            self.each(extent, lambda j: visit(n, j))

    def pack(self, names: Sequence[str], turned: bool = False) -> None:
        """Copies matrices, with their axes swapped if they are turned, so that the columns that are
        taken at once lie together."""
        for name in names:
            shape, _ = self.body.specs[self.keys.index(name)]
            depth, width = shape[::-1] if turned else shape
            packed = self.body.temporary((-(-width // self.block), depth, self.block), self.type)
            self.views[packed] = self.body.specs[packed][0]
            self.keys.append(f"packed_{name}")
            views = {self.keys.index(name): shape, packed: self.views[packed]}
            with self.body.kernel(views, depth * width) as (b, source, target):
                read = lambda k, j: te.cast(source[(j, k) if turned else (k, j)], self.type)
                self._pack(b, read, target, depth, width)

    def _pack(self, b: Any, read: Any, target: Any, depth: int, width: int) -> None:
        full, rest = divmod(width, self.block)
        with b.parallel("block", full + (rest > 0)) as block, b.loop("k", depth) as k:
            for count, chosen in ((self.block, block < full), (rest, block >= full)):
                vectors = b.loop("part", count // LANES), b.vector("lane", LANES)
                with b.when(chosen), vectors[0] as part, vectors[1] as lane:
                    at = part * LANES + lane
                    b.store(target, (block, k, at), read(k, block * self.block + at))
                if count % LANES:
                    with b.when(chosen), b.loop("one", count % LANES) as one:
                        at = one + count // LANES * LANES
                        b.store(target, (block, k, at), read(k, block * self.block + at))

    def product(
        self, left: str, right: str, target: str, begin: Any = None, columns: tuple[int, int] | None = None
    ) -> None:
        """target[n] = left[n] right (+ begin(n, j)), for the sequences of the block; at least some columns."""
        width = int(self.at[target].shape[1].value)
        start, stop = columns or (0, width)
        full, rest = divmod(width, self.block)
        low, high = start // self.block, min(-(-stop // self.block), full)
        parts = [(0, rest // LANES, LANES), (rest // LANES * LANES, 1, rest % LANES)]
        if high > low:
            with self.b.loop("columns", high - low) as block:
                self._groups_of(block + low, (0, self.block // LANES, LANES), left, right, target, begin)
        for part in parts:
            if part[1] * part[2] and stop > full * self.block:
                self._groups_of(te.as_expr(full), part, left, right, target, begin)

    def _groups_of(self, block: te.Expr, part: tuple[int, int, int], *call: Any) -> None:
        with self.b.loop("group", self.groups) as group:
            first = self.b.let("start", self.first + group * self.rows)
            self._columns(block, first, part, *call)

    def _columns(
        self, block: te.Expr, start: te.Expr, part: tuple[int, int, int], left: str, right: str, target: str, begin: Any
    ) -> None:
        """Some columns of a product, for sequences from `start` on. `part` says where they begin in
        a packed block, and how many vectors of how many lanes they are."""
        first, vectors, lanes = part
        b, rows, packed = self.b, range(self.rows), self.at[f"packed_{right}"]
        with b.vector("lane", lanes) as lane:
            inside = [lane + (first + v * lanes) for v in range(vectors)]
            places = [block * self.block + at for at in inside]
            acc = b.alloc("acc", self.type, (self.rows * vectors,), scope="register")
            for row in rows:
                for v, j in enumerate(places):
                    value = te.const(0, self.type) if begin is None else begin(start + row, j)
                    b.store(acc, row * vectors + v, value)
            with b.loop("k", packed.shape[1]) as k:
                columns = [b.let("w", te.cast(packed[block, k, at], self.type)) for at in inside]
                for row in rows:
                    value = b.let("x", self.at[left][start + row, k])
                    for v, column in enumerate(columns):
                        at = row * vectors + v
                        b.store(acc, at, acc[at] + value * column)
            for row in rows:
                for v, j in enumerate(places):
                    b.store(self.at[target], (start + row, j), acc[row * vectors + v])

    def step_of(self, turn: te.Expr) -> tuple[te.Expr, te.Expr | None]:
        """The step that sequences take in a turn; and whether there is one, where that is open."""
        last = self.steps - 1
        if not self.params.lengths:
            return (last - turn if self.params.reverse else turn), None
        length = te.cast(self.at["length"][self.first], "int64")
        end = self.b.let("end", te.min(te.max(length, 0), self.steps))
        live = self.b.let("live", turn < end)
        time = te.select(live, end - 1 - turn, turn) if self.params.reverse else turn
        return self.b.let("time", time), live

    def when(self, live: te.Expr | None, then: Callable[[], None], other: Callable[[], None]) -> None:
        if live is None:
            then()
            return
        with self.b.when(live):
            then()
        with self.b.otherwise():
            other()

    def bias(self, n: te.Expr, j: te.Expr) -> te.Expr:
        return self.wide_of("bias", j)

    def start(self) -> None:
        self.each_row(self.state, lambda n, j: self.put("h", (n, j), self.wide_of("state", n, j)))
        if "c" in self.at:
            self.each_row(self.size, lambda n, j: self.put("c", (n, j), self.wide_of("cell", n, j)))

    def forward(self, time: te.Expr, keep: Callable[..., None] | None = None) -> None:
        """h and c after a step, from those before; keep(n, j, gates) sees what is kept."""
        if self.params.reset_first:
            self._reset_products(time)
        else:
            self.product("h", "weight", "own", self.bias)
        target = "raw" if self.params.projected else "h"

        def cell(n: te.Expr, j: te.Expr) -> None:
            parts = [j + k * self.size for k in range(GATES[self.params.mode])]
            gates = [self.wide_of("gates", time, n, part) for part in parts]
            recurrent = [self.at["own"][n, part] for part in parts]
            acts, new = self._cell(n, j, gates, recurrent)
            if keep is not None:
                keep(n, j, acts)
            self.put(target, (n, j), new)

        self.each_row(self.size, cell)
        if self.params.projected:
            self.product("raw", "projection", "h")

    def _reset_products(self, time: te.Expr) -> None:
        """What the state adds to r and z, then what it adds to n once r has acted on it."""
        self.product("h", "weight", "own", self.bias, (0, 2 * self.size))

        def reset(n: te.Expr, j: te.Expr) -> None:
            r = te.sigmoid(self.wide_of("gates", time, n, j) + self.at["own"][n, j])
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
    if params.reset_first:
        layer.temporary("reset", layer.batch, layer.size)
        layer.temporary("own_z", layer.batch, layer.size)

    kept = (2 if params.mode == "lstm" else 1) if params.kept else 0

    def step(turn: te.Expr) -> None:
        time, live = layer.step_of(turn)
        put = lambda value: lambda n, j: layer.put("out_output", (time, n, j), value(n, j))

        def keep(n: te.Expr, j: te.Expr, gates: Any) -> None:
            for k, gate in enumerate(gates):
                layer.put("out_kept_gates", (time, n, j + k * layer.size), gate)
            if params.mode == "lstm":
                layer.put("out_kept_cells", (time, n, j), layer.at["c"][n, j])

        def run() -> None:
            layer.forward(time, keep if params.kept else None)
            layer.each_row(layer.state, put(lambda n, j: layer.at["h"][n, j]))

        def skip() -> None:
            layer.each_row(layer.state, put(lambda n, j: 0))
            for name, width in zip(results[-kept:] if kept else (), (KEPT[params.mode], 1)):
                zero = lambda n, j, name=name: layer.put(f"out_{name}", (time, n, j), 0)
                layer.each_row(width * layer.size, zero)

        layer.when(live, run, skip)

    def write() -> None:
        layer.start()
        with layer.b.loop("turn", layer.steps) as turn:
            step(turn)
        last = lambda name, kept: lambda n, j: layer.put(name, (n, j), layer.at[kept][n, j])
        layer.each_row(layer.state, last("out_state", "h"))
        if params.mode == "lstm":
            layer.each_row(layer.size, last("out_cell", "c"))

    work = layer.steps * layer.batch * layer.wide * (2 * layer.state + 16)
    return layer.written(work, write)


class _Backward(_Layer):
    """The gradient, from what was kept of steps."""

    def ago(self, turn: te.Expr, time: te.Expr, of: str, first: str) -> Value:
        """What a value was before a step."""
        past = time + 1 if self.params.reverse else time - 1
        past = self.b.let("past", te.min(te.max(past, 0), self.steps - 1))
        begins = self.b.let("begins", turn.equal(0))
        return lambda n, j: te.select(begins, self.wide_of(first, n, j), self.wide_of(of, past, n, j))

    def run_backward(self, turn: te.Expr) -> None:
        time, live = self.step_of(turn)
        projected, gru = self.params.projected, self.params.mode == "gru"

        before = self.ago(turn, time, "output", "state")

        def gather(n: te.Expr, j: te.Expr) -> None:
            total = self.wide_of("output_grad", time, n, j) + self.at["h"][n, j]
            self.put("d", (n, j), total)
            self.put("out_before", (time, n, j), before(n, j))
            if projected:
                self.put("out_output", (time, n, j), total)

        def run() -> None:
            self.each_row(self.state, gather)
            if projected:
                self.product("d", "projection", "raw")
            self.each_row(self.size, lambda n, j: self._cell_back(turn, time, n, j, before))
            self.product("own", "weight", "h", self._carried if gru else None)

        def skip() -> None:
            zero = lambda name: lambda n, j: self.put(name, (time, n, j), 0)
            self.each_row(self.wide, zero("out_gates"))
            self.each_row(self.state, zero("out_before"))
            if gru:
                self.each_row(self.wide, zero("out_hidden"))
            if projected:
                self.each_row(self.state, zero("out_output"))
                self.each_row(self.size, zero("out_raw"))

        self.when(live, run, skip)

    def _carried(self, n: te.Expr, j: te.Expr) -> te.Expr:
        """What gru carries past its gates."""
        return self.at["raw"][n, j]

    def _cell_back(self, turn: te.Expr, time: te.Expr, n: te.Expr, j: te.Expr, before: Value) -> None:
        """Gradients of the gates: "own" of the state's part, and what is carried on."""
        b, size, mode = self.b, self.size, self.params.mode
        kept = [b.let("gate", self.wide_of("kept_gates", time, n, j + k * size)) for k in range(KEPT[mode])]
        d = b.let("d", self.at["raw" if self.params.projected else "d"][n, j])
        if mode == "lstm":
            hidden = grads = self._lstm_back(turn, time, n, j, kept, d)
        elif mode == "gru":
            r, z, value, recurrent = kept
            change = b.let("change", d * (1.0 - z) * (1.0 - value * value))
            of_z = d * (before(n, j) - value) * z * (1.0 - z)
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

    def _lstm_back(self, turn: te.Expr, time: te.Expr, n: te.Expr, j: te.Expr, gates: Any, d: Any) -> list[Any]:
        b = self.b
        i, f, g, o = gates
        before = b.let("before", self.ago(turn, time, "kept_cells", "cell")(n, j))
        plain = b.let("plain", f * before + i * g)
        level = b.let("level", te.tanh(self.clipped(plain)))
        total = self.at["c"][n, j] + d * o * (1.0 - level * level)
        low, high = self.params.clip_min, self.params.clip_max
        if limited(self.params):
            total = te.select((plain >= low) & (plain <= high), total, 0.0)
        total = b.let("total", total)
        self.put("c", (n, j), total * f)
        if self.params.projected:
            self.put("out_raw", (time, n, j), o * level)
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

    def copy(source: str, target: str, extent: int) -> None:
        layer.each_row(extent, lambda n, j: layer.put(target, (n, j), layer.wide_of(source, n, j)))

    def write() -> None:
        copy("state_grad", "h", layer.state)
        if params.mode == "lstm":
            copy("cell_grad", "c", size)
        with layer.b.loop("back", steps) as back:
            layer.run_backward(layer.b.let("turn", steps - 1 - back))
        copy("h", "out_state", layer.state)
        if params.mode == "lstm":
            copy("c", "out_cell", size)

    work = steps * batch * layer.wide * (2 * layer.state + 32)
    return layer.written(work, write)
