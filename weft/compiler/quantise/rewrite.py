"""A graph of floats becomes one with quantize and dequantize where products read: weights of int8 with a scale for each
column, data with one scale. FuseQuantised makes integer products of it.

    conv2d(x, w, b) = conv2d(dequantize(quantize(x, s, z)), dequantize(w', t), dequantize(b', s t))
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np

from ...base.dtype import FLOAT32
from ...base.shape import is_static
from ...core.graph import Graph
from ...core.ir import Fact, Node, NodeEntry
from ...core.walk import Walker, rewrite
from ...runtime.program import Array
from .ranges import LEVELS, Range

FURTHEST = 127  # from zero, of a level of a weight
LARGEST_BIAS = 2**30
WEIGHT_AXIS = {"conv2d": 0, "dense": 0, "matmul": 1}  # along which columns have scales of their own
TAKES_BIAS = ("conv2d", "dense")
# Operators that give some of their elements as they are: levels before them are levels behind.
HANDS_ON = frozenset({"max_pool2d", "reshape", "flatten", "squeeze", "expand_dims", "transpose", "concatenate"})


class Scale(NamedTuple):
    """A level l stands for scale (l - zero)."""

    scale: np.float32
    zero: Array


class Point(NamedTuple):
    """Where a value is quantised: the entries whose numbers become levels, what is measured for them, and whether all
    that read them read what levels stand for, or products alone."""

    places: tuple[NodeEntry, ...]
    measured: NodeEntry
    shared: bool


def scale_of(reached: Range, dtype: Any) -> Scale:
    """Levels of a dtype that cover a range, with zero among them.

    >>> scale_of(Range(-1.0, 1.55), "uint8")
    Scale(scale=np.float32(0.01), zero=np.uint8(100))
    """
    span = reached.high - reached.low
    step = np.float32(span / LEVELS) if span > 0 else np.float32(1)
    lowest = np.iinfo(dtype).min
    zero = np.rint(lowest - reached.low / float(step))
    return Scale(step, np.asarray(zero, np.int64).clip(lowest, np.iinfo(dtype).max).astype(dtype))


def products_of(graph: Graph, params: Mapping[str, Array], kept: Collection[str] = ()) -> list[Node]:
    """Products and convolutions with constant weights that kernels multiply as bytes."""
    return [node for node in graph.indexed.nodes if node.name not in kept and _is_product(graph, node, params)]


def _is_product(graph: Graph, node: Node, params: Mapping[str, Array]) -> bool:
    if node.op_name not in WEIGHT_AXIS or node.control_deps:
        return False
    facts = [graph.fact(entry) for entry in node.inputs[:2]]
    weight = node.inputs[1].node
    if weight.op is not None or weight.name not in params or any(fact.dtype != FLOAT32 for fact in facts):
        return False
    if any(entry.node.name not in params for entry in node.inputs[2:]):
        return False
    shape, data = facts[1].shape, facts[0].shape
    if not is_static(shape) or data is None:
        return False
    if node.op_name == "conv2d":
        plain = node.params.layout == "NCHW" and node.params.kernel_layout == "OIHW" and len(shape) == 4
        alone = node.params.groups == data[1] == node.params.channels
        return plain and node.params.out_dtype == "same" and (node.params.groups == 1 or alone)
    turned = node.op_name == "matmul" and (node.params.transpose_a or node.params.transpose_b)
    return len(shape) == 2 and len(data) >= 2 and not turned


def points_of(graph: Graph, products: Collection[Node]) -> list[Point]:
    """Where the data of products is quantised: before what only moves it, and each part of what is concatenated."""
    indexed, outputs = graph.indexed, set(graph.outputs)
    found: dict[NodeEntry, Point] = {}
    for node in products:
        measured = node.inputs[0]
        if measured in found and (found[measured].shared or node.op_name != "conv2d"):
            continue
        places, shared = [measured], node.op_name == "conv2d"
        while shared:
            before = places[0].node
            counts = [len(indexed.consumers[indexed.entry_id(entry)]) for entry in before.inputs]
            alone = set(counts) <= {1} and outputs.isdisjoint(before.inputs)
            if not alone or before.control_deps or len(places) > 1 or before.op_name not in HANDS_ON:
                break
            places = list(before.inputs)
        found[measured] = Point(tuple(dict.fromkeys(places)), measured, shared)
    return list(found.values())


class Quantised(NamedTuple):
    graph: Graph
    params: dict[str, Array]


class _Rewriting:
    def __init__(
        self,
        graph: Graph,
        params: Mapping[str, Array],
        products: Collection[Node],
        scales: Mapping[Point, Scale],
        means: Mapping[NodeEntry, Array],
    ) -> None:
        self.graph, self.products, self.means = graph, set(products), means
        self.params = dict(params)
        self.places = {place: (point, scale) for point, scale in scales.items() for place in point.places}
        self.measured = {point.measured: scale for point, scale in scales.items()}
        self.made: dict[NodeEntry, NodeEntry] = {}
        self.constants: dict[Point, list[NodeEntry]] = {}
        self.names = {node.name for node in graph.indexed.nodes}

    def rule(self, walker: Walker, node: Node, inputs: list[NodeEntry]) -> list[NodeEntry] | NodeEntry | None:
        is_product = node in self.products
        fresh = list(inputs)
        for number, (old, new) in enumerate(zip(node.inputs, inputs)):
            if old in self.places and (self.places[old][0].shared or (is_product and number == 0)):
                fresh[number] = self._levels(walker, old, new)
        if is_product:
            return self._product(walker, node, fresh)
        if fresh == inputs or node.control_deps:
            return None
        made = walker.copy(node, fresh, [])
        return [NodeEntry(made, index) for index in range(made.num_outputs)]

    def _levels(self, walker: Walker, old: NodeEntry, new: NodeEntry) -> NodeEntry:
        """A value as its levels stand for it."""
        if old not in self.made:
            point, scale = self.places[old]
            if point not in self.constants:  # the same for all its places, so that levels can stand side by side
                name = point.measured.node.output_name(point.measured.index)
                pairs = scale._asdict().items()
                self.constants[point] = [self._constant(walker, f"{name}_{part}", value) for part, value in pairs]
            name, how = old.node.output_name(old.index), self.constants[point]
            levels = walker.make("quantize", [new, *how], None, f"{name}_quantized")
            self.made[old] = walker.make("dequantize", [levels, *how], None, f"{name}_dequantized")
        return self.made[old]

    def _product(self, walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry:
        axis, weight = WEIGHT_AXIS[node.op_name], self.params[node.inputs[1].node.name]
        others = tuple(other for other in range(weight.ndim) if other != axis)
        scale = (np.abs(weight).max(others) / FURTHEST).astype(np.float32)
        scale = np.where(scale > 0, scale, np.float32(1))
        spread = scale.reshape([-1 if other == axis else 1 for other in range(weight.ndim)])
        levels = np.rint(weight / spread).clip(-FURTHEST, FURTHEST).astype(np.int8)
        made = [inputs[0], self._dequantized(walker, f"{node.name}_weight", levels, scale, axis)]
        attrs = node.attrs
        if node.op_name in TAKES_BIAS:
            shift = _shift(node, levels * spread - weight.astype(np.float64), self.means[node.inputs[0]])
            given = sum(self.params[bias.node.name].astype(np.float64) for bias in inputs[2:])
            made.append(self._bias(walker, node, given - shift, scale))
            attrs = {**attrs, "use_bias": "True"}
        return walker.make(node.op_name, made, attrs, node.name)

    def _bias(self, walker: Walker, node: Node, bias: Array, scale: Array) -> NodeEntry:
        """In whole steps of the product's sums, as far as those reach."""
        name = f"{node.name}_bias"
        steps = scale.astype(np.float64) * float(self.measured[node.inputs[0]].scale)
        whole = np.rint(bias / steps)
        if np.abs(whole).max(initial=0) >= LARGEST_BIAS:
            return self._constant(walker, f"{name}_corrected", bias.astype(np.float32))
        return self._dequantized(walker, name, whole.astype(np.int32), steps.astype(np.float32), 0)

    def _dequantized(self, walker: Walker, name: str, levels: Array, scale: Array, axis: int) -> NodeEntry:
        inputs = [self._constant(walker, f"{name}_levels", levels), self._constant(walker, f"{name}_scale", scale)]
        return walker.make("dequantize", inputs, {"axis": axis, "use_zero": False}, f"{name}_dequantized")

    def _constant(self, walker: Walker, name: str, value: Any) -> NodeEntry:
        return new_constant(walker, self.names, self.params, name, np.asarray(value))


