"""Attention as LLVM IR: one warp copies queries, then keys and values; each warpgroup has 64 queries.

Scores of a block of keys are the sums of one product, in the layout of accumulators, which is also that of a product's
first operand in registers: probabilities go into the second product from where they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from ....base.cuda_target import CudaTarget
from ....base.dtype import DTYPES
from ....te.expr import Expr, Ramp, Var, as_expr, cast, select, widen
from ....te.linear import Linear, scalar
from ....te.loops import Kernel
from ....te.tensor_cores.attention import PANEL_COLUMNS, Attention, Seen
from ....te.tensor_cores.layouts import (
    CHUNK_BYTES,
    CORE_ROWS,
    K_STEP_BYTES,
    PANEL_BYTES,
    ROW_BYTES,
    WARP,
    WARPGROUP,
    accumulator_row,
    described,
    descriptor,
    lesser,
    matrix_address,
)
from ....te.visit import substitute
from ...builder import Value
from . import asm
from .frame import Frame, module
from .writer import UINT32, Loop, Operand, u32

BARRIER = 8  # bytes
HALVES = {"fp16": DTYPES["float16"], "bf16": DTYPES["bfloat16"]}
PAIR = 2
ROWS = 2  # of a thread: its accumulators are in a row of the upper eight of 16, and in one of the lower


def emit_attention(kernel: Kernel, plan: Attention, target: CudaTarget) -> str:
    """The module of an attention."""
    writer = AttentionWriter(kernel, plan, target)
    writer.write()
    return module(kernel, writer.frame, plan.launch, len(plan.maps), scheduled=True)


class AttentionWriter:
    """What the threads of a block do."""

    def __init__(self, kernel: Kernel, plan: Attention, target: CudaTarget) -> None:
        self.plan, self.tile = plan, plan.tile
        self.frame = Frame(kernel, target, len(plan.maps))
        self.w = w = self.frame.w
        self.thread_number, block = w.special("tid.x"), w.special("ctaid.x")
        self.base = self.frame.shared_base()
        self.asked = self.base + plan.barrier_start  # the barrier of queries
        stages = self.tile.stages
        names = ("keys_full", "values_full", "keys_empty", "values_empty")
        self.barriers = {name: self.asked + BARRIER * (1 + n * stages) for n, name in enumerate(names)}
        self.warpgroup = w.let("warpgroup", self.thread_number // WARPGROUP)
        head, turn = block // plan.query_tiles, block % plan.query_tiles
        if plan.causal:  # queries that see the most keys begin first
            turn = u32(plan.query_tiles - 1) - turn
        self.first = w.let("first", turn * self.tile.queries)
        self.batch = self._batch_index(head)
        last = u32(plan.keys)
        if plan.causal:
            last = lesser(self.first + self.tile.queries, last)
        self.blocks = w.let("blocks", (last + (self.tile.keys - 1)) // self.tile.keys)

    def _batch_index(self, number: Expr) -> list[Expr]:
        found: list[Expr] = []
        for extent in reversed(self.plan.batch):
            found.append(self.w.let("index", number % extent))
            number = number // extent
        return found[::-1]

    def write(self) -> None:
        w = self.w
        with w.when(self.thread_number.equal(0)):
            w.asm(asm.INIT.format(count=1), self.asked)
            for name, barrier in self.barriers.items():
                count = self.tile.warpgroups if name.endswith("empty") else 1
                for stage in range(self.tile.stages):
                    w.asm(asm.INIT.format(count=count), barrier + BARRIER * stage)
            w.asm(asm.INITS_SEEN)
        w.asm("bar.sync 0;")
        w.asm(f"{asm.MAY_BEGIN}\n{asm.WAIT_BEFORE}")
        w.either(self.warpgroup.equal(self.tile.warpgroups), self._copy, self._attend)

    # The warp that copies

    def _copy(self) -> None:
        w, plan = self.w, self.plan
        with w.when((self.thread_number % WARP).equal(0)):
            w.asm(asm.EXPECT.format(bytes=plan.width_panels * self.tile.queries * ROW_BYTES), self.asked)
            self._copy_panels(plan.query, self.base, plan.width_panels, self.tile.queries, self.first, self.asked)
            goes_on = lambda k: k.block < self.blocks
            with w.repeat(goes_on, block=u32(0), stage=u32(0), phase=u32(1)) as k:
                row = w.let("row", k.block * self.tile.keys)
                for name, seen, start, size, panels in (
                    ("keys", plan.key, plan.key_start, plan.key_bytes, plan.width_panels),
                    ("values", plan.value, plan.value_start, plan.value_bytes, plan.value_panels),
                ):
                    w.asm(asm.WAIT, self.barriers[f"{name}_empty"] + k.stage * BARRIER, k.phase)
                    full = w.let("full", self.barriers[f"{name}_full"] + k.stage * BARRIER)
                    w.asm(asm.EXPECT.format(bytes=size), full)
                    to = w.let("to", self.base + start + k.stage * size)
                    self._copy_panels(seen, to, panels, self.tile.keys, row, full)
                self._advance(k)

    def _copy_panels(self, seen: Seen, to: Expr, panels: int, rows: int, row: Expr, full: Expr) -> None:
        batch = [self.batch[axis] for axis in seen.mapped]
        for panel in range(panels):
            at = (u32(panel * PANEL_COLUMNS), row, *batch)
            place = to + panel * rows * ROW_BYTES
            self.w.asm(asm.tile_load(len(at)), place, self.frame.maps[seen.map], *at, full)

    def _advance(self, k: Loop) -> None:
        following = k.stage + 1
        wraps = following.equal(self.tile.stages)
        k.next(block=k.block + 1, stage=select(wraps, u32(0), following), phase=k.phase ^ cast(wraps, UINT32))

    # The warpgroups that attend

    def _attend(self) -> None:
        w, plan, sums = self.w, self.plan, self.plan.values // 2
        self.thread = w.let("thread", self.thread_number % WARPGROUP)
        self.is_first = self.thread.equal(0)
        self.own = w.let("own", self.base + self.warpgroup * PANEL_BYTES)  # this warpgroup's queries
        rows = [self.first + self.warpgroup * 64 + accumulator_row(self.thread, 2 * half) for half in range(ROWS)]
        self.rows = [w.let("row", row) for row in rows]
        w.asm(asm.WAIT, self.asked, 0)
        zero, low = w.b.const("float", 1, 0.0), w.b.const("float", 1, -inf)
        state: dict[str, Expr | Value] = {"block": u32(0), "stage": u32(0), "phase": u32(0)}
        state |= {f"sum{n}": zero for n in range(sums)}
        state |= {f"top{half}": low for half in range(ROWS)} | {f"total{half}": zero for half in range(ROWS)}
        with w.repeat(lambda k: k.block < self.blocks, **state) as k:
            scores = self._scores(k)
            self._weigh(k, scores, sums)
            self._advance(k)
        self._store(k, sums)
        assert plan.values % CORE_ROWS == 0

    def _scores(self, k: Loop) -> list[Value]:
        """Scores of a block of keys, those that a query does not see minus infinity."""
        w, plan = self.w, self.plan
        raw = self._score_sums(k)
        first = w.let("key", k.block * self.tile.keys)
        scores = self._finished(raw, first) if plan.score is not plan.total else raw
        if not plan.causal and plan.keys % self.tile.keys == 0:
            return scores
        beyond = first + self.tile.keys > plan.keys
        if plan.causal:
            beyond = beyond | (first + self.tile.keys > self.first + self.warpgroup * 64)
        return w.b.branch(w.value(beyond), lambda: self._hidden(scores, first), scores)

    def _hidden(self, scores: Sequence[Value], first: Expr) -> list[Value]:
        w, made = self.w, []
        low = w.b.const("float", 1, -inf)
        column = w.let("column", first + self.thread % 4 * PAIR)
        for number, score in enumerate(scores):
            key = column + (number // 4 * 8 + number % 2)
            seen = key < self.plan.keys
            if self.plan.causal:
                seen = seen & (key <= self.rows[number // 2 % 2])
            made.append(w.b.select(w.value(seen), score, low))
        return made

    def _finished(self, raw: Sequence[Value], first: Expr) -> list[Value]:
        """What the plan makes of products of queries and keys, for pairs of keys."""
        w, plan, made = self.w, self.plan, list[Value]()
        key, total = Var("key"), Var("total", plan.total.dtype, PAIR)
        stands: dict[Var, Expr] = {plan.key_at: Ramp(key, as_expr(1), PAIR), plan.total: total}
        score = widen(substitute(plan.score, stands), PAIR)
        for var, index in zip(plan.batch_at, self.batch):
            w.e.variables[var] = scalar(Linear(0, {w.wide(index): 1}))
        unit = w.let("unit", first // PAIR + self.thread % 4)
        for pair in range(len(raw) // PAIR):
            row, more = lesser(self.rows[pair % 2], u32(plan.queries - 1)), pair // 2 * 4
            at = Linear(more * PAIR, {w.wide(unit): PAIR})
            if plan.keys % self.tile.keys:
                at = Linear(0, {w.wide(lesser(unit + more, u32(max(plan.keys // PAIR - 1, 0)))): PAIR})
            w.e.variables[plan.query_at] = scalar(Linear(0, {w.wide(row): 1}))
            w.e.variables[key] = scalar(at)
            w.e.variables[total] = w.vector(raw[PAIR * pair : PAIR * pair + PAIR])
            both = w.value(score)
            made += [w.b.extract(both, lane) for lane in range(PAIR)]
        return made

    def _score_sums(self, k: Loop) -> list[Value]:
        """Products of all queries and keys, in one block of assembly that also waits for keys and frees them."""
        w, plan, count = self.w, self.plan, self.tile.keys // 2
        rows_of = descriptor(CHUNK_BYTES, CORE_ROWS * ROW_BYTES)
        queries = self._described(self.own, rows_of)
        keys = self._described(self.base + plan.key_start + k.stage * plan.key_bytes, rows_of)
        lines = []
        for step in range(-(-plan.width // 16)):
            panel, within = step // 4, step % 4 * K_STEP_BYTES
            for name, operand, rows in (("a", 0, self.tile.queries), ("b", 1, self.tile.keys)):
                more = (panel * rows * ROW_BYTES + within) // CHUNK_BYTES
                lines.append(f"add.s64 {name}, ${count + operand}, {more};")
            keeps = "always" if step else "never"
            product = asm.multiply(plan.kind, self.tile.keys, asm.registers(0, count), "a", "b", keeps, (False, False))
            lines.append(product)
        zeros = "\n".join(f"mov.f32 ${number}, 0f00000000;" for number in range(count))
        text = self._block(zeros, lines, count + 2)
        full, empty = (self.barriers[f"keys_{word}"] + k.stage * BARRIER for word in ("full", "empty"))
        operands = (queries, keys, full, empty, k.phase, cast(self.is_first, UINT32))
        return w.read_many(text, ["float"] * count, *operands)

    def _block(self, before: str, lines: Sequence[str], first: int) -> str:
        """Waits for a barrier, multiplies, and arrives at another: operands from `first` on are both barriers, the
        phase, and whether this thread arrives."""
        body = "\n".join(lines)
        return f"""{{
.reg .pred p, always, never, elected;
.reg .b64 a, b;
setp.eq.b32 always, 0, 0;
setp.ne.b32 never, 0, 0;
setp.ne.b32 elected, ${first + 3}, 0;
{before}
again: mbarrier.try_wait.parity.shared::cta.b64 p, [${first}], ${first + 2};
@p bra ready;
bra again;
ready: wgmma.fence.sync.aligned;
{body}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
@elected mbarrier.arrive.shared::cta.b64 _, [${first + 1}];
}}"""

    def _described(self, address: Expr, fields: int) -> Value:
        low = self.w.wide(described(address))
        return self.w.b.binary("or", low, self.w.b.const("i64", 1, fields))

    def _weigh(self, k: Loop, scores: list[Value], sums: int) -> None:
        """Probabilities of a block, relative to the largest score so far, and their product with the values."""
        w, b, plan = self.w, self.w.b, self.plan
        factor = b.const("float", 1, plan.factor * LOG2_E)
        packed: dict[int, Value] = {}
        scales, half_dtype = [], HALVES[plan.kind]
        for half in range(ROWS):
            own = [n for n in range(len(scores)) if n // 2 % 2 == half]
            top = _tree([scores[n] for n in own], self._larger)
            for distance in (1, 2):
                top = self._larger(top, self._of_neighbour(top, distance))
            before = w.value(k.carried[f"top{half}"])
            top = self._larger(before, top)
            is_low = b.compare("oeq", top, b.like(top, -inf))
            shift = b.neg(b.mul(b.select(is_low, b.like(top, 0.0), top), factor))
            scale = self._exp2(b.fma(before, factor, shift))
            total = b.mul(w.value(k.carried[f"total{half}"]), scale)
            for n in own[::2]:  # packed at once: few of them are in registers at a time
                first, second = (self._exp2(b.fma(scores[m], factor, shift)) for m in (n, n + 1))
                total = b.add(total, b.add(first, second))
                packed[n] = w.packed(first, second, half_dtype)
            k.next(**{f"top{half}": top, f"total{half}": total})
            scales.append(scale)
        old = [b.mul(w.value(k.carried[f"sum{n}"]), scales[n // 2 % 2]) for n in range(sums)]
        made = self._value_sums(k, old, [packed[n] for n in range(0, len(scores), 2)])
        k.next(**{f"sum{n}": value for n, value in enumerate(made)})

    def _value_sums(self, k: Loop, old: list[Value], packed: list[Value]) -> list[Value]:
        w, plan, count = self.w, self.plan, len(old)
        fields = descriptor(self.tile.keys * ROW_BYTES, CORE_ROWS * ROW_BYTES)
        values = self._described(self.base + plan.value_start + k.stage * plan.value_bytes, fields)
        first = 2 * count  # results, then what they are added to, then probabilities
        lines = []
        for step in range(self.tile.keys // 16):
            lines.append(f"add.s64 b, ${first + len(packed)}, {step * 16 * ROW_BYTES // CHUNK_BYTES};")
            own = asm.registers(first + 4 * step, 4)
            sums = asm.registers(0, count)
            lines.append(asm.multiply(plan.kind, plan.values, sums, own, "b", "always", (True,)))
        text = self._block("", lines, first + len(packed) + 1)
        full, empty = (self.barriers[f"values_{word}"] + k.stage * BARRIER for word in ("full", "empty"))
        ends: tuple[Operand, ...] = (values, full, empty, k.phase, cast(self.is_first, UINT32))
        return w.read_many(text, ["float"] * count, *packed, *ends, early=False, tied=old)

    # Results

    def _store(self, k: Loop, sums: int) -> None:
        w, b, plan = self.w, self.w.b, self.plan
        factors: list[tuple[Value, Value | None]] = []
        for half in range(ROWS):
            total = w.value(k.carried[f"total{half}"])
            for distance in (1, 2):
                total = b.add(total, self._of_neighbour(total, distance))
            inverse = w.read("rcp.approx.ftz.f32 $0, $1;", "float", total, effect=False)
            if plan.unseen != "nan":
                lost = b.compare("oeq" if plan.unseen == "zero" else "ueq", total, b.like(total, 0.0))
                inverse = b.select(lost, b.like(inverse, 0.0), inverse)
                factors.append((inverse, lost))
            else:
                factors.append((inverse, None))
        dtype = HALVES[plan.kind]
        finished = [self._scaled(w.value(k.carried[f"sum{n}"]), *factors[n // 2 % 2]) for n in range(sums)]
        finished += [b.const("float", 1, 0.0)] * (-len(finished) % 8)
        for group in range(len(finished) // 8):
            some = finished[8 * group : 8 * group + 8]
            packed = [w.packed(some[2 * n], some[2 * n + 1], dtype) for n in range(4)]
            at = self.own + matrix_address(self.thread, group) + group // 4 * self.tile.queries * ROW_BYTES
            w.asm(asm.STORE_MATRIX, at, *packed)
        w.asm(asm.WRITES_SEEN)
        w.asm(f"bar.sync $0, {WARPGROUP};", self.warpgroup + 1)
        with w.when(self.is_first):
            row = self.first + self.warpgroup * 64
            batch = [self.batch[axis] for axis in plan.out_axes]
            for panel in range(plan.value_panels):
                at = (u32(panel * PANEL_COLUMNS), row, *batch)
                source = self.own + panel * self.tile.queries * ROW_BYTES
                w.asm(asm.tile_store(len(at)), self.frame.maps[plan.out_map], *at, source)
            w.asm(f"{asm.COMMIT_STORES}\n{asm.STORES_READ}")

    def _scaled(self, value: Value, factor: Value, lost: Value | None) -> Value:
        b = self.w.b
        made = b.mul(value, factor)
        return made if lost is None or self.plan.unseen == "zero" else b.select(lost, b.like(made, 0.0), made)

    def _larger(self, a: Value, b: Value) -> Value:
        return self.w.b.call("maxnum.f32", a, a, b)

    def _exp2(self, x: Value) -> Value:
        return self.w.read("ex2.approx.ftz.f32 $0, $1;", "float", x, effect=False)

    def _of_neighbour(self, x: Value, distance: int) -> Value:
        return self.w.read(f"shfl.sync.bfly.b32 $0, $1, {distance}, 31, -1;", "float", x)


LOG2_E = 1.4426950408889634


def _tree(values: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
    """All values joined by pairs."""
    found = list(values)
    while len(found) > 1:
        rest = found[len(found) // 2 * 2 :]
        found = [join(a, b) for a, b in zip(found[::2], found[1::2])] + rest
    return found[0]
