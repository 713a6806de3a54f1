"""The template of softmax and the normalisations: a row at a time, while it is in the cache.

Each turn computes the reductions of a row, then its elements with whatever follows. Where
neighbours in memory are in one row, its elements lie in the lanes; otherwise neighbouring rows do.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from math import prod
from typing import Any

from ...base.cpu_target import CpuTarget
from ...base.dtype import DType, is_float
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...te.build import KernelBuilder
from ...te.expr import Binary, Call, Const, Expr, Var, as_expr, cast, const
from ...te.extents import is_open
from ...te.loops import Buffer, Kernel, Stmt, Store
from ...te.reducers import accumulator_dtype, combine, identity
from ...te.schedule import bind_shared
from ...te.tensor import Tensor
from ...te.visit import Interner, free_of, postorder, rewrite, substitute
from ..axes import Axis, extents_of, reductions
from ..group import LoweredKernel, joined_tensors, kernel_name, tensors_of
from ..long_sums import finished
from ..rows import Rows, RowStage, find_rows
from ..stages import stages
from .open_stages import open_kernels
from .stage import lower_group

SAVED = 1 / 16  # of the second cache, for exponentials that are needed again
ACCUMULATORS = 4  # partial results side by side, to hide the latency of an addition
ELEMENT_WORK, CALL_WORK = 8, 16  # of a walk over an element, and of a function


Index = Mapping[Var, Expr]


def row_kernels(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group that computes rows, or the generic ones where it does not."""
    tensors = joined_tensors(group, tensors_of(group, fact))
    places: dict[Tensor, Hashable] = {tensors[entry]: entry for entry in group.inputs}
    rows = None
    if len(group.outputs) == 1:
        inputs, output = [tensors[entry] for entry in group.inputs], tensors[group.outputs[0]]
        length = next((extent for extent in extents_of(reductions(output, places)) if is_open(extent)), None)
        if length is not None:
            places[output] = group.outputs[0]
            return open_kernels(kernel_name(group), stages(inputs, [output]), places, target, length.trace)
        rows = find_rows(inputs, output, target.caches[1])
    if rows is None:
        return lower_group(group, fact, target)
    arguments = tuple(places.get(tensor, group.outputs[0]) for tensor in rows.buffers)
    kernel = finished(_RowKernel(kernel_name(group), rows, target).kernel())
    return [LoweredKernel(kernel, arguments, _work(rows))]


def _work(rows: Rows) -> int:
    bodies = [rows.value, *(stage.body for stage in rows.stages)]
    calls = sum(_calls(body) for body in bodies)
    elements = prod(axis.extent for axis in (*rows.kept, *rows.reduced))
    return elements * (ELEMENT_WORK * len(bodies) + CALL_WORK * calls)


def _calls(body: Expr) -> int:
    return sum(isinstance(node, Call) for node in postorder((body,)))


