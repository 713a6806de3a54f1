"""The template of softmax and the normalisations: a row at a time, while it is in the cache.

Each turn computes the reductions of a row, then its elements with whatever follows. Where
neighbours in memory are in one row, its elements lie in the lanes; otherwise neighbouring rows do.
How many rows there are and how long they are, are numbers or arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from math import prod
from typing import Any

from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, FLOAT64, DType, is_float
from ...core.fused import FusedGroup
from ...core.ir import Fact, NodeEntry
from ...te.build import KernelBuilder
from ...te.expr import Binary, Call, Const, Expr, Var, as_expr, cast, const, minimum
from ...te.extents import Trace, is_open
from ...te.loops import Buffer, Kernel, Stmt, Store
from ...te.reducers import accumulator_dtype, combine, identity
from ...te.schedule import bind_shared
from ...te.tensor import Tensor
from ...te.visit import Interner, free_of, postorder, rewrite, substitute
from ..group import LoweredKernel, Temporary, joined_tensors, kernel_name, tensors_of
from ..stages import stages
from .long_sums import finished
from .nest import Axis, lane_loop
from .open_stages import nest_kernel
from .rows import RowResult, Rows, RowStage, find_rows
from .stage import lower_group

SAVED = 1 / 16  # of the second cache, for exponentials that are needed again
ABREAST = 4  # partial results side by side, to hide the latency of an addition
OPEN_ABREAST = 2  # where it is an argument how many there are: the rest is more code
TOGETHER = 4  # lanes that are combined at a time
PART = 32  # times so many are added up before they join a wider sum
ELEMENT_WORK, CALL_WORK = 8, 16  # of a walk over an element, and of a function


Index = Mapping[Var, Expr]


def row_kernels(group: FusedGroup, fact: Callable[[NodeEntry], Fact], target: CpuTarget) -> list[LoweredKernel]:
    """The kernel of a group that computes rows, or the generic ones where it does not."""
    tensors = joined_tensors(group, tensors_of(group, fact))
    inputs, outputs = ([tensors[entry] for entry in side] for side in (group.inputs, group.outputs))
    places: dict[Tensor, Hashable] = dict(zip((*inputs, *outputs), (*group.inputs, *group.outputs)))
    made = row_kernel(kernel_name(group), inputs, outputs, places, target)
    return lower_group(group, fact, target) if made is None else [made]


def row_kernel(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], places: Mapping[Tensor, Hashable], target: CpuTarget
) -> LoweredKernel | None:
    """The kernel of outputs that are computed in rows; None where they are not."""
    rows = find_rows(inputs, outputs, target.caches[1])
    if rows is None:
        return None
    return LoweredKernel(_RowKernel(name, rows, target).kernel(), tuple([places[t] for t in rows.buffers]), _work(rows))


def compute_kernels(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    places: dict[Tensor, Hashable],
    target: CpuTarget,
    trace: Trace,
) -> list[LoweredKernel]:
    """The kernels of a computation whose sizes are arguments: one, if it is of rows, or one for each stage. What has no
    place yet gets one between them."""
    made = row_kernel(name, inputs, outputs, places, target)
    if made is not None:
        return [made]
    order = stages(inputs, outputs)
    for tensor in order:
        places.setdefault(tensor, Temporary(len(places), tensor.shape, tensor.dtype))
    computes = any(_calls(tensor.body) for tensor in order if tensor.body is not None)
    return [nest_kernel(f"{name}_{t.name}", t, places, target, trace, computes=computes) for t in order]


def _work(rows: Rows) -> Any:
    bodies = [*(stage.body for stage in rows.stages), *(result.value for result in rows.results if result.is_each)]
    calls = sum(_calls(body) for body in bodies)
    elements = prod(axis.extent for axis in (*rows.kept, *rows.reduced))
    return elements * (ELEMENT_WORK * len(bodies) + CALL_WORK * calls)


def _calls(body: Expr) -> int:
    return sum(isinstance(node, Call) for node in postorder((body,)))


class _RowKernel:
    def __init__(self, name: str, rows: Rows, target: CpuTarget) -> None:
        self.b, self.rows = KernelBuilder(name), rows
        dtypes = [accumulator_dtype(s.combiner, s.body.dtype) for s in rows.stages]
        dtypes += [buffer.dtype for buffer in rows.buffers.values()]
        self.lanes = min(target.lanes(dtype) for dtype in dtypes)
        self.vars = [axis.var for axis in rows.reduced]
        self.is_open = any(is_open(axis.extent) for axis in rows.reduced)
        self.known: dict[Var, Expr] = {}  # indices of the row, results of its reductions
        intern = Interner()
        self.stages = [stage._replace(body=intern(stage.body)) for stage in rows.stages]
        self.results = [result._replace(value=intern(result.value)) for result in rows.results]
        self.each = [result for result in self.results if result.is_each]
        nodes = {id(node) for node in postorder([result.value for result in self.each])}
        again = [stage for stage in self.stages if id(stage.body) in nodes and _calls(stage.body)]
        self.saving = again[-1] if again else None  # whose exponentials the elements need again
        self.saved: Buffer | None = None
        self.cached, self.lane = target.caches[1], tuple[Expr, ...]()

    def kernel(self) -> Kernel:
        b, kept = self.b, self.rows.kept
        inner = None if self.rows.in_row else kept[-1]
        outer = kept if inner is None else kept[:-1]
        blocks = 1 if inner is None else (inner.extent + (self.lanes - 1)) // self.lanes
        with b.parallel("p", prod(axis.extent for axis in outer) * blocks) as p:
            number = p // blocks
            for axis in reversed(outer):
                self.known[axis.var] = b.let("row", number % axis.extent)
                number = number // axis.extent
            if inner is None:
                self._row()
            else:
                self._neighbours(inner, b.let("block", p % blocks))
        return finished(replace(b.finish(), buffers=tuple(self.rows.buffers.values())))

    # Elements of a row in the lanes

    def _row(self) -> None:
        *outer, inner = self.rows.reduced
        self._save([axis.extent for axis in self.rows.reduced])
        for stage in self.stages:
            self.known[stage.result] = self._reduced(stage)
        self._results()
        if self.each:
            stores = self._stores()
            with self._loops(outer) as at:
                own = bind_shared([substitute(store, at) for store in stores])
                self.b.emit(lane_loop(inner.var, 0, inner.extent, self.lanes, own))

    def _reduced(self, stage: RowStage) -> Expr:
        """A reduction of the row: in the lanes first, then over them in a fixed order."""
        b, length = self.b, self.rows.reduced[-1].extent
        lanes = self.lanes if is_open(length) else min(self.lanes, length)
        full, rest = divmod(length, lanes)
        body, abreast = self._hoisted(stage.body), OPEN_ABREAST if is_open(length) else ABREAST
        shares = b.alloc("shares", self._total(stage), (lanes,))
        with self._vector(lanes) as lane:
            after = as_expr(full * lanes) + lane if is_open(length) else None
            b.store(shares, lane, self._over(stage, body, full, lambda turn: turn * lanes + lane, abreast, after))
        if not is_open(rest) and rest:
            with self._vector(rest) as lane:
                value = self._over(stage, body, 1, lambda turn: full * lanes + lane, 1)
                b.store(shares, lane, combine(stage.combiner, shares[lane], value))
        return b.let(stage.result.name, cast(self._over_lanes(stage, shares, lanes), stage.result.dtype))

    def _over_lanes(self, stage: RowStage, shares: Buffer, lanes: int) -> Expr:
        """All shares; where sizes are arguments, some at a time, which is less code."""
        if not self.is_open or lanes <= TOGETHER:
            return _tree(stage, [self.b.let("share", shares[lane]) for lane in range(lanes)])
        own = self._accumulators(stage, TOGETHER, shares.dtype)
        with self.b.loop("turn", lanes // TOGETHER) as turn:
            for number, acc in enumerate(own):
                value = combine(stage.combiner, acc[()], shares[turn * TOGETHER + number])
                self.b.store(acc, (), value)
        return _tree(stage, [acc[()] for acc in own])

    # Neighbouring rows in the lanes

    def _neighbours(self, axis: Axis, block: Expr) -> None:
        full, rest = divmod(axis.extent, self.lanes)
        if is_open(axis.extent):
            self._rows_at(axis.var, block * self.lanes, self.lanes, axis.extent)
        elif full and rest:
            with self.b.when(block < full):
                self._rows_at(axis.var, block * self.lanes, self.lanes)
            with self.b.otherwise():
                self._rows_at(axis.var, as_expr(full * self.lanes), rest)
        else:
            self._rows_at(axis.var, block * self.lanes, self.lanes if full else rest)

    def _rows_at(self, var: Var, first: Expr, lanes: int, end: Any = None) -> None:
        """Rows side by side, of which those from `end` on are none."""
        self._save([*(axis.extent for axis in self.rows.reduced), lanes])
        with self._vector(lanes) as lane, nullcontext() if end is None else self.b.when(first + lane < end):
            self.known[var], self.lane = first + lane, (lane,)
            self._each_row()

    def _each_row(self) -> None:
        for stage in self.stages:
            body = self._hoisted(stage.body)
            value = self._over(stage, body, self.rows.reduced[-1].extent, lambda turn: turn, 1)
            self.known[stage.result] = self.b.let(stage.result.name, cast(value, stage.result.dtype))
        self._results()
        if self.each:
            stores = self._stores()
            with self._loops(self.rows.reduced) as at:
                self.b.emit(bind_shared([substitute(store, at) for store in stores]))

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

    def _total(self, stage: RowStage) -> DType:
        """What all of a row is added up in."""
        own = _accumulated(stage)
        return FLOAT64 if own == FLOAT32 and stage.combiner == "sum" and self.is_open else own

    def _accumulators(self, stage: RowStage, count: int, dtype: DType) -> list[Buffer]:
        made = [self.b.alloc("acc", dtype, (), scope="register") for _ in range(count)]
        for acc in made:
            self.b.store(acc, (), identity(stage.combiner, dtype))
        return made

    def _over(
        self,
        stage: RowStage,
        body: Expr,
        turns: Any,
        place: Callable[[Expr], Expr],
        abreast: int,
        after: Expr | None = None,
    ) -> Expr:
        """The reduction of a row over turns of its innermost axis, some side by side, and over the element `after` them
        if it is in the row. Where it is an argument how many there are, they are in parts, which are added up in a
        wider dtype."""
        b, (*outer, inner) = self.b, self.rows.reduced
        count = abreast if is_open(turns) else max(min(abreast, turns), 1)
        groups, rest = divmod(turns, count)
        (total,) = self._accumulators(stage, 1, self._total(stage)) if self.is_open else (None,)
        own = [] if self.is_open else self._accumulators(stage, count, _accumulated(stage))
        with self._loops(outer) as at:

            def step(acc: Buffer, turn: Expr) -> None:
                self._step(stage, body, acc, {**at, inner.var: turn})

            def steps(group: Expr) -> None:
                for number, acc in enumerate(own):
                    step(acc, place(group * count + number))

            if total is None:
                with b.loop("turn", groups) as turn:
                    steps(turn)
                for number in range(rest):
                    step(own[number], place(as_expr(groups * count + number)))
            else:
                with b.loop("part", (groups + (PART - 1)) // PART) as part:
                    own = self._accumulators(stage, count, _accumulated(stage))
                    first = b.let("first", part * PART)
                    with b.loop("turn", minimum(as_expr(groups) - first, PART)) as turn:
                        steps(first + turn)
                    self._join(stage, total, own)
                own = self._accumulators(stage, 1, _accumulated(stage))
                if count > 1:
                    with b.loop("turn", rest) as turn:
                        step(own[0], place(as_expr(groups) * count + turn))
            if after is not None:
                with b.when(after < inner.extent):
                    step(own[0], after)
            if total is not None:
                self._join(stage, total, own)
        return _tree(stage, [acc[()] for acc in own]) if total is None else total[()]

    def _join(self, stage: RowStage, total: Buffer, parts: Sequence[Buffer]) -> None:
        value = _tree(stage, [acc[()] for acc in parts])
        self.b.store(total, (), combine(stage.combiner, total[()], cast(value, total.dtype)))

    def _step(self, stage: RowStage, body: Expr, acc: Buffer, at: Index) -> None:
        value = substitute(body, at)
        stores: list[Stmt] = [Store(acc, (), combine(stage.combiner, acc[()], cast(value, acc.dtype)))]
        if self.saved is not None and stage is self.saving:
            stores.append(Store(self.saved, self._saved_at(at), value))
        self.b.emit(bind_shared(stores))

    def _save(self, shape: Sequence[Any]) -> None:
        """Memory for exponentials that the elements need again, where there are some: of its own if that is known to be
        small, else where the elements will be."""
        self.saved = None
        if self.saving is None:
            return
        dtype = self.saving.body.dtype
        if any(map(is_open, shape)):
            self.saved = self.each[0].buffer if [result.buffer.dtype for result in self.each] == [dtype] else None
        elif prod(shape) * dtype.itemsize <= SAVED * self.cached:
            self.saved = self.b.alloc("saved", dtype, shape)

    def _saved_at(self, at: Index) -> tuple[Expr, ...]:
        if self.saved is self.each[0].buffer:
            return (substitute(self.each[0].place, {**self.known, **at}),)
        return (*(at[var] for var in self.vars), *self.lane)

    def _results(self) -> None:
        """Stores what there is once for a row."""
        for result in self.results:
            if not result.is_each:
                self.b.emit(bind_shared([self._store(result, result.value)]))

    def _stores(self) -> list[Store]:
        """What stores elements, at the axes of the row."""
        values = [result.value for result in self.each]
        if self.saved is not None and self.saving is not None:
            saved, body = self.saved[self._saved_at({var: var for var in self.vars})], self.saving.body
            values = [rewrite(value, lambda node: saved if node is body else node) for value in values]
        return [self._store(result, self._hoisted(value)) for result, value in zip(self.each, values)]

    def _store(self, result: RowResult, value: Expr) -> Store:
        stored = cast(substitute(value, self.known), result.buffer.dtype)
        return Store(result.buffer, (substitute(result.place, self.known),), stored)

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
