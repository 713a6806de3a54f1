"""Arenas: the memory of a call for what lies between its inputs and its outputs."""

from __future__ import annotations

from ...base.forks import held_lock
from ...base.ndarray import NDArray, empty


class Arenas:
    """What calls of one program, at whatever sizes, take and give back. There are never more than calls at once.

    >>> arenas = Arenas()
    >>> arenas.give(arenas.take(100))
    >>> arenas.give(arenas.take(200))
    >>> arenas.take(50).nbytes, arenas.idle_bytes
    (200, 0)
    """

    def __init__(self) -> None:
        self._idle: list[NDArray] = []  # the smallest first
        self._lock = held_lock("table")

    @property
    def idle_bytes(self) -> int:
        """Memory that no call uses at the moment."""
        with self._lock:
            return sum(arena.nbytes for arena in self._idle)

    def take(self, size: int) -> NDArray:
        """An arena of so many bytes at least. If all idle ones are smaller, one is let go before another is made."""
        with self._lock:
            place = next((i for i, arena in enumerate(self._idle) if arena.nbytes >= size), None)
            if place is not None:
                return self._idle.pop(place)
            del self._idle[:1]
        return empty((max(size, 1),), "uint8")

    def give(self, arena: NDArray) -> None:
        """Takes back what a call no longer uses."""
        with self._lock:
            place = sum(other.nbytes < arena.nbytes for other in self._idle)
            self._idle.insert(place, arena)
