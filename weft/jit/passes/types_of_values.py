"""Types of values made less exact: shapes forgotten, numbers as tensors, implicit expansion left out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...eager.tensor.device import device as Device
from ...eager.tensor.tensor import wrap
from ..constants import constant_of
from ..graph import Graph
from ..nodes import Value, inside
from ..types import (
    BoolType,
    DictType,
    FloatType,
    FutureType,
    IntType,
    ListType,
    NumberType,
    OptionalType,
    TensorType,
    TupleType,
    Type,
)
from .order import subgraphs_of


def _values(graph: Graph) -> Iterator[Value]:
    """All values of a graph."""
    yield from graph.inputs()
    for node in inside(graph.block()):
        yield from node.outputs()
        for block in node._blocks:
            yield from block.inputs()


def erase_shape_information(graph: Graph) -> None:
    """Forgets all that is known of tensors, in graphs that are attributes of nodes too.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Float(2, 3)):
    ...   return (%x)''')
    >>> erase_shape_information(graph)
    >>> next(graph.inputs()).type().str()
    'Tensor'
    """
    waiting, done = [graph], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in done:
            continue
        done.add(id(part))
        for value in _values(part):
            value.setType(plain(value.type()))
        waiting += [inner for node in inside(part.block()) for inner in subgraphs_of(node)]


def plain(kind: Type) -> Type:
    """A type with nothing known of the tensors in it."""
    if isinstance(kind, TensorType):
        return TensorType.get()  # type: ignore[no-any-return]
    parts = [plain(part) for part in kind.containedTypes()]
    if type(kind) is TupleType:
        return TupleType(parts)
    return type(kind)(*parts) if type(kind) in (ListType, OptionalType, DictType, FutureType) else kind


_NUMBERS: dict[type[Type], TensorType] = {
    IntType: TensorType("Long", place=Device("cpu")),
    FloatType: TensorType("Double", place=Device("cpu")),
    BoolType: TensorType("Bool", place=Device("cpu")),
    NumberType: TensorType(place=Device("cpu")),
}
_ELEMENTS: dict[type[Type], type] = {IntType: np.int64, FloatType: np.float64, BoolType: np.bool_}


_CASTS = frozenset(
    "prim::NumToTensor aten::Bool aten::Int aten::Float "
    "aten::IntImplicit aten::FloatImplicit aten::ScalarImplicit".split()
)


def erase_number_types(graph: Graph) -> None:
    """Has numbers be tensors of one element, as programs have them that know no other values; what made one of the
    other is left out."""
    for node in list(inside(graph.block())):
        if node.kind() in _CASTS and node.inputsSize() == 1:
            node.output().replaceAllUsesWith(node.input())
            node.destroy()
        elif node.kind() == "prim::Constant" and type(node.output().type()) in _ELEMENTS:
            element = _ELEMENTS[type(node.output().type())]
            node._set("t", "value", wrap(np.array(constant_of(node), element)))
    for value in _values(graph):
        value.setType(_NUMBERS.get(type(value.type()), value.type()))


def remove_expands(graph: Graph) -> None:
    """Leaves out `expand` where operators do it by themselves: that was written by a tracer, not by the user."""
    for node in graph.findAllNodes("aten::expand"):
        if node.inputsSize() == 3 and node._inputs[2].toIValue() is True:
            node.output().replaceAllUsesWith(node._inputs[0])
            node.destroy()