def new_constant(walker: Walker, names: set[str], params: dict[str, Array], name: str, value: Array) -> NodeEntry:
    """A constant among the parameters, by a name that no other node has."""
    wanted, number = name, 0
    while name in names:
        number += 1
        name = f"{wanted}_{number}"
    names.add(name)
    params[name] = value
    return walker.variable(name, Fact(value.shape, value.dtype))


def _shift(node: Node, wrong: Array, mean: Array) -> Array:
    """By how much sums of a product are off in the mean, for each column: weights are `wrong` by so much, and data has
    a mean for each channel. What lies in the padding counts as data."""
    if node.op_name == "dense":
        return wrong @ mean
    taps = wrong.sum((2, 3))
    return taps @ mean if node.params.groups == 1 else taps[:, 0] * mean


def quantised(
    graph: Graph,
    params: Mapping[str, Array],
    products: Collection[Node],
    scales: Mapping[Point, Scale],
    means: Mapping[NodeEntry, Array],
) -> Quantised:
    """The graph in which these products read levels at points of these scales. `means`, for each channel of what they
    read, correct what rounded weights change in the mean."""
    rewriting = _Rewriting(graph, params, products, scales, means)
    made = rewrite(graph, rewriting.rule)
    used = {made.indexed.nodes[number].name for number in made.indexed.variables}
    return Quantised(made, {name: value for name, value in rewriting.params.items() if name in used})


