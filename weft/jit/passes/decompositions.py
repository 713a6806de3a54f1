"""Operators that are several others in one, taken apart and put together."""

from __future__ import annotations

from ..graph import Graph
from ..nodes import Node, Value
from ..types import TensorType
from .constants import propagate_constants
from .dead_code import eliminate_dead_code
from .rewriting import rewrite_pattern


def decompose_ops(graph: Graph) -> None:
    """addmm(b, x, y) -> b + x @ y, so that the sum can be done with what follows it.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%b : Tensor, %x : Tensor, %y : Tensor):
    ...   %n : int = prim::Constant[value=1]()
    ...   %a : Tensor = aten::addmm(%b, %x, %y, %n, %n)
    ...   return (%a)''')
    >>> decompose_ops(graph)
    >>> [node.kind() for node in graph.nodes()]
    ['prim::Constant', 'aten::mm', 'aten::add']
    """
    changed = False
    for node in graph.findAllNodes("aten::addmm"):
        if node.inputsSize() != 5 or not all(_is_one(value) for value in node._inputs[3:]):
            continue
        bias, one, two = node._inputs[:3]
        with graph.insert_point_guard(node):
            unit = graph.insertConstant(1)
            product = graph.insert("aten::mm", [one, two])
            total = graph.insert("aten::add", [bias, product, unit]).setType(node.output().type())
        node.output().replaceAllUsesWith(total)
        node.destroy()
        changed = True
    if changed:
        propagate_constants(graph)
        eliminate_dead_code(graph)


def fuse_addmm(graph: Graph) -> bool:
    """b + x @ y -> addmm(b, x, y), where the sum is known to have the shape of the product. Whether there was one."""
    changed = False
    for node in graph.findAllNodes("aten::add"):
        if node.inputsSize() != 3 or not _is_one(node._inputs[2]):
            continue
        one, two = node._inputs[:2]
        for product, bias in ((one, two), (two, one)):
            if product.node().kind() == "aten::mm" and _widens_to(bias, product):
                _addmm(graph, node, bias, product.node())
                changed = True
                break
    if changed:
        eliminate_dead_code(graph)
    return changed


def _is_one(value: Value) -> bool:
    number = value.toIValue()
    return isinstance(number, (int, float)) and not isinstance(number, bool) and number == 1


def _widens_to(bias: Value, product: Value) -> bool:
    """Whether a tensor, broadcast with a product of matrices, has the shape of the product, and its dtype."""
    ours, theirs = bias.type(), product.type()
    if not isinstance(ours, TensorType) or not isinstance(theirs, TensorType):
        return False
    sizes, wanted = ours.sizes(), theirs.sizes()
    if sizes is None or wanted is None or len(sizes) > 2 or ours.scalar is None or ours.scalar != theirs.scalar:
        return False
    return all(size in (1, full) for size, full in zip(reversed(sizes), reversed(wanted)))


def _addmm(graph: Graph, node: Node, bias: Value, product: Node) -> None:
    with graph.insert_point_guard(node):
        unit = graph.insertConstant(1)
        total = graph.insert("aten::addmm", [bias, *product._inputs, unit, unit]).setType(node.output().type())
    node.output().replaceAllUsesWith(total)
    node.destroy()


_TURNED = "%t = aten::t(%w)"
_ONE = "%one : int = prim::Constant[value=1]()"


def _graph(inputs: str, *lines: str) -> str:
    return f"graph({inputs}):\n" + "".join([f"  {line}\n" for line in lines]) + "  return (%y)\n"


_LINEAR_RULES = [  # x @ w.t() + b -> linear(x, w, b)
    *[
        (
            _graph("%x, %w, %b", _TURNED, "%m = aten::matmul(%x, %t)", _ONE, f"%y = aten::{add}(%m, %b, %one)"),
            _graph("%x, %w, %b", "%y = aten::linear(%x, %w, %b)"),
        )
        for add in ("add_", "add")
    ],
    (
        _graph("%x, %w, %b", _TURNED, _ONE, "%y = aten::addmm(%b, %x, %t, %one, %one)"),
        _graph("%x, %w, %b", "%y = aten::linear(%x, %w, %b)"),
    ),
    (
        _graph("%x, %w", _TURNED, "%y = aten::matmul(%x, %t)"),
        _graph("%x, %w", "%b : Tensor? = prim::Constant()", "%y = aten::linear(%x, %w, %b)"),
    ),
]


def fuse_linear(graph: Graph) -> None:
    """x @ w.t() + b -> linear(x, w, b), where `b` is what a layer has: as wide as `w` is long."""
    for pattern, replacement in _LINEAR_RULES:
        rewrite_pattern(pattern, replacement, graph)
