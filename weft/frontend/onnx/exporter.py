"""to_onnx: a Symbol and its parameters come in; an ONNX model goes out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

from ... import ops  # noqa: F401  registers the operators
from ...base.dtype import FLOAT32, as_dtype
from ...base.errors import InvalidValue, Unsupported
from ...base.extents import Extent
from ...base.shape import Dim, given_shapes, is_known, open_shapes
from ...core.graph import Graph
from ...core.infer import infer
from ...core.ir import NodeEntry, topo_order
from ...core.symbol import Symbol
from ...version import __version__
from ..reading import in_nodes
from . import write  # noqa: F401  registers the writers
from .saving import Verify, checked, save, with_weights
from .writing import Unwritten, Writer, find_writer, tensor_type, value_info, write_nodes

_OPSETS = range(17, 24)
_IR_VERSION = 8  # what opset 17 came with; every runtime that has the opset reads it
_IR_OF_LATER_OPSETS = {19: 9, 20: 9, 21: 10, 22: 10, 23: 11}


def to_onnx(
    symbol: Symbol,
    params: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    shape: Mapping[str, Sequence[Dim]] | None = None,
    opset: int = 17,
    dtype: Mapping[str, Any] | None = None,
    verify: Verify | None = None,
    outputs: Sequence[str] = (),
) -> onnx.ModelProto:
    """The symbol as an ONNX model, checked by onnx itself, and written to `path` if given.

    `shape` and `dtype` say what the variables without a parameter are; float32 is assumed where
    nothing says otherwise. Dimensions that have names stay open. Tensors of the model have the names of
    the symbol's outputs, and the first ones those of `outputs`. What cannot be expressed is reported at once,
    with all nodes. A file appears whole or not at all: `verify` is called with its path before it takes its place,
    and may raise. Weights of more than 2 GiB go into a second file beside it.

    >>> from weft.core.symbol import Variable
    >>> from weft.core.op import Op
    >>> y = Op.get("relu")(Variable("x"), name="y")
    >>> model = to_onnx(y, {}, shape={"x": (2, 3)})
    >>> [node.op_type for node in model.graph.node], model.graph.output[0].name
    (['Relu'], 'y_output')
    """
    if opset not in _OPSETS:
        raise InvalidValue(f"opset {opset} is not written", hint=f"{_OPSETS.start} to {_OPSETS.stop - 1}")
    _report(_without_writer(symbol))
    arrays = {name: _as_numpy(value) for name, value in params.items()}
    graph = _typed(symbol, arrays, shape or {}, dtype or {})
    model, weights = _model(graph, arrays, opset, outputs)
    if path is not None:
        return save(Path(path), model, weights, verify)
    model = with_weights(model, weights)
    checked(model)
    return model


def _as_numpy(value: Any) -> np.ndarray:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _typed(
    symbol: Symbol, arrays: Mapping[str, np.ndarray], shape: Mapping[str, Sequence[Dim]], dtype: Mapping[str, Any]
) -> Graph:
    """The graph with every shape and dtype known; dimensions may be open if they have names."""
    names = set(symbol.list_input_names())
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if name in names}
    dtypes = {name: as_dtype(array.dtype) for name, array in arrays.items() if name in names}
    shapes |= given_shapes(shape)
    dtypes |= {name: as_dtype(kind) for name, kind in dtype.items()}
    hinted = infer(Graph(symbol.outputs), shapes, dtypes)
    for node in hinted.indexed.nodes:
        if node.op is None and hinted.facts[node][0].dtype is None:
            dtypes[node.name] = FLOAT32
    graph = infer(Graph(symbol.outputs), shapes, dtypes)
    for node in graph.indexed.nodes:
        for fact in graph.facts[node]:
            if not is_known(fact.shape) or fact.dtype is None:
                inputs = [n for n in graph.indexed.nodes if n.op is None]
                raise open_shapes(
                    f"the shape of {node.name!r} is not known", {n.name: graph.facts[n][0].shape for n in inputs}
                )
    return graph


# What cannot be expressed, all at once.


def _without_writer(symbol: Symbol) -> Unwritten:
    gaps: Unwritten = {}
    for node in topo_order(symbol.outputs):
        if node.op is not None and find_writer(node.op.name) is None:
            gaps.setdefault((node.op.name, ""), []).append(node.name)
    return gaps


def _report(gaps: Unwritten) -> None:
    if not gaps:
        return
    names = sorted({op for op, _ in gaps})
    raise Unsupported(
        f"{len(names)} operators cannot be written as ONNX: {', '.join(names)}",
        why="; ".join(f"{why or op} {in_nodes(nodes)}" for (op, why), nodes in sorted(gaps.items())),
    )


# The graph.


def _model(
    graph: Graph, arrays: Mapping[str, np.ndarray], opset: int, output_names: Sequence[str]
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """The model without its weights, and the weights."""
    writer = Writer(opset)
    names: dict[NodeEntry, str] = {}
    inputs = _variables(graph, arrays, writer, names)
    variables = set(names.values())
    names |= _ends(graph, output_names, writer)
    write_nodes(writer, graph, names)
    written = variables.union(*(node.output for node in writer.nodes))
    _add_unwritten(graph, names, written, writer.gaps)
    _report(writer.gaps)
    outputs = _outputs(graph, writer, names, output_names)
    nodes, used = _needed(writer.nodes, [item.name for item in outputs])
    proto = helper.make_graph(nodes, "weft", inputs, outputs)
    model = helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=_IR_OF_LATER_OPSETS.get(opset, _IR_VERSION),
        producer_name="weft",
        producer_version=__version__,
    )
    return model, {name: array for name, array in writer.arrays.items() if name in used}


def _needed(nodes: Sequence[onnx.NodeProto], outputs: Sequence[str]) -> tuple[list[onnx.NodeProto], set[str]]:
    """The nodes that the outputs need, and all names that are read."""
    used, kept = set(outputs), []
    for node in reversed(nodes):
        if used.intersection(node.output):
            kept.append(node)
            used.update(node.input)
            used.update(_read_inside(node))
    return kept[::-1], used


def _read_inside(node: onnx.NodeProto) -> set[str]:
    """What the nodes of the graphs in a node read, whichever graph it is from."""
    names, pending = set[str](), [node]
    while pending:
        for attribute in pending.pop().attribute:
            for inner in attribute.g.node if attribute.HasField("g") else ():
                names.update(inner.input)
                pending.append(inner)
    return names


def _variables(
    graph: Graph, arrays: Mapping[str, np.ndarray], writer: Writer, names: dict[NodeEntry, str]
) -> list[onnx.ValueInfoProto]:
    """Variables come first and keep their names; those without a value are inputs."""
    inputs = []
    for node in graph.indexed.nodes:
        if node.op is None:
            names[NodeEntry(node)] = name = writer.tensor_names.fresh(node.name)
            if name != node.name:
                raise InvalidValue(f"two variables are called {node.name!r}")
            if name in arrays:
                writer.arrays[name] = arrays[name]
            else:
                kind = tensor_type(graph.facts[node][0])
                inputs.append(value_info(name, kind))
                for axis, dim in enumerate(kind.shape):
                    if isinstance(dim, Extent):
                        writer.places.setdefault(dim.text, (name, axis))
    return inputs


def _add_unwritten(graph: Graph, names: Mapping[NodeEntry, str], written: set[str], gaps: Unwritten) -> None:
    """Outputs that something reads, and that no writer makes."""
    refused = {name for nodes in gaps.values() for name in nodes}
    read = [entry for node in graph.indexed.nodes for entry in node.inputs] + graph.outputs
    for entry in read:
        op = entry.node.op
        if op is not None and names[entry._replace(version=0)] not in written and entry.node.name not in refused:
            gaps.setdefault((op.name, f"output {entry.index} of {op.name}"), []).append(entry.node.name)


def _ends(graph: Graph, output_names: Sequence[str], writer: Writer) -> dict[NodeEntry, str]:
    """The tensors that have the names of outputs; all of the names are taken from then on."""
    if len(output_names) > len(graph.outputs):
        raise InvalidValue(f"{len(output_names)} names for {len(graph.outputs)} outputs: {list(output_names)}")
    ends: dict[NodeEntry, str] = {}
    for entry, name in zip(graph.outputs, output_names):
        if writer.tensor_names.fresh(name) != name:
            raise InvalidValue(f"an output cannot be called {name!r}", why="another output, or a variable, is")
        if entry.node.op is not None:
            ends.setdefault(entry._replace(version=0), name)
    return ends


def _outputs(
    graph: Graph, writer: Writer, names: Mapping[NodeEntry, str], output_names: Sequence[str]
) -> list[onnx.ValueInfoProto]:
    """The outputs; one that is a variable, or is there twice, gets a node of its own."""
    infos, seen = [], set()
    for place, entry in enumerate(graph.outputs):
        name = names[entry._replace(version=0)]
        if entry.node.op is None or name in seen:
            given = place < len(output_names)
            copied = output_names[place] if given else writer.tensor_names.fresh(f"{name}_output")
            writer.append("Identity", [name], [copied], copied, {})
            name = copied
        seen.add(name)
        infos.append(value_info(name, tensor_type(graph.fact(entry))))
    return infos
