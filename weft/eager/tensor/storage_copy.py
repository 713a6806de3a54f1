"""The pairwise copy registry of typed storages: every destination class has a list of entries, one
per source class, and copying finds the first that fits."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ...base.errors import InvalidType, RunError
from .convert import convert

CopyFunction = Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class CopyEntry:
    """How elements of one source class get into the destination whose list this is in."""

    source: type
    function: CopyFunction
    non_blocking: bool = False
    broadcast: bool = False


COPY_HANDLERS: dict[type, list[CopyEntry]] = {}


def insert_storage_copy_function(
    source: type, handlers: list[CopyEntry], function: CopyFunction, non_blocking: bool = False, broadcast: bool = False
) -> None:
    """Adds a way to copy from a class of storages to the list of a destination."""
    if not isinstance(source, type) or not callable(function):
        raise InvalidType("insert_storage_copy_function takes a class, a list and a function")
    handlers.append(CopyEntry(source, function, non_blocking, broadcast))


def register_copies(
    destination: type, sources: Iterable[type], registry: dict[type, list[CopyEntry]] = COPY_HANDLERS
) -> None:
    """Makes a destination class take elements of those source classes; twice is once."""
    handlers = registry.setdefault(destination, [])
    known = {entry.source for entry in handlers}
    for source in sources:
        if source not in known:
            insert_storage_copy_function(source, handlers, copy_elements)


def copy_elements(destination: Any, source: Any) -> None:
    """Converts every element of the source, which has as many as the destination."""
    if len(source) != len(destination):
        raise RunError(f"size does not match, self has {len(destination)} elements but src has {len(source)}")
    destination._elements()[...] = convert(source._elements(), destination.dtype.numpy)


def find_copy(
    destination: type, source: type, non_blocking: bool = False, registry: dict[type, list[CopyEntry]] = COPY_HANDLERS
) -> CopyEntry:
    """The entry that copies between two classes; one that blocks will do if none else is there."""
    handlers = [entry for kind in destination.__mro__ for entry in registry.get(kind, ())]
    for wanted in (True, False) if non_blocking else (False,):
        for entry in handlers:
            if entry.non_blocking == wanted and issubclass(source, entry.source):
                return entry
    raise InvalidType(f"copy from {_name(source)} to {_name(destination)} isn't implemented")


def _name(kind: type) -> str:
    return f"weft.{kind.__name__}" if kind.__module__ == "weft" else kind.__name__


def copy_pairs() -> list[tuple[type, type]]:
    """Every (destination, source) that is registered."""
    return [(kind, entry.source) for kind, handlers in COPY_HANDLERS.items() for entry in handlers]
