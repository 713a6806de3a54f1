"""Numbers that follow from the sizes of a call, and questions about them, as data: a table can be
kept in a file, read back, and computed for other sizes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .errors import FormatError

NUMBER, SIZE = "number", "size"
OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "floormod": operator.mod,
    "min": min,
    "max": max,
}
QUESTIONS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_SIGNS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "floormod": "%"}
_ASKED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_DENIED = {"eq": "!=", "ne": "==", "lt": ">=", "le": ">", "gt": "<=", "ge": "<"}
_LONGEST_TEXT = 80  # of a row, in characters
MAX_ROWS = 1 << 16  # of a table that was kept
LARGEST = (1 << 63) - 1  # a kernel's scalars are no larger


class Row(NamedTuple):
    """The number a, the size numbered a, or an operation on two rows that come before."""

    op: str
    a: int
    b: int = 0


class Guard(NamedTuple):
    """A question about two rows, and what the answer was."""

    ask: str
    a: int
    b: int
    answer: bool


class SizeTable(NamedTuple):
    """Rows in the order in which they can be computed. What was made with a table serves all sizes
    that answer its guards alike.

    >>> rows = (Row(SIZE, 0), Row(NUMBER, 2), Row("mul", 0, 1))
    >>> table = SizeTable(rows, (Guard("gt", 0, 1, True),))
    >>> table.numbers([5]), table.numbers([2])
    ([5, 2, 10], None)
    """

    rows: tuple[Row, ...]
    guards: tuple[Guard, ...]

    def numbers(self, sizes: Sequence[int]) -> list[int] | None:
        """Every row's number for some sizes; None if those are not served."""
        computed: list[int] = []
        for op, a, b in self.rows:
            if op == SIZE:
                computed.append(sizes[a])
            elif op == NUMBER:
                computed.append(a)
            elif op in ("floordiv", "floormod") and computed[b] == 0:
                return None
            else:
                computed.append(OPERATIONS[op](computed[a], computed[b]))
                if abs(computed[-1]) > LARGEST:
                    return None
        for ask, a, b, answer in self.guards:
            if QUESTIONS[ask](computed[a], computed[b]) != answer:
                return None
        return computed

    def refusal(self, sizes: Sequence[int], names: Sequence[str]) -> str:
        """What sizes that are not served would have to be, in terms of the names of sizes.

        >>> rows = (Row(SIZE, 0), Row(NUMBER, 2), Row("floormod", 0, 1), Row(NUMBER, 0))
        >>> SizeTable(rows, (Guard("eq", 2, 3, True),)).refusal([5], ["batch"])
        'sizes where batch % 2 == 0'
        """
        texts: list[str] = []
        for row in self.rows:
            text = _row_text(row, texts, names)
            texts.append(text if len(text) <= _LONGEST_TEXT else "...")
        numbers = SizeTable(self.rows, ()).numbers(sizes)
        for ask, a, b, answer in self.guards:
            if numbers is not None and QUESTIONS[ask](numbers[a], numbers[b]) != answer:
                return f"sizes where {texts[a]} {(_ASKED if answer else _DENIED)[ask]} {texts[b]}"
        return "sizes that are neither 0 nor beyond 64 bits"


def _row_text(row: Row, texts: Sequence[str], names: Sequence[str]) -> str:
    if row.op == NUMBER:
        return str(row.a)
    if row.op == SIZE:
        return names[row.a]
    a, b = texts[row.a], texts[row.b]
    if row.op not in _SIGNS:
        return f"{row.op}({a}, {b})"
    return " ".join((_in_brackets(a), _SIGNS[row.op], _in_brackets(b)))


def _in_brackets(text: str) -> str:
    return f"({text})" if " " in text and not text.startswith(("min(", "max(")) else text


def read_table(rows: Any, guards: Any, sizes: int) -> SizeTable:
    """A table for so many sizes, from the lists that its rows and guards are in JSON."""
    if not _are_lists(rows, 3) or not _are_lists(guards, 4):
        raise FormatError("a table of sizes is no list of rows and guards")
    table = SizeTable(tuple(Row(*row) for row in rows), tuple(Guard(*guard) for guard in guards))
    for place, row in enumerate(table.rows):
        if not _is_row(row, place, sizes):
            raise FormatError(f"row {place} of a table of sizes is {row!r}")
    for guard in table.guards:
        known = type(guard.ask) is str and guard.ask in QUESTIONS and type(guard.answer) is bool
        if not known or not _are_below(len(rows), guard.a, guard.b):
            raise FormatError(f"a guard of a table of sizes is {guard!r}")
    return table


def _are_lists(rows: Any, length: int) -> bool:
    if type(rows) is not list or len(rows) > MAX_ROWS:
        return False
    return all(type(item) is list and len(item) == length for item in rows)


def _is_row(row: Row, place: int, sizes: int) -> bool:
    if row.op == NUMBER:
        return type(row.a) is int and abs(row.a) <= LARGEST
    if row.op == SIZE:
        return _are_below(sizes, row.a)
    return type(row.op) is str and row.op in OPERATIONS and _are_below(place, row.a, row.b)


def _are_below(end: int, *numbers: Any) -> bool:
    return all(type(number) is int and 0 <= number < end for number in numbers)
