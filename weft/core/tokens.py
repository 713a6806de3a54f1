"""Tokens of the text form of graphs: text comes in, words and names and marks go out, one ahead.

Whatever is wrong is a FormatError with its line and column.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

from ..base.errors import Error, FormatError
from .text import PLAIN_NAME

T = TypeVar("T")

_QUOTED = r"'[^'\\\n]*(?:\\.[^'\\\n]*)*'"
_SKIPPED = re.compile(r"(?:\s+|#[^\n]*)*")
_TOKEN = re.compile(
    rf"%(?:(?P<id>[0-9]+)(?:\.(?P<output>[0-9]+))?|(?P<node>{PLAIN_NAME}|{_QUOTED}))"
    r"(?::(?P<version>[0-9]+))?"
    rf"|(?P<number>-?[0-9]+)|(?P<word>{PLAIN_NAME})|(?P<quoted>{_QUOTED})"
    r"|(?P<mark>[(){}\[\],=:?])"
)
_NODE_PARTS = ("id", "output", "node", "version")
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"\\": "\\", "'": "'", "n": "\n", "r": "\r", "t": "\t"}
_decode = json.JSONDecoder().raw_decode
MAX_DIGITS = 18


class Tokens:
    """The text cut into tokens, one ahead."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.start = self.end = 0
        self.advance()

    def advance(self) -> None:
        skipped = _SKIPPED.match(self.text, self.end)
        assert skipped is not None
        self.start = skipped.end()
        self.match = _TOKEN.match(self.text, self.start)
        self.kind = self.match.lastgroup if self.match else None
        if self.match is not None:
            self.end = self.match.end()
            if self.kind in _NODE_PARTS:
                self.kind = "node"
        elif self.start < len(self.text):
            raise self.wrong("a word, a name or a mark")

    # Errors

    def where(self, offset: int) -> str:
        line = self.text.count("\n", 0, offset) + 1
        column = offset - self.text.rfind("\n", 0, offset)
        return f"line {line}, column {column}"

    def wrong(self, wanted: str) -> FormatError:
        found = self.text[self.start : self.start + 20].split("\n")[0]
        shown = repr(found) if self.start < len(self.text) else "the end of the text"
        return FormatError(f"expected {wanted}, found {shown}", where=self.where(self.start))

    def error(self, error: Error, offset: int) -> FormatError:
        """The same error, said of a place in the text."""
        where = self.where(offset) + (f", {error.where}" if error.where else "")
        return FormatError(error.what, where=where, why=error.why, hint=error.hint)

    # What may stand next

    def token(self) -> str:
        assert self.match is not None
        return self.match[0]

    def mark(self, mark: str) -> bool:
        """Takes a mark if it is next."""
        if self.kind == "mark" and self.token() == mark:
            self.advance()
            return True
        return False

    def need(self, mark: str) -> None:
        if not self.mark(mark):
            raise self.wrong(repr(mark))

    def word(self, word: str) -> bool:
        """Takes a word if it is next."""
        if self.kind == "word" and self.token() == word:
            self.advance()
            return True
        return False

    def name(self) -> str:
        """A word, or text between quotes."""
        if self.kind not in ("word", "quoted"):
            raise self.wrong("a name")
        text = self.token()
        name = text if self.kind == "word" else self.unquoted(text)
        self.advance()
        return name

    def string(self) -> str:
        if self.kind != "quoted":
            raise self.wrong("text between quotes")
        text = self.unquoted(self.token())
        self.advance()
        return text

    def number(self) -> int:
        if self.kind != "number":
            raise self.wrong("a number")
        value = self.digits(self.token())
        self.advance()
        return value

    def digits(self, text: str) -> int:
        if len(text) > MAX_DIGITS:
            raise FormatError("a number has too many digits", where=self.where(self.start))
        return int(text)

    def unquoted(self, text: str) -> str:
        inner = text[1:-1]
        return _ESCAPED.sub(self._unescaped, inner) if "\\" in inner else inner

    def _unescaped(self, found: re.Match[str]) -> str:
        code, char = found.groups()
        if code is None and char not in _ESCAPES:
            raise FormatError(f"unknown escape \\{char}", where=self.where(self.start))
        return chr(int(code, 16)) if code is not None else _ESCAPES[char]

    def node(self) -> tuple[int | str, int | None, int | None]:
        """A node's number or name, then output and version if they are told."""
        if self.kind != "node" or self.match is None:
            raise self.wrong("a name that begins with %")
        number, output, name, version = (self.match[part] for part in _NODE_PARTS)
        key: int | str
        if number is not None:
            key = self.digits(number)
        else:
            key = self.unquoted(name) if name.startswith("'") else name
        index, made = (None if text is None else self.digits(text) for text in (output, version))
        self.advance()
        return key, index, made

    def listed(self, opening: str, closing: str, item: Callable[[], T]) -> list[T]:
        """Items between brackets, separated by commas."""
        self.need(opening)
        items: list[T] = []
        while not self.mark(closing):
            if items:
                self.need(",")
            items.append(item())
        return items

    def json_value(self) -> Any:
        """What follows `=`, as JSON."""
        if not (self.kind == "mark" and self.token() == "="):
            raise self.wrong("'='")
        skipped = _SKIPPED.match(self.text, self.end)
        assert skipped is not None
        try:
            value, self.end = _decode(self.text, skipped.end())
        except (ValueError, RecursionError) as error:
            where = self.where(skipped.end())
            raise FormatError("this is not JSON", where=where, why=str(error)[:200]) from None
        self.advance()
        return value
