"""Typed attributes of operators: a frozen dataclass each, parsed from text and printed back.

    @schema
    class LeakyReluAttrs:
        alpha: float = attr(FLOAT, "slope for negative x", default=0.25, low=0)

Attributes travel as text (in files, in `Node.attrs`); the parsed dataclass is what operators read.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar, dataclass_transform

import numpy as np

from ..base.dtype import DTYPES, NAMED_DTYPES, DType, as_dtype, dtype_name
from ..base.errors import Error, InvalidValue
from ..base.extents import Extent, reads_as_expression
from ..base.layout import UNDEFINED, Layout

Params = Any  # an instance of an operator's schema, or the text attributes of one without schema
T = TypeVar("T")


class Kind(NamedTuple):
    """How one type of attribute is read from text and written back."""

    name: str
    parse: Callable[[str], Any]
    print: Callable[[Any], str] = str
    symbolic: bool = False  # whether expressions over names may stand where numbers do


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


class Field(NamedTuple):
    """One attribute of a schema."""

    name: str
    kind: Kind
    doc: str
    default: Any
    low: float | None
    high: float | None

    @property
    def type_text(self) -> str:
        """As documentation shows it: the type, and whether it may be left out."""
        if self.default is REQUIRED:
            return f"{self.kind.name}, required"
        shown = "None" if self.default is None else self.kind.print(self.default)
        return f"{self.kind.name}, optional, default={shown}"


def attr(kind: Kind, doc: str, *, default: Any = REQUIRED, low: float | None = None, high: float | None = None) -> Any:
    """Declares an attribute: its kind, meaning, default (none: required) and inclusive range."""
    metadata = {"kind": kind, "doc": doc, "low": low, "high": high}
    if default is REQUIRED:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(attr,))
def schema(cls: type[T]) -> type[T]:
    """Makes a class of `attr` declarations a frozen dataclass that `parse` can fill.

    Its methods are shared by all schemas: dataclass would generate and compile them for each, which
    is most of the time that importing the operators takes; it would parse a signature for a class
    without a docstring.
    """
    cls.__doc__ = cls.__doc__ or cls.__name__
    made = dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    made.__weft_fields__ = tuple(_field(f) for f in dataclasses.fields(made))  # type: ignore
    for name, method in _METHODS.items():
        setattr(made, name, method)
    return made


def _init(self: Any, **values: Any) -> None:
    made = self.__dict__
    for field in self.__weft_fields__:
        value = values.pop(field.name, field.default)
        if value is REQUIRED:
            raise TypeError(f"{type(self).__name__} needs the attribute {field.name!r}")
        made[field.name] = value
    if values:
        raise TypeError(f"{type(self).__name__} has no attribute {next(iter(values))!r}")


def _values(params: Any) -> tuple[Any, ...]:
    made = params.__dict__
    return tuple([made[field.name] for field in params.__weft_fields__])


def _eq(self: Any, other: object) -> bool:
    if self is other:
        return True
    return _values(self) == _values(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    known: int | None = self.__dict__.get("__hash")
    if known is None:
        known = self.__dict__["__hash"] = hash((type(self).__name__, *_values(self)))
    return known


def _state(self: Any) -> dict[str, Any]:
    return {key: value for key, value in self.__dict__.items() if key != "__hash"}


def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in self.__weft_fields__)
    return f"{type(self).__name__}({', '.join(shown)})"


def _frozen(self: Any, name: str, value: object = None) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot change {name!r} of {type(self).__name__}")


_METHODS = {
    "__init__": _init,
    "__eq__": _eq,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _frozen,
    "__delattr__": _frozen,
    "__getstate__": _state,
}


def _field(item: dataclasses.Field[Any]) -> Field:
    default = REQUIRED if item.default is dataclasses.MISSING else item.default
    meta = item.metadata
    return Field(item.name, meta["kind"], meta["doc"], default, meta["low"], meta["high"])


def fields_of(cls: type) -> tuple[Field, ...]:
    """The declared attributes of a schema, in order."""
    return cls.__weft_fields__  # type: ignore[attr-defined, no-any-return]


def is_hidden(key: str) -> bool:
    """Whether a key is of the `__hidden__` form that every operator accepts and none reads."""
    return len(key) > 4 and key.startswith("__") and key.endswith("__")


def parse(cls: type[T], attrs: Mapping[str, str], where: str) -> T:
    """The attributes as an instance of the schema.

    >>> @schema
    ... class PadAttrs:
    ...     pad_value: float = attr(FLOAT, "what to fill with", default=0.0)
    >>> parse(PadAttrs, {"pad_value": "1.5"}, "operator pad")
    PadAttrs(pad_value=1.5)
    """
    try:
        parsed: T = _parse(cls, tuple(attrs.items()))  # type: ignore[arg-type]
        return parsed
    except Error as error:
        error.at(where)
        raise


@lru_cache(maxsize=4096)
def _parse(cls: type[T], items: tuple[tuple[str, str], ...]) -> T:
    fields = {field.name: field for field in fields_of(cls)}
    values: dict[str, Any] = {}
    for key, text in items:
        if key in fields:
            values[key] = parse_field(fields[key], text)
        elif not is_hidden(key):
            raise _unknown(key, fields)
    missing = [f for f in fields.values() if f.default is REQUIRED and f.name not in values]
    if missing:
        raise InvalidValue(
            f"required attribute {missing[0].name!r} ({missing[0].kind.name}) is not given",
            hint=f"{missing[0].name}: {missing[0].doc}",
        )
    return cls(**values)


def parse_field(field: Field, text: str) -> Any:
    """One attribute's value from its text, checked against its range."""
    try:
        value = field.kind.parse(text)
    except (ValueError, OverflowError) as error:
        raise InvalidValue(
            f"attribute {field.name!r} cannot be {text!r}",
            why=f"expected {field.kind.name}" + (f": {error}" if str(error) else ""),
            hint=f"{field.name}: {field.doc}",
        ) from None
    if field.low is not None or field.high is not None:
        for item in _scalars(value):
            if not isinstance(item, str):  # an expression is checked when it has become a number
                _check_range(field, item)
    return value


