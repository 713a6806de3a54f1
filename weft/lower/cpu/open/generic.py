"""Any computation on te tensors as open kernels: it runs on extents that are arguments, and each of
its stages becomes a loop nest of those. What comes out serves all sizes that pass the guards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Generic, NamedTuple, TypeVar

from .... import te
from ....base.cpu_facts import COSTS
from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....base.sizes import SizeTable
from ....te.expr import Call, Expr, Load, as_expr
from ....te.extents import Trace
from ....te.loops import For, Kernel, Stmt, buffer
from ....te.schedule import inline, loop_nest
from ....te.tensor import Tensor
from ....te.visit import loads, postorder, substitute
from ...group import reached_tensors
from ...stages import stages
from ..nest import Axis
from ..stage import extents_of, reductions
from .nest import Nest, nest_kernel
from .reuse import with_reuse

LOAD_WORK, CALL_WORK = COSTS.loaded, COSTS.called

K = TypeVar("K")  # what a step's kernel is: loops, object code, or something to call


class OpenMemory(NamedTuple):
    """What a call allocates; extents are rows of the table of sizes."""

    shape: tuple[int, ...]
    dtype: DType


class OpenStep(NamedTuple, Generic[K]):
    """A kernel, which buffers it takes, which rows of the table of sizes say how many turns and
    elements it has, and about how many nanoseconds an element takes."""

    kernel: K
    buffers: tuple[int, ...]
    turns: int
    elements: int
    work: float


class OpenProgram(NamedTuple, Generic[K]):
    """The numbers that follow from the sizes of a call, what it allocates, which buffers are its
    results, and the steps in order. Buffers are numbered: the inputs, then what is allocated."""

    table: SizeTable
    allocated: tuple[OpenMemory, ...]
    outputs: tuple[int, ...]
    steps: tuple[OpenStep[K], ...]

    def with_kernels(self, kernels: Iterable[Any]) -> OpenProgram[Any]:
        """The same with other kernels, one for each step."""
        steps = tuple(step._replace(kernel=kernel) for step, kernel in zip(self.steps, kernels))
        return self._replace(steps=steps)


def lower_open(
    name: str,
    compute: Callable[..., Any],
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[DType],
    target: CpuTarget,
) -> OpenProgram[Kernel]:
    """The kernels of a computation on tensors of these shapes, for all like it. `compute` takes te
    tensors and gives one or several. Extents of 1 stay as they are."""
    trace = Trace()
    inputs = [
        te.placeholder(extents(trace, number, shape), dtype, f"in{number}")
        for number, (shape, dtype) in enumerate(zip(shapes, dtypes))
    ]
    computed = compute(*inputs)
    results = _distinct(computed if isinstance(computed, (tuple, list)) else (computed,), inputs)
    order = stages(inputs, results)
    places = {tensor: number for number, tensor in enumerate([*inputs, *order])}
    rows = _common_rows(order, places)
    groups = [order] if rows else [[tensor] for tensor in order]
    steps = tuple(_step(name, group, rows, places, trace, target) for group in groups)
    allocated = tuple(OpenMemory(tuple(map(trace.row_of, t.shape)), t.dtype) for t in order)
    outputs = tuple(places[tensor] for tensor in results)
    return OpenProgram(trace.table(), allocated, outputs, steps)


def _common_rows(order: Sequence[Tensor], places: Mapping[Tensor, int]) -> int:
    """How many leading axes number rows, for each of which all stages can run in one go: first
    reductions to one value, then elements that read those of their own row. 0: it is not so."""
    if len(order) < 2 or not all(_row_axes(tensor) for tensor in order[:-1]):
        return 0
    rows = min(_row_axes(tensor) for tensor in order[:-1])
    if any(tensor.shape[:rows] != order[0].shape[:rows] for tensor in order):
        return 0
    for tensor in order:
        for load in _all_loads(tensor, places):
            own = zip(load.indices[:rows], tensor.axes)
            if load.source in order and not all(index is axis for index, axis in own):
                return 0
    return rows


def _row_axes(tensor: Tensor) -> int:
    """The leading axes of a stage after which there is but one element."""
    rank = tensor.rank
    while rank and type(tensor.shape[rank - 1]) is int and tensor.shape[rank - 1] == 1:
        rank -= 1
    return rank


def _all_loads(tensor: Tensor, places: Mapping[Tensor, int]) -> list[Load]:
    """What a stage reads, through what is computed on the way."""
    between = [t for t in reached_tensors(tensor, places) if t not in places and not t.is_reduction]
    body = inline(tensor, between).body
    assert body is not None
    direct = loads(body)
    sources = [load.source for load in direct if load.source not in places]
    nested = [source for source in sources if isinstance(source, Tensor)]
    return direct + [load for source in nested for load in _all_loads(source, places)]


def extents(trace: Trace, number: int, shape: Sequence[int]) -> list[Any]:
    """The extents of an input as arguments, but for those of 1."""
    return [1 if extent == 1 else trace.extent(f"n{number}_{axis}", extent) for axis, extent in enumerate(shape)]


def _distinct(tensors: Sequence[Tensor], inputs: Sequence[Tensor]) -> list[Tensor]:
    """The results, each in memory of its own."""
    distinct: list[Tensor] = []
    for tensor in tensors:
        if tensor in inputs or tensor in distinct:
            tensor = te.compute(tensor.shape, lambda *i, t=tensor: t[i], name=tensor.name)
        distinct.append(tensor)
    return distinct


def _step(
    name: str, group: Sequence[Tensor], rows: int, places: Mapping[Tensor, int], trace: Trace, target: CpuTarget
) -> OpenStep[Kernel]:
    read = {t: None for stage in group for t in reached_tensors(stage, places) if t in places}
    buffers = {
        t: buffer(f"b{n}", t.dtype, [_known(extent, trace) for extent in t.shape])
        for n, t in enumerate(dict.fromkeys([*read, *group]))
    }
    nests = [_peeled(loop_nest([stage], buffers), stage.shape, trace) for stage in group]
    if rows:
        nests = with_reuse(nests, rows)
    label = f"{name}_{group[-1].name}"
    kernel, turns = nest_kernel(label, list(buffers.values()), nests, rows, target, trace)
    elements: Any = prod([*group[-1].shape, *extents_of(reductions(group[-1], buffers))])
    work = sum(_cost(node) for nest in nests for node in postorder((nest.body,)))
    used = tuple(places[t] for t in buffers)
    return OpenStep(kernel, used, trace.row_of(turns), trace.row_of(elements), work)


def _cost(node: Any) -> float:
    return LOAD_WORK if isinstance(node, Load) else CALL_WORK if isinstance(node, Call) else 0.0


def _known(extent: Any, trace: Trace) -> Expr:
    return substitute(as_expr(extent), trace.equal)


def _peeled(nest: Stmt, shape: Sequence[Any], trace: Trace) -> Nest:
    """The loops over the output's axes, and what stands in them."""
    axes = []
    nest = substitute(nest, trace.equal)
    for extent in shape:
        assert isinstance(nest, For)
        axes.append(Axis(nest.var, extent))
        nest = nest.body
    return Nest(axes, nest)
