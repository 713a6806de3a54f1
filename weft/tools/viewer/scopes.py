"""Blocks of a graph by the names of its nodes: `stage1_unit2_conv1` and `/encoder/layer.0/Add` say where they stand.
Long lists without such names are cut in order, so that no block has more parts than can be drawn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

LEAST = 3  # nodes of a block
MOST = 50  # parts of a block that are shown at once
CUT = 40  # parts of a piece where there are more
TOGETHER = 0.7  # how much of the stretch from the first to the last node of a block must be its own

ROOT = 0


class Scope(NamedTuple):
    """A block: what it is called, the number of the one that it stands in, and the start of names that it has."""

    label: str
    parent: int
    prefix: str


def words(name: str) -> list[str]:
    """The parts of a name, each with the sign that ends it.

    >>> words("/encoder/layer.0/Add"), words("stage1_unit2_conv"), words("model.layers.3.mlp")
    (['/encoder/', 'layer.0/', 'Add'], ['stage1_', 'unit2_', 'conv'], ['model.', 'layers.', '3.', 'mlp'])
    """
    sign = next((sign for sign in ("/", ".", "_") if sign in name.strip(sign)), "")
    if not sign:
        return [name]
    found = re.findall(rf"{re.escape(sign)}*[^{re.escape(sign)}]+{re.escape(sign)}?", name)
    return found or [name]


class _Prefix:
    """The names that begin in one way: how many, and where they stand in order."""

    __slots__ = ("count", "first", "last", "longer")

    def __init__(self, place: int) -> None:
        self.count, self.first, self.last = 0, place, place
        self.longer: dict[str, _Prefix] = {}

    def add(self, place: int) -> None:
        self.count += 1
        self.first, self.last = min(self.first, place), max(self.last, place)

    def is_block(self, sign: str) -> bool:
        """Names with underscores may be numbered by what they are (conv_1, conv_2): those stand far apart."""
        together = sign != "_" or self.count >= TOGETHER * (self.last - self.first + 1)
        return self.count >= LEAST and together


class Scopes:
    """The blocks of a list of names, which are in the order in which their nodes are computed."""

    def __init__(self, names: Sequence[str]) -> None:
        self.table: list[Scope] = [Scope("", -1, "")]
        self._of_name: dict[str, int] = {}
        self._fill(names)
        self._cut(names)

    def of(self, name: str, sources: Sequence[str] = ()) -> int:
        """The block of a node: its own, or that of a node which it was made from."""
        for known in (name, *sources):
            if known in self._of_name:
                return self._of_name[known]
        return ROOT

    def _fill(self, names: Sequence[str]) -> None:
        root = _Prefix(0)
        for place, name in enumerate(names):
            root.add(place)
            prefix = root
            for word in words(name)[:-1]:
                prefix = prefix.longer.setdefault(word, _Prefix(place))
                prefix.add(place)
        for place, name in enumerate(names):
            self._own_prefix(root, name, place)
        numbers: dict[int, int] = {id(root): ROOT}
        for name in names:
            self._of_name[name] = self._block(root, name, numbers)

    @staticmethod
    def _own_prefix(root: _Prefix, name: str, place: int) -> None:
        """`unit1` and `unit1_relu` stand in one block: a name is also the beginning of others."""
        prefix = root
        for word in (*words(name)[:-1], f"{words(name)[-1]}_"):
            if word not in prefix.longer:
                return
            prefix = prefix.longer[word]
        prefix.add(place)

    def _block(self, root: _Prefix, name: str, numbers: dict[int, int]) -> int:
        """The innermost block of a name, made with those around it where they are not there yet."""
        prefix, number, label, text = root, ROOT, "", ""
        parts = words(name)
        for word in (*parts[:-1], f"{parts[-1]}_"):
            inner = prefix.longer.get(word)
            if inner is None:
                break
            label, text = label + word, text + word
            if inner.is_block(word[-1]) and inner.count < prefix.count:
                if id(inner) not in numbers:
                    numbers[id(inner)] = len(self.table)
                    self.table.append(Scope(label.strip("/._"), number, text))
                number, label = numbers[id(inner)], ""
            elif id(inner) in numbers:
                number, label = numbers[id(inner)], ""
            prefix = inner
        return number

    def _cut(self, names: Sequence[str]) -> None:
        """Cuts blocks of too many parts into pieces, in order."""
        parts: dict[int, list[tuple[bool, int | str]]] = {}
        placed: set[int] = set()
        for name in names:
            inner: tuple[bool, int | str] = (False, name)
            number = self._of_name[name]
            while True:
                parts.setdefault(number, []).append(inner)
                if number == ROOT or number in placed:
                    break
                placed.add(number)
                inner, number = (True, number), self.table[number].parent
        todo = [(number, list(dict.fromkeys(found))) for number, found in parts.items()]
        while todo:
            number, found = todo.pop()
            if len(found) > MOST:
                size = max(CUT, -(-len(found) // CUT))
                todo += [self._piece(number, found[i : i + size]) for i in range(0, len(found), size)]

    def _piece(self, parent: int, found: list[tuple[bool, int | str]]) -> tuple[int, list[tuple[bool, int | str]]]:
        number = len(self.table)
        ends = [self.table[int(what)].label if is_scope else str(what) for is_scope, what in (found[0], found[-1])]
        self.table.append(Scope(f"{ends[0]} … {ends[1]}", parent, ""))
        for is_scope, what in found:
            if is_scope:
                self.table[int(what)] = self.table[int(what)]._replace(parent=number)
            else:
                self._of_name[str(what)] = number
        return number, found
