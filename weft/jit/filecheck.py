"""FileCheck: what a text has, in which order, said in the order in which it has it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from ..base.errors import InvalidType, RunError
from .source import excerpt

NOTHING = "No checks have been added to this instance of Filecheck! Check for bad input."


class Check(NamedTuple):
    kind: str  # CHECK, CHECK-NEXT, ...
    wanted: str
    times: int = 1
    exactly: bool = False

    def __str__(self) -> str:
        if self.kind == "CHECK-COUNT":
            return f"CHECK-COUNT-{'EXACTLY-' * self.exactly}{self.times}: {self.wanted}"
        return f"{self.kind}: {self.wanted}"


_ANNOTATION = re.compile(
    r"^[ \t]*#[ ]{0,6}CHECK(?P<rest>[-A-Z]*?)(?:-COUNT-(?P<exactly>EXACTLY-)?(?P<count>\d+))?:[ ]?(?P<text>.*)$"
)
_ANY = re.compile(r"^[ \t]*#[ ]{0,6}CHECK")
_KINDS = ("", "-NEXT", "-SAME", "-NOT", "-DAG", "-REGEX", "-SOURCE-HIGHLIGHTED")


class FileCheck:
    """Checks of a text, each of what comes after the one before.

    >>> FileCheck().check("graph(").check_next("mul").check_not("add").run("graph(x):\\n  mul(x, x)\\n")
    >>> FileCheck().check("add").run("mul(x, x)")
    Traceback (most recent call last):
    weft.base.errors.RunError: Expected to find "add" but did not find it
    ...
    """

    def __init__(self) -> None:
        self._checks: list[Check] = []
        self._has_run = False

    def check(self, text: str) -> FileCheck:
        """The text is there, after what was found before."""
        return self._add(Check("CHECK", text))

    def check_next(self, text: str) -> FileCheck:
        """It is in the next line."""
        return self._add(Check("CHECK-NEXT", text))

    def check_same(self, text: str) -> FileCheck:
        """It is in the same line."""
        return self._add(Check("CHECK-SAME", text))

    def check_not(self, text: str) -> FileCheck:
        """It is not there before what the next check finds; if there is none, not at all."""
        return self._add(Check("CHECK-NOT", text))

    def check_dag(self, text: str) -> FileCheck:
        """It is there; checks of this kind in a row may be met in any order."""
        return self._add(Check("CHECK-DAG", text))

    def check_count(self, text: str, count: int, exactly: bool = False) -> FileCheck:
        """It is there several times, and no more often than that if exactly so many are asked for."""
        if count < 0 or (not count and not exactly):
            raise RunError(f"a check of {count} times checks nothing", hint="check_not, or exactly=True")
        return self._add(Check("CHECK-COUNT", text, count, exactly))

    def check_regex(self, pattern: str) -> FileCheck:
        """Something that a regular expression matches is there."""
        try:
            re.compile(pattern)
        except re.error as error:
            raise RunError(f"{pattern!r} is no regular expression", why=str(error)) from None
        return self._add(Check("CHECK-REGEX", pattern))

    def check_source_highlighted(self, text: str) -> FileCheck:
        """It is there, with a line of ~ under all of it."""
        return self._add(Check("CHECK-SOURCE-HIGHLIGHTED", text))

    def _add(self, check: Check) -> FileCheck:
        if not isinstance(check.wanted, str):
            raise InvalidType(f"a check is for a str, not {check.wanted!r:.60}")
        self._checks.append(check)
        return self

    def run(self, *texts: Any) -> None:
        """Runs the checks on a text or graph; or those that the comments of a first text state on a second one."""
        self._has_run = True
        if len(texts) == 2:
            checks = list(_stated(str(texts[0])))
        elif len(texts) == 1:
            checks = self._checks
        else:
            raise InvalidType(f"run takes a text, or checks and a text, not {len(texts)} arguments")
        if not checks:
            raise RunError(NOTHING)
        _run(checks, str(texts[-1]))

    def __repr__(self) -> str:
        return "\n\t".join(["FileCheck checks:", *map(str, self._checks)])

    def __del__(self) -> None:
        if not getattr(self, "_has_run", True) and sys is not None and not sys.is_finalizing():
            print("You have not run this instance of FileCheck!", self, sep="\n")


def _stated(text: str) -> Iterator[Check]:
    """The checks that comments state: `# CHECK-NEXT: text`."""
    at = 0
    for line in text.split("\n"):
        found = _ANNOTATION.match(line)
        known = found is not None and (found["rest"] in _KINDS if found["count"] is None else not found["rest"])
        if found is not None and known:
            if found["count"] is None:
                yield Check(f"CHECK{found['rest']}", found["text"])
            else:
                yield Check("CHECK-COUNT", found["text"], int(found["count"]), found["exactly"] is not None)
        elif _ANY.match(line):
            mark = at + line.index("CHECK") + len("CHECK")
            raise RunError(f"Could not parse check at:\n{excerpt(text, mark, 1)}\nCheck for bad input.")
        at += len(line) + 1


def _run(checks: list[Check], text: str) -> None:
    forbidden: list[Check] = []
    at = 0  # the end of what was found last
    for kind, group in groupby(_spelled(checks), key=lambda check: check.kind):
        members = list(group)
        if kind == "CHECK-NOT":
            forbidden = members
            continue
        if kind == "CHECK-DAG":
            found = [_find(check, text, at) for check in members]
            start, end = min(found)[0], max(end for _, end in found)
            _absent(forbidden, text, at, start)
            at = end
        else:
            for check in members:
                start, end = _matched(check, text, at)
                _absent(forbidden, text, at, start)
                forbidden, at = [], end
        forbidden = []
    _absent(forbidden, text, at, len(text))


def _spelled(checks: list[Check]) -> Iterator[Check]:
    """Counts as checks one after the other; exactly so many are followed by none."""
    for check in checks:
        if check.kind != "CHECK-COUNT":
            yield check
            continue
        yield from [check] * check.times
        if check.exactly:
            yield Check("CHECK-NOT", check.wanted)


def _matched(check: Check, text: str, at: int) -> tuple[int, int]:
    """Where a check is met."""
    following = text.find("\n", at) + 1 or len(text)
    start, end = _find(check, text, following if check.kind == "CHECK-NEXT" else at)
    line = {"CHECK-SAME": at, "CHECK-NEXT": following}.get(check.kind, start)
    if "\n" in text[line:start]:
        raise _unexpected(check, "\\n", text, text.index("\n", line), 1)
    if check.kind == "CHECK-SOURCE-HIGHLIGHTED":
        _highlighted(check, text, start, end)
    return start, end


def _find(check: Check, text: str, at: int) -> tuple[int, int]:
    if check.kind == "CHECK-REGEX":
        found = re.compile(check.wanted).search(text, at)
        if found is None:
            raise RunError(_told(f'Expected to find regex "{check.wanted}" but did not find it', check, text, at, 1))
        return found.span()
    start = text.find(check.wanted, at)
    if start < 0:
        what = f'Expected to find "{check.wanted}" but did not find it\nSearched string'
        raise RunError(_told(what, check, text, at, len(check.wanted)))
    return start, start + len(check.wanted)


def _absent(checks: list[Check], text: str, start: int, end: int) -> None:
    for check in checks:
        found = text.find(check.wanted, start, end)
        if found >= 0:
            raise _unexpected(check, check.wanted, text, found, len(check.wanted))


def _highlighted(check: Check, text: str, start: int, end: int) -> None:
    begin = text.rfind("\n", 0, start) + 1
    following = text.find("\n", end)
    under = text[following + 1 :].split("\n", 1)[0] if following >= 0 else ""
    marks = under[start - begin : end - begin]
    around = under[start - begin - 1 : start - begin] + under[end - begin : end - begin + 1]
    if marks != "~" * (end - start) or "~" in around:
        what = f'Expected to find "{check.wanted}" highlighted but it is not'
        raise RunError(_told(what, check, text, start, end - start))


def _unexpected(check: Check, found: str, text: str, start: int, length: int) -> RunError:
    return RunError(_told(f'Expected to not find "{found}" but found it', check, text, start, length))


def _told(what: str, check: Check, text: str, start: int, length: int) -> str:
    """What is wrong, where, and which check says so."""
    return f"{what}:\n{excerpt(text, start, length)}\nFrom {check}\n"
