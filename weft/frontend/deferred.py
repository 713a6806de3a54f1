"""Nodes of a model that cannot become operators yet: the shapes they are converted by, or the values that decide what
they give, are known only when the model runs.

    deferred   is converted by its importer once shapes, and the values of its deciding inputs, are numbers
    host_step  runs on arrays, text and sequences, between compiled parts: only its result tells its shape
    if_else    takes one of two subgraphs, of which the results may differ in shape
    loop       repeats a subgraph whose states may change their shapes

`specialised` (weft.frontend.specialise) makes a graph without them for known shapes and values; the compiler cuts a
model into parts where values must be read first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..base.errors import NotFound, RunError
from ..core.interpret import Array, evaluate
from ..core.ir import Node, topo_order
from ..core.op import VARIADIC, Op
from ..core.schema import BOOL, INT, INTS, STR, attr, schema
from ..core.symbol import Symbol
from ..ops.control_flow import by_input_name, holds, input_name
from .emitter import Emitter, Value

MOST_TURNS = 1 << 22  # of a loop that nothing else ends

IMPORTERS: dict[str, Any] = {}  # by name, the classes of nodes (weft.frontend.nodes) that wait and are taken up
_MODULES = {"onnx": ".onnx.importer", "mxnet": ".mxnet.importer"}  # which load when they are needed


@schema
class DeferredAttrs:
    importer: str = attr(STR, "the importer that knows the node")
    node: str = attr(STR, "the node as that importer wrote it down")
    num_outputs: int = attr(INT, "outputs", low=0)
    decides: tuple[int, ...] = attr(INTS, "inputs whose values must be known", default=())
    by_shape: bool = attr(BOOL, "whether only the shapes of inputs matter", default=False)


@schema
class HostStepAttrs:
    importer: str = attr(STR, "the importer that knows the node")
    node: str = attr(STR, "the node as that importer wrote it down")
    num_outputs: int = attr(INT, "outputs", low=0)
    tensors: bool = attr(BOOL, "whether all inputs and outputs are tensors of numbers", default=False)


@schema
class IfAttrs:
    num_outputs: int = attr(INT, "outputs of both subgraphs", low=1)


@schema
class LoopAttrs:
    num_states: int = attr(INT, "inputs that go from turn to turn", low=0)
    num_outputs: int = attr(INT, "outputs that have an item for each turn", low=0)


def _says_nothing(params: Any, ins: Sequence[Any], outs: Sequence[Any]) -> None:
    """Shapes and dtypes are known once the node is gone."""


def _define(name: str, doc: str, attrs: type) -> Op:
    op = Op.register(name).describe(doc).set_attr_parser(attrs)
    op.set_num_inputs(VARIADIC)
    op.set_num_outputs(lambda p: p.num_outputs + getattr(p, "num_states", 0))
    op.shape, op.dtype = _says_nothing, _says_nothing
    return op


DEFERRED = _define(
    "deferred", "A node of a model file, converted when shapes and deciding values are known.", DeferredAttrs
)
HOST_STEP = _define("host_step", "A node of a model file that runs on the host, between compiled parts.", HostStepAttrs)
IF_ELSE = _define(
    "if_else",
    "Runs its first subgraph if its first input is true, else its second; both read the inputs behind. Results may "
    "have other shapes in one than in the other.",
    IfAttrs,
)
LOOP = _define(
    "loop",
    "Runs its subgraph at most as often as its first input says, as long as its second is true; then come the states, "
    "and what else the subgraph reads. The subgraph reads the number of the turn and the condition in their place, "
    "and gives the next condition, the states and an item of each output. Gives the last states and the outputs.",
    LoopAttrs,
)
OPS = (DEFERRED, HOST_STEP, IF_ELSE, LOOP)


def has_deferred(nodes: Sequence[Node]) -> bool:
    """Whether some node waits for shapes or values."""
    return any(node.op in OPS for node in nodes)


def converted(params: DeferredAttrs, emitter: Any, inputs: Sequence[Any]) -> list[Any]:
    """The values that a deferred node becomes, by its importer."""
    outputs: list[Any] = _importer(params).convert(params.node, emitter, inputs)
    return outputs


def host_outputs(params: HostStepAttrs, inputs: Sequence[Any]) -> list[Any]:
    """What a host step gives for values that are there."""
    outputs: list[Any] = _importer(params).run(params.node, inputs)
    return outputs


def _importer(params: DeferredAttrs | HostStepAttrs) -> Any:
    name = params.importer
    if name not in IMPORTERS and name in _MODULES:
        import_module(_MODULES[name], __package__)
    if name not in IMPORTERS:
        raise NotFound(f"there is no importer {name!r}, which a node waits for", why=f"known: {', '.join(_MODULES)}")
    return IMPORTERS[name]


def evaluated(params: DeferredAttrs, *arrays: Array) -> list[Array | None]:
    """The outputs of a deferred node for values that are all known, by references."""
    emitter = Emitter()
    inputs = [emitter.constant("value", array, owned=True) for array in arrays]
    outputs = converted(params, emitter, inputs)
    known = {name: value.numpy() for name, value in emitter.params.items()}
    return [_value_of(emitter, value, known) for value in outputs]


def _value_of(emitter: Emitter, value: Value | None, params: Mapping[str, Array]) -> Array | None:
    """A value that follows from parameters, random numbers included."""
    if value is None:
        return None
    if value.constant is not None:
        return value.constant
    symbol = emitter.symbol(value)
    return evaluate(symbol, {name: params[name] for name in symbol.list_input_names()})[0]


def _branch(params: IfAttrs, condition: Array, *captured: Array, subgraphs: Sequence[Symbol]) -> list[Array]:
    chosen = subgraphs[0 if holds(condition) else 1]
    return evaluate(chosen, by_input_name((condition, *captured)))


def looped(
    params: LoopAttrs,
    body: Symbol,
    inputs: Sequence[Any],
    run: Callable[[list[Any]], Sequence[Any]],
    first: Sequence[Any] | None = None,
) -> list[Any]:
    """The outputs of a loop whose body `run` runs, on one value for each of its inputs; what the `first` turn gave may
    be there already."""
    limit, goes_on, *rest = inputs
    turns = int(np.asarray(limit).reshape(-1)[0])
    items: list[list[Any]] = [[] for _ in range(params.num_outputs)]
    carried, captured = rest[: params.num_states], rest[params.num_states :]
    shape = turn_shape(body)
    turn = 0
    while turn < turns and holds(goes_on):
        if turn == MOST_TURNS:
            raise never_ends()
        given = None if turn else first
        goes_on, *made = given or run([np.full(shape, turn, np.int64), goes_on, *carried, *captured])
        carried = made[: params.num_states]
        for item, whole in zip(made[params.num_states :], items):
            whole.append(item)
        turn += 1
    return [*carried, *(_stacked(whole, params.num_states + index) for index, whole in enumerate(items))]


def never_ends() -> RunError:
    """The error for a loop that went on for too long."""
    return RunError(f"a loop did not end after {MOST_TURNS} turns", hint="give it a number of turns")


def turn_shape(body: Symbol) -> tuple[int, ...]:
    """The shape in which the body takes the number of a turn."""
    for node in topo_order(body.outputs):
        if node.op is None and node.name == input_name(0):
            return (1,) if node.attrs.get("shape") == "(1,)" else ()
    return ()


def _stacked(items: list[Any], index: int) -> Any:
    if items:
        return np.stack(items)
    raise RunError(
        f"the loop made no turn, so that output {index} has no shape",
        why="what its items are is known from a turn only",
    )


def _repeat(params: LoopAttrs, *inputs: Array, subgraphs: Sequence[Symbol]) -> list[Array]:
    (body,) = subgraphs
    return looped(params, body, inputs, lambda values: evaluate(body, by_input_name(values)))


DEFERRED.reference, IF_ELSE.reference, LOOP.reference = evaluated, _branch, _repeat
HOST_STEP.reference = lambda params, *values: host_outputs(params, values)
