"""Regular expressions as RE2 writes them: whether one matches a whole text, in time that is linear in it.

An expression becomes a machine whose states are sets of places in it (Thompson's construction); a
text is read once, so there is no pattern for which that takes long.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple

from ....base.errors import FormatError, Unsupported

_MOST_REPEATS = 1000  # in one {n,m}, as RE2 has it
_MOST_STATES = 20_000
_KEPT_STATES = 1 << 20  # in sets that were met before, of which each may hold all
_DEEPEST = 100  # groups within groups
_REPEAT = r"\*|\+|\?|\{(\d+)(,(\d*))?\}"

Test = Callable[[str], bool]  # of one character


def _in_ranges(text: str) -> Test:
    """Whether a character is in one of the ranges "a-z0-9", of pairs with a dash between."""
    ranges = [(text[i], text[i + 2]) for i in range(0, len(text), 3)]
    return lambda char: any(low <= char <= high for low, high in ranges)


def _turned(test: Test, is_opposite: bool) -> Test:
    """The test, or its opposite."""
    return (lambda char: not test(char)) if is_opposite else test


def _any_of(tests: Iterable[Test]) -> Test:
    tests = list(tests)
    return lambda char: any(test(char) for test in tests)


def _either_case(test: Test) -> Test:
    def of_either(char: str) -> bool:
        return any(test(form) for form in (char, char.lower(), char.upper()) if len(form) == 1)

    return of_either


_WORD = _in_ranges("0-9A-Z_-_a-z")
_PERL = {"d": _in_ranges("0-9"), "s": _in_ranges("\t-\n\f-\r - "), "w": _WORD}
_POSIX = {
    "alnum": _in_ranges("0-9A-Za-z"),
    "alpha": _in_ranges("A-Za-z"),
    "ascii": _in_ranges("\x00-\x7f"),
    "blank": _in_ranges("\t-\t - "),
    "cntrl": _in_ranges("\x00-\x1f\x7f-\x7f"),
    "digit": _in_ranges("0-9"),
    "graph": _in_ranges("!-~"),
    "lower": _in_ranges("a-z"),
    "print": _in_ranges(" -~"),
    "punct": _in_ranges("!-/:-@[-`{-~"),
    "space": _in_ranges("\t-\r - "),
    "upper": _in_ranges("A-Z"),
    "word": _WORD,
    "xdigit": _in_ranges("0-9A-Fa-f"),
}
_ESCAPES = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_CATEGORIES = frozenset("CLMNPSZ") | {
    *("Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No"),
    *("Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"),
}


# The parts of an expression.


class One(NamedTuple):
    """A character of some."""

    test: Test


class Edge(NamedTuple):
    """A place between characters, which the one before and the one behind tell; None at an end."""

    test: Callable[[str | None, str | None], bool]


class Row(NamedTuple):
    """Parts one after the other."""

    parts: list[Any]


class Choice(NamedTuple):
    """One part of several."""

    parts: list[Any]


class Repeat(NamedTuple):
    """A part several times; any number of times from the first on if there is no last."""

    part: Any
    low: int
    high: int | None


def _is_word(char: str | None) -> bool:
    return char is not None and _WORD(char)


_EDGES = {
    "A": Edge(lambda before, behind: before is None),
    "z": Edge(lambda before, behind: behind is None),
    "b": Edge(lambda before, behind: _is_word(before) != _is_word(behind)),
    "B": Edge(lambda before, behind: _is_word(before) == _is_word(behind)),
}
_LINE_EDGES = {
    "^": Edge(lambda before, behind: before in (None, "\n")),
    "$": Edge(lambda before, behind: behind in (None, "\n")),
}


class _Parser:
    """Reads an expression from left to right. Flags: i (either case), m (lines), s (. is any character)."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.depth = text, 0, 0
        self.flags: frozenset[str] = frozenset()

    def wrong(self, what: str) -> FormatError:
        return FormatError(f"the pattern {self.text!r:.100} has {what}", where=f"character {self.at}")

    def sees(self, start: str) -> bool:
        return self.text.startswith(start, self.at)

    def took(self, start: str) -> bool:
        """Moves behind the start, if what follows has it."""
        seen = self.sees(start)
        self.at += len(start) if seen else 0
        return seen

    def found(self, pattern: str) -> re.Match[str] | None:
        """The same with a pattern of Python's, which must be a simple one."""
        match = re.compile(pattern).match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match

    def char(self) -> str:
        if self.at == len(self.text):
            raise self.wrong("an end too early")
        self.at += 1
        return self.text[self.at - 1]

    def whole(self) -> Any:
        part = self.choice()
        if self.at < len(self.text):
            raise self.wrong("a ) without a (")
        return part

    def choice(self) -> Any:
        flags, rows = self.flags, [self.row()]
        while self.took("|"):
            rows.append(self.row())
        self.flags = flags  # they hold until the group ends
        return rows[0] if len(rows) == 1 else Choice(rows)

    def row(self) -> Row:
        parts: list[Any] = []
        while self.at < len(self.text) and not self.sees("|") and not self.sees(")"):
            parts.append(self.repeated(self.atom()))
        return Row(parts)

    def repeated(self, part: Any) -> Any:
        match = self.found(_REPEAT)
        if not match:
            return part
        self.took("?")  # which text the parts get makes no difference here
        if self.found(_REPEAT):
            raise self.wrong("a repetition of a repetition")
        if match[1] is None:
            return Repeat(part, int(match[0] == "+"), 1 if match[0] == "?" else None)
        low = int(match[1][:5])
        high = low if match[2] is None else int(match[3][:5]) if match[3] else None
        if max(low, high or 0) > _MOST_REPEATS or (high is not None and high < low):
            raise self.wrong(f"the repetition {match[0][:20]}")
        return Repeat(part, low, high)

    def atom(self) -> Any:
        char = self.char()
        if char == "(":
            return self.group()
        if char == "[":
            return One(self.set_of())
        if char == ".":
            return One((lambda c: True) if "s" in self.flags else (lambda c: c != "\n"))
        if char in "^$":
            return _LINE_EDGES[char] if "m" in self.flags else _EDGES["A" if char == "^" else "z"]
        if char == "\\":
            return self.escaped()
        if char in "*+?":
            raise self.wrong(f"a {char} with nothing before it")
        return self.literal(char)

    def cased(self, test: Test) -> Test:
        return _either_case(test) if "i" in self.flags else test

    def literal(self, text: str) -> Any:
        ones = [One(self.cased(_in_ranges(f"{char}-{char}"))) for char in text]
        return ones[0] if len(ones) == 1 else Row(ones)

    def group(self) -> Any:
        outer = self.flags
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Unsupported(f"the pattern {self.text!r:.100} has groups more than {_DEEPEST} deep")
        if self.took("?") and not self.found(r"P?<\w+>"):
            match = self.found(r"([imsU]*)(?:-([imsU]+))?([:)])")
            if not match:
                raise self.wrong("a group that RE2 does not have")
            self.flags = (self.flags | set(match[1])) - set(match[2] or "")
            if match[3] == ")":  # flags for the rest of the group around
                self.depth -= 1
                return Row([])
        part = self.choice()
        if not self.took(")"):
            raise self.wrong("a ( without a )")
        self.flags, self.depth = outer, self.depth - 1
        return part

    def escaped(self) -> Any:
        if self.took("Q"):
            text, _, _ = self.text[self.at :].partition("\\E")
            self.at += len(text)
            self.took("\\E")
            return self.literal(text)
        if self.text[self.at : self.at + 1] in _EDGES:
            return _EDGES[self.char()]
        kind = self.kind()
        return One(kind) if kind else self.literal(self.escaped_char())

    def kind(self) -> Test | None:
        """A kind of characters, behind a backslash: of Perl's, or of Unicode's."""
        match = self.found(r"([dswDSW])|([pP])(?:([A-Z])|\{(\^?)(\w+)\})")
        if not match:
            return None
        if match[1]:
            return _turned(_PERL[match[1].lower()], match[1].isupper())
        name = match[3] or match[5]
        if name not in _CATEGORIES and name != "Any":
            raise Unsupported(f"the pattern {self.text!r:.100} asks for the characters {name}")
        test = (lambda c: True) if name == "Any" else (lambda c: unicodedata.category(c).startswith(name))
        return _turned(self.cased(test), (match[2] == "P") != bool(match[4]))

    def escaped_char(self) -> str:
        match = self.found(r"x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]{1,8})\}|(0[0-7]{0,2}|[1-7][0-7]{1,2})")
        if match:
            code = int(match[3], 8) if match[3] else int(match[1] or match[2], 16)
            if code > 0x10FFFF:
                raise self.wrong("a character that does not exist")
            return chr(code)
        char = self.char()
        if char in _ESCAPES:
            return _ESCAPES[char]
        if char.isalnum():
            raise self.wrong(f"\\{char}, which is not supported")
        return char

    def set_of(self) -> Test:
        negated = self.took("^")
        tests: list[Test] = []
        while not (self.sees("]") and tests):
            match = self.found(r"\[:(\^?)(\w+):\]")
            if match and match[2] not in _POSIX:
                raise self.wrong(f"the set {match[0]}")
            tests.append(_turned(self.cased(_POSIX[match[2]]), bool(match[1])) if match else self.range_of())
        self.took("]")
        return _turned(_any_of(tests), negated)

    def range_of(self) -> Test:
        low: str | Test = self.member()
        if not isinstance(low, str) or not self.found(r"-(?!\])"):
            return self.cased(_in_ranges(f"{low}-{low}")) if isinstance(low, str) else low
        high = self.member()
        if not isinstance(high, str) or high < low:
            raise self.wrong("a range that is none")
        return self.cased(_in_ranges(f"{low}-{high}"))

    def member(self) -> str | Test:
        char = self.char()
        if char != "\\":
            return char
        return self.kind() or self.escaped_char()


