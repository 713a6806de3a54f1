"""The operator behind a node, which its kind and the types of its inputs tell."""

from __future__ import annotations

from collections.abc import Sequence

from ..matching import takes
from ..nodes import Node
from ..operators import Operator, operators_of
from ..schema import FunctionSchema
from ..types import TensorType, Type

_found: dict[tuple[str, ...], Operator | None] = {}  # by the kind of a node and the types of its inputs


def operator_for(kind: str, types: Sequence[Type]) -> Operator | None:
    """The operator of a name that takes values of some types; None if there is none."""
    key = (kind, *["Tensor" if isinstance(each, TensorType) else each.str() for each in types])
    if key not in _found:
        _found[key] = next((operator for operator in operators_of(kind) if takes(operator, types)), None)
    return _found[key]


def operator_of(node: Node) -> Operator | None:
    """The operator that a node is; None if nothing is known of it."""
    return operator_for(node.kind(), [value.type() for value in node._inputs])


def schema_for(kind: str, types: Sequence[Type]) -> FunctionSchema | None:
    operator = operator_for(kind, types)
    return None if operator is None else operator.schema


def schema_of(node: Node) -> FunctionSchema | None:
    """The schema of the operator that a node is; None if nothing is known of it."""
    operator = operator_of(node)
    return None if operator is None else operator.schema
