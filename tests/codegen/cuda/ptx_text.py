"""PTX text as instructions: registers and labels of inner scopes get names of their own."""

from __future__ import annotations

import re
from typing import NamedTuple

_LOAD, _SUM = re.compile(r"\bld\.global\.v"), re.compile(r"\b(fma|mul|add)(\.rn)?\.f32\b")


class Instruction(NamedTuple):
    guard: str  # the predicate that says who takes part, with ! before it if those for which it does not hold
    words: list[str]
    operands: list[str]
    braces: tuple[int, ...]  # which operands, as written, are lists in braces

    def __str__(self) -> str:
        return f"{'.'.join(self.words)} {', '.join(self.operands)}"


class Program(NamedTuple):
    code: list[Instruction]
    labels: dict[str, int]
    threads: int


class Scope:
    def __init__(self, number: int) -> None:
        self.number, self.plain, self.families, self.labels = number, set(), set(), set()

    def has(self, name: str) -> bool:
        family = re.fullmatch(r"(.*?\D)(\d+)", name)
        return name in self.plain or (family is not None and family.group(1) in self.families)


def parsed(text: str) -> Program:
    """The one kernel of a module."""
    threads = int(re.search(r"\.maxntid (\d+)", text).group(1))
    body = re.sub(r"//[^\n]*", "", text[text.index("\n{") + 2 : text.rindex("}")])
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    scopes, count = [Scope(0)], 0
    for kind, piece in _pieces(body):
        if kind == "open":
            count += 1
            scopes.append(Scope(count))
        elif kind == "close":
            scopes.pop()
        elif kind == "label":
            labels[_label(piece, scopes)] = len(code)
        elif piece.startswith(".reg"):
            _declare(piece, scopes[-1])
        elif not piece.startswith("."):
            code.append(_instruction(piece, scopes))
    return Program(code, labels, threads)


def _pieces(body: str):
    """Statements, labels and braces of scopes."""
    at = 0
    while True:
        found = re.compile(r"\s*").match(body, at)
        at = found.end()
        if at >= len(body):
            return
        if body[at] in "{}":
            yield ("open" if body[at] == "{" else "close"), ""
            at += 1
            continue
        label = re.compile(r"([\w$.]+):").match(body, at)
        if label and body[at] != ".":
            yield "label", label.group(1)
            at = label.end()
            continue
        end = body.index(";", at)
        yield "statement", " ".join(body[at:end].split())
        at = end + 1


def _declare(piece: str, scope: Scope) -> None:
    for name in piece.split(None, 2)[2].split(","):
        family = re.fullmatch(r"\s*(.+)<\d+>\s*", name)
        if family:
            scope.families.add(family.group(1))
        else:
            scope.plain.add(name.strip())


def _label(name: str, scopes: list[Scope]) -> str:
    return name if name.startswith("$") else f"{scopes[-1].number}:{name}"


def _instruction(piece: str, scopes: list[Scope]) -> Instruction:
    guard = ""
    if piece.startswith("@"):
        guard, piece = piece[1:].split(None, 1)
        sign = "!" if guard.startswith("!") else ""
        guard = sign + _resolved(guard.lstrip("!"), scopes)
    word, _, rest = piece.partition(" ")
    words = word.split(".")
    if words[0] == "bra":
        return Instruction(guard, words, [_label(rest.strip(), scopes)], ())
    operands: list[str] = []
    braces = []
    for number, found in enumerate(re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)):
        if found.startswith("{"):
            braces.append(number)
            operands += [_resolved(name.strip(), scopes) for name in found[1:-1].split(",")]
        elif found.startswith("["):
            name, plus, more = found[1:-1].partition("+")
            operands.append(f"[{_resolved(name, scopes)}{plus}{more}]")
        else:
            operands.append(_resolved(found, scopes))
    return Instruction(guard, words, operands, tuple(braces))


def _resolved(name: str, scopes: list[Scope]) -> str:
    for scope in reversed(scopes[1:]):
        if scope.has(name):
            return f"{scope.number}:{name}"
    return name


def loads_at_once(ptx: str) -> int:
    """The most loads of vectors that follow each other before anything is computed with floats."""
    longest = run = 0
    for line in ptx.splitlines():
        run = run + 1 if _LOAD.search(line) else 0 if _SUM.search(line) else run
        longest = max(longest, run)
    return longest
