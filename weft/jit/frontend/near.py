"""Names like one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """A question that a message ends with: which of the known names was meant; nothing if none is like it.

    >>> nearest("relyu", ["relu", "gelu", "add"])
    ' Did you mean relu?'
    """
    found = difflib.get_close_matches(name, sorted(set(known)), n=3, cutoff=0.7)
    return f" Did you mean {' or '.join(found)}?" if found else ""
