"""Results that are kept by key, up to a number of them; the oldest goes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


class Kept(OrderedDict[Hashable, T]):
    """
    >>> squares = Kept(2)
    >>> [squares.find(n, lambda n=n: n * n) for n in (1, 2, 3, 1)], list(squares)
    ([1, 4, 9, 1], [3, 1])
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def find(self, key: Hashable, make: Callable[[], T]) -> T:
        """What a key stands for, which is made if it is not there."""
        found = self.get(key)
        if found is None:
            found = self[key] = make()
            if len(self) > self.most:
                self.popitem(last=False)
        return found
