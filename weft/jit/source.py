"""Text that is read word by word, with errors that show the place: for the IR, for types, for schemas."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from ..base.errors import RunError


class Token(NamedTuple):
    kind: str  # ident, number, string, newline, indent, dedent, eof; else the sign itself
    text: str
    start: int


_WORDS = re.compile(
    r"(?P<space>[ \t\r\f]+|\\\n)|(?P<comment>\#[^\n]*)|(?P<newline>\n)"
    r"|(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?j?)"
    r"|(?P<ident>[A-Za-z_][A-Za-z0-9_]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\')'
    r"|(?P<sign>->|::|\.\.\.|[-+*/%(){}\[\]<>=:,.?!|&@;$])"
)
_BLANKS = re.compile(r"[ \t]*")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
DEEPEST = 100  # levels of types in types, or of blocks in blocks
CONTEXT = 3  # lines shown before and after a place


def excerpt(text: str, start: int, length: int) -> str:
    """The lines around a place, with the place marked."""
    lines = text.split("\n")
    row = text.count("\n", 0, start)
    column = start - (text.rfind("\n", 0, start) + 1)
    mark = " " * column + "~" * max(length, 1) + " <--- HERE"
    first = max(row - CONTEXT, 0)
    return "\n".join([*lines[first : row + 1], mark, *lines[row + 1 : row + 1 + CONTEXT]])


class Words:
    """The words of a text, one after the other. Where lines count, their indentation does, too."""

    def __init__(self, text: str, lines: bool = False) -> None:
        self.text = text
        self._tokens = list(self._split(lines))
        self._next = self._depth = 0

    def _split(self, lines: bool) -> Iterator[Token]:
        text, at, depth = self.text, 0, 0
        levels: list[int] | None = None  # of indentation; the first line may have any
        begins = lines
        while at < len(text):
            if begins and not depth:
                width = _BLANKS.match(text, at).end() - at  # type: ignore[union-attr]
                rest = text[at + width : at + width + 1]
                width -= rest == "="  # the place of the results, of a node that has none
                if rest in ("", "\n", "\r", "#"):
                    width = -1  # a line without words
                elif levels is None:
                    levels = [width]
                elif width > levels[-1]:
                    levels.append(width)
                    yield Token("indent", "", at)
                elif width < levels[-1]:
                    while width < levels[-1]:
                        levels.pop()
                        yield Token("dedent", "", at + width)
                        if not levels:
                            break
                    if not levels or levels[-1] != width:
                        raise self.error(f"invalid indent level {width}", at, width)
                begins = False
                at += max(width, 0)
                continue
            found = _WORDS.match(text, at)
            if found is None:
                raise self.error(f"unexpected character {text[at]!r}", at, 1)
            kind, word = found.lastgroup or "", found.group()
            if kind == "newline":
                begins = lines
                if lines and not depth:
                    yield Token("newline", word, at)
            elif kind == "sign":
                depth += (word in "([") - (word in ")]")
                yield Token(word, word, at)
            elif kind not in ("space", "comment"):
                yield Token(kind, word, at)
            at = found.end()
        for _ in (levels or [0])[1:]:
            yield Token("dedent", "", at)
        yield Token("eof", "", at)

    @property
    def token(self) -> Token:
        """The next word."""
        return self._tokens[self._next]

    def peek(self, ahead: int = 1) -> Token:
        return self._tokens[min(self._next + ahead, len(self._tokens) - 1)]

    def is_next(self, *kinds: str) -> bool:
        return self.token.kind in kinds

    def take(self) -> Token:
        token = self.token
        self._next += token.kind != "eof"
        return token

    def accept(self, kind: str) -> bool:
        """Takes the next word if it is of a kind."""
        found = self.token.kind == kind
        if found:
            self.take()
        return found

    def expect(self, kind: str) -> Token:
        token = self.token
        if token.kind != kind:
            raise self.unexpected(kind)
        return self.take()

    def expect_ident(self, name: str) -> None:
        if self.token.text != name:
            raise self.unexpected(name)
        self.take()

    def skip_lines(self) -> None:
        while self.accept("newline"):
            pass

    def unexpected(self, wanted: str) -> RunError:
        token = self.token
        found = token.kind if token.kind in ("eof", "newline", "indent", "dedent", "ident", "number") else token.text
        if token.kind == "ident" and token.text in ("return", "graph"):
            found = token.text
        return self.error(f"expected {wanted} but found '{found}' here", token.start, len(token.text))

    def error(self, what: str, start: int | None = None, length: int | None = None) -> RunError:
        """An error about a place: the next word, or the one given."""
        if start is None:
            start, length = self.token.start, len(self.token.text)
        return RunError(f"{what}:\n{excerpt(self.text, start, length or 1)}")

    @contextmanager
    def nested(self) -> Iterator[None]:
        """What is read inside is part of something; there is a limit to that."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.error(f"more than {DEEPEST} levels of nesting")
        yield
        self._depth -= 1

    def separated(self, end: str, separator: str = ",") -> Iterator[None]:
        """Once for each of some things with a sign between them, up to the sign that ends them."""
        while not self.is_next(end):
            yield
            if not self.accept(separator):
                break
        self.expect(end)


def unquoted(text: str) -> str:
    """What a string between quotes says."""

    def character(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape[0] == "x" or escape[0].isdigit():
            return chr(int(escape[1:], 16) if escape[0] == "x" else int(escape, 8))
        return _ESCAPES.get(escape, escape)

    return re.sub(r"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)", character, text[1:-1], flags=re.DOTALL)


def quoted(text: str) -> str:
    """A string as the IR writes it."""
    shown = {'"': '\\"', "'": "\\'", "\\": "\\\\"} | {character: f"\\{name}" for name, character in _ESCAPES.items()}
    return '"' + "".join([shown.get(c) or (c if c.isprintable() else f"\\{ord(c):03o}") for c in text]) + '"'


def number_of(words: Words) -> int | float | complex:
    """A number, which may be negative; a complex one may have two parts."""
    value = _real_or_imaginary(words)
    if words.is_next("+") and words.peek().text.endswith("j"):
        words.take()
        return value + _real_or_imaginary(words)
    return value


def _real_or_imaginary(words: Words) -> int | float | complex:
    sign = -1 if words.accept("-") else 1
    text = words.expect("number").text
    if text.endswith("j"):
        return complex(0, sign * float(text[:-1]))
    return sign * (float(text) if "." in text or "e" in text.lower() else int(text))


def shown(value: float) -> str:
    """A float as programs write it: all digits that it needs, and always a point or an exponent."""
    text = f"{value:.17g}"
    return text if any(sign in text for sign in ".en") else f"{text}."
