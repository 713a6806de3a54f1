"""A product of matrices as LLVM IR: one warp copies operands into a ring of stages, warpgroups multiply them.

The inner loop is one block of assembly, which gives the sums of a tile; all around it is ordinary IR. Barriers of a
stage: `full`, which copies complete, and `empty`, at which each warpgroup that has read the stage arrives.
"""

from __future__ import annotations

from typing import Any

from ....base.cuda_target import CudaTarget
from ....te.expr import Expr, cast, select
from ....te.loops import Kernel
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
    lesser,
    ring_place,
    split_bound,
    window_origin,
)
from ....te.tensor_cores.product import Product, Window
from ...builder import Value
from . import asm
from .frame import Frame, module, tile_at
from .results import GroupSums, store_pairs, store_staged
from .split_sums import store_split
from .writer import UINT32, Loop, u32

BARRIER = 8  # bytes
K_STEPS = ROW_BYTES // K_STEP_BYTES
PART = 8  # stages whose products are summed by tensor cores alone, where float32 stays float32
TURN_BARRIER = 3  # the first of the named barriers at which warpgroups wait for their turn


def emit_product(kernel: Kernel, plan: Product, target: CudaTarget) -> str:
    """The module of a product."""
    writer = ProductWriter(kernel, plan, target)
    writer.write()
    return module(kernel, writer.frame, plan.launch, len(plan.maps), plan.tile.resident)