def _scalars(value: Any) -> Iterable[Any]:
    """The numbers in a number, a tuple, or a tuple of tuples."""
    if not isinstance(value, tuple):
        return (value,)
    return [number for item in value for number in _scalars(item)]


def _check_range(field: Field, value: Any) -> None:
    below = field.low is not None and value is not None and not value >= field.low
    above = field.high is not None and value is not None and not value <= field.high
    if below or above:
        low = "-inf" if field.low is None else f"{field.low:g}"
        high = "inf" if field.high is None else f"{field.high:g}"
        raise InvalidValue(
            f"attribute {field.name!r} cannot be {value}",
            why=f"it must be within [{low}, {high}]",
            hint=f"{field.name}: {field.doc}",
        )


def _unknown(key: str, fields: Mapping[str, Field]) -> InvalidValue:
    close = difflib.get_close_matches(key, fields, n=1)
    known = ", ".join(f"{f.name} ({f.type_text})" for f in fields.values()) or "none"
    hint = f"did you mean {close[0]!r}?" if close else None
    return InvalidValue(f"unknown attribute {key!r}", why=f"the attributes are: {known}", hint=hint)


def canonical(params: Params) -> dict[str, str]:
    """Every attribute of parsed params, defaults included, in canonical text."""
    return {
        field.name: "None" if value is None else field.kind.print(value)
        for field in fields_of(type(params))
        for value in [getattr(params, field.name)]
    }


def text_of(value: object) -> str:
    """The text of an attribute given as a Python value, as `str` would write it.

    >>> text_of((np.int64(1), 2)), text_of(np.float32), text_of(False)
    ('(1, 2)', 'float32', 'False')
    """
    if isinstance(value, str):
        return value
    if isinstance(value, Extent):
        return value.text
    if isinstance(value, (tuple, list)):
        inner = [text_of(item) for item in value]
        brackets = "()" if isinstance(value, tuple) else "[]"
        comma = "," if len(inner) == 1 and isinstance(value, tuple) else ""
        return f"{brackets[0]}{', '.join(inner)}{comma}{brackets[1]}"
    if isinstance(value, np.ndarray):
        return text_of(tuple(value.tolist()) if value.ndim else value.item())
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return dtype_name(as_dtype(value))
    return str(value)


# How each kind reads text. The grammar of tuples: (a, b) or [a, b], a bare item for a 1-tuple,
# nothing inside for the empty one, a trailing comma, spaces, and the suffix L of old longs.
# An extent is a number, or an expression over names: 2*n + 1.

_INT = re.compile(r"\s*([+-]?[0-9]{1,19})L?\s*\Z")
_FLOAT = re.compile(r"\s*([+-]?(?:inf(?:inity)?|nan|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?)f?)\s*\Z", re.I)


def _parse_int(text: str) -> int:
    match = _INT.match(text)
    if not match:
        raise ValueError
    value = int(match[1])
    if not -(2**63) <= value < 2**63:
        raise ValueError("outside the range of 64-bit integers")
    return value


def _parse_float(text: str) -> float:
    match = _FLOAT.match(text)
    if not match:
        raise ValueError
    number = match[1]
    if number.lower().lstrip("+-").startswith(("inf", "nan")):
        return float(number)
    value = float(number.rstrip("fF"))
    if math.isinf(value):
        raise ValueError("outside the range of 64-bit floats")
    return value


