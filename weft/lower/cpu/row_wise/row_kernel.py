"""The template of softmax and the normalisations: a row at a time, while it is in the cache.

Each turn computes the reductions of a row, then its elements with whatever follows. Where
neighbours in memory are in one row, its elements lie in the lanes; otherwise neighbouring rows do.
How many rows there are and how long they are, are numbers or arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT32, FLOAT64, DType, is_float
from ....core.fused import FusedGroup
from ....te.build import KernelBuilder
from ....te.expr import Binary, Call, Const, Expr, Load, Var, as_expr, cast, const, minimum
from ....te.extents import Trace, is_open
from ....te.loops import Buffer, Kernel, Seq, Stmt, Store
from ....te.reducers import accumulator_dtype, combine, identity
from ....te.schedule import bind_shared
from ....te.tensor import Tensor
from ....te.visit import Interner, free_of, loads, postorder, rewrite, substitute
from ...axes import Axis
from ...chunks import in_chunks
from ...group import Facts, LoweredKernel, Temporary, joined_tensors, kernel_name, tensors_of
from ...long_sums import finished
from ...rows import Columns, RowResult, Rows, RowStage, find_rows, has_columns
from ...stages import stages
from ..nest import lane_loop
from ..nests.hoist import vector_loop
from ..nests.open_stages import SHORT, nest_kernel
from ..nests.sums import in_pairs
from ..stage import lower_group

SAVED = 1 / 16  # of the second cache, for exponentials that are needed again
ABREAST = 4  # partial results side by side, to hide the latency of an addition
OPEN_ABREAST = 2  # where it is an argument how many there are: the rest is more code
TOGETHER = 4  # lanes that are combined at a time
PART = 32  # times so many are added up before they join a wider sum
ELEMENT_WORK, CALL_WORK = 8, 16  # of a walk over an element, and of a function


Index = Mapping[Var, Expr]


def row_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernels of a group that computes rows, or the generic ones where it does not."""
    tensors = joined_tensors(group, tensors_of(group, fact))
    inputs, outputs = ([tensors[entry] for entry in side] for side in (group.inputs, group.outputs))
    places: dict[Tensor, Hashable] = dict(zip((*inputs, *outputs), (*group.inputs, *group.outputs)))
    return _in_rows(kernel_name(group), inputs, outputs, places, target) or lower_group(group, fact, target)


def compute_kernels(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    places: dict[Tensor, Hashable],
    target: CpuTarget,
    trace: Trace,
) -> list[LoweredKernel]:
    """The kernels of a computation whose sizes are arguments: of rows, or one for each stage. What has no place yet
    gets one between them."""
    made = _in_rows(name, inputs, outputs, places, target) if has_columns(inputs, outputs) else []
    if made:
        return made
    chunked = in_chunks(inputs, outputs)
    places |= {tensor: places[output] for output, tensor in zip(outputs, chunked)}
    made = _in_rows(name, inputs, chunked, places, target)
    if made:
        return made
    order = stages(inputs, chunked)
    for tensor in order:
        places.setdefault(tensor, Temporary(len(places), tensor.shape, tensor.dtype))
    computes = any(_calls(tensor.body) for tensor in order if tensor.body is not None)
    return [nest_kernel(f"{name}_{t.name}", t, places, target, trace, computes=computes) for t in order]


def _in_rows(
    name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], places: dict[Tensor, Hashable], target: CpuTarget
) -> list[LoweredKernel]:
    """The kernel of outputs that are computed in rows, and what adds up sums across rows; none where they are not."""
    rows = find_rows(inputs, outputs, target.caches[1])
    if rows is None or _are_windows(rows):
        return []
    totals = rows.columns.totals if rows.columns is not None else {}
    places |= {part: Temporary(len(places) + n, part.shape, part.dtype) for n, part in enumerate(totals)}
    kernel = _RowKernel(name, rows, target).kernel()
    made = [LoweredKernel(kernel, tuple([places[tensor] for tensor in rows.buffers]), _work(rows))]
    if rows.columns is not None:
        ends = (*totals, *totals.values())
        added = _with_equal(_totals_kernel(f"{name}_totals", rows.columns, target), rows)
        made.append(LoweredKernel(added, tuple([places[tensor] for tensor in ends]), prod(ends[0].shape) * len(ends)))
    return made


