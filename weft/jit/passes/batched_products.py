"""Sums of products of matrices as one product: a @ b + c @ d is [a c] @ [b; d]."""

from __future__ import annotations

from ..graph import Graph
from ..nodes import Node, Value, inside
from ..types import ListType, TensorType
from .aliases import Aliases
from .dead_code import eliminate_dead_code

LEAST = 4  # products in a sum that becomes one

Tree = Node | tuple["Tree", "Tree"]  # a product, or the sum of two


def batch_mm(graph: Graph) -> None:
    """Has sums of at least four products, of matrices that are known to be of one shape on each side, be one product.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Float(2, 2)):
    ...   %n : int = prim::Constant[value=1]()
    ...   %a : Float(2, 2) = aten::mm(%x, %x)
    ...   %b : Float(2, 2) = aten::mm(%x, %x)
    ...   %c : Float(2, 2) = aten::add(%a, %b, %n)
    ...   %d : Float(2, 2) = aten::mm(%x, %x)
    ...   %e : Float(2, 2) = aten::mm(%x, %x)
    ...   %f : Float(2, 2) = aten::add(%d, %e, %n)
    ...   %g : Float(2, 2) = aten::add(%c, %f, %n)
    ...   return (%g)''')
    >>> batch_mm(graph)
    >>> len(graph.findAllNodes("aten::mm"))
    1
    """
    aliases = Aliases(graph)
    trees: dict[Value, Tree] = {}
    roots: dict[Value, None] = {}
    for node in list(inside(graph.block())):
        if node.kind() not in ("aten::mm", "aten::add") or aliases.touches_written(node):
            continue
        if node.kind() == "aten::mm" and node.inputsSize() == 2:
            trees[node.output()] = node
        elif node.kind() == "aten::add" and node.inputsSize() == 3 and node._inputs[2].toIValue() == 1:
            parts = [_part(value, node, trees) for value in node._inputs[:2]]
            if parts[0] is not None and parts[1] is not None:
                trees[node.output()] = (parts[0], parts[1])
                roots[node.output()] = None
                for value in node._inputs[:2]:
                    roots.pop(value, None)
    for value in roots:
        products = _products(trees[value])
        if len(products) >= LEAST and _of_one_shape(products):
            _put_together(graph, value, products)
    eliminate_dead_code(graph)


def _part(value: Value, reader: Node, trees: dict[Value, Tree]) -> Tree | None:
    """What a sum is made of, if nobody else reads it."""
    alone = len(value._uses) == 1 and value.node().owningBlock() is reader.owningBlock()
    return trees.get(value) if alone else None


def _products(tree: Tree) -> list[Node]:
    found, waiting = [], [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Node):
            found.append(part)
        else:
            waiting += part[::-1]
    return found


def _shape(value: Value) -> object:
    """The dtype and the sizes of a tensor, if all are known."""
    kind = value.type()
    if not isinstance(kind, TensorType) or kind.scalar is None or kind.sizes() is None:
        return None
    return kind.scalar, kind.extents


def _of_one_shape(products: list[Node]) -> bool:
    for side in (0, 1):
        facts = {_shape(node._inputs[side]) for node in products}
        if len(facts) != 1 or None in facts:
            return False
    return True


def _put_together(graph: Graph, total: Value, products: list[Node]) -> None:
    with graph.insert_point_guard(total.node()):
        sides = []
        for side, axis in ((0, 1), (1, 0)):
            parts = graph.create("prim::ListConstruct", [node._inputs[side] for node in products])
            listed = graph.insertNode(parts).output().setType(ListType.ofTensors())
            sides.append(graph.insert("aten::cat", [listed, axis]))
        made = graph.insert("aten::mm", sides).setType(total.type())
    total.replaceAllUsesWith(made)
