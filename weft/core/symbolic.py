"""Attributes that hold extents by name: which names they are, and the same attributes with numbers.

A field of a kind that is `symbolic` takes expressions over names where it takes numbers. Shape rules see
them; what computes does not: it runs on attributes that are bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..base.extents import evaluate, names_of
from .schema import Field, Params, fields_of


def symbolic_names(params: Params) -> frozenset[str]:
    """The names in the attributes of a node.

    >>> from .schema import EXTENTS, attr, parse, schema
    >>> @schema
    ... class PartAttrs:
    ...     sizes: tuple[int, ...] = attr(EXTENTS, "how large the parts are")
    >>> sorted(symbolic_names(parse(PartAttrs, {"sizes": "(n, 12, s//2)"}, "operator part")))
    ['n', 's']
    """
    found: frozenset[str] = frozenset()
    for _, value in _symbolic(params):
        for text in _texts(value):
            found |= names_of(text)
    return found


def bound_attrs(params: Params, values: Mapping[str, int]) -> dict[str, str]:
    """The text of those attributes that hold names, with numbers for all names.

    >>> from .schema import EXTENTS, attr, parse, schema
    >>> @schema
    ... class PartAttrs:
    ...     sizes: tuple[int, ...] = attr(EXTENTS, "how large the parts are")
    >>> bound_attrs(parse(PartAttrs, {"sizes": "(n, 12, s//2)"}, "operator part"), {"n": 2, "s": 8})
    {'sizes': '[2,12,4]'}
    """
    return {field.name: field.kind.print(_bound(value, values)) for field, value in _symbolic(params)}


def _symbolic(params: Params) -> list[tuple[Field, Any]]:
    """The attributes with names in them."""
    if not hasattr(params, "__weft_fields__"):
        return []  # text, of an operator without a schema
    pairs = [(field, getattr(params, field.name)) for field in fields_of(type(params)) if field.kind.symbolic]
    return [(field, value) for field, value in pairs if any(True for _ in _texts(value))]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)


def _bound(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_bound(item, values) for item in value)
    return evaluate(value, values) if isinstance(value, str) else value
