"""A product by single warps as LLVM IR. Copies of a stage begin as many turns ahead as there are stages; all products
of a stage are one block of assembly, and all around it is ordinary IR.

Sums go through shared memory to threads that have neighbours of a row: those finish them and store 16 bytes at a time.
"""

from __future__ import annotations

from typing import Any

from ....base.cuda_target import CudaTarget
from ....te.expr import Expr, select
from ....te.extents import Extent, divisor, is_multiple
from ....te.loops import Kernel
from ....te.tensor_cores.fragments import BLOCK_COLUMNS, BLOCK_ROWS, K_STEPS, Layout, sum_column, sum_row
from ....te.tensor_cores.layouts import ROW_BYTES, WARP
from ....te.tensor_cores.product import Operand, Window
from ....te.tensor_cores.warp_product import WORD, WarpProduct
from ...builder import Value
from . import asm, warp_asm
from .frame import Frame, address_of, module, tile_at
from .results import Sums, finish_runs
from .warp_asm import Side
from .warp_copies import Copier, Lines, MatrixCopier, WindowCopier
from .writer import Loop, u32

MOST_AT_ONCE = 4  # runs of results that a thread finishes one after the other, without a loop


def emit_warp_product(kernel: Kernel, plan: WarpProduct, target: CudaTarget) -> str:
    """The module of a product."""
    writer = WarpProductWriter(kernel, plan, target)
    writer.write()
    return module(kernel, writer.frame, plan.launch, 0, plan.tile.resident)


