"""The graph that computes one of several images, where no operator mixes them: all that depends on the inputs has the
images along its first axis."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from ..base.shape import is_static
from ..core.graph import Graph
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from ..core.pattern import OpPattern
from ..core.schema import is_hidden
from ..core.walk import Walker, rewrite


class _Mixed(Exception):
    """An operator reads several images at once, or it is not known that it does not."""


def one_image(graph: Graph, inputs: Collection[str]) -> tuple[int, Graph] | None:
    """How many images the inputs of these names hold, and the graph for one of them; None where there are no several,
    or they are not computed apart."""
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    facts = [graph.fact(NodeEntry(node)) for node in nodes if node.name in inputs]
    facts += [graph.fact(entry) for entry in graph.outputs]
    counts = {fact.shape[0] if is_static(fact.shape) and fact.shape else None for fact in facts}
    count = counts.pop()
    if counts or count is None or count < 2:
        return None
    images = _Images(graph, count, inputs)
    try:
        made = rewrite(graph, images.rule)
    except _Mixed:
        return None
    found = all(entry.node in images.apart and not entry.index for entry in graph.outputs)
    return (count, made) if found else None


class _Images:
    """What is rewritten: `apart` are the nodes that compute something for each image."""

    def __init__(self, graph: Graph, count: int, inputs: Collection[str]) -> None:
        self.graph, self.count, self.inputs = graph, count, inputs
        self.apart: set[Node] = set()

    def rule(self, walker: Walker, node: Node, inputs: list[NodeEntry]) -> Sequence[NodeEntry] | None:
        """A node for one image, in the place of that for all."""
        if node.op is None:
            return self._variable(walker, node) if node.name in self.inputs else None
        if not any(entry.node in self.apart for entry in node.inputs):
            return None
        self._check(node)
        self.apart.add(node)
        if node.op_name == "reshape":
            kept = {key: text for key, text in node.attrs.items() if is_hidden(key)}
            return [walker.make("reshape", inputs, {**kept, "shape": (1, *self._shape(node)[1:])}, node.name)]
        made = walker.copy(node, inputs, [])
        if walker.fact(NodeEntry(made)).shape != (1, *self._shape(node)[1:]):
            raise _Mixed
        return [NodeEntry(made, index) for index in range(made.num_outputs)]

    def _variable(self, walker: Walker, node: Node) -> list[NodeEntry]:
        fact = self.graph.fact(NodeEntry(node))
        assert fact.shape is not None
        self.apart.add(node)
        return [walker.variable(node.name, fact._replace(shape=(1, *fact.shape[1:])))]

    def _shape(self, node: Node) -> Sequence[Any]:
        shape = self.graph.fact(NodeEntry(node)).shape
        if not is_static(shape) or shape[:1] != (self.count,) or 0 in shape:  # 0: nothing to compute
            raise _Mixed
        return shape

    def _check(self, node: Node) -> None:
        op = node.op
        assert op is not None
        facts = [(self.graph.fact(entry), entry.node in self.apart) for entry in node.inputs]
        if any(entry.index and entry.node in self.apart for entry in node.inputs):  # such as moments
            raise _Mixed
        if node.control_deps or node.subgraphs or op.effect_of(node.params) != "pure":
            raise _Mixed
        by_element = Op.pattern.get(op, OpPattern.OPAQUE) <= OpPattern.BROADCAST
        rule = _by_element if by_element else _RULES.get(node.op_name)
        if rule is None or not rule(node.params, facts, len(self._shape(node))):
            raise _Mixed


Inputs = Sequence[tuple[Fact, bool]]  # what is read, and whether it is apart for each image


def _by_element(params: Any, inputs: Inputs, rank: int) -> bool:
    """An element of each image meets those of the same image, or one that is the same for all."""
    shapes = [(fact.shape, is_apart) for fact, is_apart in inputs]
    return all(
        shape is not None and (len(shape) == rank if is_apart else len(shape) < rank or shape[0] == 1)
        for shape, is_apart in shapes
    )


def _only_data(params: Any, inputs: Inputs, rank: int) -> bool:
    """The first input alone is apart; layouts begin with the images."""
    layouts = [getattr(params, name, "N") for name in ("layout", "out_layout")]
    return inputs[0][1] and not any(is_apart for _, is_apart in inputs[1:]) and all(_first(name) for name in layouts)


def _first(layout: object) -> bool:
    name = str(layout)
    return name.startswith(("N", "__undef__"))


def _along(params: Any, inputs: Inputs, rank: int) -> bool:
    """One axis, and not that of the images."""
    given = not getattr(params, "training", False)
    return given and _only_data(params, inputs, rank) and params.axis % rank != 0


def _reduced(params: Any, inputs: Inputs, rank: int) -> bool:
    shape = inputs[0][0].shape
    axes = params.axis
    return bool(shape and axes and not params.exclude and all(axis % len(shape) for axis in axes))


def _joined(params: Any, inputs: Inputs, rank: int) -> bool:
    return all(is_apart for _, is_apart in inputs) and params.axis % rank != 0


def _reshaped(params: Any, inputs: Inputs, rank: int) -> bool:
    """Images stay whole, as the first axis has as many elements before and after."""
    return True


_RULES: dict[str, Callable[[Any, Inputs, int], bool]] = {
    **dict.fromkeys("conv1d conv2d conv3d conv2d_transpose dense flatten".split(), _only_data),
    **dict.fromkeys("max_pool2d avg_pool2d global_max_pool2d global_avg_pool2d".split(), _only_data),
    **dict.fromkeys("batch_norm softmax log_softmax layer_norm".split(), _along),
    **dict.fromkeys("mean sum max min".split(), _reduced),
    "concatenate": _joined,
    "reshape": _reshaped,
}
