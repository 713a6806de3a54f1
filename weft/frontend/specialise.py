"""A graph with deferred nodes becomes one without them, for inputs of known shapes and values that are known: every
node is made again by an emitter, which folds what follows from constants and converts what waited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..base.dtype import DType
from ..base.errors import Error, Unsupported
from ..base.ndarray import NDArray
from ..base.shape import Shape
from ..core.graph import Graph
from ..core.interpret import Array
from ..core.ir import Node
from ..core.schema import is_hidden
from ..core.symbol import Group, Symbol
from ..core.symbolic import bound_attrs, bound_symbol, empty_shape
from ..ops.control_flow import by_input_name, holds
from .deferred import DEFERRED, HOST_STEP, IF_ELSE, OPS, converted, host_outputs
from .emitter import Emitter, Value


def specialised(
    graph: Graph,
    params: Mapping[str, Array],
    inputs: Mapping[str, tuple[Shape, DType | None]],
    values: Mapping[str, Array],
    names: Mapping[str, int],
) -> tuple[Symbol, dict[str, NDArray]]:
    """The graph for inputs of these shapes and dtypes, of which some have `values` that are known, and for extents of
    these `names`; and its parameters, which share the memory of `params`. What waits for more than that is an error."""
    emitter = Emitter()
    known: dict[str, Value] = {}
    for number in graph.indexed.variables:
        name = graph.indexed.nodes[number].name
        if name in known:
            continue
        if name in values:
            known[name] = emitter.stored(name, values[name], owned=True)
        elif name in params:
            known[name] = emitter.stored(name, params[name], owned=True)
        else:
            known[name] = emitter.input(name, *inputs[name])
    made = _replayed(emitter, graph, known, names)
    outputs = [emitter.output(value, entry.node.output_name(entry.index)) for value, entry in zip(made, graph.outputs)]
    return (outputs[0] if len(outputs) == 1 else Group(outputs)), emitter.params


def _replayed(emitter: Emitter, graph: Graph, variables: Mapping[str, Value], names: Mapping[str, int]) -> list[Value]:
    """The outputs of a graph whose variables have values."""
    made: dict[Node, list[Value]] = {}
    for node in graph.indexed.nodes:
        if node.op is None:
            made[node] = [variables[node.name]]
            continue
        inputs = [made[entry.node][entry.index] for entry in node.inputs]
        try:
            made[node] = _node(emitter, node, inputs, names)
        except Error as error:
            error.at(f"node {node.name!r}")
            raise
    return [made[entry.node][entry.index] for entry in graph.outputs]


def _node(emitter: Emitter, node: Node, inputs: list[Value], names: Mapping[str, int]) -> list[Value]:
    if node.op is DEFERRED:
        return converted(node.params, emitter, inputs)
    if node.op is HOST_STEP:
        outputs = host_outputs(node.params, _values(emitter, inputs, node))
        return [emitter.constant(node.name, value) for value in outputs]
    if node.op is IF_ELSE:
        (condition,) = _values(emitter, inputs[:1], node)
        chosen = node.subgraphs[0 if holds(condition) else 1]
        return inlined(emitter, chosen, inputs, names)
    if node.op in OPS:
        raise Unsupported(f"operator {node.op_name} is decided by values", where=f"node {node.name!r}")
    attrs = {key: text for key, text in node.attrs.items() if not is_hidden(key)}
    if node.subgraphs:
        subgraphs = [bound_symbol(subgraph, names) for subgraph in node.subgraphs]
        return emitter.control(node.op_name, node.name, inputs, subgraphs, attrs)
    bound = bound_attrs(node.params, names)
    if bound and node.op is not None:
        empty = empty_shape(node.op, node.params, [value.shape for value in inputs], names)
        if empty is not None:
            dtype = inputs[0].dtype if inputs else node.params.dtype
            return emitter.apply("zeros", node.name, [], {"shape": empty, "dtype": dtype})
    return emitter.apply(node.op_name, node.name, inputs, {**attrs, **bound})


def inlined(emitter: Emitter, subgraph: Symbol, inputs: Sequence[Value], names: Mapping[str, int]) -> list[Value]:
    """The outputs of a subgraph, made where the node stands."""
    return _replayed(emitter, Graph(subgraph.outputs), by_input_name(inputs), names)


def _values(emitter: Emitter, inputs: Sequence[Value], node: Node) -> list[Array]:
    """Values of inputs that must be known."""
    values = [emitter.computed(value) for value in inputs]
    if any(value is None for value in values):
        raise Unsupported(f"operator {node.op_name} reads a value that is known only when the model runs")
    return values  # type: ignore[return-value]
