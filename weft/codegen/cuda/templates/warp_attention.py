"""Attention by single warps as LLVM IR: each warp has 16 queries, whose probabilities go into the second product from
the registers in which sums are.

Threads copy queries once, and blocks of keys and values ahead of their use. Values are read as an operand that is
stored by columns; those of 32 bits in pairs of keys, as sums come in pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import Any

from ....base.cuda_target import CudaTarget
from ....te.expr import Expr, select
from ....te.extents import Extent, divisor, is_multiple
from ....te.loops import Kernel
from ....te.tensor_cores.attention import Seen
from ....te.tensor_cores.fragments import BLOCK_ROWS, K_STEPS, Layout
from ....te.tensor_cores.layouts import WARP
from ....te.tensor_cores.warp_attention import WarpAttention
from ...builder import Value
from . import asm, warp_asm
from .frame import address_of, module
from .online_softmax import PAIR, OnlineSoftmax
from .results import store_run
from .warp_asm import Side
from .warp_copies import Lines, MatrixCopier
from .writer import Loop, u32

PART = 2  # blocks of 16 columns whose float32 results are made at a time


def emit_warp_attention(kernel: Kernel, plan: WarpAttention, target: CudaTarget) -> str:
    """The module of an attention."""
    writer = WarpAttentionWriter(kernel, plan, target)
    writer.write()
    return module(kernel, writer.frame, plan.launch, 0, scheduled=True)


class WarpAttentionWriter(OnlineSoftmax):
    """What the threads of a block do."""

    def __init__(self, kernel: Kernel, plan: WarpAttention, target: CudaTarget) -> None:
        super().__init__(kernel, plan, target, (plan.tile.queries, plan.tile.keys), 0)
        self.plan, self.tile, self.target = plan, plan.tile, target
        size, keys = self.tile.item_bytes, self.tile.keys
        self.lane = self.w.let("lane", self.thread_number % WARP)
        self.queries, self.keys = Layout(size, False, self.tile.queries), Layout(size, False, keys)
        self.values = Layout(size, True, keys, paired=size == 4)

    def write(self) -> None:
        w, plan = self.w, self.plan
        if self.target.has_dependent_launch:
            w.asm(f"{asm.MAY_BEGIN}\n{asm.WAIT_BEFORE}")
        self.copiers = [
            self._copier(plan.key, self.keys, plan.width_panels, plan.keys, plan.width, u32(0)),
            self._copier(plan.value, self.values, plan.value_panels, plan.keys, plan.values, u32(0)),
        ]
        query = self._copier(plan.query, self.queries, plan.width_panels, plan.queries, plan.width, self.first)
        query.issue(self.base, u32(0))
        for block in range(self.tile.stages - 1):
            with w.when(self.blocks > block):
                self._issue(self.base + (plan.key_start + block * plan.stage_bytes), u32(block))
            w.asm(warp_asm.COMMIT)
        own = w.let("own", self.thread_number // WARP * BLOCK_ROWS)
        self.take_rows(self.thread_number, self.first, self.first + own)
        self.query_lane = w.let("query", self.base + self.queries.lane_start(self.lane, own, True))
        self.key_lane = w.let("keys", self.base + plan.key_start + self.keys.lane_start(self.lane, u32(0), False))
        values = self.values.lane_start(self.lane, u32(0), False)
        self.value_lane = w.let("values", self.base + (plan.key_start + plan.value_offset) + values)
        sums = 8 * plan.value_blocks
        ahead = (self.tile.stages - 1) * plan.stage_bytes
        k = self.attend(sums, read=u32(0), written=u32(ahead))
        self._store(self.results(k, sums))

    # Copies

    def _copier(
        self, seen: Seen, layout: Layout, panels: int, rows: int | Extent, columns: int, first: Expr
    ) -> MatrixCopier:
        w, size = self.w, self.tile.item_bytes
        start = self._start(seen, self.batch)
        aligned = gcd(*(divisor(number) * size for number in (seen.start, *seen.steps[:-1], columns)))
        lines = Lines(rows, columns, seen.steps[-2] * size, aligned)
        threads = self.thread_number, self.tile.threads
        return MatrixCopier(w, *threads, layout, panels, start, lines, first, u32(0), down=True)

    def _start(self, seen: Seen, index: Sequence[Expr]) -> Value:
        """Where what has an index along the first axes begins."""
        w, b = self.w, self.w.b
        start = b.binary("add", address_of(self.frame, seen.buffer), self._bytes(seen.start))
        for at, step in zip(index, seen.steps):
            start = b.binary("add", start, b.binary("mul", w.wide(at), self._bytes(step)))
        return start

    def _bytes(self, elements: Any) -> Value:
        return self.w.long(elements * self.tile.item_bytes)

    def _issue(self, stage: Expr, block: Expr) -> None:
        self.copiers[0].issue(stage, block)
        self.copiers[1].issue(stage + self.plan.value_offset, block)

    def _begin_block(self, k: Loop) -> None:
        """Waits until the block is there and all are done with the one before it, and begins to copy a later one."""
        w, stages = self.w, self.tile.stages
        if stages == 1:
            w.asm("bar.sync 0;")
            self._issue(self.base + self.plan.key_start + k.written, k.block)
            w.asm(f"{warp_asm.COMMIT}\n{warp_asm.landed(0)}\nbar.sync 0;")
            return
        w.asm(f"{warp_asm.landed(stages - 2)}\nbar.sync 0;")
        following = w.let("following", k.block + (stages - 1))
        with w.when(following < self.blocks):
            self._issue(self.base + self.plan.key_start + k.written, following)
        w.asm(warp_asm.COMMIT)

    def _advance(self, k: Loop) -> None:
        size = self.plan.stage_bytes
        k.next(block=k.block + 1)
        for name in ("read", "written"):
            following = k.carried[name] + size
            k.next(**{name: select(following.equal(size * self.tile.stages), u32(0), following)})

    # Products

    def _score_sums(self, k: Loop) -> list[Value]:
        tile, count = self.tile, self.tile.keys // 2
        left = Side("a", f"${count}", 1, self.queries, True)
        right = Side("b", f"${count + 1}", tile.keys // BLOCK_ROWS, self.keys, False)
        products = warp_asm.all_products(tile.kind, left, right, self.plan.width_steps, tile.exact)
        text = f"{{\n{warp_asm.zeros(count)}\n{products}\n}}"
        return self.w.read_many(text, ["float"] * count, self.query_lane, self.key_lane + k.read)

    def _weights(self, number: int, first: Value, second: Value) -> dict[int, Value]:
        if self.tile.item_bytes == 2:
            return super()._weights(number, first, second)
        return {number: first, number + 1: second}

    def _value_sums(self, k: Loop, old: list[Value], weights: list[Value]) -> list[Value]:
        """Results that stay float32 are made of a block of keys alone, some columns at a time, and added."""
        if not self.tile.exact:
            return self._value_products(k, range(self.plan.value_blocks), weights, old)
        made: list[Value] = []
        for first in range(0, self.plan.value_blocks, PART):
            blocks = range(first, min(first + PART, self.plan.value_blocks))
            some = self._value_products(k, blocks, weights, [])
            made += [self.w.b.add(a, b) for a, b in zip(old[8 * first :], some)]
        return made

    def _value_products(self, k: Loop, blocks: range, weights: list[Value], old: list[Value]) -> list[Value]:
        """Products of weights and some blocks of columns, added to old results if there are any."""
        tile, count = self.tile, 8 * len(blocks)
        first = count + len(old)  # operands: weights, then the address
        side = Side("b", f"${first + len(weights)}", len(blocks), self.values, False)
        walk = self.values.walk(0, blocks.start)
        lines = [".reg .b32 at;", *warp_asm.declared("b", side.registers, tile.exact)]
        lines += warp_asm.declared("a", 4, tile.exact)
        for step in range(K_STEPS):
            own = [f"${first + 4 * step + n}" for n in range(4)]
            if tile.item_bytes == 4:  # sums are in the order of rows, operands in that of k
                own = [own[n] for n in (0, 2, 1, 3)]
            lines += [f"mov.b32 a{n}, {name};" for n, name in enumerate(own)]
            lines += warp_asm.as_read(tile.kind, "a", 4, tile.exact)
            lines += warp_asm.load_step(side, step)
            lines += warp_asm.as_read(tile.kind, "b", side.registers, tile.exact)
            lines += warp_asm.step_products(tile.kind, [f"a#{n}" for n in range(4)], "b", 2 * len(blocks), tile.exact)
        assert walk.flip == 0
        before = "" if old else warp_asm.zeros(count)
        body = "\n".join(lines)
        address = self.value_lane + k.read + walk.more
        return self.w.read_many(
            f"{{\n{before}\n{body}\n}}", ["float"] * count, *weights, address, early=not old, tied=old
        )

    # Results

    def _store(self, finished: list[Value]) -> None:
        """Pairs of neighbours, where all of them are aligned; else one by one."""
        w, plan, out, size = self.w, self.plan, self.plan.out, self.tile.item_bytes
        numbers = (out.start, *out.steps[:-1], plan.values)
        lanes = PAIR if all(is_multiple(number, PAIR) for number in numbers) else 1
        column = w.let("column", self.lane % 4 * PAIR)
        for half in range(2):
            start = self._row_of_result(self.rows[half])
            inside = self.rows[half] < w.count(plan.queries)
            for block in range(len(finished) // 4):
                for more in range(0, PAIR, lanes):
                    first = 4 * block + 2 * half + more
                    asked, beyond = inside, 8 * block + more
                    if plan.values % BLOCK_ROWS:
                        asked = asked & (column + beyond < plan.values)
                    run = finished[first : first + lanes]
                    store_run(w, out.buffer.dtype, run, start, beyond * size, asked)

    def _row_of_result(self, row: Expr) -> Value:
        """Where the first columns of this thread in a row of the result are."""
        start = self._start(self.plan.out, (*self.batch, row))
        return self.w.b.binary("add", start, self.w.wide(self.lane % 4 * (PAIR * self.tile.item_bytes)))
