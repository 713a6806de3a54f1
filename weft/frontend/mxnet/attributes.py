"""Attributes of MXNet nodes: text comes in; numbers, tuples and names go out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from ...base.errors import FormatError
from .signatures import ROWS

_LARGEST = 2**63
_TRUE, _FALSE = ("True", "true", "1"), ("False", "false", "0")
_TUPLE = re.compile(r"\s*[(\[](.*)[)\]]\s*", re.DOTALL)


class Attribute(NamedTuple):
    """How an attribute is read, and the text it has when it is left out (None: required)."""

    kind: str
    default: str | None


def _int(text: str) -> int:
    value = int(text.strip().rstrip("L"))
    if abs(value) >= _LARGEST:
        raise ValueError
    return value


def _bool(text: str) -> bool:
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError


def _items(text: str, item: Callable[[str], Any]) -> tuple[Any, ...]:
    """Items in brackets, or a single one without."""
    inside = _TUPLE.fullmatch(text)
    parts = (inside[1] if inside else text).split(",")
    if parts and not parts[-1].strip():
        parts.pop()
    return tuple(None if part.strip() == "None" else item(part) for part in parts)


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "int": _int,
    "float": float,
    "bool": _bool,
    "ints": lambda text: _items(text, _int),
    "floats": lambda text: _items(text, float),
    "text": str,
}


def parsed(name: str, kind: str, text: str) -> Any:
    """The value of an attribute; a kind that ends in "?" may be None.

    >>> parsed("kernel", "ints", "(3, 3)"), parsed("axis", "int?", "None"), parsed("k", "int", "2L")
    ((3, 3), None, 2)
    """
    if text == "None" and (kind.endswith("?") or kind == "text"):
        return None
    try:
        return _PARSERS[kind.rstrip("?")](text)
    except (ValueError, OverflowError):
        raise FormatError(f"attribute {name!r} is no {kind}: {text[:80]!r}") from None


class Signature(NamedTuple):
    """The inputs and attributes of an operator of MXNet."""

    inputs: tuple[str, ...]
    attributes: Mapping[str, Attribute]

    @property
    def variadic(self) -> bool:
        return any(name.endswith("*") for name in self.inputs)


def signature_of(row: str) -> Signature:
    """Reads a row such as "data weight | kernel:ints pad:ints=() no_bias:bool=0"."""
    inputs, _, rest = row.partition("|")
    attributes = {}
    for item in rest.split():
        name, _, form = item.partition(":")
        kind, has_default, default = form.partition("=")
        attributes[name] = Attribute(kind, default if has_default else None)
    return Signature(tuple(inputs.split()), attributes)


def _table() -> tuple[dict[str, str], dict[str, str]]:
    """The rows of MXNet's operators by their names, and these by the other names they have."""
    forms, names = {}, {}
    for row in ROWS.replace("\n    ", " ").splitlines():
        called, _, form = row.partition(":")
        name, *others = called.split()
        forms[name] = form
        names.update(dict.fromkeys(others, name))
    return forms, names


_FORMS, NAME_OF_ALIAS = _table()


def real_name(op_name: str) -> str:
    """The name that an operator has in MXNet 1.9.1, where this is another name of it."""
    return NAME_OF_ALIAS.get(op_name, op_name)


@lru_cache(maxsize=2048)
def signature(op_name: str) -> Signature | None:
    """The inputs and attributes of an operator that is supported."""
    form = _FORMS.get(real_name(op_name))
    return None if form is None else signature_of(form)
