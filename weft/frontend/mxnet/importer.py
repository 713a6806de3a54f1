"""from_mxnet: a model of MXNet comes in; a Symbol and its parameters go out."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...base.dtype import FLOAT32, DType, is_float
from ...base.errors import FormatError, NotFound, Unsupported
from ...base.ndarray import NDArray
from ...base.shape import Dim, Shape, given_shapes
from ...core.symbol import Group, Symbol
from ..custom import SymbolConverter, get_op, identity_converter
from ..emitter import Emitter, Value
from ..gaps import Gaps
from ..reading import check_inputs, reading
from . import convert  # noqa: F401  registers the converters
from .attributes import parsed, real_name, signature
from .call import OpenFill, Subgraph
from .node import MxnetNode
from .params_file import dtype_of_code
from .registry import TABLE
from .source import MxnetModel, read_model
from .symbol_file import FileNode, SymbolFile

__all__ = ["from_mxnet", "get_op"]

Brought = Mapping[str, SymbolConverter]  # converters of the caller, by MXNet's names
Values = dict[int, Sequence[Value | None]]  # outputs of nodes, by number

# Inputs that only training reads.
_LABELS = dict.fromkeys(
    ("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput", "MAERegressionOutput", "SVMOutput"), 1
)
# Inputs that hold what was learned, by the names that MXNet's operators give them.
_LEARNED = frozenset("weight bias gamma beta moving_mean moving_var parameters".split())


def from_mxnet(
    symbol: object,
    arg_params: object = None,
    aux_params: Mapping[str, Any] | None = None,
    *,
    identity_list: Iterable[str] | None = None,
    convert_map: Mapping[str, SymbolConverter] | None = None,
    shape: Mapping[str, Sequence[Dim]] | None = None,
) -> tuple[Symbol, dict[str, NDArray]]:
    """A model of MXNet as a symbol and its parameters.

    `symbol` is the path of a PREFIX-symbol.json, whose newest PREFIX-NNNN.params is read too, the
    text of such a file, or a live symbol or block of MXNet. `arg_params` is the path of another
    parameter file, or a mapping of arrays, with `aux_params` beside it. `shape` gives the shapes of
    inputs, which files leave open; a name or None in it leaves a dimension open. `identity_list`
    names operators that weft has under the same name; `convert_map` maps an operator to a function
    of input symbols and text attributes that gives a symbol: both come before what is built in.

    >>> text = '''{"nodes": [{"op": "null", "name": "x", "inputs": []},
    ...   {"op": "Activation", "name": "y", "attrs": {"act_type": "relu"}, "inputs": [[0, 0, 0]]}],
    ...   "arg_nodes": [0], "heads": [[1, 0, 0]], "attrs": {"mxnet_version": ["int", 10901]}}'''
    >>> symbol, params = from_mxnet(text, shape={"x": (2, 3)})
    >>> symbol.list_input_names(), symbol.list_output_names(), params
    (['x'], ['y_output'], {})
    """
    model = read_model(symbol, arg_params, aux_params)
    brought = {name: identity_converter(name) for name in identity_list or ()} | dict(convert_map or {})
    live = _live(model.graph, brought)
    _report_unsupported(model.graph, live, brought)
    emitter = Emitter()
    values = _Variables(model, live, given_shapes(shape)).values(emitter)
    outputs = [
        _head(emitter, value, model.graph.nodes[number], len(values[number]))
        for value, (number, _) in zip(_Conversion(model.graph, brought, emitter, values).outputs(), model.graph.heads)
    ]
    made = outputs[0] if len(outputs) == 1 else Group(outputs)
    return made, emitter.used_params(made)


def _head(emitter: Emitter, value: Value, node: FileNode, count: int) -> Symbol:
    """An output of the model, called as in MXNet if it is the only one of its operator."""
    plain = node.op == "null" or count > 1
    return emitter.symbol(value) if plain else emitter.output(value, f"{node.name}_output")


# What is needed for the outputs: a label is not.


def _live(graph: SymbolFile, brought: Brought) -> dict[int, set[int]]:
    """Numbers of the nodes that the heads need, in order, each with its outputs that are used."""
    used: dict[int, set[int]] = {}
    pending = list(graph.heads)
    while pending:
        number, output = pending.pop()
        first = number not in used
        used.setdefault(number, set()).add(output)
        if first:
            pending += _read_inputs(graph.nodes[number], brought)
    return dict(sorted(used.items()))


def _read_inputs(node: FileNode, brought: Brought) -> list[tuple[int, int]]:
    label = None if node.op in brought else _LABELS.get(real_name(node.op))
    return [entry for index, entry in enumerate(node.inputs) if index != label]


def _report_unsupported(graph: SymbolFile, live: Iterable[int], brought: Brought) -> None:
    missing: dict[str, list[str]] = {}
    pending = deque(graph.nodes[number] for number in live)
    while pending:
        node = pending.popleft()
        if node.op == "null":
            continue
        if node.op not in brought and TABLE.find(node.op) is None:
            missing.setdefault(node.op, []).append(node.name)
        for inner in node.subgraphs:
            pending += [inner.nodes[number] for number in _live(inner, brought)]
    Gaps(missing, hint="convert_map={...} of from_mxnet takes converters for them").check()


# Variables: what has a value is a parameter, the others are inputs.


class _Variables:
    """The variables that are needed, the nodes that read each of them, and as what."""

    def __init__(self, model: MxnetModel, live: Iterable[int], shapes: Mapping[str, tuple[Dim, ...]]) -> None:
        self.nodes = model.graph.nodes
        self.arrays = model.arrays
        self.shapes = shapes  # that the caller says
        self.names = {number: self.nodes[number].name for number in live if self.nodes[number].op == "null"}
        self.readers: dict[int, list[tuple[FileNode, str]]] = {number: [] for number in self.names}
        for reader in (self.nodes[number] for number in live):
            known = signature(reader.op)
            for index, (source, _) in enumerate(reader.inputs):
                if source in self.readers:
                    role = known.inputs[index] if known is not None and index < len(known.inputs) else ""
                    self.readers[source].append((reader, role))
        self._check()

    def _check(self) -> None:
        names = list(self.names.values())
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise FormatError(f"two variables have the name {twice!r}")
        check_inputs(self.shapes, [name for name in names if name not in self.arrays])
        missing = [
            self.names[number]
            for number, rows in self.readers.items()
            if any(role in _LEARNED for _, role in rows)
            and self.names[number] not in self.arrays
            and self.names[number] not in self.shapes
        ]
        if missing and self.arrays:  # where there are parameters at all, none may be missing
            raise NotFound(
                f"{len(missing)} parameters have no value: {', '.join(missing[:5])}",
                hint="give the symbol's own parameter file, or shape={name: ...} for those that are inputs",
            )

    def values(self, emitter: Emitter) -> Values:
        return {
            number: [
                emitter.stored(name, self.arrays[name])
                if name in self.arrays and name not in self.shapes
                else self._input(number, emitter)
            ]
            for number, name in self.names.items()
        }

    def _input(self, number: int, emitter: Emitter) -> Value:
        node = self.nodes[number]
        dtype, shape = _declared_dtype(node), self.shapes.get(node.name, _declared_shape(node))
        for reader, role in self.readers[number]:
            weight = self._weight(reader)
            if weight is not None and role == "data":
                dtype = dtype or (weight.dtype if is_float(weight.dtype) else None)
                shape = _shape_for(reader, weight.shape) if shape is None else shape
        return emitter.input(node.name, shape, dtype or FLOAT32)

    def _weight(self, reader: FileNode) -> np.ndarray | None:
        """The array that a layer is learned in, if it is one that has its input's dtype."""
        if real_name(reader.op) not in ("Convolution", "FullyConnected", "BatchNorm", "Deconvolution"):
            return None
        return self.arrays.get(self.nodes[reader.inputs[1][0]].name if len(reader.inputs) > 1 else "")


