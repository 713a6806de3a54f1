"""Nodes put together into one node, whose attribute `Subgraph` is the graph of what they do: those with gradients that
are known, and chains of element-wise work.

A group grows over the nodes of a block in order. A node that is not of the group, and reads what the group gives, has
to run after all of it: so a node that reads what such a node gives begins the next group. Nodes that are not of a group
keep their order, as far as they have effects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..graph import Graph
from ..nodes import Block, Node, Value, inside
from ..types import TensorType
from .aliases import Aliases
from .effects import has_effect, is_pure

DIFFERENTIABLE = frozenset(
    f"aten::{name}"
    for name in (
        "add sub mul div neg sigmoid tanh relu exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh erf erfc expm1 "
        "log1p log2 log10 abs reciprocal pow clamp type_as t unsqueeze squeeze addcmul mm addmm matmul bmm linear view "
        "reshape transpose permute expand expand_as cat sum mean max min where threshold hardtanh gelu silu leaky_relu "
        "softmax log_softmax layer_norm dot mv ceil floor round trunc frac eq ne lt le gt ge lerp atan2 fmod remainder"
    ).split()
)
ELEMENTWISE = frozenset(
    f"aten::{name}"
    for name in (
        "add sub mul div neg sigmoid tanh relu exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh erf erfc expm1 "
        "log1p log2 log10 abs reciprocal pow clamp type_as addcmul where threshold lerp atan2 fmod remainder ceil "
        "floor round trunc frac eq ne lt le gt ge __and__ __or__ __xor__ lgamma _sigmoid_backward _tanh_backward "
        "sigmoid_backward tanh_backward hardtanh leaky_relu gelu silu"
    ).split()
)


def create_autodiff_subgraphs(graph: Graph, threshold: int | None = None) -> None:
    """Puts nodes whose gradients are known into `prim::DifferentiableGraph`s of at least `threshold` nodes, two if
    nothing is said.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %a : Tensor = aten::relu(%x)
    ...   %b : Tensor = aten::tanh(%a)
    ...   return (%b)''')
    >>> create_autodiff_subgraphs(graph, 2)
    >>> print(graph, end="")
    graph(%x : Tensor):
      %3 : Tensor = prim::DifferentiableGraph_0(%x)
      return (%3)
    with prim::DifferentiableGraph_0 = graph(%x : Tensor):
      %a : Tensor = aten::relu(%x)
      %b : Tensor = aten::tanh(%a)
      return (%b)
    """
    _group(graph, "prim::DifferentiableGraph", DIFFERENTIABLE, 2 if threshold is None else threshold)


def fuse(graph: Graph, strict: bool = False) -> None:
    """Puts element-wise work on tensors, of two nodes or more, into `prim::FusionGroup`s. If `strict`, only on tensors
    of one known shape."""
    _group(graph, "prim::FusionGroup", ELEMENTWISE, 2, strict)


def _group(graph: Graph, kind: str, wanted: frozenset[str], least: int, same_shape: bool = False) -> None:
    aliases = Aliases(graph)

    def belongs(node: Node) -> bool:
        if node.kind() not in wanted or len(node._outputs) != 1 or not isinstance(node.output().type(), TensorType):
            return False
        if same_shape and len({_shape(value) for value in (*node._inputs, node.output())} - {()}) != 1:
            return False
        return is_pure(node) and not aliases.touches_written(node)

    blocks = [graph.block(), *[block for node in inside(graph.block()) for block in node._blocks]]
    for block in blocks:
        for members, later in _groups(block, belongs, aliases):
            if len(members) >= max(least, 1):
                _put_together(graph, kind, members, later)


def _shape(value: Value) -> tuple[object, ...]:
    """What tells the shape of a tensor; nothing of other values."""
    kind = value.type()
    if not isinstance(kind, TensorType):
        return ()
    return (kind.extents,) if kind.sizes() is not None else (value,)


def _groups(block: Block, belongs: Callable[[Node], bool], aliases: Aliases) -> Iterable[tuple[list[Node], list[Node]]]:
    """The groups of a block, each with the nodes among them that have to run after it."""
    found: list[tuple[list[Node], list[Node]]] = []
    members: list[Node] = []
    later: list[Node] = []
    given: set[Value] = set()  # by the group, and by nodes that run after it
    after: set[Value] = set()  # by nodes that run after it
    effects_wait = False
    for node in block.nodes():
        if belongs(node):
            if any(value in after for value in node._inputs):
                found.append((members, later))
                members, later, given, after, effects_wait = [], [], set(), set(), False
            members.append(node)
            given.update(node._outputs)
            continue
        if not members or node.kind() == "prim::Constant":
            continue
        inner = [node, *[each for own in node._blocks for each in inside(own)]]
        returns = [own.returnNode() for each in inner for own in each._blocks]
        ordered = any(has_effect(each) or aliases.touches_written(each) for each in inner)
        if (ordered and effects_wait) or any(value in given for each in (*inner, *returns) for value in each._inputs):
            later.append(node)
            given.update(node._outputs)
            after.update(node._outputs)
            effects_wait |= ordered
    found.append((members, later))
    return found


def _put_together(graph: Graph, kind: str, members: list[Node], later: list[Node]) -> None:
    """Puts nodes, in order, into one node in the place of the last; those that read it follow."""
    inner, last = Graph(), members[-1]
    group = graph.create(kind, (), 0).insertAfter(last)
    group._set("g", "Subgraph", inner)
    known: dict[Value, Value] = {}
    for node in members:
        for value in node._inputs:
            if value in known:
                continue
            if value.node().kind() == "prim::Constant":
                known[value] = inner.appendNode(inner.createClone(value.node(), known.__getitem__)).output()
            else:
                known[value] = inner.addInput().copyMetadata(value)
                group.addInput(value)
        made = inner.appendNode(inner.createClone(node, known.__getitem__))
        known |= zip(node._outputs, made._outputs)
    inside_group = set(members)
    for node in members:
        for value in node._outputs:
            if any(use.user not in inside_group for use in value._uses.values()):
                inner.registerOutput(known[value])
                outer = group.addOutput().setType(value.type())
                for use in value.uses():
                    if use.user not in inside_group:
                        use.user._put(use.offset, outer)
    anchor = group
    for node in later:
        if node.isBefore(group):
            node.moveAfter(anchor)
            anchor = node
    for node in reversed(members):
        node.destroy()
