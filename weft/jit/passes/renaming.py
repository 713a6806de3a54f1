"""Graphs in one form: values numbered in the order in which they are defined, so that equal graphs are equal text."""

from __future__ import annotations

from ..graph import Graph
from ..nodes import Node, Value, inside


def canonicalize(graph: Graph, keep_names: bool = True) -> Graph:
    """A copy whose values are numbered in order, without names; inputs keep theirs, unless that is not asked for.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %named : Tensor = aten::relu(%x)
    ...   return (%named)''')
    >>> print(canonicalize(graph), end="")
    graph(%x : Tensor):
      %1 : Tensor = aten::relu(%x)
      return (%1)
    """
    made = graph.copy()
    number = 0
    for node in (made.param_node(), *inside(made.block())):
        for value in _defined_at(node):
            value._unique, number = number, number + 1
            if not (keep_names and node is made.param_node()):
                value.setDebugName("")
    made._uniques = number
    return made


def _defined_at(node: Node) -> list[Value]:
    """What a node gives, and what its blocks take."""
    return [*node._outputs, *[value for block in node._blocks for value in block.inputs()]]
