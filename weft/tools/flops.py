"""Floating-point operations of a node, counted in the body that its operator is defined by: each sum, product,
quotient, minimum or function of a float is one. Kernels may do fewer (Winograd) or more (padding)."""

from __future__ import annotations

from math import prod

from .. import te
from ..base.dtype import is_float
from ..base.errors import Error
from ..base.shape import is_static
from ..core.graph import Graph
from ..core.ir import Node
from ..core.op import Op
from ..te.expr import Binary, Call, Load, Reduce, Unary
from ..te.visit import postorder


def node_flops(graph: Graph, node: Node) -> int | None:
    """How many; None where shapes are open or the operator has no such body.

    >>> from weft import symbol as sym
    >>> from weft.compiler.prepare import typed_graph
    >>> y = sym.dense(sym.Variable("x", shape=(2, 8)), units=4, use_bias=False)
    >>> graph = typed_graph(y, {}, {}, {})
    >>> node_flops(graph, graph.outputs[0].node)
    128
    """
    rule = None if node.op is None else Op.compute.get(node.op)
    if node.op is None or rule is None:
        return None
    args = []
    for entry in node.inputs:
        fact = graph.fact(entry)
        if not is_static(fact.shape) or fact.dtype is None:
            return None
        args.append(te.placeholder(fact.shape, fact.dtype))
    try:
        made = node.op.call_with(rule, node.params, *args)
    except Error:
        return None
    pending = list(made) if isinstance(made, (tuple, list)) else [made]
    seen: set[int] = set()
    total = 0
    while pending:
        tensor = pending.pop()
        if id(tensor) not in seen and tensor.body is not None:
            seen.add(id(tensor))
            total += prod(tensor.shape) * _operations(tensor.body)
            pending += tensor.inputs()
    return total


def _operations(body: te.Expr) -> int:
    """Of one element of a result. What indices are computed with is no float."""
    if isinstance(body, Reduce):
        turns = prod(int(axis.extent) for axis in body.axes)
        return turns * (_operations(body.body) + is_float(body.dtype))
    counted = (Binary, Unary, Call)
    nodes = [node for node in postorder((body,)) if not isinstance(node, Load)]
    return sum(isinstance(node, counted) and is_float(node.dtype) for node in nodes)
