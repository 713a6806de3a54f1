"""Operators on memory of a device: programs of one operator or of the few steps of a plan, made by the backend of the
device as those of models are, with sizes as arguments where that can be. What a backend has no kernel for is a step of
the host in its program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.forks import held_lock
from ...base.kept import Kept
from ...base.plan import HostStep, KernelStep, known
from ...compiler.constants import SharedConstants
from ...compiler.model_source import ModelSource
from ...compiler.open.part import OpenPrograms
from ...compiler.prepare import typed_graph
from ...core.graph import Graph
from ...core.ir import Fact, Node, NodeEntry
from ...core.op import Op, subscribe
from ...core.pattern import OpPattern
from ...core.plan import Plan, Step
from ...core.symbol import Symbol
from ...runtime.cuda.context import Context
from ...runtime.cuda.executor import CudaExecutor
from ...runtime.cuda.graph import PreparedKernel, runs
from ...runtime.cuda.memory import Pooled
from ...runtime.cuda.stream import stream_in
from ...runtime.cuda.workspace import Loaded
from ...runtime.program import Program
from .copies import begun, used
from .memory import OnDevice, over
from .told import tell_host

OPT_LEVEL = 3
KEPT_CALLS, KEPT_FORMS = 1 << 12, 1 << 10
Names = dict[str, tuple[int | str, ...]]


class Call:
    """What runs an operator on arrays of certain shapes and dtypes. Kernels are launched one by one, for a graph of a
    few would cost more; a program with steps of the host runs as those of models do."""

    def __init__(self, executor: CudaExecutor, writes: Sequence[int] = ()) -> None:
        """`writes` are the inputs that the operator changes."""
        self.writes = writes
        self.executor, self.context = executor, executor.loaded.context
        plan, program = executor.program.plan, executor.program
        self.hosted = tuple(str(step.attrs["op"]) for step in plan.steps if isinstance(step, HostStep))
        self.outputs = [
            (spec.extents, spec.dtype, prod(spec.extents) * spec.dtype.itemsize) for spec in program.outputs
        ]
        used = {ref.slot for step in plan.steps for ref in step.buffers}
        self._inputs, self._outputs, constants = (
            [number for number, slot in enumerate(plan.slots) if slot.role == role]
            for role in ("input", "output", "constant")
        )
        self.read = frozenset(place for place, number in enumerate(self._inputs) if number in used or self.hosted)
        self._arena = [(number, known(slot.offset)) for number, slot in enumerate(plan.slots) if slot.role == "arena"]
        self._arena_bytes = known(plan.arena_bytes)
        self._addresses = [0] * len(plan.slots)
        for number, place in zip(constants, executor.loaded.places):
            self._addresses[number] = place
        self._kernels: list[PreparedKernel] | None = None
        self._steps = [step for step in plan.steps if isinstance(step, KernelStep) and runs(step)]
        self._turn = held_lock("table")

    def run(self, memories: Sequence[OnDevice]) -> list[OnDevice]:
        """The outputs for elements that lie in order. What is written to inputs is written there."""
        if self.hosted:
            return self._run_hosted(memories)
        with self.context as context:
            stream = stream_in(context)
            made = [OnDevice(Pooled(stream, nbytes), shape, dtype) for shape, dtype, nbytes in self.outputs]
            scratch = Pooled(stream, self._arena_bytes) if self._arena else None
            shared = begun(memories, stream)
            with self._turn:
                for kernel in self._placed(memories, made, scratch):
                    kernel.launch(stream)
            used(shared, stream)
        return made

    def _placed(
        self, memories: Sequence[OnDevice], made: Sequence[OnDevice], scratch: Pooled | None
    ) -> Sequence[PreparedKernel]:
        """The kernels, which use memory where it is in this call."""
        addresses = self._addresses
        for number, memory in zip(self._inputs, memories):
            addresses[number] = memory.address
        for number, output in zip(self._outputs, made):
            addresses[number] = output.address
        if scratch is not None:
            for number, offset in self._arena:
                addresses[number] = scratch.address + offset
        if self._kernels is None:
            functions = self.executor.loaded.functions
            self._kernels = [
                PreparedKernel(self.context, functions[step.kernel], step, addresses) for step in self._steps
            ]
        else:
            for kernel in self._kernels:
                kernel.place(addresses)
        return self._kernels

    def _run_hosted(self, memories: Sequence[OnDevice]) -> list[OnDevice]:
        for name in self.hosted:
            tell_host(name)
        arrays = {f"in{number}": memory.as_array() for number, memory in enumerate(memories)}
        made = self.executor.run_arrays(arrays, [self.executor.device] * len(self.outputs), keep=True)
        return [over(array) for array in made]


_calls: Kept[Call] = Kept(KEPT_CALLS)
_forms: Kept[OpenPrograms] = Kept(KEPT_FORMS)
_making = held_lock("making")


def forget() -> None:
    """Lets all programs go."""
    _calls.clear()
    _forms.clear()


subscribe(lambda op, name: forget())  # a rule of an operator may be another one


def known_call(what: Hashable, memories: Sequence[Any], context: Context) -> Call | None:
    """What runs an operator with its attributes, or a plan, on inputs of these shapes and dtypes, if that is there."""
    return _calls.get(_key(what, memories, context))


def _key(what: Hashable, memories: Sequence[Any], context: Context) -> Hashable:
    key: list[Hashable] = [what, context]
    for memory in memories:
        key += memory.shape, memory.dtype
    return tuple(key)


def operator_call(op: Op, params: Any, memories: Sequence[OnDevice], context: Context) -> Call:
    """What runs an operator on inputs of these shapes and dtypes."""
    step = Step(op, params, tuple(range(len(memories))), op.outputs_of(params))
    plan = Plan((step,), tuple(range(len(memories), len(memories) + step.outputs)))
    return _new((op, params), plan, memories, context, op.mutates_of(params) if Op.mutates.contains(op) else ())


def plan_call(plan: Plan, memories: Sequence[OnDevice], context: Context) -> Call:
    """The same for the steps of a plan, whose leaves are the inputs."""
    return known_call(plan, memories, context) or _new(plan, plan, memories, context)


def _new(
    what: Hashable, plan: Plan, memories: Sequence[OnDevice], context: Context, writes: Sequence[int] = ()
) -> Call:
    facts = tuple([(memory.shape, memory.dtype) for memory in memories])
    with _making:
        return _calls.find(_key(what, memories, context), lambda: _made(what, plan, facts, context, writes))


def _made(what: Hashable, plan: Plan, facts: Any, context: Context, writes: Sequence[int]) -> Call:
    shapes = {f"in{number}": shape for number, (shape, _) in enumerate(facts)}
    executor = None
    if all([_may_be_open(step.op) for step in plan.steps]):
        names = named(facts)
        key: Hashable = (what, tuple(names.items()), tuple(dtype for _, dtype in facts), context)
        form = _forms.find(key, lambda: _programs(plan, facts, names))
        executor = form.executor(shapes, lambda make: _loaded(make, context))
    if executor is None:
        executor = executor_alone(plan, facts, context)
    assert isinstance(executor, CudaExecutor)
    return Call(executor, writes)


def executor_alone(plan: Plan, facts: Sequence[Any], context: Context) -> CudaExecutor:
    """What runs a plan on inputs of these shapes and dtypes, which its code is for alone."""
    shapes = {f"in{number}": shape for number, (shape, _) in enumerate(facts)}
    alone = _programs(plan, facts, shapes)
    return _loaded(lambda: alone.program_alone(shapes, lambda done, total: None), context)


def _may_be_open(op: Op) -> bool:
    """Whether code for any sizes is as good as code for these: reductions and products are cut by their extents."""
    return not Op.mutates.contains(op) and op.pattern <= OpPattern.INJECTIVE


def named(facts: Sequence[Any]) -> Names:
    """Inputs in names for their extents: equal ones have the same, and extents of 0 and 1 stay what they are.

    >>> named([((2, 3), None), ((3, 1), None)])
    {'in0': ('n0', 'n1'), 'in1': ('n1', 1)}
    """
    known: dict[int, str] = {}
    found: Names = {}
    for number, (shape, _) in enumerate(facts):
        found[f"in{number}"] = tuple(n if n < 2 else known.setdefault(n, f"n{len(known)}") for n in shape)
    return found


def _programs(plan: Plan, facts: Any, shapes: Any) -> OpenPrograms:
    """What makes programs of a plan, for inputs whose extents are numbers or names."""
    values = [NodeEntry(Node(None, name)) for name in shapes]
    for number, (op, params, places, count) in enumerate(plan.steps):
        inputs = [values[place] for place in places]
        node = Node(op, f"{op.name.strip('_')}{number}", op.attributes(params), inputs, params=params)
        values += [NodeEntry(node, index) for index in range(count)]
    given = {name: Fact(shape, dtype) for (name, shape), (_, dtype) in zip(shapes.items(), facts)}
    symbol = Symbol([values[place] for place in plan.results if place is not None])
    read = {node.name for node in Graph(symbol.outputs).indexed.nodes}
    known = {name: fact for name, fact in given.items() if name in read}
    dtypes: Any = {name: fact.dtype for name, fact in known.items()}
    graph = typed_graph(symbol, {}, {name: fact.shape for name, fact in known.items()}, dtypes)
    source = ModelSource(graph.symbol, {}, shapes, dtypes, CudaTarget.create(), None, OPT_LEVEL)
    return OpenPrograms(graph, source, SharedConstants({}), list(shapes), given)


def _loaded(make: Callable[[], Program], context: Context) -> CudaExecutor:
    program = make()
    return CudaExecutor(program, None, Loaded.of(program, context))
