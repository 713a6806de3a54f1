"""Datasets, samplers and collation do what PyTorch's do; random orders are the same from the same seeds."""

import collections
import types

import numpy as np
import pytest
from side_by_side import agree, counting

Point = collections.namedtuple("Point", "x y")


class Odd(list):
    """A list that is made from two things."""

    def __init__(self, items=(), extra=None):
        super().__init__(items)


class Many:
    """A dataset that gives many samples at once."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return [-index for index in indices]


TEN = range(10)
DATASETS = {
    "tensors": lambda m, d: [d.TensorDataset(m.arange(4), m.ones(4, 2))[i] for i in (0, -1)],
    "tensors of a list": lambda m, d: d.TensorDataset(m.arange(4), m.ones(4, 2))[[1, 3]],
    "tensors' length": lambda m, d: len(d.TensorDataset(m.arange(4))),
    "tensors of several sizes": lambda m, d: d.TensorDataset(m.ones(2), m.ones(3)),
    "concat": lambda m, d: [d.ConcatDataset([TEN, "ab"])[i] for i in (0, 9, 10, 11, -1, -12)],
    "concat behind the end": lambda m, d: d.ConcatDataset([TEN, "ab"])[12],
    "concat before the start": lambda m, d: d.ConcatDataset([TEN, "ab"])[-13],
    "concat of none": lambda m, d: d.ConcatDataset([]),
    "concat of iterables": lambda m, d: d.ConcatDataset([counting(d)]),
    "concat's sizes": lambda m, d: (len(d.ConcatDataset([TEN, "ab"])), d.ConcatDataset([TEN, "ab"]).cumulative_sizes),
    "sum": lambda m, d: list(d.TensorDataset(m.arange(2)) + d.TensorDataset(m.arange(3)))[4:],
    "sum of iterables": lambda m, d: list(counting(d, 2) + counting(d, 3)),
    "chain": lambda m, d: list(d.ChainDataset([counting(d), counting(d, 2)])),
    "chain of others": lambda m, d: list(d.ChainDataset([TEN])),
    "chain's length": lambda m, d: len(d.ChainDataset([counting(d, length=3), counting(d, length=4)])),
    "chain without length": lambda m, d: len(d.ChainDataset([counting(d)])),
    "stack": lambda m, d: (d.StackDataset(TEN, "abcdefghij")[3], len(d.StackDataset(TEN, "abcdefghij"))),
    "stack with names": lambda m, d: d.StackDataset(a=TEN, b="abcdefghij")[3],
    "stack of both": lambda m, d: d.StackDataset(TEN, b="abcdefghij"),
    "stack of none": lambda m, d: d.StackDataset(),
    "stack of sizes": lambda m, d: d.StackDataset(TEN, "a"),
    "stack of many": lambda m, d: d.StackDataset(a=Many(), b="abcd").__getitems__([3, 1]),
    "subset": lambda m, d: [d.Subset("abcde", [3, 1])[i] for i in (0, 1, -1)],
    "subset of many": lambda m, d: d.Subset(Many(), [3, 1, 2]).__getitems__([0, 2]),
    "subset by a list": lambda m, d: d.Subset(np.arange(5), [3, 1, 2])[[0, 2]],
    "dataset": lambda m, d: d.Dataset()[0],
    "iterable dataset": lambda m, d: d.IterableDataset(),
    "dataset's length": lambda m, d: len(d.Dataset()),
    "split": lambda m, d: [(s.indices, len(s)) for s in d.random_split(TEN, [5, 2, 3])],
    "split by a generator": lambda m, d: [
        s.indices for s in d.random_split(TEN, [5, 5], generator=m.Generator().manual_seed(42))
    ],
    "split by fractions": lambda m, d: [s.indices for s in d.random_split(TEN, [0.33, 0.33, 0.34])],
    "split in two parts": lambda m, d: [s.indices for s in d.random_split(TEN, [0.05, 0.95])],
    "split with nothing": lambda m, d: [s.indices for s in d.random_split("a", [0.5, 0.5])],
    "split in one": lambda m, d: [s.indices for s in d.random_split(TEN, [1.0])],
    "split by other fractions": lambda m, d: d.random_split(TEN, [0.5, 0.4]),
    "split by large fractions": lambda m, d: d.random_split(TEN, [1.5, -0.5]),
    "split by lengths": lambda m, d: d.random_split(TEN, [3, 3]),
}

SAMPLERS = {
    "sequential": lambda m, d: (list(d.SequentialSampler(TEN)), len(d.SequentialSampler(TEN))),
    "random": lambda m, d: (list(d.RandomSampler(TEN)), len(d.RandomSampler(TEN))),
    "random twice": lambda m, d: (lambda s: (list(s), list(s)))(d.RandomSampler(TEN)),
    "random of fewer": lambda m, d: list(d.RandomSampler(TEN, num_samples=4)),
    "random of more": lambda m, d: list(d.RandomSampler(TEN, num_samples=25)),
    "random of many": lambda m, d: list(d.RandomSampler(range(30_000)))[:50],
    "random with replacement": lambda m, d: list(d.RandomSampler(TEN, replacement=True, num_samples=70)),
    "replacement of 64": lambda m, d: list(d.RandomSampler(range(1000), True, 64)),
    "a generator": lambda m, d: (lambda g: (list(d.RandomSampler(TEN, generator=g)), m.rand(2, generator=g).tolist()))(
        m.Generator().manual_seed(9)
    ),
    "a generator and replacement": lambda m, d: (
        lambda g: (list(d.RandomSampler(TEN, True, 33, generator=g)), m.rand(2, generator=g).tolist())
    )(m.Generator().manual_seed(9)),
    "random of nothing": lambda m, d: d.RandomSampler([]),
    "random of 0": lambda m, d: d.RandomSampler(TEN, num_samples=0),
    "random of 2.0": lambda m, d: d.RandomSampler(TEN, num_samples=2.0),
    "replacement of 1": lambda m, d: d.RandomSampler(TEN, replacement=1),
    "subset": lambda m, d: (list(d.SubsetRandomSampler([3, 1, 8, 5])), len(d.SubsetRandomSampler([3, 1]))),
    "subset and a generator": lambda m, d: list(d.SubsetRandomSampler("abcd", m.Generator().manual_seed(2))),
    "weights": lambda m, d: list(d.WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 8)),
    "weights without replacement": lambda m, d: list(d.WeightedRandomSampler([0.1, 0.9, 0.4], 3, replacement=False)),
    "weights of a tensor": lambda m, d: list(d.WeightedRandomSampler(m.tensor([1, 2, 3]), 5)),
    "too many": lambda m, d: list(d.WeightedRandomSampler([0.1], 3, replacement=False)),
    "weights of 2 dimensions": lambda m, d: d.WeightedRandomSampler([[0.1]], 3),
    "weights of 0": lambda m, d: d.WeightedRandomSampler([0.1], 0),
    "weights of true": lambda m, d: d.WeightedRandomSampler([0.1], True),
    "weights with 2": lambda m, d: d.WeightedRandomSampler([0.1], 1, 2),
    "batches": lambda m, d: (list(d.BatchSampler(TEN, 3, False)), len(d.BatchSampler(TEN, 3, False))),
    "batches to the last": lambda m, d: (list(d.BatchSampler(TEN, 3, True)), len(d.BatchSampler(TEN, 3, True))),
    "batches of a sampler": lambda m, d: list(d.BatchSampler(d.RandomSampler(TEN), 4, True)),
    "batches of 0": lambda m, d: d.BatchSampler(TEN, 0, False),
    "batches of true": lambda m, d: d.BatchSampler(TEN, True, False),
    "drop 1": lambda m, d: d.BatchSampler(TEN, 2, 1),
    "distributed": lambda m, d: [list(d.DistributedSampler(TEN, 3, rank)) for rank in range(3)],
    "distributed in order": lambda m, d: [list(d.DistributedSampler(TEN, 4, r, shuffle=False)) for r in range(4)],
    "distributed and dropped": lambda m, d: [list(d.DistributedSampler(TEN, 4, r, drop_last=True)) for r in range(4)],
    "more processes than samples": lambda m, d: [list(d.DistributedSampler("ab", 5, rank)) for rank in range(5)],
    "distributed length": lambda m, d: (
        len(d.DistributedSampler(TEN, 3, 0)),
        d.DistributedSampler(TEN, 3, 0).total_size,
    ),
    "distributed epoch": lambda m, d: (lambda s: (s.set_epoch(4), list(s)))(d.DistributedSampler(TEN, 2, 1, seed=7)),
    "distributed rank": lambda m, d: d.DistributedSampler(TEN, 2, 2),
    "distributed alone": lambda m, d: d.DistributedSampler(TEN),
    "sampler": lambda m, d: iter(d.Sampler()),
    "sampler's length": lambda m, d: len(d.Sampler()),
}

COLLATED = {
    "tensors": lambda m: [m.arange(3), m.arange(3) * 2],
    "tensors of no dimension": lambda m: [m.tensor(2.5), m.tensor(1.5)],
    "arrays": lambda m: [np.ones((2, 1), "float32"), np.zeros((2, 1), "float32")],
    "arrays of no dimension": lambda m: [np.array(2, "int16"), np.array(4, "int16")],
    "numpy's numbers": lambda m: [np.float32(2), np.float32(3)],
    "numpy's truths": lambda m: [np.bool_(True), np.bool_(False)],
    "floats": lambda m: [0.1, 0.2],
    "ints": lambda m: [1, 2],
    "truths": lambda m: [True, False],
    "ints and floats": lambda m: [1, 2.5],
    "text": lambda m: ["a", "b"],
    "bytes": lambda m: [b"a"],
    "tuples": lambda m: [(1, "a", 0.5), (2, "b", 1.5)],
    "lists": lambda m: [[1, [2.0]], [3, [4.0]]],
    "no entries": lambda m: [[], []],
    "ranges": lambda m: [range(2), range(2)],
    "named": lambda m: [Point(1, 2.0), Point(3, 4.0)],
    "dicts": lambda m: [{"a": 1, "b": {"c": m.ones(1)}}, {"a": 2, "b": {"c": m.zeros(1)}}],
    "more keys later": lambda m: [{"a": 1}, {"a": 2, "b": 3}],
    "default dicts": lambda m: [collections.defaultdict(list, a=1), collections.defaultdict(list, a=2)],
    "ordered dicts": lambda m: [collections.OrderedDict(b=1, a=2), collections.OrderedDict(b=3, a=4)],
    "read-only dicts": lambda m: [types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 2})],
    "odd lists": lambda m: [Odd([1, 2]), Odd([3, 4])],
    "nothing": lambda m: [],
    "missing keys": lambda m: [{"a": 1}, {"b": 1}],
    "other lengths": lambda m: [[1], [1, 2]],
    "other shapes": lambda m: [m.ones(2), m.ones(3)],
    "objects": lambda m: [object()],
    "None": lambda m: [None],
    "complex": lambda m: [2j],
    "arrays of text": lambda m: [np.array("a")],
    "arrays of objects": lambda m: [np.array([1], object)],
}

CONVERTED = {
    "arrays": lambda m: [np.arange(2), np.array(3.0)],
    "numbers": lambda m: np.float32(3),
    "text": lambda m: {"a": np.array("x"), "b": np.array(3)},
    "tuples": lambda m: (1, np.ones(1)),
    "named": lambda m: Point(np.ones(1), "y"),
    "tensors": lambda m: m.ones(2),
    "odd lists": lambda m: Odd([np.ones(1)]),
    "other things": lambda m: [1, "a", None, 2.5],
}


@pytest.mark.parametrize("name", DATASETS)
def test_datasets(both, name):
    ours, theirs = both(DATASETS[name])
    assert agree(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers(both, name):
    ours, theirs = both(SAMPLERS[name])
    assert agree(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("name", COLLATED)
def test_collation(both, name):
    ours, theirs = both(lambda m, d: d.default_collate(COLLATED[name](m)))
    assert agree(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("name", CONVERTED)
def test_conversion(both, name):
    ours, theirs = both(lambda m, d: d.default_convert(CONVERTED[name](m)))
    assert agree(ours, theirs), (ours, theirs)
