"""Gradients that are known to be zero, or not, taken out of the graphs that compute gradients."""

from __future__ import annotations

from ..graph import Graph
from ..nodes import Block, Node, Value
from ..types import TensorType
from .dead_code import eliminate_dead_code
from .order import in_order, take_out_block


def specialize_autograd_zero(graph: Graph) -> None:
    """Follows where gradients are zeros that nobody computed (`prim::AutogradZero`): a sum with such a zero is the
    other part, a `prim::GradOf` of zeros alone gives zeros, and one of gradients that are all there runs its block.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Float(2)):
    ...   %z : Tensor = prim::AutogradZero()
    ...   %y : Tensor = prim::AutogradAdd(%x, %z)
    ...   return (%y)''')
    >>> specialize_autograd_zero(graph)
    >>> next(graph.outputs()).debugName()
    'x'
    """
    is_zero: dict[Value, bool] = {}  # what is missing may be either
    for value in graph.inputs():
        _note(value, is_zero)
    for step in in_order(graph.block()):
        if isinstance(step, Block):
            continue
        if step.kind() == "prim::AutogradZero":
            is_zero[step.output()] = True
        elif step.kind() == "prim::AutogradAdd":
            _add(step, is_zero)
        elif step.kind() == "prim::GradOf":
            _gradient_of(step, is_zero)
        elif step.kind() == "prim::AutogradAnyNonZero":
            _any_non_zero(step, is_zero)
        elif not step.kind().startswith("prim::"):
            is_zero |= {value: False for value in step._outputs if isinstance(value.type(), TensorType)}
    eliminate_dead_code(graph)


def _note(value: Value, is_zero: dict[Value, bool]) -> None:
    """What the type of an input tells."""
    kind = value.type()
    if not isinstance(kind, TensorType):
        return
    if kind.is_undefined is not None:
        is_zero[value] = kind.is_undefined
    elif kind.scalar is not None or kind.extents is not None:
        is_zero[value] = False


def _add(node: Node, is_zero: dict[Value, bool]) -> None:
    one, two = node._inputs
    if is_zero.get(one) or is_zero.get(two):
        node.output().replaceAllUsesWith(two if is_zero.get(one) else one)
        node.destroy()
    elif is_zero.get(one) is False and is_zero.get(two) is False:
        graph = node._graph
        with graph.insert_point_guard(node):
            total = graph.insert("aten::add", [one, two, 1]).setType(node.output().type())
        is_zero[total] = False
        node.output().replaceAllUsesWith(total)
        node.destroy()


def _gradient_of(node: Node, is_zero: dict[Value, bool]) -> None:
    told = [is_zero.get(value) for value in node._inputs]
    if all(zero is True for zero in told):
        made = node._graph.create("prim::AutogradZero").insertBefore(node)
        is_zero[made.output()] = True
        results = [made.output()] * node.outputsSize()
    elif all(zero is False for zero in told):
        block = node._blocks[0]
        take_out_block(block, node)
        results = list(block.outputs())
    else:
        return
    for value, result in zip(list(node._outputs), results):
        value.replaceAllUsesWith(result)
    node.destroy()


def _any_non_zero(node: Node, is_zero: dict[Value, bool]) -> None:
    told = [is_zero.get(value) for value in node._inputs]
    if False in told or None not in told:
        with node._graph.insert_point_guard(node):
            answer = node._graph.insertConstant(False in told)
        node.output().replaceAllUsesWith(answer)
        node.destroy()
