"""Nested values as a flat list of tensors with a description of the nest, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base.errors import RunError
from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.tensor import Tensor

_KINDS: dict[type, str] = {tuple: "()", list: "[]", dict: "{}"}


class IODescriptor:
    """How tensors were nested: `(v[vv])` is a tuple of a tensor and a list of two. What is no tensor is kept."""

    def __init__(self, structure: str, kept: Sequence[Any]) -> None:
        self.structure = structure  # v a tensor, k a value that is kept, brackets around parts
        self.kept = list(kept)  # texts and None, and the keys of dicts, in order

    def __repr__(self) -> str:
        return f"IODescriptor({self.structure!r})"


def flatten(nested: Any) -> tuple[list[Tensor], IODescriptor]:
    """The tensors of nested tuples, lists and dicts, in order, and how they were nested. Numbers become tensors.

    >>> from weft import ones
    >>> tensors, nest = flatten((ones(1), [ones(2), (ones(3),)]))
    >>> len(tensors), nest
    (3, IODescriptor('(v[v(v)])'))
    """
    structure: list[str] = []
    kept: list[Any] = []
    tensors: list[Tensor] = []
    waiting: list[Any] = [nested]
    while waiting:
        value = waiting.pop()
        if isinstance(value, _Closing):
            structure.append(value.sign)
        elif type(value) in _KINDS:
            opening, closing = _KINDS[type(value)][0], _KINDS[type(value)][1]
            structure.append(opening)
            if isinstance(value, dict):
                kept.append(list(value))
                value = list(value.values())
            waiting.append(_Closing(closing))
            waiting += reversed(value)
        elif isinstance(value, Tensor):
            structure.append("v")
            tensors.append(value)
        elif isinstance(value, (bool, int, float, complex)):
            structure.append("v")
            tensors.append(FUNCTIONS["weft"]["tensor"](value))
        elif value is None or isinstance(value, str):
            structure.append("k")
            kept.append(value)
        else:
            raise RunError(
                "Only tuples, lists and Variables are supported as JIT inputs/outputs. Dictionaries and strings are "
                f"also accepted, but their usage is not recommended. Here, received an input of unsupported type: "
                f"{type(value).__name__}"
            )
    return tensors, IODescriptor("".join(structure), kept)


class _Closing:
    """The end of a container."""

    def __init__(self, sign: str) -> None:
        self.sign = sign


def unflatten(tensors: Sequence[Tensor], nest: IODescriptor) -> Any:
    """Tensors as they were nested."""
    left, kept = iter(tensors), iter(nest.kept)
    levels: list[tuple[Any, list[Any]]] = [(None, [])]  # of open containers: how to make each, and its parts
    for sign in nest.structure:
        if sign == "v":
            tensor = next(left, None)
            if tensor is None:
                raise RunError("Not enough Variables given to unflatten")
            levels[-1][1].append(tensor)
        elif sign == "k":
            levels[-1][1].append(next(kept))
        elif sign in "([":
            levels.append((tuple if sign == "(" else list, []))
        elif sign == "{":
            keys = next(kept)
            levels.append((lambda parts, keys=keys: dict(zip(keys, parts)), []))
        else:
            make, parts = levels.pop()
            levels[-1][1].append(make(parts))
    if next(left, None) is not None:
        raise RunError("Too many Variables given to unflatten")
    return levels[0][1][0]
