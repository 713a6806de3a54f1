"""The two tables of the exporter, and what its writers write with.

ALIKE["relu"] = Alike("Relu")                      # the same, attributes renamed at most

@writes("dense")
def dense(w): w.give("Gemm", *w.inputs, transB=1)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

from ...base.dtype import BOOL, INT64, DType
from ...base.errors import Error, Unsupported
from ...base.extents import Atom, Extent, Untold
from ...base.shape import Dim
from ...core.graph import Graph
from ...core.infer import infer
from ...core.ir import Fact, Node, NodeEntry
from ...core.symbol import Symbol
from ..building import Alike, alike_rows
from ..emitter import FreshNames
from .alike import SAME
from .tensors import CODE_OF

WriterRule = Callable[["Writing"], None]


class TensorType(NamedTuple):
    """What a tensor of the model is: all is known of it, but what the names of open dimensions stand for."""

    shape: tuple[Any, ...]  # numbers and extents, which compute alike
    dtype: DType


def tensor_type(fact: Fact) -> TensorType:
    """What a typed graph says of a tensor."""
    assert fact.shape is not None
    assert fact.dtype is not None
    return TensorType(tuple(map(as_extent, fact.shape)), fact.dtype)


def as_extent(dim: Dim | Extent) -> int | Extent:
    """A dimension that can be computed with."""
    assert dim is not None  # typed graphs have names for what is open
    return dim if isinstance(dim, (int, Extent)) else Extent.of(dim)


def value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    """An end of a graph; open dimensions have their names, or what follows from them."""
    code = CODE_OF.get(kind.dtype)
    if code is None:
        raise Unsupported(f"ONNX has no tensors of dtype {kind.dtype}", where=f"tensor {name!r}")
    dims = [dim if isinstance(dim, int) else dim.text for dim in kind.shape]
    return helper.make_tensor_value_info(name, code, dims)


ALIKE = {row.op: Alike(op_type, {ours: theirs for theirs, ours in row.attrs.items()}) for op_type, row in SAME.items()}
ALIKE |= alike_rows("""
    block_grad Identity
    broadcast_add Add
    broadcast_mul Mul
    broadcast_sub Sub
    copy Identity
    elemwise_add Add
    elemwise_mul Mul
    elemwise_sub Sub
    flatten Flatten
    instance_norm InstanceNormalization epsilon
    layer_norm LayerNormalization axis epsilon
    leaky_relu LeakyRelu alpha
    log_softmax LogSoftmax axis
    selu Selu
    softmax Softmax axis
""")
_writers: dict[str, WriterRule] = {}


def writes(*op_names: str) -> Callable[[WriterRule], WriterRule]:
    """Registers a function that writes an operator's nodes."""

    def register(rule: WriterRule) -> WriterRule:
        _writers.update(dict.fromkeys(op_names, rule))
        return rule

    return register


def written_ops() -> list[str]:
    """Names of the operators that are written."""
    return sorted({*ALIKE, *_writers})


def find_writer(op_name: str) -> WriterRule | None:
    """What writes an operator; None if nothing does."""
    alike = ALIKE.get(op_name)
    if alike is None:
        return _writers.get(op_name)

    def rule(w: Writing) -> None:
        w.give(alike.op, *w.inputs, **{there: getattr(w.params, here) for here, there in alike.attrs.items()})

    return rule


# What cannot be expressed: (operator, why) -> nodes.
Unwritten = dict[tuple[str, str], list[str]]


def write_nodes(writer: Writer, graph: Graph, names: dict[NodeEntry, str]) -> None:
    """Writes all operators of a graph; what cannot be written goes to the writer's gaps."""
    for node in graph.indexed.nodes:
        if node.op is None:
            continue
        for index in range(node.num_outputs):
            entry = NodeEntry(node, index)
            if entry not in names:
                names[entry] = writer.tensor_names.fresh(node.output_name(index))
        rule = find_writer(node.op.name)
        if rule is None:
            writer.gaps.setdefault((node.op.name, ""), []).append(node.name)
            continue
        try:
            rule(Writing(writer, graph, names, node))
        except Unsupported as error:
            writer.gaps.setdefault((node.op.name, error.what), []).append(node.name)
        except Untold:
            why = f"{node.op.name} with dimensions that are open"
            writer.gaps.setdefault((node.op.name, why), []).append(node.name)
        except Error as error:
            error.at(f"operator {node.op.name}, node {node.name!r}")
            raise


