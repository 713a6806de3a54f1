"""Expressions over names as text: text comes in, a tree of tuples goes out.

The grammar is Python's for whole numbers: + and -, then * // %, then signs; parentheses, min and max. A
name with other characters than letters, digits, _ and . stands between quotes, '' in it for a quote.
"""

from __future__ import annotations

import re

PLAIN_NAME = re.compile(r"[^\W\d][\w.]*")
Tree = int | str | tuple  # type: ignore[type-arg]  # a number, a name, or ("+", left, right)

_TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]{1,18})(?!\w)"
    rf"|(?P<name>{PLAIN_NAME.pattern})"
    r"|(?P<quoted>'(?:[^']|'')*')"
    r"|(?P<mark>//|[-+*%(),]))"
)
_CALLS = ("min", "max")
_LONGEST = 2000
_DEEPEST = 40


def parse_expression(text: str) -> Tree | None:
    """What the text says; None where it is no expression.

    >>> parse_expression("2*n + 'a b'"), parse_expression("2 n")
    (('+', ('*', 2, 'n'), 'a b'), None)
    """
    if len(text) > _LONGEST:
        return None
    try:
        return _Parser(text).whole()
    except ValueError:
        return None


class _Parser:
    """One token ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.depth = 0
        self._advance()

    def whole(self) -> Tree:
        found = self._sum()
        if self.kind != "end":
            raise ValueError
        return found

    def _advance(self) -> None:
        match = _TOKEN.match(self.text, self.end)
        if match is not None:
            self.kind, self.end = str(match.lastgroup), match.end()
            self.token = match[self.kind]
        elif self.text[self.end :].strip():
            raise ValueError
        else:
            self.kind = self.token = "end"

    def _taken(self, *marks: str) -> str | None:
        """The mark that comes next, if it is one of these."""
        if self.kind != "mark" or self.token not in marks:
            return None
        mark = self.token
        self._advance()
        return mark

    def _need(self, mark: str) -> None:
        if self._taken(mark) is None:
            raise ValueError

    def _sum(self) -> Tree:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise ValueError
        total = self._product()
        while (mark := self._taken("+", "-")) is not None:
            total = (mark, total, self._product())
        self.depth -= 1
        return total

    def _product(self) -> Tree:
        total = self._signed()
        while (mark := self._taken("*", "//", "%")) is not None:
            total = (mark, total, self._signed())
        return total

    def _signed(self) -> Tree:
        negative = False
        while (mark := self._taken("+", "-")) is not None:
            negative ^= mark == "-"
        found = self._factor()
        return ("-", 0, found) if negative else found

    def _factor(self) -> Tree:
        kind, token = self.kind, self.token
        if self._taken("("):
            inner = self._sum()
            self._need(")")
            return inner
        self._advance()
        if kind == "number":
            return int(token)
        if kind == "quoted":
            return token[1:-1].replace("''", "'")
        if kind != "name":
            raise ValueError
        return self._call(token) if token in _CALLS and self._taken("(") else token

    def _call(self, kind: str) -> Tree:
        args = [self._sum()]
        while self._taken(","):
            args.append(self._sum())
        self._need(")")
        return (kind, *args)