def _parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("true", "1"):
        return True
    if lowered in ("false", "0"):
        return False
    raise ValueError("true, false, 1 or 0")


def split_items(text: str) -> list[str] | None:
    """The items between the brackets of `(a, (b, c))`, nested ones whole; None without brackets."""
    text = text.strip()
    if not text.startswith(("(", "[")):
        return None
    if text[-1:] != {"(": ")", "[": "]"}[text[0]] or len(text) < 2:
        raise ValueError("brackets do not match")
    items, depth, start, quoted = [], 0, 1, False
    for position in range(1, len(text) - 1):
        char = text[position]
        quoted ^= char == "'"
        if quoted:
            continue
        depth += (char in "([") - (char in ")]")
        if depth < 0:
            raise ValueError("brackets do not match")
        if char == "," and depth == 0:
            items.append(text[start:position])
            start = position + 1
    if depth:
        raise ValueError("brackets do not match")
    last = text[start:-1]
    items += [last] if last.strip() else []
    if any(not item.strip() for item in items):
        raise ValueError("an item is empty")
    return items


def tuple_of(kind: Kind, name: str) -> Kind:
    """A kind for tuples of another kind."""

    def parse_items(text: str) -> tuple[Any, ...]:
        items = split_items(text)
        return tuple(kind.parse(item.strip()) for item in ([text] if items is None else items))

    def print_items(values: Iterable[Any]) -> str:
        return "[" + ",".join(map(kind.print, values)) + "]"

    return Kind(name, parse_items, print_items, kind.symbolic)


def _sides(items: Kind, name: str, *lengths: int) -> Kind:
    """A kind for numbers along height and width; one alone stands for both."""

    def parse_sides(text: str) -> tuple[Any, ...]:
        found: tuple[Any, ...] = items.parse(text)
        found = found * 2 if len(found) == 1 else found
        if len(found) not in lengths:
            raise ValueError(f"these are {len(found)} numbers")
        return found

    return Kind(name, parse_sides, items.print, items.symbolic)


def optional(kind: Kind) -> Kind:
    """A kind that also takes None."""
    return Kind(
        f"{kind.name} or None",
        lambda text: None if text.strip() == "None" else kind.parse(text),
        lambda value: "None" if value is None else kind.print(value),
        kind.symbolic,
    )


def choice(*names: str) -> Kind:
    """A kind for one of several words."""

    def parse_choice(text: str) -> str:
        if text not in names:
            raise ValueError(f"valid values are {', '.join(names)}")
        return text

    return Kind(f"one of {{{', '.join(names)}}}", parse_choice)


def _parse_dtype(text: str) -> DType:
    if text not in NAMED_DTYPES:
        raise ValueError(f"valid values are {', '.join(DTYPES)}")
    return NAMED_DTYPES[text]


def _parse_extent(text: str) -> int | str:
    if _INT.match(text):
        return _parse_int(text)
    if not reads_as_expression(text):
        raise ValueError
    return Extent.of(text).dim


def _print_extent(value: int | str) -> str:
    return Extent.of(value).text if isinstance(value, str) else str(value)


def _parse_number(text: str) -> float | int | str:
    return _parse_float(text) if _FLOAT.match(text) else _parse_extent(text)


def _print_number(value: float | str) -> str:
    return _print_extent(value) if isinstance(value, str) else _print_float(value)


def _parse_layout(text: str) -> str:
    return Layout(text).name if text != UNDEFINED else text


def _print_float(value: float) -> str:
    return repr(float(value))


INT = Kind("int", _parse_int)
FLOAT = Kind("float", _parse_float, _print_float)
BOOL = Kind("bool", _parse_bool, lambda value: "1" if value else "0")
STR = Kind("str", str)
INTS = tuple_of(INT, "tuple of ints")
SIDES = _sides(INTS, "int or two ints", 2)
PADS = _sides(INTS, "int, two or four ints", 2, 4)
EXTENT = Kind("extent", _parse_extent, _print_extent, symbolic=True)
EXTENTS = tuple_of(EXTENT, "tuple of extents")
EXTENT_SIDES = _sides(EXTENTS, "extent or two extents", 2)
EXTENT_PAIRS = tuple_of(EXTENTS, "tuple of tuples of extents")
NUMBER = Kind("float or extent", _parse_number, _print_number, symbolic=True)
DIMS = tuple_of(optional(EXTENT), "tuple of dimensions")
FLOATS = tuple_of(FLOAT, "tuple of floats")
PAIRS = tuple_of(INTS, "tuple of tuples of ints")
DTYPE = Kind("dtype", _parse_dtype, dtype_name)
LAYOUT = Kind("layout", _parse_layout)
