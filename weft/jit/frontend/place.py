"""Where things stand in the source of a program, and errors that show it."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ...base.errors import InvalidType, RunError

CONTEXT = 2  # lines shown before and after a place


class ScriptError(RunError):
    """A program is wrong, or is none that is understood."""


class FrontendError(ScriptError):
    """The source of a program cannot be read."""


class NotSupportedError(FrontendError):
    """A program has something that programs cannot have."""


class UnsupportedNodeError(NotSupportedError):
    """A program has a construct of Python that programs cannot have."""


@dataclass(frozen=True)
class Source:
    """The text of a program, and where it stands: the file, the number of its first line, and how far the text was
    indented there."""

    text: str
    file: str
    line: int = 1
    indent: int = 0
    starts: list[int] = field(init=False, repr=False, compare=False)  # where lines begin

    def __post_init__(self) -> None:
        starts = [0, *[found.end() for found in re.finditer("\n", self.text)]]
        object.__setattr__(self, "starts", starts)

    def row(self, place: int) -> int:
        """How many lines come before the one that a place is in."""
        return bisect_right(self.starts, place) - 1

    def parsed(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            start = self.offset(error.lineno or 1, (error.offset or 1) - 1)
            raise FrontendError(
                f"expected a valid program: {error.msg}:\n{Place(self, start, start + 1).shown()}"
            ) from None
        except (RecursionError, MemoryError):
            raise FrontendError(
                f"{self.file}: the program is nested too deeply", hint="name some of its parts"
            ) from None

    def offset(self, line: int, column: int) -> int:
        """The place of a column, which is counted in bytes, of a line, which is counted from one."""
        if line > len(self.starts):
            return len(self.text) + column
        start, end = self.starts[line - 1], self.starts[line] if line < len(self.starts) else len(self.text)
        text = self.text[start:end]
        return start + (column if text.isascii() else len(text.encode()[:column].decode(errors="ignore")))

    def place(self, node: ast.AST, length: int | None = None) -> Place:
        """Where a part of the program is; only its first characters, if a length is given."""
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        start = self.offset(line, column)
        if length is not None:
            return Place(self, start, start + length)
        end = self.offset(getattr(node, "end_lineno", line) or line, getattr(node, "end_col_offset", column + 1) or 0)
        return Place(self, start, end)


class Place(str):
    """A part of a source. As text it is `file:line:column`, which is what the text of a graph shows."""

    source: Source
    start: int
    end: int

    def __new__(cls, source: Source, start: int, end: int) -> Place:
        row = source.row(start)
        column = start - source.starts[row]
        made = super().__new__(cls, f"{source.file}:{source.line + row}:{column + source.indent}")
        made.source, made.start, made.end = source, start, end
        return made

    @property
    def line(self) -> int:
        return self.source.line + self.source.row(self.start)

    def shown(self) -> str:
        """The file, the line, and the lines around it with the place marked."""
        text = self.source.text
        first = text.count("\n", 0, self.start)
        last = text.count("\n", 0, max(self.end - 1, self.start))
        lines = text.split("\n")
        written = [f'  File "{self.source.file}", line {self.line}', *lines[max(first - CONTEXT, 0) : first]]
        begin = sum(len(line) + 1 for line in lines[:first])
        for row in range(first, last + 1):
            line = lines[row]
            left = max(self.start - begin, len(line) - len(line.lstrip()))
            right = min(max(self.end - begin, left + 1), max(len(line), left + 1))
            written.append(line)
            if line.strip():
                written.append(" " * left + "~" * (right - left) + (" <--- HERE" if row == last else ""))
            begin += len(line) + 1
        return "\n".join([*written, *lines[last + 1 : last + 1 + CONTEXT]]).rstrip("\n") + "\n"

    def error(self, what: str, kind: type[RunError] = ScriptError) -> RunError:
        return kind(f"{what}:\n{self.shown()}")


def source_of(subject: Callable[..., Any] | type) -> Source:
    """The source of a function or class."""
    try:
        lines, first = inspect.getsourcelines(subject)
        file = inspect.getsourcefile(subject) or "<unknown>"
    except (OSError, TypeError) as error:
        raise InvalidType(
            f"the source of {getattr(subject, '__qualname__', subject)!r:.80} cannot be read",
            why=str(error),
            hint="programs are compiled from Python source: define it in a file",
        ) from None
    text = "".join(lines)
    dedented = textwrap.dedent(text)
    start = next((row for row, line in enumerate(lines) if line.lstrip().startswith(("def ", "class ", "async "))), 0)
    indent = len(text.split("\n")[0]) - len(dedented.split("\n")[0])
    return Source("".join(dedented.splitlines(keepends=True)[start:]), file, max(first, 1) + start, indent)