def quantised_apart(
    graph: Graph,
    params: Mapping[str, Array],
    products: Collection[Node],
    scales: Mapping[NodeEntry, Scale],
    means: Mapping[NodeEntry, Array],
) -> tuple[dict[Node, NodeEntry], dict[str, Array]]:
    """Each product in bytes of what it reads in floats, and all parameters: what it adds to the noise by itself."""
    points = {Point((entry,), entry, False): scale for entry, scale in scales.items()}
    rewriting = _Rewriting(graph, params, products, points, means)
    found: dict[Node, NodeEntry] = {}

    def beside(walker: Walker, node: Node, inputs: list[NodeEntry]) -> None:
        if node in rewriting.products:
            made = rewriting.rule(walker, node, inputs)
            assert isinstance(made, NodeEntry)
            found[node] = made

    rewrite(graph, beside)
    return found, rewriting.params


def with_biases(graph: Graph) -> Graph:
    """Convolutions that take in the number for each channel that is added to what they give."""
    indexed, outputs = graph.indexed, set(graph.outputs)

    def merge(walker: Walker, node: Node, inputs: list[NodeEntry]) -> NodeEntry | None:
        if node.op_name != "broadcast_add" or node.control_deps:
            return None
        for number in (0, 1):
            image, shift = node.inputs[number], inputs[1 - number]
            conv = inputs[number].node
            alone = image not in outputs and len(indexed.consumers[indexed.entry_id(image)]) == 1
            if conv.op_name != "conv2d" or not alone or conv.control_deps or shift.node.op is not None:
                continue
            channels, shape = conv.params.channels, walker.fact(shift).shape
            if shape not in ((channels, 1, 1), (1, channels, 1, 1)) or conv.params.layout != "NCHW":
                continue
            bias = walker.make("reshape", [shift], {"shape": (channels,)})
            if conv.params.use_bias:
                bias = walker.make("broadcast_add", [conv.inputs[2], bias])
            name = node.name if NodeEntry(node) in outputs else conv.name
            return walker.make("conv2d", [*conv.inputs[:2], bias], {**conv.attrs, "use_bias": True}, name)
        return None

    return rewrite(graph, merge)