class WarpProductWriter:
    """What the threads of a block do."""

    def __init__(self, kernel: Kernel, plan: WarpProduct, target: CudaTarget) -> None:
        self.plan, self.tile, self.target = plan, plan.tile, target
        self.frame = Frame(kernel, target, 0)
        self.w = w = self.frame.w
        self.thread_number, self.block_number = w.special("tid.x"), w.special("ctaid.x")
        self.base = self.frame.shared_base()
        self.lane = w.let("lane", self.thread_number % WARP)
        warp = w.let("warp", self.thread_number // WARP)
        down, across = self.tile.down, self.tile.across
        self.own_row = w.let("own_row", warp // across * (self.tile.rows // down))
        self.own_column = w.let("own_column", warp % across * (self.tile.width // across))
        self.right_start = self.tile.rows * ROW_BYTES  # of the right operand, in a stage

    def write(self) -> None:
        if self.target.has_dependent_launch:
            self.w.asm(f"{asm.MAY_BEGIN}\n{asm.WAIT_BEFORE}")
        batch, row, column = tile_at(self.w, self.plan, self.block_number)
        values = self._sums(self._copiers(batch, row, column))
        self._store(Sums(self.frame, self.plan, (self.tile.rows, self.tile.width), batch, row, column), values)

    # Copies

    def _copiers(self, batch: Expr, row: Expr, column: Expr) -> list[Any]:
        plan, size = self.plan, self.tile.item_bytes
        common = self.w, self.thread_number, self.tile.threads
        made: list[Copier] = []
        sides = (plan.a, self.tile.rows, row, plan.rows), (plan.b, self.tile.width, column, plan.columns)
        for layout, (side, rows, first, extent) in zip(self.layouts, sides):
            base = address_of(self.frame, side.buffer)
            if isinstance(side, Window):
                made.append(WindowCopier(*common, layout, base, side, first, extent))
                continue
            base = self._matrix(base, side, batch, extent * plan.depth * size)
            inner, outer = (extent, plan.depth) if side.turned else (plan.depth, extent)
            lines = Lines(outer, inner, inner * size, divisor(inner * size))
            panels = rows // layout.lines
            at = (u32(0), first) if side.turned else (first, u32(0))
            made.append(MatrixCopier(*common, layout, panels, base, lines, *at, down=side.turned))
        return made

    def _matrix(self, base: Value, side: Operand, batch: Expr, size: int | Extent) -> Value:
        """Where the matrix begins that a product takes."""
        if side.matrix is None:
            return base
        b = self.w.b
        number = self.w.wide(self.w.number_at(side.matrix, self.plan.batch_at, batch))
        return b.binary("add", base, b.binary("mul", number, self.w.long(size)))

    # Products

    def _sums(self, copiers: list[Any]) -> list[Value]:
        """The sums of this thread, once all of the block's threads are done with shared memory."""
        w, plan, ring = self.w, self.plan, self.plan.ring
        ahead, size = ring.stages - 1, self.tile.stage_bytes
        for stage in range(ahead):
            if isinstance(plan.k_blocks, Extent):
                with w.when(w.count(plan.k_blocks) > stage):
                    self._issue(copiers, self.base + stage * size, u32(stage))
            elif stage < plan.k_blocks:
                self._issue(copiers, self.base + stage * size, u32(stage))
            w.asm(warp_asm.COMMIT)
        left, right = self._lane_starts()
        names = [f"sum{number}" for number in range(self.tile.sums)]
        state: dict[str, Any] = dict.fromkeys(names, w.b.const("float", 1, 0.0))
        state |= {"block": u32(0), "read": u32(0), "written": u32(ahead * size)}
        blocks = w.count(plan.k_blocks)
        with w.repeat(lambda k: k.block < blocks, **state) as k:
            w.asm(f"{warp_asm.landed(ring.stages - 2)}\nbar.sync 0;")
            following = w.let("following", k.block + ahead)
            with w.when(following < blocks):
                self._issue(copiers, self.base + k.written, following)
            w.asm(warp_asm.COMMIT)
            old = [w.value(k.carried[name]) for name in names]
            made = self._stage(old, left + k.read, right + k.read)
            k.next(block=k.block + 1, **dict(zip(names, made)))
            self._turn(k, "read", size)
            self._turn(k, "written", size)
        w.asm(f"{warp_asm.landed(0)}\nbar.sync 0;")
        return [w.value(k.carried[name]) for name in names]

    def _turn(self, k: Loop, name: str, size: int) -> None:
        """A place in the ring moves on to the next stage."""
        following = k.carried[name] + size
        wraps = following.equal(size * self.plan.ring.stages)
        k.next(**{name: select(wraps, u32(0), following)})

    def _issue(self, copiers: list[Any], stage: Expr, block: Expr) -> None:
        copiers[0].issue(stage, block)
        copiers[1].issue(stage + self.right_start, block)

    @property
    def layouts(self) -> tuple[Layout, Layout]:
        """Of both operands in a stage."""
        size, depth = self.tile.item_bytes, self.tile.depth
        turned = isinstance(self.plan.a, Operand) and self.plan.a.turned, self.plan.b.turned
        left, right = (
            Layout(size, side, depth if side else rows) for side, rows in zip(turned, (self.tile.rows, self.tile.width))
        )
        return left, right

    def _lane_starts(self) -> tuple[Expr, Expr]:
        left, right = self.layouts
        starts = (
            self.base + left.lane_start(self.lane, self.own_row, True),
            self.base + self.right_start + right.lane_start(self.lane, self.own_column, False),
        )
        return self.w.let("left", starts[0]), self.w.let("right", starts[1])

    def _stage(self, old: list[Value], left: Expr, right: Expr) -> list[Value]:
        """Sums after one more stage. Tensor cores cut off what sums cannot hold, always in one direction: those that
        stay float32 are made for each stage alone, and added as float32 is."""
        w, tile, count = self.w, self.tile, len(old)
        (down, across), first = tile.blocks, count if tile.exact else 2 * count
        sides = (
            Side("a", f"${first}", down, self.layouts[0], True),
            Side("b", f"${first + 1}", across // 2, self.layouts[1], False),
        )
        products = warp_asm.all_products(tile.kind, *sides, K_STEPS, tile.exact)
        if not tile.exact:
            return w.read_many(f"{{\n{products}\n}}", ["float"] * count, left, right, early=False, tied=old)
        made = w.read_many(f"{{\n{warp_asm.zeros(count)}\n{products}\n}}", ["float"] * count, left, right)
        return [w.b.add(a, b) for a, b in zip(old, made)]

    # Results

    def _store(self, sums: Sums, values: list[Value]) -> None:
        w, tile = self.w, self.tile
        line = tile.line_bytes
        row, column = self.own_row + sum_row(self.lane, 0), self.own_column + sum_column(self.lane, 0)
        at = w.let("at", self.base + row * line + column * WORD)
        _, across = tile.blocks
        for number in range(0, len(values), 2):
            block, half = divmod(number, 4)
            more = (block // across * BLOCK_ROWS + sum_row(0, half)) * line + block % across * BLOCK_COLUMNS * WORD
            w.asm(f"st.shared.v2.f32 [$0+{more}], {{$1, $2}};", at, *values[number : number + 2])
        w.asm("bar.sync 0;")

        def total(row: Expr, run: Expr) -> list[Value]:
            return self._run(w.let("at", self.base + row * line + run * (self.plan.lanes * WORD)))

        whole = is_multiple(self.plan.rows, tile.rows) and is_multiple(self.plan.columns, tile.width)
        threads = self.thread_number, tile.threads
        finish_runs(sums, *threads, tile.rows, self.plan.lanes, sums.row, total, whole, MOST_AT_ONCE)

    def _run(self, at: Expr) -> list[Value]:
        """Neighbours of a row of sums."""
        lanes, each = self.plan.lanes, min(self.plan.lanes, 4)
        if each == 1:
            return [self.w.read("ld.shared.f32 $0, [$1];", "float", at)]
        names = ", ".join(f"${n}" for n in range(each))
        made: list[Value] = []
        for first in range(0, lanes, each):
            text = f"ld.shared.v{each}.f32 {{{names}}}, [${each}+{first * WORD}];"
            made += self.w.read_many(text, ["float"] * each, at, early=False)
        return made
