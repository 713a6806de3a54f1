"""Scope: the values of a graph while its nodes are read. Nodes that can be converted become operators at once; those
that wait for shapes or values are deferred; subgraphs are scopes of their own that capture what they read outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import NamedTuple

import numpy as np
import onnx

from ...base.dtype import DType
from ...base.errors import FormatError
from ...base.shape import Shape
from ...core.compose import substitute
from ...core.ir import UNKNOWN
from ...core.symbol import Symbol, Variable
from ...ops.control_flow import input_name
from ..custom import SymbolConverter
from ..emitter import TENSOR, TEXT, Emitter, Value
from ..reading import reading
from .control import CONTROL, Given
from .functions import node_opset
from .kinds import declared_kind
from .model import node_domain
from .node import OnnxNode
from .tensors import DTYPE_OF, to_numpy


class Captures:
    """What subgraphs of one node read from outside: inputs of the node behind its own."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.values: list[Value] = []
        self.show_shapes = True
        self._places: dict[str, int] = {}

    def without_shapes(self) -> Captures:
        """The same values, of whose shapes a subgraph is told nothing."""
        made = copy(self)
        made.show_shapes = False
        return made

    def place(self, name: str, value: Value) -> int:
        """The number of the input that a value becomes."""
        if name not in self._places:
            self._places[name] = self.first + len(self.values)
            self.values.append(value)
        return self._places[name]


class Scope:
    """Values by the names that the file gives them."""

    def __init__(
        self,
        emitter: Emitter,
        opsets: Mapping[str, int],
        brought: Mapping[str, SymbolConverter],
        outer: Scope | None = None,
        captures: Captures | None = None,
    ) -> None:
        self.emitter = emitter
        self.opsets = opsets
        self._brought = brought  # converters of the caller
        self.values: dict[str, Value] = {}
        self._outer = outer
        self._captures = captures

    def __getitem__(self, name: str) -> Value:
        value = self.values.get(name)
        if value is None:
            if self._outer is None:
                raise FormatError(f"nothing makes {name!r}")
            value = self.values[name] = self._captured(name, self._outer[name])
        return value

    def __contains__(self, name: str) -> bool:
        return name in self.values or (self._outer is not None and name in self._outer)

    def _captured(self, name: str, value: Value) -> Value:
        """A value of the graph around: a constant is one here, others become inputs."""
        if self._captures is None or (value.kind == TEXT and value.constant is not None):
            return value
        if value.constant is not None:
            return self.emitter.stored(name, value.constant, owned=True)
        if value.extents is not None and value.dtype is not None:
            return self.emitter.extents(name, value.extents, value.dtype)
        place = input_name(self._captures.place(name, value))
        shape = value.shape if self._captures.show_shapes else None
        return self.emitter.input(place, shape, value.dtype, value.kind)

    def _own(self, place: int, item: onnx.ValueInfoProto, shape: Shape, dtype: DType | None, kind: str) -> Value:
        """An input of a subgraph; what is not known of it may be declared."""
        dtype = dtype or DTYPE_OF.get(item.type.tensor_type.elem_type)
        kind = declared_kind(item.type) if kind == TENSOR else kind
        return self.emitter.input(input_name(place), shape, dtype, kind)

    # Nodes

    def node(self, proto: onnx.NodeProto, position: int) -> OnnxNode:
        return OnnxNode(proto, node_opset(proto, node_domain(proto), self.opsets), position)

    def read(self, node: onnx.NodeProto, position: int) -> None:
        """Adds what a node gives."""
        made = self.node(node, position)
        with reading(made.label, made.op_type):
            if not made.domain and made.op_type in CONTROL and made.brought(self._brought) is None:
                results = CONTROL[made.op_type](self, node, made.label)
            else:
                inputs = [self[name] if name else None for name in node.input]
                results = made.results(self.emitter, inputs, self._brought)
        for name, value in zip(node.output, results):
            if name and value is not None:
                self.values[name] = value

    def read_all(self, graph: onnx.GraphProto) -> list[Value]:
        """Reads the nodes of a graph whose inputs are there; its outputs."""
        for tensor in graph.initializer:
            self.values[tensor.name] = constant(
                self.emitter, tensor.name, to_numpy(tensor, f"initialiser {tensor.name!r}")
            )
        for position, node in enumerate(graph.node):
            self.read(node, position)
        return [self[item.name] for item in graph.output]

    # Subgraphs

    def nested(self) -> Scope:
        """A scope of names of its own, as part of this graph."""
        return Scope(self.emitter, self.opsets, self._brought, self)

    def inline(self, graph: onnx.GraphProto) -> list[Value]:
        """The outputs of a subgraph without inputs, as part of this graph."""
        return self.nested().read_all(graph)

    def captures(self, first: int) -> Captures:
        """What subgraphs of a node will read from outside, behind its own inputs."""
        return Captures(first)

    def subgraph(
        self, graph: onnx.GraphProto, inputs: Sequence[Given], captures: Captures, kept: Sequence[bool] = ()
    ) -> Subgraph:
        """A subgraph as a closed symbol, with all its outputs or those that are kept. Its own inputs are the first of
        the node's, but for those that are given as values of this graph."""
        if len(graph.input) != len(inputs):
            raise FormatError(f"a subgraph of {len(graph.input)} inputs is given {len(inputs)}")
        emitter = Emitter(self.emitter)
        inner = Scope(emitter, self.opsets, self._brought, self, captures)
        own = [(item, given) for item, given in zip(graph.input, inputs) if not isinstance(given, Value)]
        for place, (item, known) in enumerate(own):
            inner.values[item.name] = inner._own(place, item, *known)
        for item, given in zip(graph.input, inputs):
            if isinstance(given, Value):
                inner.values[item.name] = inner._captured(item.name, given)
        outputs = inner.read_all(graph)
        outputs = [value for value, keep in zip(outputs, kept) if keep] if kept else outputs
        symbols = [emitter.output(value, f"out{index}") for index, value in enumerate(outputs)]
        entries = [symbol.outputs[0] for symbol in symbols]
        moved = {}
        for name, value in emitter.params.items():  # weights of a subgraph are inputs of the node, too
            place = captures.place(f"{id(emitter)} {name}", self.emitter.constant(name, value.numpy(), owned=True))
            moved[name] = Variable(input_name(place)).outputs[0]
        return Subgraph(Symbol(substitute(entries, moved) if moved else entries), [value.kind for value in outputs])


class Subgraph(NamedTuple):
    symbol: Symbol
    kinds: list[str]  # of the outputs


def constant(emitter: Emitter, name: str, data: np.ndarray, owned: bool = False) -> Value:
    """A tensor of the file: numbers, or text, which only host steps read."""
    if data.dtype == object:
        return Value(name, UNKNOWN, constant=data, kind=TEXT)
    return emitter.stored(name, data, owned)
