"""Places for the values of a graph in one block of memory: lifetimes come in, offsets go out."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import NamedTuple

ALIGNMENT = 64  # a cache line, and the widest vector


class Lifetime(NamedTuple):
    """A value of `size` bytes, written at step `first` and last read at step `last`."""

    size: int
    first: int
    last: int


class Arena(NamedTuple):
    offsets: list[int]
    size: int


def plan_arena(values: Sequence[Lifetime]) -> Arena:
    """Offsets such that values alive at the same step do not overlap.

    Goes through the steps once: what died gives its bytes back, what is born takes the smallest
    hole it fits in, or the end.

    >>> plan_arena([Lifetime(100, 0, 1), Lifetime(64, 1, 2), Lifetime(100, 2, 3)])
    Arena(offsets=[0, 128, 0], size=192)
    """
    offsets = [0] * len(values)
    births = sorted(range(len(values)), key=lambda i: (values[i].first, -values[i].size))
    deaths = sorted(range(len(values)), key=lambda i: values[i].last)
    holes = _Holes()
    dead = 0
    for number in births:
        while values[deaths[dead]].last < values[number].first:
            gone = deaths[dead]
            holes.give(offsets[gone], _padded(values[gone].size))
            dead += 1
        offsets[number] = holes.take(_padded(values[number].size))
    return Arena(offsets, holes.end)


def _padded(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


class _Holes:
    """Free ranges below `end`, by size for best fit and by both ends for merging."""

    def __init__(self) -> None:
        self.end = 0
        self._by_size: list[tuple[int, int]] = []
        self._start_of: dict[int, int] = {}  # end of a hole -> its start
        self._end_of: dict[int, int] = {}

    def take(self, size: int) -> int:
        place = bisect_left(self._by_size, (size, -1))
        if place < len(self._by_size):
            found, start = self._by_size[place]
            self._remove(start)
            if found > size:
                self._add(start + size, found - size)
            return start
        start = self._start_of.get(self.end, self.end)  # a hole at the end grows
        if start != self.end:
            self._remove(start)
        self.end = start + size
        return start

    def give(self, start: int, size: int) -> None:
        end = start + size
        if start in self._start_of:
            left = self._start_of[start]
            self._remove(left)
            start = left
        if end in self._end_of:
            right = self._end_of[end]
            self._remove(end)
            end = right
        self._add(start, end - start)

    def _add(self, start: int, size: int) -> None:
        insort(self._by_size, (size, start))
        self._start_of[start + size] = start
        self._end_of[start] = start + size

    def _remove(self, start: int) -> None:
        end = self._end_of.pop(start)
        del self._start_of[end]
        key = (end - start, start)
        del self._by_size[bisect_left(self._by_size, key)]
