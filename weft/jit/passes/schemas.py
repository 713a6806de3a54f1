"""The operator behind a node, which its kind and the types of its inputs tell."""

from __future__ import annotations

from collections.abc import Sequence

from ..matching import find_operator
from ..nodes import Node
from ..operators import Operator
from ..schema import FunctionSchema
from ..types import Type


def operator_of(node: Node) -> Operator | None:
    """The operator that a node is; None if nothing is known of it."""
    return find_operator(node.kind(), [value.type() for value in node._inputs])


def schema_for(kind: str, types: Sequence[Type]) -> FunctionSchema | None:
    operator = find_operator(kind, types)
    return None if operator is None else operator.schema


def schema_of(node: Node) -> FunctionSchema | None:
    """The schema of the operator that a node is; None if nothing is known of it."""
    operator = operator_of(node)
    return None if operator is None else operator.schema
