"""Graph attributes that files can hold: type tags, checks, and NNVM's encoding of facts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..base.dtype import dtype_code, dtype_of_code
from ..base.errors import InvalidValue, ShapeError
from ..base.layout import UNDEFINED, Layout
from ..base.shape import Shape


class JsonAttr(NamedTuple):
    """A graph attribute that files can hold: its type tag and value."""

    tag: str
    value: Any


def nnvm_shape(shape: Shape) -> list[int]:
    """A shape where 0 and [] stand for unknown.

    >>> nnvm_shape((2, None)), nnvm_shape(None)
    ([2, 0], [])
    """
    return [] if shape is None else [dim if isinstance(dim, int) else 0 for dim in shape]


def from_nnvm_shape(dims: Sequence[int]) -> Shape:
    """The inverse of `nnvm_shape`."""
    if any(dim < 0 for dim in dims):
        raise ShapeError(f"shape {list(dims)} has a negative dimension")
    return tuple(None if dim == 0 else int(dim) for dim in dims) if len(dims) else None


FACT_KEYS: dict[str, tuple[Any, Any]] = {
    "shape": (nnvm_shape, None),
    "dtype": (lambda dtype: -1 if dtype is None else dtype_code(dtype), None),
    "layout": (lambda layout: layout.name, Layout()),
}
FACT_DECODERS: dict[str, Any] = {
    "shape": from_nnvm_shape,
    "dtype": lambda code: None if code == -1 else dtype_of_code(code),
    "layout": lambda name: Layout(name or UNDEFINED),
}
FACT_TAGS = {"shape": "list_shape", "dtype": "list_int", "layout": "list_layout"}


def _is_ints(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(_is_int(item) for item in value)


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _is_strs(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value)


JSON_TYPES: dict[str, Any] = {
    "str": lambda v: isinstance(v, str),
    "int": _is_int,
    "size_t": lambda v: _is_int(v) and v >= 0,
    "list_int": _is_ints,
    "list_str": _is_strs,
    "list_shape": lambda v: isinstance(v, (list, tuple)) and all(map(_is_ints, v)),
    "list_layout": _is_strs,
    "dict_str_int": lambda v: (
        isinstance(v, dict) and all(isinstance(key, str) and _is_int(item) for key, item in v.items())
    ),
}


def checked_json_attr(tag: Any, value: Any) -> JsonAttr:
    """A JsonAttr, if the tag is known and the value fits it."""
    if not isinstance(tag, str) or tag not in JSON_TYPES:
        raise InvalidValue(f"unknown attribute type {tag!r}", why="known: " + ", ".join(JSON_TYPES))
    try:
        plain = value if isinstance(value, str) else json.loads(json.dumps(value, default=int))
    except (TypeError, ValueError, OverflowError, RecursionError):
        raise InvalidValue(f"value of type {type(value).__name__} is not a {tag}") from None
    if not JSON_TYPES[tag](plain):
        raise InvalidValue(f"value is not a {tag}: {json.dumps(plain)[:80]}")
    return JsonAttr(tag, plain)
