"""Nested containers of tensors: a structure in which places stand for tensors, and the tensors in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base.errors import RunError
from ...eager.tensor.tensor import Tensor

DEEPEST = 100  # of containers in containers


class Place(NamedTuple):
    """The number of a tensor."""

    number: int


class Nest(NamedTuple):
    """A container: its kind, and what is in it."""

    kind: type
    keys: tuple[Any, ...] | None
    items: tuple[Any, ...]


def flattened(value: Any, tensors: list[Tensor], depth: int = 0) -> Any:
    """The structure of a value; its tensors are added to a list."""
    if isinstance(value, Tensor):
        tensors.append(value)
        return Place(len(tensors) - 1)
    kind = type(value)
    if depth > DEEPEST:
        raise RunError(f"containers of tensors are nested more than {DEEPEST} deep", hint="give them as a flat list")
    if kind is dict or (isinstance(value, dict) and hasattr(kind, "fromkeys")):
        return Nest(kind, tuple(value), tuple([flattened(item, tensors, depth + 1) for item in value.values()]))
    if isinstance(value, (tuple, list)):
        return Nest(kind, None, tuple([flattened(item, tensors, depth + 1) for item in value]))
    return value


def built(structure: Any, tensors: Sequence[Any]) -> Any:
    """A value of its structure."""
    if type(structure) is Place:
        return tensors[structure.number]
    if type(structure) is not Nest:
        return structure
    items = [built(item, tensors) for item in structure.items]
    kind: Any = structure.kind
    if structure.keys is not None:
        made = kind()
        made.update(zip(structure.keys, items))
        return made
    return kind(*items) if hasattr(kind, "_fields") else kind(items)
