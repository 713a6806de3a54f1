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

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ..core.ir import Node
from ..core.op import VARIADIC, Op
from ..core.schema import BOOL, INT, INTS, STR, attr, schema

MOST_TURNS = 1 << 22  # of a loop that nothing else ends

IMPORTERS = {"onnx": ".onnx.later", "mxnet": ".mxnet.later"}


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


def converted(node: Node, emitter: Any, inputs: Sequence[Any]) -> list[Any]:
    """The values that a deferred node becomes, by its importer."""
    outputs: list[Any] = _importer(node).convert(node.params.node, emitter, inputs)
    return outputs


def host_outputs(node: Node, inputs: Sequence[Any]) -> list[Any]:
    """What a host step gives for values that are there."""
    outputs: list[Any] = _importer(node).run(node.params.node, inputs)
    return outputs


def _importer(node: Node) -> Any:
    return import_module(IMPORTERS[node.params.importer], __package__)