class _RowKernel:
    def __init__(self, name: str, rows: Rows, target: CpuTarget) -> None:
        self.b, self.rows = KernelBuilder(name), rows
        *_, self.out = rows.buffers.values()
        dtypes = [accumulator_dtype(s.combiner, s.body.dtype) for s in rows.stages]
        dtypes += [buffer.dtype for buffer in rows.buffers.values()]
        self.cached = target.caches[1]
        self.lanes = min(target.lanes(dtype) for dtype in dtypes)
        self.vars = [axis.var for axis in rows.reduced]
        self.inner = self.vars[-1]
        self.lane: tuple[Expr, ...] = ()
        self.known: dict[Var, Expr] = {}  # indices of the row, results of its reductions
        self.saved: Buffer | None = None
        intern = Interner()
        self.value = intern(rows.value)
        self.stages = [stage._replace(body=intern(stage.body)) for stage in rows.stages]

    def kernel(self) -> Kernel:
        b, kept = self.b, self.rows.kept
        inner = None if self.rows.in_row else kept[-1]
        outer = kept if inner is None else kept[:-1]
        blocks = 1 if inner is None else -(-inner.extent // self.lanes)
        with b.parallel("p", prod(axis.extent for axis in outer) * blocks) as p:
            number = p // blocks
            for axis in reversed(outer):
                self.known[axis.var] = b.let("row", number % axis.extent)
                number = number // axis.extent
            if inner is None:
                self._row()
            else:
                self._neighbours(inner.var, inner.extent, b.let("block", p % blocks))
        return replace(b.finish(), buffers=tuple(self.rows.buffers.values()))

    # Elements of a row in the lanes

    def _row(self) -> None:
        self._save([axis.extent for axis in self.rows.reduced])
        for stage in self.stages:
            self.known[stage.result] = self._reduced(stage)
        store = self._store()
        full, rest = divmod(self.rows.reduced[-1].extent, self.lanes)
        with self._loops(self.rows.reduced[:-1]) as at:
            if full:
                with self.b.loop("turn", full) as turn, self._vector(self.lanes) as lane:
                    self._element(store, {**at, self.inner: turn * self.lanes + lane})
            if rest:
                with self._vector(rest) as lane:
                    self._element(store, {**at, self.inner: lane + full * self.lanes})

    def _reduced(self, stage: RowStage) -> Expr:
        """A reduction of the row: in the lanes first, then over them in a fixed order."""
        b, dtype = self.b, _accumulated(stage)
        body = self._hoisted(stage.body)
        full, rest = divmod(self.rows.reduced[-1].extent, self.lanes)
        width = self.lanes if full else rest
        shares = b.alloc("shares", dtype, (width,))
        if full:
            with self._vector(self.lanes) as lane:
                b.store(shares, lane, self._full_vectors(stage, body, full, lane))
        if rest:
            with self._vector(rest) as lane:
                acc = self._accumulators(stage, 1)
                with self._loops(self.rows.reduced[:-1]) as at:
                    at = {**at, self.inner: lane + full * self.lanes}
                    self._step(stage, body, acc, 0, at)
                before = shares[lane] if full else identity(stage.combiner, dtype)
                b.store(shares, lane, combine(stage.combiner, before, acc[0]))
        items = [b.let("share", shares[lane]) for lane in range(width)]
        return b.let(stage.result.name, cast(_tree(stage, items), stage.result.dtype))

    def _full_vectors(self, stage: RowStage, body: Expr, full: int, lane: Expr) -> Expr:
        count = min(ACCUMULATORS, full)
        acc = self._accumulators(stage, count)
        turns, left = divmod(full, count)
        with self._loops(self.rows.reduced[:-1]) as at:
            with self.b.loop("turn", turns) as turn:
                for number in range(count):
                    place = (turn * count + number) * self.lanes + lane
                    self._step(stage, body, acc, number, {**at, self.inner: place})
            for number in range(left):
                place = lane + (turns * count + number) * self.lanes
                self._step(stage, body, acc, number, {**at, self.inner: place})
        return _tree(stage, [acc[number] for number in range(count)])

    # Neighbouring rows in the lanes

    def _neighbours(self, var: Var, extent: int, block: Expr) -> None:
        full, rest = divmod(extent, self.lanes)
        if full and rest:
            with self.b.when(block < full):
                self._rows_at(var, block * self.lanes, self.lanes)
            with self.b.otherwise():
                self._rows_at(var, as_expr(full * self.lanes), rest)
        else:
            self._rows_at(var, block * self.lanes, self.lanes if full else rest)

    def _rows_at(self, var: Var, first: Expr, lanes: int) -> None:
        self._save([*(axis.extent for axis in self.rows.reduced), lanes])
        with self._vector(lanes) as lane:
            self.known[var], self.lane = first + lane, (lane,)
            for stage in self.stages:
                body = self._hoisted(stage.body)
                acc = self._accumulators(stage, 1)
                with self._loops(self.rows.reduced) as at:
                    self._step(stage, body, acc, 0, at)
                result = cast(acc[0], stage.result.dtype)
                self.known[stage.result] = self.b.let(stage.result.name, result)
            store = self._store()
            with self._loops(self.rows.reduced) as at:
                self._element(store, at)

    # Pieces of both

    @contextmanager
    def _vector(self, lanes: int) -> Iterator[Expr]:
        if lanes == 1:
            yield as_expr(0)
        else:
            with self.b.vector("lane", lanes) as lane:
                yield lane

    @contextmanager
    def _loops(self, axes: Sequence[Axis]) -> Iterator[dict[Var, Expr]]:
        """Loops over axes of the row: the value of each axis."""
        with ExitStack() as stack:
            yield {axis.var: stack.enter_context(self.b.loop(axis.var.name, axis.extent)) for axis in axes}

    def _accumulators(self, stage: RowStage, count: int) -> Buffer:
        dtype = _accumulated(stage)
        acc = self.b.alloc("acc", dtype, (count,), scope="register")
        for number in range(count):
            self.b.store(acc, number, identity(stage.combiner, dtype))
        return acc

    def _step(self, stage: RowStage, body: Expr, acc: Buffer, number: int, at: Index) -> None:
        value = substitute(body, at)
        wide = cast(value, acc.dtype)
        stores: list[Stmt] = [Store(acc, (as_expr(number),), combine(stage.combiner, acc[number], wide))]
        if self.saved is not None and stage is self.saving:
            stores.append(Store(self.saved, self._saved_at(at), value))
        self.b.emit(bind_shared(stores))

    def _store(self) -> Store:
        """What stores an element, at the axes of the row."""
        value = self.value
        if self.saved is not None:
            kept, saving = self.saved, self.saving.body
            own = {var: as_expr(var) for var in self.vars}
            value = rewrite(value, lambda n: kept[self._saved_at(own)] if n is saving else n)
        place = substitute(self.rows.place, self.known)
        return Store(self.out, (place,), cast(self._hoisted(value), self.out.dtype))

    def _element(self, store: Store, at: Index) -> None:
        self.b.emit(bind_shared([substitute(store, at)]))

    def _save(self, shape: Sequence[int]) -> None:
        """Memory for exponentials that the elements need again, where there are some."""
        nodes = {id(node) for node in postorder((self.value,))}
        again = [s for s in self.stages if id(s.body) in nodes and _calls(s.body)]
        self.saved = None
        if again and prod(shape) * again[-1].body.dtype.itemsize <= SAVED * self.cached:
            self.saving = again[-1]
            self.saved = self.b.alloc("saved", self.saving.body.dtype, shape)

    def _saved_at(self, at: Index) -> tuple[Expr, ...]:
        return (*(at[var] for var in self.vars), *self.lane)

    def _hoisted(self, body: Expr) -> Expr:
        """The body over what is known, with all that is the same for the whole row bound before
        it; a division by such a value becomes a multiplication."""

        def hoist(node: Any) -> Any:
            if not isinstance(node, Expr) or not is_float(node.dtype) or isinstance(node, Const):
                return node
            if free_of(node, self.vars):
                return node if isinstance(node, Var) else self.b.let("same", node)
            if isinstance(node, Binary) and node.op == "div" and free_of(node.b, self.vars):
                return node.a * self.b.let("inverse", const(1, node.dtype) / node.b)
            return node

        return rewrite(substitute(body, self.known), hoist)


def _accumulated(stage: RowStage) -> DType:
    return accumulator_dtype(stage.combiner, stage.body.dtype)


def _tree(stage: RowStage, items: Sequence[Expr]) -> Expr:
    """All items combined, neighbours first."""
    while len(items) > 1:
        pairs = [combine(stage.combiner, a, b) for a, b in zip(items[::2], items[1::2])]
        items = [*pairs, *items[len(pairs) * 2 :]]
    return items[0]