class Writer:
    """The nodes and initialisers of the model so far."""

    def __init__(self, opset: int) -> None:
        self.tensor_names = FreshNames()  # ONNX has one space for all tensors, and one for all nodes
        self._node_names = FreshNames()
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: dict[str, np.ndarray] = {}  # what is known, by the name of its tensor
        self.op_of: dict[str, str] = {}  # what makes a tensor
        self.gaps: Unwritten = {}
        self.places: dict[str, tuple[str, int]] = {}  # where the extent of a name is read: a tensor and its axis

    def append(
        self, op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str, attrs: Mapping[str, Any]
    ) -> None:
        """One more node; attributes that are None are left out."""
        written = {key: _plain(value) for key, value in attrs.items() if value is not None}
        name = self._node_names.fresh(name)
        self.op_of.update(dict.fromkeys(outputs, op_type))
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=name, **written))


class Writing:
    """One weft node: names of its tensors, what is known of them, and its params."""

    def __init__(self, writer: Writer, graph: Graph, names: Mapping[NodeEntry, str], node: Node) -> None:
        self.writer = writer
        self.source = node
        self.name = node.name
        self.params = node.params
        self.op_name = node.op_name
        self._graph = graph
        self._names = names
        self.inputs = [self.name_of(entry) for entry in node.inputs]
        self.outputs = [names[NodeEntry(node, index)] for index in range(node.num_outputs)]
        self.ins = [self.type_of(entry) for entry in node.inputs]
        self.outs = [tensor_type(fact) for fact in graph.facts[node]]

    def type_of(self, entry: NodeEntry) -> TensorType:
        return tensor_type(self._graph.fact(entry))

    def name_of(self, entry: NodeEntry) -> str:
        """The tensor that an entry of the graph is."""
        return self._names[entry._replace(version=0)]

    @property
    def opset(self) -> int:
        return self.writer.opset

    @property
    def dtype(self) -> DType:
        """The dtype of the first input, or of the output where there is none."""
        return (self.ins or self.outs)[0].dtype

    @property
    def shape(self) -> tuple[Any, ...]:
        """The shape of the first input."""
        return self.ins[0].shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def node(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """An inner node with one output; gives the output's name."""
        return self.nodes(op_type, 1, *inputs, **attrs)[0]

    def nodes(self, op_type: str, count: int, *inputs: str, **attrs: Any) -> list[str]:
        """An inner node with several outputs; gives their names."""
        fresh = self.writer.tensor_names.fresh
        outputs = [fresh(f"{self.name}_{op_type}") for _ in range(count)]
        self.writer.append(op_type, inputs, outputs, outputs[0], attrs)
        return outputs

    def give(self, op_type: str, *inputs: str, **attrs: Any) -> None:
        """The node whose output is the first of the weft node's."""
        self.writer.append(op_type, inputs, self.outputs[:1], self.name, attrs)

    def give_all(self, op_type: str, *inputs: str, **attrs: Any) -> None:
        """The node whose outputs are all of the weft node's."""
        self.writer.append(op_type, inputs, self.outputs, self.name, attrs)

    def give_value(self, name: str, index: int = 0) -> None:
        """A tensor that inner nodes have made, as an output of the weft node."""
        last = self.writer.nodes[-1] if self.writer.nodes else None
        if last is not None and list(last.output) == [name]:
            last.output[0] = self.outputs[index]
            self.writer.op_of[self.outputs[index]] = last.op_type
        else:
            self.writer.append("Identity", [name], [self.outputs[index]], self.name, {})

    def constant(self, value: Any, dtype: DType | None = None) -> str:
        """An initialiser; of the first input's dtype unless said otherwise."""
        name = self.writer.tensor_names.fresh(f"{self.name}_constant")
        self.writer.arrays[name] = np.asarray(value, self.dtype if dtype is None else dtype)
        return name

    def ints(self, values: Any) -> str:
        """A tensor of int64, a shape, axes, or places: an initialiser, or computed from the shapes of inputs."""
        if isinstance(values, (tuple, list)) and any(isinstance(value, (str, Extent)) for value in values):
            return self.node("Concat", *(self._extent(as_extent(value)) for value in values), axis=0)
        return self.constant(np.asarray(values, np.int64), INT64)

    def _extent(self, extent: int | Extent) -> str:
        """A tensor of the one number that an extent is."""
        if isinstance(extent, int):
            return self.ints([extent])
        terms = []
        for atoms, count in extent.terms:
            factors = [*map(self._atom, atoms), *([self.ints([count])] if count != 1 or not atoms else [])]
            terms.append(reduce(lambda a, b: self.node("Mul", a, b), factors))
        return reduce(lambda a, b: self.node("Add", a, b), terms)

    def _atom(self, atom: Atom) -> str:
        if atom.kind == "name":
            if atom.text not in self.writer.places:
                raise Unsupported(f"the dimension {atom.text!r} is that of no input")
            tensor, axis = self.writer.places[atom.text]
            return self.node("Gather", self.node("Shape", tensor), self.ints([axis]), axis=0)
        parts = list(map(self._extent, atom.args))
        if atom.kind != "//":
            return self.node(atom.kind.capitalize(), *parts)
        above, below = parts  # ONNX rounds towards zero
        return self.node("Div", self.node("Sub", above, self.node("Mod", above, below)), below)

    def known(self, index: int) -> np.ndarray | None:
        """The value of an input, if it is a parameter."""
        return self.writer.arrays.get(self.inputs[index])

    def cast(self, name: str, dtype: DType) -> str:
        return self.node("Cast", name, to=CODE_OF[dtype])

    def give_cast(self, name: str) -> None:
        """Casts to the dtype of the output, and gives it."""
        self.give("Cast", name, to=CODE_OF[self.outs[0].dtype])

    def reshape(self, name: str, shape: Sequence[int]) -> str:
        return self.node("Reshape", name, self.ints(shape), allowzero=1 if 0 in shape else None)

    def give_shaped(self, name: str) -> None:
        """Brings a tensor to the shape of the output, and gives it."""
        shape = self.outs[0].shape
        self.give("Reshape", name, self.ints(shape), allowzero=1 if 0 in shape else None)

    def moved(self, name: str, source: str, target: str) -> str:
        """A tensor of one layout in another, both being orders of the same letters."""
        self.require(sorted(source) == sorted(target), f"layout {source}")
        perm = [source.index(letter) for letter in target]
        return name if source == target else self.node("Transpose", name, perm=perm)

    def image(self) -> str:
        """The first input, with channels before height and width."""
        return self.moved(self.inputs[0], self.params.layout, "NCHW")

    def give_image(self, name: str, layout: str | None = None) -> None:
        """Brings an image to the layout of the first input, or another, and gives it."""
        self.give_value(self.moved(name, "NCHW", layout or self.params.layout))

    def reduced(self, op_type: str, name: str, axes: Sequence[int], keepdims: bool = True) -> str:
        """A reduction; its axes are an input since opset 18, and of ReduceSum since 13."""
        if self.opset >= 18 or op_type == "ReduceSum":
            return self.node(op_type, name, self.ints(axes), keepdims=int(keepdims))
        return self.node(op_type, name, axes=list(axes), keepdims=int(keepdims))

    def body(
        self, inputs: Sequence[tuple[str, TensorType]], make: Callable[[], Sequence[str]], outputs: Sequence[TensorType]
    ) -> onnx.GraphProto:
        """A graph inside a node: what `make` writes and gives. It sees the tensors around it."""
        outer, self.writer.nodes = self.writer.nodes, []
        try:
            ends = [self.node("Identity", name) for name in make()]  # none is from outside
        finally:
            inner, self.writer.nodes = self.writer.nodes, outer
        into, out_of = ([value_info(name, kind) for name, kind in rows] for rows in (inputs, list(zip(ends, outputs))))
        return helper.make_graph(inner, f"{self.name}_body", into, out_of)

    def fresh(self, part: str) -> str:
        return self.writer.tensor_names.fresh(f"{self.name}_{part}")

    def loop(self, count: int, name: str, state_type: TensorType, step: Callable[[str, str], str]) -> str:
        """A tensor after `count` rounds of step(number of the round, tensor)."""
        number, more, state = (self.fresh(part) for part in ("round", "more", "state"))
        types = [TensorType((), INT64), TensorType((), BOOL), state_type]
        make = lambda: [more, step(number, state)]
        graph = self.body(list(zip((number, more, state), types)), make, types[1:])
        return self.node("Loop", self.ints(count), "", name, body=graph)

    def subgraph(self, symbol: Symbol, values: Sequence[str], types: Sequence[TensorType]) -> list[str]:
        """The nodes of a closed subgraph, whose variable in<k> is value k; gives its outputs."""
        numbers = {f"in{k}": k for k in range(len(values))}
        known = {name: types[numbers[name]] for name in symbol.list_input_names()}
        shapes = {name: tuple(map(_dim, kind.shape)) for name, kind in known.items()}
        graph = infer(Graph(symbol.outputs), shapes, {name: kind.dtype for name, kind in known.items()})
        names = {NodeEntry(node): values[numbers[node.name]] for node in graph.indexed.nodes if node.op is None}
        write_nodes(self.writer, graph, names)
        return [names[entry._replace(version=0)] for entry in graph.outputs]

    def require(self, fits: bool, what: str) -> None:
        if not fits:
            raise Unsupported(f"{self.op_name} with {what} cannot be written as ONNX")


def _dim(dim: int | Extent) -> Dim:
    return dim if isinstance(dim, int) else dim.dim


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [int(item) for item in value]
    return int(value) if isinstance(value, bool) else value
