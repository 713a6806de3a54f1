"""Arenas: the memory of a call for what lies between its inputs and its outputs."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from ...base.ndarray import NDArray, empty


class Arena(NamedTuple):
    """Memory, how large it is and where."""

    size: int
    address: int
    memory: NDArray


class Arenas:
    """What calls of one program, at whatever sizes, take and give back. There are never more than calls at once.

    No lock is needed, since each operation on what is idle is one step for other threads.

    >>> arenas = Arenas()
    >>> arenas.give(arenas.take(100))
    >>> arenas.give(arenas.take(200))
    >>> arenas.take(50).size, arenas.idle_bytes
    (200, 0)
    """

    def __init__(self) -> None:
        self._idle: deque[Arena] = deque()

    @property
    def idle_bytes(self) -> int:
        """Memory that no call uses at the moment."""
        return sum(arena.size for arena in tuple(self._idle))

    def take(self, size: int) -> Arena:
        """An arena of so many bytes at least. If all idle ones are smaller, one is let go before another is made."""
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
        memory = empty((max(size, 1),), "uint8")
        return Arena(memory.nbytes, memory.address, memory)

    def give(self, arena: Arena) -> None:
        """Takes back what a call no longer uses."""
        self._idle.append(arena)