# The machine.


class _Machine:
    """States are numbers. One that has a test is left by a character, one that has an edge at such a place,
    and all others at any time."""

    def __init__(self, part: Any) -> None:
        self.tests: dict[int, Test] = {}  # which characters lead to the state behind
        self.edges: dict[int, Edge] = {}  # which place between characters does
        self.moves: dict[int, list[int]] = {}  # the states behind each
        self.count = 0
        self.start = self.new()
        self.end = self.add(part, self.start)
        self.step = lru_cache(maxsize=_KEPT_STATES // self.count)(self._step)

    def new(self) -> int:
        self.count += 1
        if self.count > _MOST_STATES:
            raise Unsupported(f"a pattern of more than {_MOST_STATES} states")
        return self.count - 1

    def add(self, part: Any, start: int) -> int:
        """Puts a part behind a state; gives the one behind it."""
        if isinstance(part, One):
            self.tests[start] = part.test
            return self.branch(start)
        if isinstance(part, Edge):
            self.edges[start] = part
            return self.branch(start)
        if isinstance(part, Row):
            for item in part.parts:
                start = self.add(item, start)
            return start
        if isinstance(part, Choice):
            return self.joined([self.add(item, self.branch(start)) for item in part.parts])
        return self.repeated(part, start)

    def branch(self, start: int) -> int:
        state = self.new()
        self.moves.setdefault(start, []).append(state)
        return state

    def joined(self, ends: list[int]) -> int:
        state = self.new()
        for end in ends:
            self.moves.setdefault(end, []).append(state)
        return state

    def repeated(self, part: Repeat, start: int) -> int:
        for _ in range(part.low):
            start = self.add(part.part, self.branch(start))
        if part.high is None:
            around = self.branch(start)
            end = self.add(part.part, self.branch(around))
            self.moves.setdefault(end, []).append(around)
            return self.branch(around)
        ends = [start]
        for _ in range(part.high - part.low):
            ends.append(self.add(part.part, self.branch(ends[-1])))
        return self.joined(ends)

    def reached(self, states: Iterable[int], before: str | None, behind: str | None) -> set[int]:
        """Those that can be come to between two characters."""
        found: set[int] = set()
        waiting = list(states)
        while waiting:
            state = waiting.pop()
            if state in found:
                continue
            found.add(state)
            edge = self.edges.get(state)
            if state not in self.tests and (edge is None or edge.test(before, behind)):
                waiting += self.moves.get(state, ())
        return found

    def _step(self, states: frozenset[int], before: str | None, char: str) -> frozenset[int]:
        reached = self.reached(states, before, char)
        return frozenset(self.moves[state][0] for state in reached if state in self.tests and self.tests[state](char))

    def matches(self, text: str) -> bool:
        states, before = frozenset([self.start]), None
        for char in text:
            states = self.step(states, before, char)
            if not states:
                return False
            before = char
        return self.end in self.reached(states, before, None)

    def longest(self, text: str, begin: int) -> int | None:
        """Where the longest match that begins at a place ends."""
        states, before, found = frozenset([self.start]), text[begin - 1] if begin else None, None
        for place in range(begin, len(text) + 1):
            behind = text[place] if place < len(text) else None
            if self.end in self.reached(states, before, behind):
                found = place
            if behind is None:
                break
            states = self.step(states, before, behind)
            if not states:
                break
            before = behind
        return found

    def all_longest(self, text: str) -> list[tuple[int, int]]:
        """The parts of a text that match, from the front: of those that begin at one place the longest, none empty."""
        found, place = [], 0
        while place < len(text):
            end = self.longest(text, place)
            if end is not None and end > place:
                found.append((place, end))
                place = end
            else:
                place += 1
        return found


@lru_cache(maxsize=64)
def longest_matches(pattern: str) -> Callable[[str], list[tuple[int, int]]]:
    """Begins and ends of what a pattern finds in a text.

    >>> longest_matches("[a-z]+")("so it is")
    [(0, 2), (3, 5), (6, 8)]
    """
    return _Machine(_Parser(pattern).whole()).all_longest


@lru_cache(maxsize=64)
def full_match(pattern: str) -> Callable[[str], bool]:
    """Whether a text as a whole is what the pattern says.

    >>> matches = full_match("(a|b)+[[:digit:]]?")
    >>> matches("abba7"), matches("7")
    (True, False)
    """
    return _Machine(_Parser(pattern).whole()).matches
