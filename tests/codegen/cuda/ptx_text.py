"""What the text of a kernel says about how it runs."""

from __future__ import annotations

import re

_LOAD, _SUM = re.compile(r"\bld\.global\.v"), re.compile(r"\b(fma|mul|add)(\.rn)?\.f32\b")


def loads_at_once(ptx: str) -> int:
    """The most loads of vectors that follow each other before anything is computed with floats."""
    longest = run = 0
    for line in ptx.splitlines():
        run = run + 1 if _LOAD.search(line) else 0 if _SUM.search(line) else run
        longest = max(longest, run)
    return longest
