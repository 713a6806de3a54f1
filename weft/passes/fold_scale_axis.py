"""FoldScaleAxis: a multiplication of each channel by a number moves into convolution weights.

    conv(x) * s  ->  conv with weight * s over output channels and bias * s     (backward)
    conv(x * s)  ->  conv with weight * s over input channels                   (forward)

The two columns registered here say how operators in between let a scale through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from ..base.dtype import is_float
from ..base.layout import Layout
from ..base.shape import Dim, is_static
from ..core.graph import Graph
from ..core.ir import Node, NodeEntry
from ..core.op import Op
from ..core.passes import register_pass
from ..core.pattern import OpPattern
from ..core.walk import Walker, rewrite
from ._moves import Moves

MAX_PATH = 16  # nodes between a scale and the convolution that takes it


class At(NamedTuple):
    """Where a scale stands: on an axis of a node's output (backward), or of an input (forward)."""

    graph: Graph
    node: Node
    position: int
    axis: int
    nonnegative: bool

    @property
    def shape(self) -> tuple[Dim, ...]:
        shape = self.graph.fact(NodeEntry(self.node)).shape
        assert shape is not None
        return shape


class Answer(NamedTuple):
    """Which inputs are multiplied, each with the number of axes after its channels, and to which
    input (backward) and axis the scale goes on; None where the node takes it."""

    scaled: tuple[tuple[int, int], ...]
    carry: tuple[int, int] | None = None


FoldRule = Callable[[At], Answer | None]


@register_pass("FoldScaleAxis", requires=("shape",))
def fold_scale_axis(graph: Graph) -> Graph:
    """Folds scales into the convolutions before them, then into those after them."""
    graph = _fold(graph.replace(attrs={}), _path_to_producer)
    return _fold(graph, _path_to_reader)


# How operators let a scale through.


def _unchanged(at: At) -> Answer | None:
    """f(x s) = f(x) s for any s."""
    return Answer((), (0, at.axis))


def _monotonic(at: At) -> Answer | None:
    """f(x s) = f(x) s for s >= 0."""
    return Answer((), (0, at.axis)) if at.nonnegative else None


def _pool(linear: bool) -> FoldRule:
    def rule(at: At) -> Answer | None:
        layout = Layout(at.node.params.layout)
        if layout.index_of("C") != at.axis or layout.subsizeof("C") > 0:
            return None
        return _unchanged(at) if linear else _monotonic(at)

    return rule


def _sum_backward(at: At) -> Answer | None:
    """(a + b) s = a s + b s, where one of them is no larger than the scale."""
    for carried, other in ((0, 1), (1, 0)):
        full = at.graph.fact(at.node.inputs[carried]).shape == at.shape
        small = at.graph.fact(at.node.inputs[other]).shape
        if full and is_static(small) and _channel_axis(small, len(at.shape)) in (at.axis, -1):
            return Answer(((other, len(at.shape) - at.axis - 1),), (carried, at.axis))
    return None


def _conv_backward(at: At) -> Answer | None:
    params = at.node.params
    out = Layout(params.layout if params.out_layout == "__undef__" else params.out_layout)
    kernel = Layout(params.kernel_layout)
    if out.index_of("C") != at.axis or not _whole(out, "C") or not _whole(kernel, "O"):
        return None
    weight = (1, kernel.ndim - kernel.index_of("O") - 1)
    return Answer((weight, (2, 0)) if params.use_bias else (weight,))


def _conv_forward(at: At) -> Answer | None:
    params = at.node.params
    data, kernel = Layout(params.layout), Layout(params.kernel_layout)
    if at.position != 0 or data.index_of("C") != at.axis or not _whole(data, "C"):
        return None
    # A depthwise convolution has one filter for each input channel, in the place of outputs.
    depthwise = params.groups > 1 and params.groups == params.channels
    letter = "O" if depthwise else "I"
    channels = at.graph.fact(at.node.inputs[0]).shape
    if params.groups > 1 and not (depthwise and channels and channels[at.axis] == params.channels):
        return None
    if not _whole(kernel, letter):
        return None
    return Answer(((1, kernel.ndim - kernel.index_of(letter) - 1),))


def _whole(layout: Layout, axis: str) -> bool:
    return axis in layout and layout.subsizeof(axis) < 0


