"""The two tables of the importer: operators that are alike, and converters for the rest.

ALIKE["Relu"] = Alike("relu")                      # the same, attributes renamed at most

@converter("Reshape", since=5)                     # from opset 5 on, until a later one
def reshape(call): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

Converter = Callable[[Any], Any]


class Alike(NamedTuple):
    """A weft operator that is the same but for the names of attributes."""

    op: str
    attrs: Mapping[str, str] = MappingProxyType({})  # ONNX name -> weft name


ALIKE: dict[str, Alike] = {}
_converters: dict[tuple[str, str], list[tuple[int, Converter]]] = {}


def converter(*op_types: str, since: int = 1, domain: str = "") -> Callable[[Converter], Converter]:
    """Registers a function that turns a Call into a value, a list of values, or None for absent
    ones; it holds from opset `since` until another one does."""

    def register(function: Converter) -> Converter:
        for op_type in op_types:
            rows = _converters.setdefault((domain, op_type), [])
            rows.append((since, function))
            rows.sort(key=lambda row: row[0])
        return function

    return register


def find(domain: str, op_type: str, opset: int) -> Converter | Alike | None:
    """What converts an operator of an opset."""
    rows = [function for since, function in _converters.get((domain, op_type), ()) if since <= opset]
    if rows:
        return rows[-1]
    return ALIKE.get(op_type) if not domain else None


def supported() -> Iterable[str]:
    """Names of the operators of ONNX's own domain that have a converter."""
    return sorted({name for domain, name in _converters if not domain} | set(ALIKE))
