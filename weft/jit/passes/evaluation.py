"""What a node gives for inputs that are known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import Error
from ..nodes import Node
from ..run.structure import STRUCTURE
from .schemas import operator_of


def evaluated(node: Node, inputs: Sequence[Any]) -> list[Any] | None:
    """The values that a node gives; None where nobody knows how, or where it fails, which is left to when it runs."""
    if node.kind() in STRUCTURE:
        call = STRUCTURE[node.kind()](node)
    else:
        operator = operator_of(node)
        if operator is None:
            return None
        call = operator.call
    try:
        result = call(*[list(value) if isinstance(value, list) else value for value in inputs])
    except (Error, ArithmeticError, ValueError, TypeError, LookupError, NotImplementedError):
        return None
    if len(node._outputs) == 1:
        return [result]
    return list(result) if isinstance(result, tuple) and len(result) == len(node._outputs) else None
