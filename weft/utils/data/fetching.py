"""How samples of a dataset become a batch: by index, or one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from .dataset import IterableDataset, samples_of

Fetch = Callable[[Any], Any]


def fetcher(dataset: Any, batched: bool, collate: Callable[[Any], Any], drop_last: bool) -> Fetch:
    """A function that makes a batch of the indices that it is given, or, where samples have none, of as many as there
    are; it raises StopIteration when these have come to their end.

    >>> fetcher("abcd", True, "".join, False)([3, 0])
    'da'
    """
    if isinstance(dataset, IterableDataset):
        return _Following(iter(dataset), batched, collate, drop_last)
    if batched:
        return lambda indices: collate(samples_of(dataset, indices))
    return lambda index: collate(dataset[index])


class _Following:
    """Takes samples in their own order."""

    def __init__(self, samples: Iterator[Any], batched: bool, collate: Callable[[Any], Any], drop_last: bool) -> None:
        self.samples, self.batched, self.collate, self.drop_last = samples, batched, collate, drop_last
        self.ended = False

    def __call__(self, places: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.batched:
            return self.collate(next(self.samples))
        batch = list(itertools.islice(self.samples, len(places)))
        self.ended = len(batch) < len(places)
        if not batch or (self.ended and self.drop_last):
            raise StopIteration
        return self.collate(batch)
