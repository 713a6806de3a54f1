"""Samplers: the order in which a loader asks a dataset for its samples. Random ones draw the orders that PyTorch draws
from the same seeds."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar

from ...base.errors import InvalidType, InvalidValue
from ...eager.functions.create.data import as_tensor
from ...eager.functions.random.fill import multinomial, randint, randperm
from ...eager.random.generator import Generator
from ...eager.tensor.types import float64, int64
from .seeds import draw_seed

T_co = TypeVar("T_co", covariant=True)
CHUNK = 32  # how many indices a sampler with replacement draws at once


def positive(name: str, value: Any) -> int:
    """A whole number of at least one."""
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise InvalidValue(f"{name} should be a positive integer value, but got {name}={value}")
    return value


class Sampler(Generic[T_co]):
    """An order: a subclass has `__iter__`, which gives indices or lists of them, and may have `__len__`."""

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} is a Sampler and needs a method __iter__")


class SequentialSampler(Sampler[int]):
    """One index after the other."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Indices in a random order, all of them before any comes again; with `replacement` each is drawn from all.

    >>> from weft import Generator
    >>> list(RandomSampler(range(4), generator=Generator().manual_seed(1)))
    [1, 3, 2, 0]
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise InvalidType(f"replacement should be a boolean value, but got replacement={replacement}")
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self._num_samples = num_samples
        positive("num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """How many indices come: as many as there are samples now, unless another number was asked for."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        size, generator = len(self.data_source), self.generator
        if generator is None:
            generator = Generator().manual_seed(draw_seed(None))
        if self.replacement:
            for start in range(0, self.num_samples, CHUNK):
                count = min(CHUNK, self.num_samples - start)
                yield from randint(0, size, (count,), dtype=int64, generator=generator).tolist()
            return
        for _ in range(self.num_samples // size):
            yield from randperm(size, generator=generator).tolist()
        yield from randperm(size, generator=generator).tolist()[: self.num_samples % size]

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """The given indices in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for place in randperm(len(self.indices), generator=self.generator).tolist():
            yield self.indices[place]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Indices drawn in proportion to weights, which need not sum to one.

    >>> list(WeightedRandomSampler([0.0, 5.0, 0.0], 4))
    [1, 1, 1, 1]
    """

    def __init__(
        self, weights: Sequence[float], num_samples: int, replacement: bool = True, generator: Generator | None = None
    ) -> None:
        self.num_samples = positive("num_samples", num_samples)
        if not isinstance(replacement, bool):
            raise InvalidValue(f"replacement should be a boolean value, but got replacement={replacement}")
        self.weights = as_tensor(weights, dtype=float64)
        if self.weights.ndim != 1:
            raise InvalidValue(
                f"weights should be a 1d sequence but given weights have shape {tuple(self.weights.shape)}"
            )
        self.replacement, self.generator = replacement, generator

    def __iter__(self) -> Iterator[int]:
        yield from multinomial(self.weights, self.num_samples, self.replacement, generator=self.generator).tolist()

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Lists of indices that another sampler gives; the last may be shorter, or is left out.

    >>> list(BatchSampler(range(5), 2, drop_last=False))
    [[0, 1], [2, 3], [4]]
    """

    def __init__(self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool) -> None:
        self.sampler, self.batch_size = sampler, positive("batch_size", batch_size)
        if not isinstance(drop_last, bool):
            raise InvalidValue(f"drop_last should be a boolean value, but got drop_last={drop_last}")
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(itertools.islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        return batches(len(self.sampler), self.batch_size, self.drop_last)  # type: ignore[arg-type]


def batches(samples: int, size: int, drop_last: bool) -> int:
    """How many batches so many samples make.

    >>> batches(7, 3, drop_last=False), batches(7, 3, drop_last=True)
    (3, 2)
    """
    return samples // size if drop_last else -(-samples // size)
