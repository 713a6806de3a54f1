"""Operators on memory of a device: programs of one operator, made by the backend of the device as those of models are,
with sizes as arguments where that can be. What a backend has no kernel for is a step of the host in its program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.forks import held_lock
from ...base.kept import Kept
from ...base.plan import HostStep
from ...compiler.constants import SharedConstants
from ...compiler.model_source import ModelSource
from ...compiler.open.part import OpenPrograms
from ...compiler.prepare import typed_graph
from ...core.graph import Graph
from ...core.ir import Node, NodeEntry
from ...core.op import Op, subscribe
from ...runtime.cuda.context import Context
from ...runtime.cuda.executor import CudaExecutor
from ...runtime.program import Program
from .memory import OnDevice, over
from .told import tell_host

OPT_LEVEL = 3
KEPT_CALLS, KEPT_FORMS = 1 << 12, 1 << 10
Names = dict[str, tuple[int | str, ...]]


class Call(NamedTuple):
    """What runs an operator on arrays of certain shapes and dtypes; inputs that are not read may be anything."""

    executor: CudaExecutor
    read: frozenset[int]
    hosted: tuple[str, ...]


_calls: Kept[Call] = Kept(KEPT_CALLS)
_forms: Kept[OpenPrograms] = Kept(KEPT_FORMS)
_making = held_lock("making")


def forget() -> None:
    """Lets all programs go."""
    _calls.clear()
    _forms.clear()


subscribe(lambda op, name: forget())  # a rule of an operator may be another one


def run_call(call: Call, memories: Sequence[OnDevice]) -> list[OnDevice]:
    """The outputs for elements that lie in order. What is written to inputs is written there."""
    for name in call.hosted:
        tell_host(name)
    arrays = {f"in{number}": memory.as_array() for number, memory in enumerate(memories)}
    made = call.executor.run_arrays(arrays, [call.executor.device] * len(call.executor.program.outputs), keep=True)
    return [over(array) for array in made]


def call_of(op: Op, params: Any, memories: Sequence[OnDevice], context: Context) -> Call:
    """The program for inputs of these shapes and dtypes."""
    facts = tuple([(memory.shape, memory.dtype) for memory in memories])
    key = (op, params, facts, context)
    found = _calls.get(key)
    if found is None:
        with _making:
            found = _calls.find(key, lambda: _made(op, params, facts, context))
    return found


def _made(op: Op, params: Any, facts: Any, context: Context) -> Call:
    shapes = {f"in{number}": shape for number, (shape, _) in enumerate(facts)}
    executor = None if Op.mutates.contains(op) else _open(op, params, facts, context, shapes)
    if executor is None:
        programs = _programs(op, params, facts, dict(shapes))
        executor = _loaded(lambda: programs.program_alone(shapes, lambda done, total: None), context)
    slots = {ref.slot for step in executor.program.plan.steps for ref in step.buffers}
    numbers = [number for number, slot in enumerate(executor.program.plan.slots) if slot.role == "input"]
    read = frozenset(place for place, number in enumerate(numbers) if number in slots)
    hosted = tuple(str(s.attrs["op"]) for s in executor.program.plan.steps if isinstance(s, HostStep))
    return Call(executor, read, hosted)


def _open(op: Op, params: Any, facts: Any, context: Context, shapes: Any) -> Any:
    """What serves all sizes that are alike, where there is such a program."""
    names = named(facts)
    key: Hashable = (op, params, tuple(names.items()), tuple(dtype for _, dtype in facts), context)
    form = _forms.find(key, lambda: _programs(op, params, facts, names))
    return form.executor(shapes, lambda make: _loaded(make, context))


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


def _programs(op: Op, params: Any, facts: Any, shapes: Any) -> OpenPrograms:
    variables = [Node(None, name) for name in shapes]
    node = Node(op, op.name.strip("_"), op.attributes(params), [NodeEntry(v) for v in variables], params=params)
    dtypes = {name: dtype for name, (_, dtype) in zip(shapes, facts)}
    outputs = [NodeEntry(node, index) for index in range(node.num_outputs)]
    graph = typed_graph(Graph(outputs), {}, shapes, dtypes)
    source = ModelSource(graph.symbol, {}, shapes, dtypes, CudaTarget.create(), None, OPT_LEVEL)
    return OpenPrograms(graph, source, SharedConstants({}), list(shapes))


def _loaded(make: Callable[[], Program], context: Context) -> CudaExecutor:
    with context:
        return CudaExecutor(make())
