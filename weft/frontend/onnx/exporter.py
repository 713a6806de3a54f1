"""to_onnx: a Symbol and its parameters come in; an ONNX model goes out."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ... import ops  # noqa: F401  registers the operators
from ...base.dtype import FLOAT32, as_dtype
from ...base.errors import Error, InvalidValue, Unsupported
from ...base.shape import is_static
from ...core.graph import Graph
from ...core.infer import infer
from ...core.ir import Fact, Node, NodeEntry, topo_order
from ...core.symbol import Symbol
from ...version import __version__
from . import write_layers, write_math, write_shape  # noqa: F401  each registers its writers
from .tensors import CODE_OF
from .writing import Writer, Writing, find_writer

_OPSETS = range(17, 24)
_IR_VERSION = 8  # what opset 17 came with; every runtime that has the opset reads it
_IR_OF_LATER_OPSETS = {19: 9, 20: 9, 21: 10, 22: 10, 23: 11}
_LARGEST_FILE = 1 << 31


def to_onnx(
    symbol: Symbol,
    params: Mapping[str, Any],
    path: str | os.PathLike[str] | None = None,
    shape: Mapping[str, Sequence[int]] | None = None,
    opset: int = 17,
    dtype: Mapping[str, Any] | None = None,
) -> onnx.ModelProto:
    """The symbol as an ONNX model, checked by onnx itself, and written to `path` if given.

    `shape` and `dtype` say what the variables without a parameter are; float32 is assumed where
    nothing says otherwise. Tensors of the model have the names of the symbol's outputs.

    >>> from weft.core.symbol import Variable
    >>> from weft.core.op import Op
    >>> y = Op.get("relu")(Variable("x"), name="y")
    >>> model = to_onnx(y, {}, shape={"x": (2, 3)})
    >>> [node.op_type for node in model.graph.node], model.graph.output[0].name
    (['Relu'], 'y_output')
    """
    if opset not in _OPSETS:
        raise InvalidValue(
            f"opset {opset} is not written", hint=f"{_OPSETS.start} to {_OPSETS.stop - 1}"
        )
    _report_gaps(symbol)
    arrays = {name: _as_numpy(value) for name, value in params.items()}
    graph = _typed(symbol, arrays, shape or {}, dtype or {})
    model = _model(graph, arrays, opset)
    if model.ByteSize() >= _LARGEST_FILE:
        raise Unsupported("the model is larger than 2 GiB, which an ONNX file cannot hold")
    onnx.checker.check_model(model, full_check=True)
    if path is not None:
        _write(Path(path), model.SerializeToString())
    return model


def _as_numpy(value: Any) -> np.ndarray:
    return value.numpy() if hasattr(value, "numpy") else np.asarray(value)


def _typed(
    symbol: Symbol,
    arrays: Mapping[str, np.ndarray],
    shape: Mapping[str, Sequence[int]],
    dtype: Mapping[str, Any],
) -> Graph:
    """The graph with every shape and dtype known."""
    names = set(symbol.list_input_names())
    shapes = {name: tuple(array.shape) for name, array in arrays.items() if name in names}
    dtypes = {name: as_dtype(array.dtype) for name, array in arrays.items() if name in names}
    shapes |= {name: tuple(int(dim) for dim in dims) for name, dims in shape.items()}
    dtypes |= {name: as_dtype(kind) for name, kind in dtype.items()}
    hinted = infer(Graph(symbol.outputs), shapes, dtypes)
    for node in hinted.indexed.nodes:
        if node.op is None and hinted.facts[node][0].dtype is None:
            dtypes[node.name] = FLOAT32
    graph = infer(Graph(symbol.outputs), shapes, dtypes)
    for node in graph.indexed.nodes:
        for fact in graph.facts[node]:
            if not is_static(fact.shape) or fact.dtype is None:
                raise InvalidValue(
                    f"the shape of {node.name!r} is not known",
                    hint='give every input: to_onnx(symbol, params, shape={"data": (1, 3, 8, 8)})',
                )
    return graph


def _report_gaps(symbol: Symbol) -> None:
    gaps: dict[str, list[str]] = {}
    for node in topo_order(symbol.outputs):
        if node.op is not None and find_writer(node.op.name) is None:
            gaps.setdefault(node.op.name, []).append(node.name)
    if gaps:
        raise Unsupported(
            f"{len(gaps)} operators cannot be written as ONNX: {', '.join(sorted(gaps))}",
            why="; ".join(f"{op} in {len(n)} nodes: {', '.join(n[:3])}" for op, n in gaps.items()),
        )


def _model(graph: Graph, arrays: Mapping[str, np.ndarray], opset: int) -> onnx.ModelProto:
    writer = Writer(opset)
    namer = writer.tensor_names.fresh
    names: dict[NodeEntry, str] = {}
    inputs = []
    for node in graph.indexed.nodes:  # variables first: they keep their names
        if node.op is None:
            names[NodeEntry(node)] = name = _variable_name(node, namer)
            if node.name in arrays:
                writer.initializers.append(numpy_helper.from_array(arrays[node.name], name))
            else:
                inputs.append(_value_info(name, graph.facts[node][0]))
    for node in graph.indexed.nodes:
        if node.op is not None:
            for index in range(node.num_outputs):
                names[NodeEntry(node, index)] = namer(node.output_name(index))
            _write_node(graph, writer, names, node)
    outputs = _outputs(graph, writer, names)
    proto = helper.make_graph(writer.nodes, "weft", inputs, outputs, writer.initializers)
    return helper.make_model(
        proto,
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=_IR_OF_LATER_OPSETS.get(opset, _IR_VERSION),
        producer_name="weft",
        producer_version=__version__,
    )


def _variable_name(node: Node, namer: Callable[[str], str]) -> str:
    name = namer(node.name)
    if name != node.name:
        raise InvalidValue(f"two variables are called {node.name!r}")
    return name


def _write_node(graph: Graph, writer: Writer, names: Mapping[NodeEntry, str], node: Node) -> None:
    writing = Writing(
        writer,
        node,
        [names[entry._replace(version=0)] for entry in node.inputs],
        [names[NodeEntry(node, index)] for index in range(node.num_outputs)],
        [graph.fact(entry) for entry in node.inputs],
        list(graph.facts[node]),
    )
    try:
        find_writer(node.op.name)(writing)
    except Error as error:
        raise error.at(f"operator {node.op.name}, node {node.name!r}") from None


def _outputs(
    graph: Graph, writer: Writer, names: Mapping[NodeEntry, str]
) -> list[onnx.ValueInfoProto]:
    """The outputs; one that is a variable, or is there twice, gets a node of its own."""
    infos, seen = [], set()
    for entry in graph.outputs:
        name = names[entry._replace(version=0)]
        if entry.node.op is None or name in seen:
            copied = writer.tensor_names.fresh(f"{name}_output")
            writer.append("Identity", [name], [copied], copied, {})
            name = copied
        seen.add(name)
        infos.append(_value_info(name, graph.fact(entry)))
    return infos


def _value_info(name: str, fact: Fact) -> onnx.ValueInfoProto:
    code = CODE_OF.get(fact.dtype)
    if code is None:
        raise Unsupported(f"ONNX has no tensors of dtype {fact.dtype}", where=f"tensor {name!r}")
    return helper.make_tensor_value_info(name, code, fact.shape)


def _write(path: Path, data: bytes) -> None:
    """All of the file or nothing."""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
        try:
            with open(handle, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as error:
        raise InvalidValue(f"cannot write {str(path)!r}", why=error.strerror) from None
