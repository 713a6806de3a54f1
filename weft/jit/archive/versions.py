"""Operators that meant something else before: archives say how old they are. What is older is written as what it meant,
or refused."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from ..constants import constant_of
from ..graph import Graph
from ..nodes import Node
from ..parse import parse_ir
from ..types import FloatType, NumberType, TensorType

OLDEST_WRITTEN = 3
# The first version of archives in which an operator means what it means now.
SINCE = {"aten::div": 4, "aten::div_": 4, "aten::full": 5, "aten::linspace": 8, "aten::logspace": 9, "aten::gelu": 10}
_STEPS = 100  # of linspace and logspace that do not say how many

# Before version 4 integers were divided to integers.
_DIVISION = """
graph(%a : Tensor, %b : {kind}):
  %rounding : str = prim::Constant[value="trunc"]()
  %float : bool = aten::is_floating_point(%a)
  {test}
  %result : Tensor = prim::If(%exact)
    block0():
      %quotient : Tensor = aten::{name}(%a, %b)
      -> (%quotient)
    block1():
      %whole : Tensor = aten::{name}(%a, %b, %rounding)
      -> (%whole)
  return (%result)
"""
_BOTH = "%other : bool = aten::is_floating_point(%b)\n  %exact : bool = aten::__or__(%float, %other)"
_FIRST = "%no : bool = prim::Constant[value=0]()\n  %exact : bool = aten::__or__(%float, %no)"
_NUMBER = "%other : bool = prim::isinstance[types=[float]](%b)\n  %exact : bool = aten::__or__(%float, %other)"
_INTO = """
graph(%a : Tensor, %b : Tensor, %out : Tensor):
  %rounding : str = prim::Constant[value="trunc"]()
  %float : bool = aten::is_floating_point(%a)
  %other : bool = aten::is_floating_point(%b)
  %third : bool = aten::is_floating_point(%out)
  %either : bool = aten::__or__(%float, %other)
  %exact : bool = aten::__or__(%either, %third)
  %result : Tensor = prim::If(%exact)
    block0():
      %quotient : Tensor = aten::div(%a, %b, %out)
      -> (%quotient)
    block1():
      %whole : Tensor = aten::div(%a, %b, %rounding, %out)
      -> (%whole)
  return (%result)
"""


def version_of(graphs: Iterable[Graph]) -> int:
    """The version that an archive of some graphs has: readers that are older would misunderstand it."""
    used = [since for graph in graphs for kind, since in SINCE.items() if graph.findNode(kind) is not None]
    return max([OLDEST_WRITTEN, *used])


def upgrade_source(definition: ast.FunctionDef, version: int) -> None:
    """Gives calls what they had to say since: the steps of linspace and logspace."""
    for call in ast.walk(definition):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        name = f"aten::{call.func.attr}"
        if name in ("aten::linspace", "aten::logspace") and version < SINCE[name]:
            _give_steps(call)


def _give_steps(call: ast.Call) -> None:
    def is_none(node: ast.expr) -> bool:
        return isinstance(node, ast.Constant) and node.value is None

    steps = ast.copy_location(ast.Constant(_STEPS), call)
    if len(call.args) == 2 and not any(given.arg == "steps" for given in call.keywords):
        call.args.append(steps)
    elif len(call.args) > 2 and is_none(call.args[2]):
        call.args[2] = steps
    for given in call.keywords:
        if given.arg == "steps" and is_none(given.value):
            given.value = steps


def upgrade_graph(graph: Graph, version: int) -> None:
    """Has nodes of an older program do what they did."""
    for kind, upgrade in _UPGRADES.items():
        for node in graph.findAllNodes(kind) if version < SINCE[kind] else []:
            upgrade(graph, node)


def _upgrade_division(graph: Graph, node: Node) -> None:
    inputs = list(node.inputs())
    if not isinstance(inputs[0].type(), TensorType) or len(inputs) > 3:
        return
    if len(inputs) == 3 and not isinstance(inputs[2].type(), TensorType):
        return  # says how it rounds
    kind: Any = inputs[1].type()
    if isinstance(kind, FloatType):
        return
    spelling, test = "int", _FIRST
    if isinstance(kind, TensorType):
        spelling, test = "Tensor", _BOTH
    elif isinstance(kind, NumberType):
        spelling, test = "Scalar", _NUMBER
    text = _INTO if len(inputs) == 3 else _DIVISION.format(kind=spelling, name=node.kind()[6:], test=test)
    with graph.insert_point_guard(node):
        (result,) = graph.insertGraph(parse_ir(text), inputs)
    node.output().replaceAllUsesWith(result)
    node.destroy()


def _upgrade_full(graph: Graph, node: Node) -> None:
    """Before version 5 a tensor was full of floats, unless its dtype was said."""
    if node.inputsSize() < 3:
        return
    value, kind = node.inputsAt(1), node.inputsAt(2).node()
    if kind.kind() != "prim::Constant" or constant_of(kind) is not None or isinstance(value.type(), FloatType):
        return
    with graph.insert_point_guard(node):
        number = graph.insert("aten::Float", [value])
    number.setType(FloatType.get())
    node.replaceInput(1, number)


_UPGRADES = {"aten::div": _upgrade_division, "aten::div_": _upgrade_division, "aten::full": _upgrade_full}
