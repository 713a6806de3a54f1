"""Nested containers of tensors: a structure in which places stand for tensors, and the tensors in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
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
    if is_dataclass(kind):
        names = tuple(field.name for field in fields(kind) if hasattr(value, field.name))
        return Nest(kind, names, tuple([flattened(getattr(value, name), tensors, depth + 1) for name in names]))
    if isinstance(value, (tuple, list)):
        return Nest(kind, None, tuple([flattened(item, tensors, depth + 1) for item in value]))
    return value


def leaves(structure: Any) -> list[Any]:
    """What is in a structure beside tensors."""
    found, stack = [], [structure]
    while stack:
        item = stack.pop()
        if type(item) is Nest:
            stack += item.items
        elif type(item) is not Place:
            found.append(item)
    return found


def built(structure: Any, tensors: Sequence[Any]) -> Any:
    """A value of its structure."""
    if type(structure) is Place:
        return tensors[structure.number]
    if type(structure) is not Nest:
        return structure
    items = [built(item, tensors) for item in structure.items]
    kind: Any = structure.kind
    if is_dataclass(structure.kind):
        made: Any = object.__new__(structure.kind)
        for name, item in zip(structure.keys or (), items):
            object.__setattr__(made, name, item)  # also of frozen ones
        return made
    if structure.keys is not None:
        made = kind()
        made.update(zip(structure.keys, items))
        return made
    return kind(*items) if hasattr(kind, "_fields") else kind(items)
