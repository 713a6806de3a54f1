"""Datasets: what a loader takes samples from, by index or one after the other, and how they are joined and divided."""

from __future__ import annotations

import itertools
import math
import warnings
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar

from ...base.errors import InvalidValue
from ...eager.functions.random.fill import randperm
from ...eager.random.generator import Generator
from ...eager.tensor.tensor import Tensor
from .errors import InvalidData

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Dataset(Generic[T_co]):
    """Samples by index: a subclass has `__getitem__`, most have `__len__`, and `__getitems__`, which takes a list of
    indices at once, is used where there is one.

    >>> class Squares(Dataset[int]):
    ...     def __getitem__(self, index):
    ...         return index**2
    >>> Squares()[3]
    9
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} is a Dataset and needs a method __getitem__")

    def __add__(self, other: Dataset[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], ABC):
    """Samples one after the other: a subclass has `__iter__`. Each worker of a loader iterates a copy of its own, which
    `get_worker_info` tells apart.

    >>> class Count(IterableDataset[int]):
    ...     def __iter__(self):
    ...         return iter(range(3))
    >>> list(Count() + Count())
    [0, 1, 2, 0, 1, 2]
    """

    @abstractmethod
    def __iter__(self) -> Iterator[T_co]: ...

    def __add__(self, other: Dataset[T_co]) -> Any:
        return ChainDataset([self, other])


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Tensors side by side: sample i is the tuple of their entries i.

    >>> from weft import arange
    >>> TensorDataset(arange(3), arange(3) * 10)[1]
    (tensor(1), tensor(10))
    """

    def __init__(self, *tensors: Tensor) -> None:
        if any(tensor.size(0) != tensors[0].size(0) for tensor in tensors):
            raise InvalidData(
                f"tensors of {', '.join(str(tensor.size(0)) for tensor in tensors)} entries make no samples",
                why="Size mismatch between tensors",
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].size(0))


class StackDataset(Dataset[Any]):
    """Datasets side by side: sample i is the tuple of their samples i, or a dict of them where they have names.

    >>> StackDataset(x=range(3), y="abc")[1]
    {'x': 1, 'y': 'b'}
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if bool(args) == bool(kwargs):
            given = "both datasets with and without names" if args else "no dataset"
            raise InvalidValue(f"StackDataset got {given}", hint="give at least one, all with names or all without")
        self.datasets: Any = args or kwargs
        sizes = [len(dataset) for dataset in self._all()]
        if any(size != sizes[0] for size in sizes):
            raise InvalidValue(f"datasets of {sizes} samples do not stack", why="Size mismatch between datasets")
        self._length = sizes[0]

    def _all(self) -> Iterable[Any]:
        return self.datasets.values() if isinstance(self.datasets, dict) else self.datasets

    def _joined(self, values: Iterable[Any]) -> Any:
        return dict(zip(self.datasets, values)) if isinstance(self.datasets, dict) else tuple(values)

    def __getitem__(self, index: Any) -> Any:
        return self._joined(dataset[index] for dataset in self._all())

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        columns = [samples_of(dataset, indices) for dataset in self._all()]
        if any(len(column) != len(indices) for column in columns):
            raise InvalidValue(
                f"a dataset was asked for {len(indices)} samples and gave another number",
                why="Nested dataset's output size mismatch",
            )
        return [self._joined(row) for row in zip(*columns)]

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Datasets one behind the other.

    >>> joined = ConcatDataset(["abc", "de"])
    >>> joined[3], joined[-1], joined.cumulative_sizes
    ('d', 'e', [3, 5])
    """

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets: list[Any] = list(datasets)
        if not self.datasets:
            raise InvalidData("ConcatDataset got no dataset", why="datasets should not be an empty iterable")
        if any(isinstance(dataset, IterableDataset) for dataset in self.datasets):
            raise InvalidData("ConcatDataset does not support IterableDataset", hint="ChainDataset joins those")
        self.cumulative_sizes: list[int] = self.cumsum(self.datasets)

    @staticmethod
    def cumsum(sequence: Iterable[Any]) -> list[int]:
        """Where each of the datasets ends."""
        return list(itertools.accumulate(len(dataset) for dataset in sequence))

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, idx: int) -> T_co:
        if idx < 0:
            if -idx > len(self):
                raise InvalidValue(
                    f"index {idx} of {len(self)} samples",
                    why="absolute value of index should not exceed dataset length",
                )
            idx += len(self)
        which = bisect_right(self.cumulative_sizes, idx)
        sample: T_co = self.datasets[which][idx - (self.cumulative_sizes[which - 1] if which else 0)]
        return sample

    @property
    def cummulative_sizes(self) -> list[int]:
        """The older spelling of `cumulative_sizes`."""
        warnings.warn(
            "`cummulative_sizes` attribute is renamed to `cumulative_sizes`", DeprecationWarning, stacklevel=2
        )
        return self.cumulative_sizes


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one behind the other."""

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = datasets

    def _all(self) -> Iterator[IterableDataset[Any]]:
        for dataset in self.datasets:
            if not isinstance(dataset, IterableDataset):
                raise InvalidData("ChainDataset only supports IterableDataset", hint="ConcatDataset joins the others")
            yield dataset

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self._all())

    def __len__(self) -> int:
        return sum(len(dataset) for dataset in self._all())  # type: ignore[arg-type, misc]


class Subset(Dataset[T_co]):
    """Some samples of a dataset, by their indices there.

    >>> Subset("abcde", [4, 0])[0]
    'e'
    """

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, idx: Any) -> Any:
        return self.dataset[[self.indices[i] for i in idx] if isinstance(idx, list) else self.indices[idx]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        return samples_of(self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def samples_of(dataset: Any, indices: Sequence[Any]) -> list[Any]:
    """The samples of some indices: in one call where the dataset has `__getitems__`."""
    many: Callable[[Any], list[Any]] | None = getattr(dataset, "__getitems__", None)
    return many(indices) if callable(many) else [dataset[index] for index in indices]


def random_split(dataset: Any, lengths: Sequence[int | float], generator: Generator | None = None) -> list[Subset[Any]]:
    """Divides a dataset by chance into subsets of some lengths, or of fractions that sum to 1.

    >>> from weft import Generator
    >>> halves = random_split(range(5), [0.5, 0.5], Generator().manual_seed(0))
    >>> [half.indices for half in halves]
    [[4, 0, 1], [3, 2]]
    """
    if math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _counts(lengths, len(dataset))
    if sum(lengths) != len(dataset):
        raise InvalidValue(
            f"lengths {list(lengths)} for {len(dataset)} samples",
            why="Sum of input lengths does not equal the length of the input dataset!",
        )
    order = randperm(int(sum(lengths)), generator=generator).tolist()
    ends = itertools.accumulate(lengths)
    return [Subset(dataset, order[int(end - length) : int(end)]) for end, length in zip(ends, lengths)]


def _counts(fractions: Sequence[float], size: int) -> list[int]:
    """Numbers of samples for fractions, rounded down; what is left over goes to the first ones, one each."""
    for index, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise InvalidValue(
                f"fraction {fraction} of a dataset", why=f"Fraction at index {index} is not between 0 and 1"
            )
    counts = [math.floor(size * fraction) for fraction in fractions]
    for extra in range(size - sum(counts)):
        counts[extra % len(counts)] += 1
    for index, count in enumerate(counts):
        if count == 0:
            warnings.warn(
                f"Length of split at index {index} is 0. This might result in an empty dataset.", stacklevel=3
            )
    return counts
