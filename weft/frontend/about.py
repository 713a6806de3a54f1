"""What a model file says that no operator needs: who made it, inputs that nothing reads, and whether its weights lie in
other files. It is kept on the first node of the symbol, so that it stays with the model through copies and files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..core.symbol import Symbol

_ABOUT = "__about__"


def note_about(symbol: Symbol, inputs: Iterable[str], metadata: Mapping[str, Any], spread: bool = False) -> None:
    """Keeps the names of those inputs that nothing reads, what the file says of itself, and whether it is `spread`:
    some of it was read from other files."""
    read = set(symbol.list_input_names())
    unread = [name for name in inputs if name not in read]
    about = {"unread": unread, "metadata": dict(metadata), **({"spread": True} if spread else {})}
    symbol.outputs[0].node.attrs[_ABOUT] = json.dumps(about)


def unread_inputs(symbol: Symbol) -> list[str]:
    """Inputs that the file declares and nothing reads: whoever runs the model takes them and looks no further."""
    names = _about(symbol).get("unread")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def is_spread(symbol: Symbol) -> bool:
    """Whether some of the model was read from files beside its own."""
    return bool(_about(symbol).get("spread"))


def metadata_of(symbol: Symbol) -> dict[str, Any]:
    """What the file says of itself."""
    metadata = _about(symbol).get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _about(symbol: Symbol) -> dict[str, Any]:
    """What was kept; nothing, if the text was changed since."""
    try:
        about = json.loads(symbol.outputs[0].node.attrs.get(_ABOUT, "{}")) if symbol.outputs else {}
    except (ValueError, RecursionError):
        return {}
    return about if isinstance(about, dict) else {}
