"""The template of softmax and the normalisations on a GPU: a row in the registers of a warp or of a block.

What the reductions of a row read is loaded once, 16 bytes at a time; a thread has every so many-th vector of the row.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.dtype import DType, is_float
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...te.build import KernelBuilder
from ...te.expr import Binary, Call, Const, Expr, Load, Ramp, Var, as_expr, cast, const, minimum, widen
from ...te.extents import is_open
from ...te.loops import WARP, Buffer, Kernel
from ...te.reducers import accumulator_dtype, combine, identity
from ...te.tensor import Tensor
from ...te.visit import Interner, free_of, parts, postorder, rewrite, substitute, with_parts
from ..access import accessed, step
from ..group import LoweredKernel, kernel_name, lower_stages, tensors_of
from ..rows import Rows, RowStage, find_rows
from .aligned import with_alignment
from .grid import quotient, ready, remainder
from .stage import stage_kernel
from .totals import block_total, lanes_total

HELD = 32  # elements of a row that a thread has in registers
MOST_THREADS = 1024
ROWS = 4  # of a block whose warps have one each


def row_kernels(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CudaTarget) -> list[LoweredKernel]:
    """The kernel of a group that computes rows, or the generic ones where it does not, or where rows are too long."""
    tensors = tensors_of(group, fact)
    rows = None
    if len(group.outputs) == 1:
        inputs, output = [tensors[entry] for entry in group.inputs], tensors[group.outputs[0]]
        places: dict[Tensor, Hashable] = {tensors[entry]: entry for entry in group.inputs}
        rows = find_rows(inputs, [output], HELD * MOST_THREADS * output.dtype.itemsize)
    if rows is None or not _fits(rows):
        return lower_stages(group, fact, target, stage_kernel)
    arguments = tuple(places.get(tensor, group.outputs[0]) for tensor in rows.buffers)
    work = prod(axis.extent for axis in (*rows.kept, *rows.reduced))
    return [LoweredKernel(_RowKernel(kernel_name(group), rows, target).kernel(), arguments, work)]


def _fits(rows: Rows) -> bool:
    """Whether rows are one axis of neighbours, known to be as long as the registers of a block hold."""
    if not rows.in_row or len(rows.reduced) != 1 or not rows.results[0].is_each:
        return False
    length = rows.reduced[0].extent
    return not is_open(length) and length <= HELD * MOST_THREADS


class _RowKernel:
    def __init__(self, name: str, rows: Rows, target: CudaTarget) -> None:
        self.b, self.rows, self.name = KernelBuilder(name), rows, name
        intern = Interner()
        self.value, self.place = intern(rows.results[0].value), rows.results[0].place
        self.stages = [stage._replace(body=intern(stage.body)) for stage in rows.stages]
        self.axis = rows.reduced[0]
        self.lanes = self._lanes(target)
        self.threads = WARP
        while self.threads * HELD < self.axis.extent:
            self.threads *= 2
        self.side_by_side = ROWS if self.threads == WARP else 1
        self.turns = -(-self.axis.extent // (self.threads * self.lanes))
        self.known: dict[Var, Expr] = {}  # indices of the row, results of its reductions
        self.held: dict[int, Var] = {}  # expressions that registers have, and what stands for them
        self.registers: dict[Var, Buffer] = {}

    def _lanes(self, target: CudaTarget) -> int:
        """How many neighbours one load has: all that is read along the row must be in line."""
        reads = [node for node in postorder(self._bodies()) if isinstance(node, Load)]
        *_, out = self.rows.buffers.values()
        if any(step(read, self.axis.var) not in (0, 1) for read in reads):
            return 1
        lanes = min(target.lanes(dtype) for dtype in [out.dtype, *(accessed(read).dtype for read in reads)])
        while lanes > 1 and self.axis.extent % lanes:
            lanes //= 2
        return lanes

    def _bodies(self) -> list[Expr]:
        return [self.value, *(stage.body for stage in self.stages)]

    def kernel(self) -> Kernel:
        b = self.b
        count: Any = prod(axis.extent for axis in self.rows.kept)
        warps, beside = self.threads // WARP, self.side_by_side
        with b.block("block", -(-count // beside)) as block:
            parts = [
                b.alloc("parts", _accumulated(stage), (warps,), scope="shared") if warps > 1 else None
                for stage in self.stages
            ]
            with b.thread("warp", beside, "y") as warp, b.thread("thread", self.threads) as thread:
                self.thread = thread
                row = b.let("row", block * beside + warp)
                self._locate(b.let("safe", minimum(row, as_expr(count - 1))), count)
                for stage, part in zip(self.stages, parts):
                    self._reduce(stage, part)
                with b.when(row < count):
                    self._store()
        buffers, body = with_alignment(list(self.rows.buffers.values()), b.finish().body)
        return ready(Kernel(self.name, tuple(buffers), body))

    def _locate(self, row: Expr, count: Any) -> None:
        inner: Any = 1
        for place, axis in reversed(list(enumerate(self.rows.kept))):
            index = quotient(row, inner, count)
            index = index if place == 0 else remainder(index, axis.extent, count)
            self.known[axis.var] = self.b.let("at", index)
            inner *= axis.extent

    def _reduce(self, stage: RowStage, parts: Buffer | None) -> None:
        b, dtype = self.b, _accumulated(stage)
        self._hold(stage.body)
        body = self._prepared(stage.body)
        again = self._kept_for_later(stage)
        total = b.alloc("total", dtype, (), scope="register", lanes=self.lanes)
        b.store(total, (), identity(stage.combiner, dtype))
        for turn in range(self.turns):
            with self._where_there_is(turn):
                value = self._at(body, turn)
                if again is not None:
                    b.store(again, turn, value)
                    value = again[turn]
                b.store(total, (), combine(stage.combiner, total[()], cast(value, dtype)))
        share = b.alloc("share", dtype, (), scope="register")
        b.store(share, (), lanes_total(stage.combiner, total[()]))
        block_total(b, stage.combiner, share, parts, self.thread, self.threads // WARP)
        self.known[stage.result] = b.let(stage.result.name, cast(share[()], stage.result.dtype))
        if again is not None:
            self._stands_for(stage.body, again)

    # What registers hold

    def _hold(self, body: Expr) -> None:
        """Loads what a body reads along the row, unless it is there."""
        for node in postorder((body,), self.held):
            if isinstance(node, Load) and not free_of(node, [self.axis.var]):
                held, read = self._registers("held", node), substitute(node, self.known)
                for turn in range(self.turns):
                    with self._where_there_is(turn):
                        self.b.store(held, turn, self._at(read, turn))
                self._stands_for(node, held)

    def _kept_for_later(self, stage: RowStage) -> Buffer | None:
        """Registers for what is combined, where a function computes it and the elements need it again."""
        needed = any(node is stage.body for node in postorder((self.value,)))
        computed = any(isinstance(node, Call) for node in postorder((stage.body,)))
        return self._registers("again", stage.body) if needed and computed else None

    def _registers(self, name: str, like: Expr) -> Buffer:
        made = self.b.alloc(name, like.dtype, (self.turns,), scope="register", lanes=self.lanes)
        for turn in range(self.turns):
            self.b.store(made, turn, as_expr(0, like.dtype))
        return made

    def _stands_for(self, node: Expr, registers: Buffer) -> None:
        var = Var(registers.name, node.dtype)
        self.held[id(node)], self.registers[var] = var, registers

    # Elements

    def _store(self) -> None:
        *_, out = self.rows.buffers.values()
        value, place = self._prepared(self.value), substitute(self.place, self.known)
        for turn in range(self.turns):
            with self._where_there_is(turn):
                self.b.store(out, self._at(place, turn), cast(self._at(value, turn), out.dtype))

    @contextmanager
    def _where_there_is(self, turn: int) -> Iterator[None]:
        """A part of the row that this thread may not have."""
        end = self.axis.extent // self.lanes
        if (turn + 1) * self.threads <= end:
            yield
        else:
            with self.b.when(self.thread + turn * self.threads < end):
                yield

    def _at(self, body: Expr, turn: int) -> Expr:
        """The body at the part of the row that a thread has in a turn."""
        first = (self.thread + turn * self.threads) * self.lanes
        index = first if self.lanes == 1 else Ramp(first, as_expr(1), self.lanes)
        values = {var: registers[turn] for var, registers in self.registers.items()}
        return widen(substitute(body, {self.axis.var: index, **values}), self.lanes)

    def _prepared(self, body: Expr) -> Expr:
        """The body over registers, and over what is known, with all that is the same for the whole row bound before it;
        a division by such a value becomes a multiplication."""
        own = [self.axis.var, *self.registers]

        def hoist(node: Any) -> Any:
            if not isinstance(node, Expr) or not is_float(node.dtype) or isinstance(node, Const):
                return node
            if free_of(node, own):
                return node if isinstance(node, Var) else self.b.let("same", node)
            if isinstance(node, Binary) and node.op == "div" and free_of(node.b, own):
                return node.a * self.b.let("inverse", const(1, node.dtype) / node.b)
            return node

        return rewrite(substitute(_replaced(body, self.held), self.known), hoist)


def _replaced(root: Expr, table: Mapping[int, Var]) -> Expr:
    """The expression with variables in place of some of its nodes."""
    done: dict[int, Expr] = dict(table)
    for node in postorder((root,), table):
        done[id(node)] = with_parts(node, [done[id(part)] for part in parts(node)])  # type: ignore[assignment]
    return done[id(root)]


def _accumulated(stage: RowStage) -> DType:
    return accumulator_dtype(stage.combiner, stage.body.dtype)