BACKWARD: dict[str, FoldRule] = {
    "relu": _monotonic,
    "leaky_relu": _monotonic,
    "max_pool2d": _pool(linear=False),
    "avg_pool2d": _pool(linear=True),
    "broadcast_add": _sum_backward,
    "broadcast_sub": _sum_backward,
    "conv2d": _conv_backward,
}
FORWARD: dict[str, FoldRule] = {
    "relu": _monotonic,
    "leaky_relu": _monotonic,
    "max_pool2d": _pool(linear=False),
    "avg_pool2d": _pool(linear=True),
    "conv2d": _conv_forward,
}
for _name, _rule in BACKWARD.items():
    Op.get(_name).set_attr("FScaleAxisBackward", _rule)
for _name, _rule in FORWARD.items():
    Op.get(_name).set_attr("FScaleAxisForward", _rule)
_backward, _forward = Op.get_attr("FScaleAxisBackward"), Op.get_attr("FScaleAxisForward")


# Where scales are, and what they reach.


class _Scale(NamedTuple):
    """`node` multiplies its input `data` by `factor`, one number for each index of `axis`."""

    node: Node
    data: int
    factor: NodeEntry
    axis: int
    nonnegative: bool


class _View:
    """A graph with what paths through it ask for."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.indexed = graph, graph.indexed
        self.outputs = frozenset(graph.indexed.outputs)


Edits = dict[Node, tuple[tuple[int, int], ...]]
FindPath = Callable[[_View, _Scale, dict[Node, _Scale]], Edits | None]


def _scales(graph: Graph) -> Iterator[_Scale]:
    plain, nonnegative = _plain_nodes(graph), _nonnegative_nodes(graph)
    for node in graph.indexed.nodes:
        if node.op_name != "broadcast_mul":
            continue
        out = graph.fact(NodeEntry(node))
        if out.shape is None or None in out.shape or (out.dtype is not None and not is_float(out.dtype)):
            continue
        for data, other in ((0, 1), (1, 0)):
            factor = node.inputs[other]
            shape = graph.fact(factor).shape
            if graph.fact(node.inputs[data]).shape != out.shape or not is_static(shape):
                continue
            axis = _channel_axis(shape, len(out.shape))
            if axis is not None and axis >= 0 and factor.node in plain:
                yield _Scale(node, data, factor, axis, factor.node in nonnegative)
                break


def _channel_axis(shape: tuple[int, ...], rank: int) -> int | None:
    """The one axis of a result of this rank along which a broadcast operand differs; -1 if it is
    the same everywhere, None if there are several."""
    axes = [rank - len(shape) + axis for axis, extent in enumerate(shape) if extent != 1]
    return None if len(axes) > 1 else axes[0] if axes else -1


def _plain_nodes(graph: Graph) -> set[Node]:
    """Variables, and element-wise or injective work on them.

    What takes more than that is not a parameter, and weights multiplied by it would have to be
    prepared anew in every run.
    """
    plain: set[Node] = set()
    for node in graph.indexed.nodes:
        easy = node.op is None or node.op.pattern <= OpPattern.INJECTIVE
        if easy and all(entry.node in plain for entry in node.inputs):
            plain.add(node)
    return plain


_POSITIVE = {"exp", "sqrt", "sigmoid", "abs", "relu", "ones", "ones_like", "zeros", "zeros_like"}
_KEEP_SIGN = {"copy", "reshape", "flatten", "squeeze", "expand_dims", "transpose", "broadcast_to"}
_CLOSED = {"elemwise_mul", "elemwise_add", "elemwise_div", "elemwise_sum"}
_CLOSED |= {"broadcast_mul", "broadcast_add", "broadcast_div", "broadcast_max"}
_CLOSED_WITH_NUMBER = {"__add_scalar__", "__mul_scalar__", "__div_scalar__", "__rdiv_scalar__"}


def _nonnegative_nodes(graph: Graph) -> set[Node]:
    """Nodes whose values cannot be negative, whatever the inputs are."""
    found: set[Node] = set()
    for node in graph.indexed.nodes:
        closed = node.op_name in _KEEP_SIGN or node.op_name in _CLOSED
        if node.op_name in _CLOSED_WITH_NUMBER:
            closed = node.params.scalar >= 0
        of_found = closed and all(entry.node in found for entry in node.inputs)
        if node.op_name in _POSITIVE or of_found:
            found.add(node)
    return found


def _path_to_producer(view: _View, scale: _Scale, gone: dict[Node, _Scale]) -> Edits | None:
    """From a scale up to the convolution that takes it; every node on the way has one reader."""
    entry, axis = scale.node.inputs[scale.data], scale.axis
    edits: Edits = {}
    for _ in range(MAX_PATH):
        node = entry.node
        if node.op is None or node.num_outputs != 1 or _single_reader(view, entry) is None:
            return None
        if node in gone:
            entry = node.inputs[gone[node].data]
            continue
        rule = _backward.get(node.op)
        answer = rule and rule(At(view.graph, node, 0, axis, scale.nonnegative))
        if answer is None:
            return None
        edits[node] = answer.scaled
        if answer.carry is None:
            return edits
        entry, axis = node.inputs[answer.carry[0]], answer.carry[1]
    return None


def _path_to_reader(view: _View, scale: _Scale, gone: dict[Node, _Scale]) -> Edits | None:
    """From a scale down to the convolution that takes it; every node on the way has one reader."""
    entry, axis = NodeEntry(scale.node), scale.axis
    for _ in range(MAX_PATH):
        found = _single_reader(view, entry)
        if found is None:
            return None
        node, position = found
        rule = _forward.get(node.op)
        answer = rule and rule(At(view.graph, node, position, axis, scale.nonnegative))
        if answer is None or node.num_outputs != 1:
            return None
        if answer.carry is None:
            return {node: answer.scaled}
        entry, axis = NodeEntry(node), answer.carry[1]
    return None


def _single_reader(view: _View, entry: NodeEntry) -> tuple[Node, int] | None:
    """The one node that reads an entry, and as which input."""
    number = view.indexed.entry_id(entry)
    readers = view.indexed.consumers[number]
    if len(readers) != 1 or number in view.outputs:
        return None
    return view.indexed.nodes[readers[0]], view.indexed.inputs[readers[0]].index(number)


# The rewrite.


def _fold(graph: Graph, find_path: FindPath) -> Graph:
    gone: dict[Node, _Scale] = {}
    edits: dict[Node, list[tuple[_Scale, int, int]]] = {}
    view = _View(graph)
    for scale in _scales(graph):
        path = find_path(view, scale, gone)
        if path is not None and _same_dtype(graph, scale, path):
            gone[scale.node] = scale
            for node, scaled in path.items():
                edits.setdefault(node, []).extend((scale, i, after) for i, after in scaled)
    if not gone:
        return graph
    # With the factors as first outputs, each is visited before the convolution that takes it.
    factors = [scale.factor for scale in gone.values()]
    made = rewrite(graph.replace(outputs=[*factors, *graph.outputs]), _Folder(gone, edits))
    return made.replace(outputs=made.outputs[len(factors) :]).trimmed()


def _same_dtype(graph: Graph, scale: _Scale, path: Edits) -> bool:
    """Whether every input that is to be multiplied has the dtype of the factor. Those that are not
    known agree where no node changes the dtype."""
    inputs = [node.inputs[position] for node, scaled in path.items() for position, _ in scaled]
    dtypes = [graph.fact(entry).dtype for entry in (scale.factor, *inputs)]
    known = {dtype for dtype in dtypes if dtype is not None}
    changed = any(getattr(node.params, "out_dtype", "same") != "same" for node in path)
    return len(known) <= 1 and not (changed and None in dtypes)


class _Folder:
    """The rewrite rule: scales vanish, and what takes them has its inputs multiplied."""

    def __init__(self, gone: dict[Node, _Scale], edits: dict[Node, list[tuple[_Scale, int, int]]]) -> None:
        self.gone, self.edits, self.moves = gone, edits, Moves()

    def __call__(self, walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | None:
        if node in self.gone:
            return self.moves.put(node, [inputs[self.gone[node].data]])
        for scale, position, after in self.edits.get(node, ()):
            factor = self._vector(walker, scale)
            if after:
                axes = {"axis": 1, "num_newaxis": after}
                factor = walker.make("expand_dims", [factor], axes)
            name = f"{inputs[position].node.name}_scaled"
            inputs[position] = walker.make("broadcast_mul", [inputs[position], factor], name=name)
        return self.moves.keep(walker, node, inputs)

    def _vector(self, walker: Walker, scale: _Scale) -> NodeEntry:
        """The factor with its one axis only."""
        factor = self.moves.entry(scale.factor)
        shape = walker.fact(factor).shape
        assert is_static(shape)
        if len(shape) == 1:
            return factor
        node = factor.node
        inner = walker.fact(node.inputs[0]).shape if node.op_name == "expand_dims" else None
        if inner is not None and len(inner) == 1:
            return node.inputs[0]
        extent = max(shape)
        return walker.make("reshape", [factor], {"shape": (extent,)}, name=f"{node.name}_vector")
