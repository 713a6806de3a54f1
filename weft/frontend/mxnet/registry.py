"""The two tables of the importer: operators that are alike, and converters for the rest.

ALIKE["relu"] = Alike("relu")                      # the same, attributes renamed at most

@converter("Reshape")
def reshape(call): ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

from ...base.errors import RegistryError
from .attributes import Signature, signature_of
from .signatures import ALIASES, SIGNATURES

Converter = Callable[[Any], Any]


class Alike(NamedTuple):
    """A weft operator that is the same but for the names of attributes."""

    op: str
    attrs: Mapping[str, str] = MappingProxyType({})  # MXNet's name -> weft's name


ALIKE: dict[str, Alike] = {}
CONVERTERS: dict[str, Converter] = {}


def converter(*op_names: str) -> Callable[[Converter], Converter]:
    """Registers a function that turns a Call into a value, or a list of values."""

    def register(function: Converter) -> Converter:
        for name in op_names:
            if name in CONVERTERS or name in ALIKE:
                raise RegistryError(f"{name} has a converter already")
            CONVERTERS[name] = function
        return function

    return register


def real_name(op_name: str) -> str:
    """The name that an operator has in MXNet 1.9.1, where this is another name of it."""
    return ALIASES.get(op_name, op_name)


@lru_cache(maxsize=2048)
def signature(op_name: str) -> Signature | None:
    """The inputs and attributes of an operator that is supported."""
    row = SIGNATURES.get(real_name(op_name))
    return None if row is None else signature_of(row)


def find(op_name: str) -> Converter | Alike | None:
    """What converts an operator."""
    name = real_name(op_name)
    return CONVERTERS.get(name) or ALIKE.get(name)


def supported() -> Iterable[str]:
    """Names, without aliases, of the operators that are converted."""
    return sorted({*CONVERTERS, *ALIKE})
