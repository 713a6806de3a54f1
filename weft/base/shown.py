"""How what a tool found shows itself: as text that fits a width, as plain data for JSON, and as a little HTML.

class Found(Shown):            # a dataclass
    def text(self, width=None): return table(["name", "bytes"], rows, width)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from os import PathLike, fspath
from typing import Any

import numpy as np

GAP = "  "
NARROWEST = 8  # of a column that is cut
MOST_HTML = 20_000  # characters


class Shown:
    """Base of results: `str()` is the text, `to_dict()` plain data, and notebooks show the text as it is."""

    def text(self, width: int | None = None) -> str:
        """The result as lines, none longer than `width` where tables can be cut to that."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """The result as dicts, lists, numbers and text."""
        made: dict[str, Any] = plain(self)
        return made

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return as_html(self.text())


def plain(value: Any) -> Any:
    """A value as JSON can hold it: dataclasses and named tuples as dicts, numbers that are not finite as None.

    >>> plain({"a": (1, float("nan")), "b": np.float32(0.5)})
    {'a': [1, None], 'b': 0.5}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: plain(item) for name, item in zip(value._fields, value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return fspath(value) if isinstance(value, PathLike) else str(value)


def as_html(text: str) -> str:
    """Text as it is, escaped; of very much, the beginning.

    >>> as_html("a < b")
    '<pre>a &lt; b</pre>'
    """
    cut = text if len(text) <= MOST_HTML else text[:MOST_HTML] + "\n..."
    import html  # for notebooks alone

    return f"<pre>{html.escape(cut)}</pre>"


def table(headers: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None) -> str:
    """Columns of text; those of numbers stand on the right. What is wider than `width` is cut in its widest columns;
    where that is not enough, the last columns are left out, whose names a line at the end tells.

    >>> print(table(["name", "ms"], [["conv", 1.25], ["a long name", 10.5]], width=14))
    name        ms
    conv      1.25
    a long …  10.5
    """
    cells = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(headers, *cells)) if cells else [(header,) for header in headers]
    widths = [max(map(len, column)) for column in columns]
    right = [all(_is_number(cell) for cell in column[1:]) and len(column) > 1 for column in columns]
    _narrow(widths, right, width)
    lines = []
    for row in (list(headers), *cells):
        shown = [_cut(cell, size) for cell, size in zip(row, widths)]
        placed = [cell.rjust(size) if side else cell.ljust(size) for cell, size, side in zip(shown, widths, right)]
        lines.append(GAP.join(placed).rstrip())
    left_out = [name for name in headers[len(widths) :] if name]
    return "\n".join([*lines, *_filled(f"no room for: {', '.join(left_out)}", width)] if left_out else lines)


def _filled(text: str, width: int | None) -> list[str]:
    """Text in lines that fit."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and width is not None and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _narrow(widths: list[int], right: Sequence[bool], width: int | None) -> None:
    """Takes from the widest column of words, a letter at a time, until lines fit or nothing can be cut; then the last
    columns, until two are left."""
    words = [column for column, side in enumerate(right) if not side]
    while width is not None and sum(widths) + len(GAP) * (len(widths) - 1) > width:
        widest = max(words, key=lambda column: widths[column]) if words else None
        if widest is not None and widths[widest] > NARROWEST:
            widths[widest] -= 1
        elif len(widths) > 2:
            widths.pop()
            words = [column for column in words if column < len(widths)]
        else:
            return


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def _is_number(text: str) -> bool:
    """Whether text is a number, maybe with a unit of a letter or two behind it, or stands for one that is not there."""
    bare = text.removeprefix("-").rstrip("%x").split(" ")[0]
    return (
        text in ("", "-") or bare.replace(".", "", 1).replace("e-", "").replace("e+", "").isdecimal() or bare == "inf"
    )


def rows(pairs: Sequence[tuple[str, object]]) -> str:
    """Lines of a name and a value.

    >>> print(rows([("weft", 1), ("target", "cpu")]))
    weft    1
    target  cpu
    """
    size = max((len(name) for name, _ in pairs), default=0)
    return "\n".join(f"{name.ljust(size)}{GAP}{value}".rstrip() for name, value in pairs)


_SIZES = ((2**30, "GB"), (2**20, "MB"), (2**10, "kB"))
_COUNTS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def bytes_text(count: float) -> str:
    """Bytes for people.

    >>> bytes_text(3 * 2**20), bytes_text(12)
    ('3.0 MB', '12 B')
    """
    return next((f"{count / size:.1f} {unit}" for size, unit in _SIZES if count >= size), f"{count:.0f} B")


def count_text(count: float) -> str:
    """A large number for people.

    >>> count_text(4_100_000_000), count_text(12)
    ('4.10 G', '12')
    """
    return next((f"{count / size:.2f} {unit}" for size, unit in _COUNTS if count >= size), f"{count:.0f}")
