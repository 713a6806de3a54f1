"""The operators of MXNet that are converted, as a table for the documentation."""

from __future__ import annotations

from ..building import Alike
from . import importer  # noqa: F401  registers the converters
from .attributes import NAME_OF_ALIAS
from .registry import TABLE


def coverage_table() -> str:
    """One row an operator, in Markdown: its other names, and what it becomes."""
    others: dict[str, list[str]] = {}
    for alias, name in NAME_OF_ALIAS.items():
        others.setdefault(name, []).append(f"`{alias}`")
    rows = ["| operator | also called | as |", "|---|---|---|"]
    for (_, name), (rule, *_others) in sorted(TABLE.rules.items()):
        counterpart = f"`{rule.convert.op}`" if isinstance(rule.convert, Alike) else "converter"
        rows.append(f"| `{name}` | {' '.join(others.get(name, []))} | {counterpart} |")
    return "\n".join(rows) + "\n"