def _declared_shape(node: FileNode) -> Shape:
    """0 is a dimension that is left open."""
    if "__shape__" not in node.attrs:
        return None
    dims = parsed("__shape__", "ints", node.attrs["__shape__"])
    return tuple(dim if dim and dim > 0 else None for dim in dims) or None


def _declared_dtype(node: FileNode) -> DType | None:
    text = node.attrs.get("__dtype__")
    if text is None:
        return None
    code = parsed("__dtype__", "int", text)
    return None if code == -1 else dtype_of_code(code, f"variable {node.name!r}")


def _shape_for(reader: FileNode, weight: tuple[int, ...]) -> Shape:
    """What a convolution says about its data: the rank and the channels."""
    if real_name(reader.op) != "Convolution" or reader.attrs.get("layout", "NC")[1:2] != "C":
        return None
    groups = parsed("num_group", "int", reader.attrs.get("num_group", "1"))
    return (None, weight[1] * groups, *(None,) * (len(weight) - 2)) if len(weight) > 2 else None


class _Conversion:
    """A graph whose variables have values, and the values of its nodes so far."""

    def __init__(self, graph: SymbolFile, brought: Brought, emitter: Emitter, values: Values) -> None:
        self.graph = graph
        self.brought = brought
        self.emitter = emitter
        self.values = values

    def outputs(self) -> list[Value]:
        for number, wanted in _live(self.graph, self.brought).items():
            node = self.graph.nodes[number]
            if node.op != "null":
                subgraphs = [_subgraph(graph, self.brought) for graph in node.subgraphs]
                made = MxnetNode(node, wanted, subgraphs)
                with reading(made.label, made.op_type):
                    inputs = [self._value(*entry) for entry in _read_inputs(node, self.brought)]
                    inputs = list(map(_settled, inputs)) if node.op in self.brought else inputs
                    self.values[number] = made.results(self.emitter, inputs, self.brought)
        return [_settled(self._value(*head)) for head in self.graph.heads]

    def _value(self, number: int, index: int) -> Value:
        outputs = self.values[number]
        value = outputs[index] if index < len(outputs) else None
        if value is None:
            raise Unsupported(f"output {index} of node {number} has no counterpart")
        return value


def _subgraph(graph: SymbolFile, brought: Brought) -> Subgraph:
    """A subgraph, to be converted by the converter of its node."""

    def converted(emitter: Emitter, arguments: Sequence[Value | None]) -> list[Value]:
        value_of = dict(zip(graph.arguments, arguments))
        values: Values = {}
        for number in _live(graph, brought):
            if graph.nodes[number].op == "null":
                value = value_of.get(number)
                if value is None:
                    raise FormatError(f"nothing is given for {graph.nodes[number].name!r}")
                values[number] = [value]
        return _Conversion(graph, brought, emitter, values).outputs()

    return Subgraph(len(graph.arguments), converted)


def _settled(value: Value) -> Value:
    if isinstance(value, OpenFill):
        raise Unsupported(f"the shape {value.shape} of {value.name!r} is not known")
    return value
