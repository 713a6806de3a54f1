"""Inputs that a model file declares and nothing reads: no variable of the symbol stands for them, so their names are
kept on its first node, and whoever runs the model takes them and looks no further."""

from __future__ import annotations

import json
from collections.abc import Iterable

from ..core.symbol import Symbol

_UNREAD = "__unread_inputs__"


def note_unread(symbol: Symbol, inputs: Iterable[str]) -> None:
    """Keeps the names of those inputs that nothing reads."""
    read = set(symbol.list_input_names())
    unread = [name for name in inputs if name not in read]
    if unread:
        symbol.outputs[0].node.attrs[_UNREAD] = json.dumps(unread)


def unread_inputs(symbol: Symbol) -> list[str]:
    """Names that `note_unread` kept, as far as they are names."""
    try:
        names = json.loads(symbol.outputs[0].node.attrs.get(_UNREAD, "[]")) if symbol.outputs else []
    except (ValueError, RecursionError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