def _are_windows(rows: Rows) -> bool:
    """Whether nothing but a sum, or the like, of a few elements comes of each row, as pools have it: neighbouring
    results are better lanes then."""
    length = prod(axis.extent for axis in rows.reduced)
    whole = any(result.is_each for result in rows.results) or rows.columns is not None
    return not whole and not is_open(length) and length < SHORT


def _totals_kernel(name: str, columns: Columns, target: CpuTarget) -> Kernel:
    """Adds up parts that lie one after the other, neighbours in lanes."""
    b, first = KernelBuilder(name), next(iter(columns.totals))
    parts = [b.arg("part", part.dtype, (prod(part.shape),)) for part in columns.totals]
    width, lanes = prod(columns.totals[first].shape), target.lanes(first.dtype)
    results = [b.arg("total", total.dtype, (width,)) for total in columns.totals.values()]
    with b.parallel("p", (width + (lanes - 1)) // lanes) as p, b.vector("lane", lanes) as lane:
        j = p * lanes + lane
        with b.when(j < width):
            sums = [b.registers("sum", FLOAT64) for _ in parts]
            with b.loop("part", columns.parts) as number:
                for part, total in zip(parts, sums):
                    b.store(total, (), total[()] + cast(part[number * width + j], FLOAT64))
            for total, result in zip(sums, results):
                b.store(result, j, cast(total[()], result.dtype))
    return finished(b.finish())


def _with_equal(kernel: Kernel, rows: Rows) -> Kernel:
    """The kernel with one argument for those that are equal in all calls."""
    traces = [axis.extent.trace for axis in (*rows.reduced, *rows.kept) if is_open(axis.extent)]
    return replace(kernel, body=substitute(kernel.body, traces[0].equal)) if traces else kernel


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
        self.vars = [axis.var for axis in rows.reduced]
        self.is_open = any(is_open(axis.extent) for axis in rows.reduced)
        self.known: dict[Var, Expr] = {}  # indices of the row, results of its reductions
        intern = Interner()
        self.stages = [stage._replace(body=intern(stage.body)) for stage in rows.stages]
        self.results = [result._replace(value=intern(result.value)) for result in rows.results]
        runs = rows.columns.runs if rows.columns is not None else []
        self.runs = [(stage._replace(body=intern(stage.body)), result) for stage, result in runs]
        self.each = [result for result in self.results if result.is_each]
        nodes = {id(node) for node in postorder([result.value for result in self.each])}
        again = [stage for stage in self.stages if id(stage.body) in nodes and _calls(stage.body)]
        self.saving = again[-1] if again else None  # whose exponentials the elements need again
        self.saved: Buffer | None = None
        self.cached, self.lane = target.caches[1], tuple[Expr, ...]()
        self.lanes = min(target.lanes(dtype) for dtype in self._dtypes())

    def kernel(self) -> Kernel:
        b, kept = self.b, self.rows.kept
        columns = self.rows.columns
        if columns is not None and columns.block is not None:
            return self._in_blocks(columns)
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
        return self._finished()

    def _in_blocks(self, columns: Columns) -> Kernel:
        """Turns that go through some rows, and add up what those have in common."""
        b, block, (head, *inner) = self.b, columns.block, self.rows.kept
        width = prod(axis.extent for axis in (*inner, *self.rows.reduced))
        with b.parallel("p", (head.extent + (block - 1)) // block) as p:
            self.known[columns.turn], j = p, Var("j")
            own = [result.buffer for result in self.each if result.adds]
            zeros = [Store(buffer, (p * width + j,), const(0, buffer.dtype)) for buffer in own]
            b.emit(lane_loop(j, 0, width, self.lanes, Seq(tuple(zeros))))
            first = b.let("first", p * block)
            with b.loop("row", minimum(as_expr(head.extent) - first, block)) as row, self._loops(inner) as at:
                self.known |= {head.var: b.let("row", first + row), **at}
                self._row()
        return self._finished()

    def _finished(self) -> Kernel:
        return _with_equal(finished(replace(self.b.finish(), buffers=tuple(self.rows.buffers.values()))), self.rows)

    def _dtypes(self) -> list[DType]:
        """Of what each turn reads and writes."""
        stages = [*self.rows.stages, *(stage for stage, _ in self.runs)]
        bodies = [*(stage.body for stage in stages), *(result.value for result in self.rows.results)]
        read = [load for body in bodies for load in loads(body) if not (self.rows.in_row and free_of(load, self.vars))]
        written = [result.buffer.dtype for result in self.rows.results if result.is_each]
        return [*map(_accumulated, stages), *(load.dtype for load in read), *written]

    def _passes(self) -> Iterator[list[RowStage]]:
        """Stages that are reduced in one walk: none of them reads what another one gives."""
        together: list[RowStage] = []
        for stage in self.stages:
            if not free_of(stage.body, [before.result for before in together]):
                yield together
                together = []
            together.append(stage)
        yield together

    # Elements of a row in the lanes

    def _row(self) -> None:
        *outer, inner = self.rows.reduced
        self._save([axis.extent for axis in self.rows.reduced])
        for together in self._passes():
            self._reduced(together, self.rows.reduced)
        self._results()
        self._runs()
        if self.each:
            stores = self._stores()
            with self._loops(outer) as at:
                own = bind_shared([substitute(store, at) for store in stores])
                self.b.emit(vector_loop(inner.var, 0, inner.extent, self.lanes, own))

    def _runs(self) -> None:
        """Sums along the last axis, which stand for themselves."""
        *outer, inner = self.rows.reduced
        if not self.runs:
            return
        with self._loops(outer) as at:
            self.known |= at
            self._reduced([stage for stage, _ in self.runs], [inner])
            for _, result in self.runs:
                self.b.emit(self._store(result, result.value))
        for axis in outer:
            del self.known[axis.var]

    def _reduced(self, together: list[RowStage], axes: Sequence[Axis]) -> None:
        """Reductions of the row: in the lanes first, then over them in a fixed order."""
        b, length = self.b, axes[-1].extent
        lanes = self.lanes if is_open(length) else min(self.lanes, length)
        full, rest = divmod(length, lanes)
        computes = any(_calls(stage.body) for stage in together)  # for longer than an addition takes
        abreast = (1 if computes or len(together) > 1 else OPEN_ABREAST) if is_open(length) else ABREAST
        bodies = self._hoisted(together)
        shares = [b.alloc("shares", self._total(stage), (lanes,)) for stage in together]
        with self._vector(lanes) as lane:
            after = as_expr(full * lanes) + lane if is_open(length) else None
            values = self._over(together, bodies, axes, full, lambda turn: turn * lanes + lane, abreast, after)
            for share, value in zip(shares, values):
                b.store(share, lane, value)
        if not is_open(rest) and rest:
            with self._vector(rest) as lane:
                values = self._over(together, bodies, axes, 1, lambda turn: full * lanes + lane, 1)
                for stage, share, value in zip(together, shares, values):
                    b.store(share, lane, combine(stage.combiner, share[lane], value))
        for stage, share in zip(together, shares):
            self._know(stage, self._over_lanes(stage, share, lanes))

    def _know(self, stage: RowStage, value: Expr) -> None:
        self.known[stage.result] = self.b.let(stage.result.name, cast(value, stage.result.dtype))

    def _over_lanes(self, stage: RowStage, shares: Buffer, lanes: int) -> Expr:
        """All shares; where sizes are arguments, some at a time, which is less code."""
        if not self.is_open or lanes <= TOGETHER:
            return _tree(stage, [self.b.let("share", shares[lane]) for lane in range(lanes)])
        own = [self._accumulator(stage, shares.dtype) for _ in range(TOGETHER)]
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
        length = self.rows.reduced[-1].extent
        for together in self._passes():
            values = self._over(together, self._hoisted(together), self.rows.reduced, length, lambda turn: turn, 1)
            for stage, value in zip(together, values):
                self._know(stage, value)
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

    def _accumulator(self, stage: RowStage, dtype: DType | None = None) -> Buffer:
        own = _accumulated(stage) if dtype is None else dtype
        return self.b.registers("acc", own, start=identity(stage.combiner, own))

    def _over(
        self,
        together: Sequence[RowStage],
        bodies: Sequence[Expr],
        axes: Sequence[Axis],
        turns: Any,
        place: Callable[[Expr], Expr],
        abreast: int,
        after: Expr | None = None,
    ) -> list[Expr]:
        """Reductions of a row over turns of its innermost axis, some side by side, and over the element `after` them if
        it is in the row. Where it is an argument how many there are, they are in parts, which are added up in a
        wider dtype."""
        b, (*outer, inner) = self.b, axes
        count = abreast if is_open(turns) else max(min(abreast, turns), 1)
        groups, rest = divmod(turns, count)
        totals = [self._accumulator(stage, self._total(stage)) for stage in together] if self.is_open else []

        def accumulators(count: int) -> list[list[Buffer]]:
            return [[self._accumulator(stage) for stage in together] for _ in range(count)]

        own = [] if totals else accumulators(count)
        with self._loops(outer) as at:
            if outer:
                bodies = self._bound([substitute(body, at) for body in bodies], [inner.var])

            def step(number: int, turn: Expr) -> None:
                self._step(together, bodies, own[number], {**at, inner.var: turn})

            def steps(group: Expr) -> None:
                for number in range(count):
                    step(number, place(group * count + number))

            if not totals:
                with b.loop("turn", groups) as turn:
                    steps(turn)
                for number in range(rest):
                    step(number, place(as_expr(groups * count + number)))
            else:
                whole = b.let("groups", groups)
                with b.loop("part", (whole + (PART - 1)) // PART) as part:
                    own = accumulators(count)
                    first = b.let("first", part * PART)
                    with b.loop("turn", minimum(whole - first, PART)) as turn:
                        steps(first + turn)
                    self._join(together, totals, own)
                own = accumulators(1)
                if count > 1:
                    with b.loop("turn", rest) as turn:
                        step(0, place(whole * count + turn))
            if after is not None:
                with b.when(after < inner.extent):
                    step(0, after)
            if totals:
                self._join(together, totals, own)
        if totals:
            return [total[()] for total in totals]
        return [_tree(stage, [acc[()] for acc in each]) for stage, *each in zip(together, *own)]

    def _join(self, together: Sequence[RowStage], totals: Sequence[Buffer], own: Sequence[Sequence[Buffer]]) -> None:
        for stage, total, *each in zip(together, totals, *own):
            value = cast(_tree(stage, [acc[()] for acc in each]), total.dtype)
            self.b.store(total, (), combine(stage.combiner, total[()], value))

    def _step(self, together: Sequence[RowStage], bodies: Sequence[Expr], own: Sequence[Buffer], at: Index) -> None:
        stores: list[Stmt] = []
        for stage, body, acc in zip(together, bodies, own):
            value = substitute(body, at)
            stores.append(Store(acc, (), combine(stage.combiner, acc[()], cast(value, acc.dtype))))
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
        return [self._store(result, value) for result, value in zip(self.each, self._bound(values))]

    def _store(self, result: RowResult, value: Expr) -> Store:
        stored, place = cast(substitute(value, self.known), result.buffer.dtype), substitute(result.place, self.known)
        return Store(result.buffer, (place,), result.buffer[place] + stored if result.adds else stored)

    def _hoisted(self, together: Sequence[RowStage]) -> list[Expr]:
        return self._bound([stage.body for stage in together])

    def _bound(self, bodies: Sequence[Expr], moving: Sequence[Var] | None = None) -> list[Expr]:
        """Bodies over what is known, with all that is the same for the whole row, or where only some axes move, bound
        before them; a division by such a value becomes a multiplication."""
        intern, moving = Interner(), self.vars if moving is None else moving
        made: dict[int, Expr] = {}

        def bind(label: str, value: Expr) -> Expr:
            value = intern(value)
            if id(value) not in made:
                made[id(value)] = self.b.let(label, value)
            return made[id(value)]

        def hoist(node: Any) -> Any:
            if not isinstance(node, Expr) or isinstance(node, Const):
                return node
            if not is_float(node.dtype) and not isinstance(node, Load):  # index arithmetic
                return node
            if free_of(node, moving):
                return node if isinstance(node, Var) else bind("same", node)
            if isinstance(node, Binary) and node.op == "div" and free_of(node.b, moving):
                return node.a * bind("inverse", const(1, node.dtype) / node.b)
            return node

        return [rewrite(substitute(body, self.known), hoist) for body in bodies]


def _accumulated(stage: RowStage) -> DType:
    return accumulator_dtype(stage.combiner, stage.body.dtype)


def _tree(stage: RowStage, items: Sequence[Expr]) -> Expr:
    return in_pairs(partial(combine, stage.combiner), items)
