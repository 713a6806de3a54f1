"""Attention as LLVM IR: one warp copies queries, then keys and values; each warpgroup has 64 queries.

Scores of a block of keys are the sums of one product, in the layout of accumulators, which is also that of a product's
first operand in registers: probabilities go into the second product from where they are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....base.cuda_target import CudaTarget
from ....te.expr import Expr, cast, select
from ....te.loops import Kernel
from ....te.tensor_cores.attention import PANEL_COLUMNS, Attention, Seen
from ....te.tensor_cores.layouts import (
    CHUNK_BYTES,
    CORE_ROWS,
    K_STEP_BYTES,
    PANEL_BYTES,
    PANEL_ROWS,
    ROW_BYTES,
    WARP,
    WARPGROUP,
    described,
    descriptor,
    matrix_address,
)
from ...builder import Value
from . import asm
from .frame import module
from .online_softmax import HALVES, OnlineSoftmax
from .writer import UINT32, Loop, Operand, u32

BARRIER = 8  # bytes


def emit_attention(kernel: Kernel, plan: Attention, target: CudaTarget) -> str:
    """The module of an attention."""
    writer = AttentionWriter(kernel, plan, target)
    writer.write()
    return module(kernel, writer.frame, plan.launch, len(plan.maps), scheduled=True)


class AttentionWriter(OnlineSoftmax):
    """What the threads of a block do."""

    def __init__(self, kernel: Kernel, plan: Attention, target: CudaTarget) -> None:
        super().__init__(kernel, plan, target, (plan.tile.queries, plan.tile.keys), len(plan.maps))
        self.plan, self.tile = plan, plan.tile
        self.asked = self.base + plan.barrier_start  # the barrier of queries
        stages = self.tile.stages
        names = ("keys_full", "values_full", "keys_empty", "values_empty")
        self.barriers = {name: self.asked + BARRIER * (1 + n * stages) for n, name in enumerate(names)}
        self.warpgroup = self.w.let("warpgroup", self.thread_number // WARPGROUP)

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
        first = self.first + self.warpgroup * PANEL_ROWS
        self.take_rows(w.let("thread", self.thread_number % WARPGROUP), first, first)
        self.is_first = self.thread.equal(0)
        self.own = w.let("own", self.base + self.warpgroup * PANEL_BYTES)  # this warpgroup's queries
        w.asm(asm.WAIT, self.asked, 0)
        k = self.attend(sums, stage=u32(0), phase=u32(0))
        self._store(self.results(k, sums))
        assert plan.values % CORE_ROWS == 0

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

    def _store(self, finished: list[Value]) -> None:
        w, plan, dtype = self.w, self.plan, HALVES[self.plan.kind]
        finished += [w.b.const("float", 1, 0.0)] * (-len(finished) % 8)
        for group in range(len(finished) // 8):
            some = finished[8 * group : 8 * group + 8]
            packed = [w.packed(some[2 * n], some[2 * n + 1], dtype) for n in range(4)]
            at = self.own + matrix_address(self.thread, group) + group // 4 * self.tile.queries * ROW_BYTES
            w.asm(asm.STORE_MATRIX, at, *packed)
        w.asm(asm.WRITES_SEEN)
        w.asm(f"bar.sync $0, {WARPGROUP};", self.warpgroup + 1)
        with w.when(self.is_first):
            row = self.first + self.warpgroup * PANEL_ROWS
            batch = [self.batch[axis] for axis in plan.out.mapped]
            for panel in range(plan.value_panels):
                at = (u32(panel * PANEL_COLUMNS), row, *batch)
                source = self.own + panel * self.tile.queries * ROW_BYTES
                w.asm(asm.tile_store(len(at)), self.frame.maps[plan.out.map], *at, source)
            w.asm(f"{asm.COMMIT_STORES}\n{asm.STORES_READ}")