class ProductWriter:
    """What the threads of a block do, in the order in which they do it."""

    def __init__(self, kernel: Kernel, plan: Product, target: CudaTarget) -> None:
        self.plan, self.tile, self.memory = plan, plan.tile, plan.memory
        self.frame = frame = Frame(kernel, target, len(plan.maps))
        self.w = w = frame.w
        self.thread_number = w.special("tid.x")
        self.block_number, self.blocks = w.special("ctaid.x"), w.special("nctaid.x")
        self.base = frame.shared_base()
        stages = self.memory.stages
        self.full = self.base + self.memory.barriers
        self.empty = self.full + BARRIER * stages
        self.other = self.full + 2 * BARRIER * stages  # of tensors copied beside, or of partial sums
        self.rank: Expr = u32(0)
        if self.tile.split > 1:
            self.rank = w.special("cluster.ctarank")
            self.block_number = w.let("unit", self.block_number // self.tile.split)
            self.blocks = w.let("units", self.blocks // self.tile.split)
        self.warpgroup = w.let("warpgroup", self.thread_number // WARPGROUP)
        self.together = plan.a.taps_together(self.tile) if isinstance(plan.a, Window) else 1
        self.line = ROW_BYTES // self.together  # bytes of a row of the first operand that lie together
        down, across = plan.tiles
        self.tiles = w.count(down * across * plan.batch)
        self.k_blocks = plan.k_blocks * len(plan.passes)

    def write(self) -> None:
        with self.w.when(self.thread_number.equal(WARPGROUP * self.tile.warpgroups)):
            self._make_barriers()
        is_copier = self.warpgroup.equal(self.tile.warpgroups)
        if self.tile.split > 1:
            self.w.asm(asm.CLUSTER_ARRIVE)
            self.w.asm("bar.sync 0;")
        self.w.either(is_copier, self._copy_operands, self._multiply)
        if self.tile.split == 1 and self.plan.out_map is not None:
            with self.w.when((self.thread_number % WARPGROUP).equal(0) & (self.warpgroup < self.tile.warpgroups)):
                self.w.asm(asm.STORES_READ)

    def _make_barriers(self) -> None:
        w, tile = self.w, self.tile
        for number in range(len(self.plan.maps)):
            w.asm(asm.PREFETCH_MAP, self.frame.maps[number])
        readers = 1 if tile.alternate else tile.warpgroups
        for stage in range(self.memory.stages):
            w.asm(asm.INIT.format(count=1), self.full + BARRIER * stage)
            w.asm(asm.INIT.format(count=readers), self.empty + BARRIER * stage)
        for number in range(tile.warpgroups):
            w.asm(asm.INIT.format(count=1), self.other + BARRIER * number)
        if tile.split > 1:
            sent = (tile.rows - tile.rows // tile.split) * self.frame.split_row_bytes(tile)
            w.asm(asm.EXPECT.format(bytes=sent), self.other)
        w.asm(asm.INITS_SEEN)

    # Places

    def _own_blocks(self) -> tuple[Expr, Expr]:
        """The first of the blocks of k that fall to this block of threads, and the one after the last."""
        if self.tile.split == 1:
            return u32(0), self.w.count(self.k_blocks)
        ends = [split_bound(self.rank + more, self.tile.split, u32(self.k_blocks)) for more in (0, 1)]
        return self.w.let("first", ends[0]), self.w.let("last", ends[1])

    # The warp that copies

    def _copy_operands(self) -> None:
        w = self.w
        if self.tile.split == 1:
            w.asm(f"bar.arrive 0, {self.tile.threads};")
        with w.when((self.thread_number % WARP).equal(0)):
            w.asm(asm.WAIT_BEFORE)
            first, last = self._own_blocks()
            walk = lambda turn: turn.tile < self.tiles
            with w.repeat(walk, tile=self.block_number, stage=u32(0), phase=u32(1)) as turn:
                self._copy_tile(turn, first, last)

    def _copy_tile(self, turn: Loop, first: Expr, last: Expr) -> None:
        w, plan = self.w, self.plan
        batch, row, column = tile_at(w, self.plan, turn.tile)
        state: dict[str, Any] = {"block": first, "stage": turn.stage, "phase": turn.phase}
        window = plan.a if isinstance(plan.a, Window) else None
        origin: tuple[Expr, ...] = ()
        if window is not None:
            origin = tuple(w.let("origin", at) for at in window_origin(row, window.image, window.strides, window.pads))
        if window is not None and self.together == 1:
            blocks = -(-window.channels // self.tile.depth)
            begin = first % plan.k_blocks if len(plan.passes) > 1 else first
            tap = begin // blocks
            state |= {"channel": begin - tap * blocks, "down": tap // window.filter[1]}
            state["across"] = tap - state["down"] * window.filter[1]
        with w.repeat(lambda k: k.block < last, **state) as k:
            w.asm(asm.WAIT, self.empty + k.stage * BARRIER, k.phase)
            full = w.let("full", self.full + k.stage * BARRIER)
            w.asm(asm.EXPECT.format(bytes=self.tile.stage_bytes), full)
            block, maps = self._pass_of(k.block)
            depth = block * self.tile.depth
            if window is not None and self.together > 1:
                for number in range(self.together):
                    at = w.let("tap", block * self.together + number)
                    place = u32(0), at // window.filter[1], at % window.filter[1]
                    self._copy_window(k, full, window, maps[0], origin, place, number)
            elif window is not None:
                tap = k.down * window.filter[1] + k.across
                depth = tap * window.channels + k.channel * self.tile.depth
                self._copy_window(k, full, window, maps[0], origin, (k.channel, k.down, k.across))
            else:
                self._copy_matrix(k, full, plan.a, maps[0], depth, row, batch, self.memory.a, self.tile.rows)
            self._copy_matrix(k, full, plan.b, maps[1], depth, column, batch, self.memory.b, self.tile.width)
            self._advance(k)
            if window is not None and self.together == 1:
                self._advance_window(k, window)
        turn.next(tile=turn.tile + self.blocks, stage=k.stage, phase=k.phase)

    def _pass_of(self, block: Expr) -> tuple[Expr, tuple[Value, Value]]:
        """The block within its pass over k, and the maps of that pass."""
        passes, w, each = self.plan.passes, self.w, self.plan.k_blocks
        chosen = [self.frame.maps[number] for number in passes[0]]
        if len(passes) == 1:
            return block, (chosen[0], chosen[1])
        for turn, maps in enumerate(passes[1:], 1):
            later = w.value(block >= turn * each)
            chosen = [w.b.select(later, self.frame.maps[number], old) for number, old in zip(maps, chosen)]
        return block % each, (chosen[0], chosen[1])

    def _copy_matrix(
        self, k: Loop, full: Expr, side: Any, chosen: Value, depth: Expr, row: Expr, batch: Expr, start: int, rows: int
    ) -> None:
        w = self.w
        to = w.let("to", self.base + start + k.stage * (rows * ROW_BYTES))
        depth = w.let("depth", depth)
        matrix = u32(0) if side.matrix is None else w.number_at(side.matrix, self.plan.batch_at, batch)
        if not side.turned:
            w.asm(asm.tile_load(3), to, chosen, depth, row, matrix, full)
            return
        for panel in range(rows // PANEL_ROWS):
            at = row + panel * PANEL_ROWS
            w.asm(asm.tile_load(3), to + panel * PANEL_BYTES, chosen, at, depth, matrix, full)

    def _copy_window(
        self, k: Loop, full: Expr, window: Window, chosen: Value, origin: tuple[Expr, ...], place: Any, tap: int = 0
    ) -> None:
        """The pixels of one tap, at a block of channels, a row and a column of the filter."""
        w, (channel, down, across) = self.w, place
        picture, top, left = origin
        start = self.memory.a + tap * self.tile.rows * self.line
        to = w.let("to", self.base + start + k.stage * (self.tile.rows * ROW_BYTES))
        offsets = [
            w.b.convert("trunc", w.value(at * step), "i16")
            for at, step in ((across, window.dilation[1]), (down, window.dilation[0]))
        ]
        w.asm(asm.window_load(), to, chosen, channel * self.tile.depth, left, top, picture, full, *offsets)

    def _advance(self, k: Loop) -> None:
        following = k.stage + 1
        wraps = following.equal(self.memory.stages)
        stage = select(wraps, u32(0), following)
        k.next(block=k.block + 1, stage=stage, phase=k.phase ^ cast(wraps, UINT32))

    def _advance_window(self, k: Loop, window: Window) -> None:
        channel = k.channel + 1
        whole = channel.equal(-(-window.channels // self.tile.depth))
        across = k.across + cast(whole, UINT32)
        row_done = across.equal(window.filter[1])
        k.next(channel=select(whole, u32(0), channel), across=select(row_done, u32(0), across))
        down = k.down + cast(row_done, UINT32)
        k.next(down=select(down.equal(window.filter[0]), u32(0), down))  # where another pass begins

    # The warpgroups that multiply

    def _multiply(self) -> None:
        w, tile = self.w, self.tile
        if tile.split == 1:
            w.asm(f"bar.sync 0, {tile.threads};")
        w.asm(f"{asm.MAY_BEGIN}\n{asm.WAIT_BEFORE}")
        self.thread = w.let("thread", self.thread_number % WARPGROUP)
        self.is_first = self.thread.equal(0)
        if tile.alternate:
            with w.when(self.warpgroup.equal(1)):  # the other one has the first turn
                w.asm(f"bar.arrive {TURN_BARRIER}, {2 * WARPGROUP};")
        begin: Expr = self.block_number
        step: Expr = self.blocks
        if tile.alternate:
            begin, step = begin + self.warpgroup * step, step * tile.warpgroups
        state: dict[str, Any] = {"tile": begin, "beside": u32(0)}
        state |= {"turn": self.warpgroup} if tile.alternate else {"stage": u32(0), "phase": u32(0)}
        first, last = self._own_blocks()
        count = w.let("count", last - first)
        with w.repeat(lambda turn: turn.tile < self.tiles, **state) as turn:
            self._multiply_tile(turn, count)
            turn.next(tile=turn.tile + step, beside=turn.beside ^ 1)
            if tile.split > 1:  # a cluster has one tile
                turn.next(tile=self.tiles)

    def _multiply_tile(self, turn: Loop, count: Expr) -> None:
        w, tile = self.w, self.tile
        batch, row, column = tile_at(w, self.plan, turn.tile)
        if tile.alternate:
            stage, phase = ring_place(turn.turn * count, self.memory.stages)
            turn.next(turn=turn.turn + tile.warpgroups)
        else:
            stage, phase = turn.stage, turn.phase
            row = w.let("own_row", row + self.warpgroup * tile.own_rows)
        sums = GroupSums(self, batch, row, column)
        if self.plan.beside is not None and self.plan.out_map is not None:
            sums.copy_beside()
        values, stage_after, phase_after = self._sums(stage, phase, count)
        if not tile.alternate:
            turn.next(stage=w.named("stage", stage_after), phase=w.named("phase", phase_after))
        if tile.split > 1:
            store_split(sums, values)
        elif self.plan.out_map is None:
            store_pairs(sums, values)
        else:
            store_staged(sums, values, turn.beside)

    def _sums(self, stage: Expr, phase: Expr, count: Expr) -> tuple[list[Value], Value, Value]:
        """The sums of a tile, and the stage and phase after it. Tensor cores cut off what sums cannot hold, always in
        one direction: those that stay float32 are made in parts, which are added as float32 is."""
        if len(self.plan.passes) == 1:
            return self._inner_loop(stage, phase, count)
        w, names = self.w, [f"sum{number}" for number in range(self.tile.accumulators)]
        zero = w.b.const("float", 1, 0.0)
        with w.repeat(lambda k: k.left > 0, left=count, stage=stage, phase=phase, **dict.fromkeys(names, zero)) as k:
            part = w.let("part", lesser(k.left, u32(PART)))
            values, stage_after, phase_after = self._inner_loop(k.stage, k.phase, part)
            k.next(left=k.left - part, stage=w.named("stage", stage_after), phase=w.named("phase", phase_after))
            k.next(**{name: w.b.add(w.value(k.carried[name]), value) for name, value in zip(names, values)})
        return [w.value(k.carried[name]) for name in names], w.value(k.stage), w.value(k.phase)

    def _descriptors(self) -> tuple[Value, Value]:
        """Of both operands at the first stage of the ring."""
        w, tile = self.w, self.tile
        own = u32(0) if tile.alternate else self.warpgroup * (tile.own_rows * self.line)
        made = []
        sides = (self.plan.a, own + self.memory.a, self.line), (self.plan.b, u32(self.memory.b), ROW_BYTES)
        for side, start, line in sides:
            turned = getattr(side, "turned", False)
            high = descriptor(PANEL_BYTES if turned else CHUNK_BYTES, CORE_ROWS * line, line)
            low = w.wide(described(self.base + start))
            made.append(w.b.binary("or", low, w.b.const("i64", 1, high)))
        return made[0], made[1]

    def _inner_loop(self, stage: Expr, phase: Expr, count: Expr) -> tuple[list[Value], Value, Value]:
        """The sums of so many stages, and the stage and phase after them."""
        w, tile, sums = self.w, self.tile, self.tile.accumulators
        a, b = self._descriptors()
        names = ["stage", "phase", "a", "b", "full", "empty", "stage0", "phase0", "count", "elected", "mine", "others"]
        at = {name: f"${sums + number}" for number, name in enumerate(names)}
        zeros = "\n".join(f"mov.f32 ${number}, 0f00000000;" for number in range(sums))
        turns = [f"bar.sync {at['mine']}, {2 * WARPGROUP};", f"bar.arrive {at['others']}, {2 * WARPGROUP};"]
        take, give = turns if tile.alternate else ("", "")
        text = f"""{{
.reg .pred p, adds, always, elected, releases;
.reg .b32 block, bar, before;
.reg .b64 a, b, x;
setp.eq.b32 always, 0, 0;
setp.ne.b32 elected, {at["elected"]}, 0;
mov.b32 {at["stage"]}, {at["stage0"]};
mov.b32 {at["phase"]}, {at["phase0"]};
mov.b32 block, 0;
mov.b32 before, 0;
{zeros}
{take}
next: shl.b32 bar, {at["stage"]}, 3;
add.u32 bar, bar, {at["full"]};
again: mbarrier.try_wait.parity.shared::cta.b64 p, [bar], {at["phase"]};
@p bra ready;
bra again;
ready: mul.wide.u32 x, {at["stage"]}, {tile.rows * ROW_BYTES // CHUNK_BYTES};
add.s64 a, x, {at["a"]};
mul.wide.u32 x, {at["stage"]}, {tile.width * ROW_BYTES // CHUNK_BYTES};
add.s64 b, x, {at["b"]};
setp.ne.b32 adds, block, 0;
wgmma.fence.sync.aligned;
{self._products()}
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 1;
shl.b32 bar, before, 3;
add.u32 bar, bar, {at["empty"]};
and.pred releases, elected, adds;
@releases mbarrier.arrive.shared::cta.b64 _, [bar];
mov.b32 before, {at["stage"]};
add.u32 {at["stage"]}, {at["stage"]}, 1;
setp.eq.b32 p, {at["stage"]}, {self.memory.stages};
selp.b32 {at["stage"]}, 0, {at["stage"]}, p;
selp.b32 bar, 1, 0, p;
xor.b32 {at["phase"]}, {at["phase"]}, bar;
add.u32 block, block, 1;
setp.lt.u32 p, block, {at["count"]};
@p bra next;
{give}
wgmma.wait_group.sync.aligned 0;
shl.b32 bar, before, 3;
add.u32 bar, bar, {at["empty"]};
@elected mbarrier.arrive.shared::cta.b64 _, [bar];
}}"""
        elected = cast(self.is_first, UINT32)
        mine, others = self.warpgroup + TURN_BARRIER, u32(TURN_BARRIER + 1) - self.warpgroup
        operands = (a, b, self.full, self.empty, stage, phase, count, elected, mine, others)
        made = w.read_many(text, ["float"] * sums + ["i32", "i32"], *operands)
        return made[:sums], made[sums], made[sums + 1]

    def _products(self) -> str:
        """All products of one stage."""
        tile, plan, lines = self.tile, self.plan, list[str]()
        turned = getattr(plan.a, "turned", False), plan.b.turned
        flags = () if tile.kind == "tf32" else turned
        places = [[step * 16 * ROW_BYTES if side else self._along(step) for step in range(K_STEPS)] for side in turned]
        if not turned[1]:
            places[1] = [step * K_STEP_BYTES for step in range(K_STEPS)]
        each = tile.width // 2
        for step in range(K_STEPS):
            for block in range(tile.blocks):
                if block:
                    lines.append(f"add.s64 x, a, {block * PANEL_ROWS * self.line // CHUNK_BYTES};")
                keeps, own = ("adds" if step == 0 else "always"), asm.registers(block * each, each)
                lines.append(asm.multiply(tile.kind, tile.width, own, "x" if block else "a", "b", keeps, flags))
            if step < K_STEPS - 1:
                more = [(at[step + 1] - at[step]) // CHUNK_BYTES for at in places]
                lines += [f"add.s64 {side}, {side}, {count};" for side, count in zip("ab", more)]
        return "\n".join(lines)

    def _along(self, step: int) -> int:
        """Where in a stage a step of k of the first operand begins: pixels of one tap lie behind those of another."""
        tap, within = divmod(step * K_STEP_BYTES, self.line)
        return tap * self.tile.rows * self.line + within
