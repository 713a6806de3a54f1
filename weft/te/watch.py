"""Who touched which element of memory since those who did last waited for each other."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .steps import Place

Element = tuple[int, ...]  # the indices of one
Who = tuple[int, ...]  # the coordinates of a block in the grid, or of a thread in its block


class Clash(NamedTuple):
    """Another that touched the same element, and how."""

    who: Who
    done: str  # "read" or "written"


class Touches:
    """The reads and writes of one buffer by several whose order must not matter. Each comes once
    and does all it does before the next one comes, so the first to read an element is enough to
    know: if that is the one who writes it, the others come later and find it written.

    >>> touches = Touches()
    >>> touches.write((3,), (0,)), touches.read((3,), (0,)), touches.read((3,), (1,))
    (None, None, Clash(who=(0,), done='written'))
    """

    def __init__(self) -> None:
        self._writers: dict[Element, Who] = {}
        self._readers: dict[Element, Who] = {}

    def read(self, element: Element, who: Who) -> Clash | None:
        """Notes a read; who else has written the element."""
        self._readers.setdefault(element, who)
        writer = self._writers.get(element, who)
        return None if writer == who else Clash(writer, "written")

    def write(self, element: Element, who: Who) -> Clash | None:
        """Notes a write; who else has read or written the element."""
        writer = self._writers.setdefault(element, who)
        if writer != who:
            return Clash(writer, "written")
        reader = self._readers.get(element, who)
        return None if reader == who else Clash(reader, "read")


def elements(place: Place) -> list[Element]:
    """The elements that an index names, one for each lane.

    >>> elements((2, np.array([0, 1])))
    [(2, 0), (2, 1)]
    """
    if all(np.ndim(index) == 0 for index in place):
        return [tuple(map(int, place))]
    return list(zip(*(index.tolist() for index in np.broadcast_arrays(*place))))
