"""Arenas: the memory of a call for what lies between its inputs and its outputs."""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from ...base.ndarray import NDArray, empty


class Arena(NamedTuple):
    """Memory, how large it is and where."""

    size: int
    address: int
    memory: NDArray | None


NONE = Arena(0, 0, None)  # of calls that need no memory


class Arenas:
    """What calls of one program, at whatever sizes, take and give back. There are never more than calls at once.

    No lock is needed, since each operation on what is idle is one step for other threads.

    >>> arenas = Arenas()
    >>> arenas.give(arenas.take(100))
    >>> arenas.give(arenas.take(200))
    >>> arenas.take(50).size, arenas.idle_bytes
    (200, 0)

    Those of more bytes than the largest one are not kept.
    """

    def __init__(self, largest: float = inf) -> None:
        self._idle: deque[Arena] = deque()
        self._largest = largest

    @property
    def idle_bytes(self) -> int:
        """Memory that no call uses at the moment."""
        return sum(arena.size for arena in tuple(self._idle))

    def take(self, size: int) -> Arena:
        """An arena of so many bytes at least. If all idle ones are smaller, one is let go before another is made."""
        if not size:
            return NONE
        while self._idle:
            try:
                arena = self._idle.pop()
            except IndexError:
                break
            if arena.size >= size:
                return arena
            fitting = sorted(other for other in tuple(self._idle) if other.size >= size)
            if not fitting:
                del arena
                break
            self._idle.append(arena)
            try:
                self._idle.remove(fitting[0])
                return fitting[0]
            except ValueError:  # another call has it by now
                continue
        memory = empty((size,), "uint8")
        return Arena(memory.nbytes, memory.address, memory)

    def give(self, arena: Arena) -> None:
        """Takes back what a call no longer uses."""
        if 0 < arena.size <= self._largest:
            self._idle.append(arena)
