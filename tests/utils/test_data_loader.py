"""DataLoader: arguments, orders and batches are PyTorch's, without workers and with them."""

import multiprocessing
import random
import warnings

import numpy as np
import pytest
from loaded_samples import as_they_are, first
from oracles import oracle
from side_by_side import agree, counting, plain

import weft

TEN = range(10)

ARGUMENTS = {
    "workers below none": {"num_workers": -1},
    "negative timeout": {"timeout": -1},
    "prefetch without workers": {"prefetch_factor": 2},
    "negative prefetch": {"num_workers": 1, "prefetch_factor": -2},
    "persistent without workers": {"persistent_workers": True},
    "sampler and shuffle": {"sampler": [1], "shuffle": True},
    "batch sampler and size": {"batch_sampler": [[1]], "batch_size": 2},
    "batch sampler and drop": {"batch_sampler": [[1]], "drop_last": True},
    "batch sampler and shuffle": {"batch_sampler": [[1]], "shuffle": True},
    "batch sampler and sampler": {"batch_sampler": [[1]], "sampler": [1]},
    "no batches and drop": {"batch_size": None, "drop_last": True},
    "batches of 0": {"batch_size": 0},
    "batches of text": {"batch_size": "3"},
    "batches of 2.0": {"batch_size": 2.0},
    "context without workers": {"multiprocessing_context": "fork"},
    "unknown context": {"num_workers": 1, "multiprocessing_context": "other"},
    "context of a number": {"num_workers": 1, "multiprocessing_context": 3},
    "pinned": {"pin_memory": True, "batch_size": 5},
    "out of order": {"in_order": False, "batch_size": 4},
    "timeout without workers": {"timeout": 3},
    "batches": {"batch_size": 4},
    "whole batches": {"batch_size": 4, "drop_last": True},
    "no batches": {"batch_size": None},
    "shuffled": {"shuffle": True, "batch_size": 3},
    "no shuffle": {"shuffle": False},
    "a sampler": {"sampler": [3, 3, 1], "batch_size": 2},
    "a batch sampler": {"batch_sampler": [[3], [1, 2]]},
    "a collate function": {"collate_fn": sum, "batch_size": 3},
}
ITERABLE = {
    "shuffled": {"shuffle": True},
    "not shuffled": {"shuffle": False},
    "a sampler": {"sampler": [1]},
    "a batch sampler": {"batch_sampler": [[1]]},
    "batches": {"batch_size": 3},
    "whole batches": {"batch_size": 3, "drop_last": True},
    "no batches": {"batch_size": None},
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(both, name):
    def loaded(module, data):
        loader = data.DataLoader(TEN, **ARGUMENTS[name])
        return len(loader), list(loader), list(loader)

    ours, theirs = both(loaded)
    assert agree(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("length", [None, 3, 7])
@pytest.mark.parametrize("name", ITERABLE)
def test_iterable_datasets(both, name, length):
    def loaded(module, data):
        loader = data.DataLoader(counting(data, 7, length), **ITERABLE[name])
        before = list(loader)
        return before, len(loader) if length else None, list(loader)

    ours, theirs = both(loaded)
    assert agree(ours, theirs), (ours, theirs)


def test_an_iterable_dataset_may_have_no_length(both):
    ours, theirs = both(lambda module, data: len(data.DataLoader(counting(data))))
    assert agree(ours, theirs)


def test_attributes(both):
    def attributes(module, data):
        loader = data.DataLoader(TEN, batch_size=3, drop_last=True, num_workers=2)
        names = "batch_size drop_last num_workers prefetch_factor timeout pin_memory persistent_workers in_order"
        return [getattr(loader, name) for name in [*names.split(), "generator", "multiprocessing_context"]]

    def setting(name):
        return lambda module, data: setattr(data.DataLoader(TEN), name, 3)

    names = "batch_size batch_sampler sampler drop_last dataset persistent_workers num_workers collate_fn"
    for case in [attributes, *map(setting, names.split())]:
        ours, theirs = both(case)
        assert agree(ours, theirs), (ours, theirs)


def test_contexts_by_name_and_as_objects():
    for method in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context(method)
        for given in (method, context):
            loader = weft.utils.data.DataLoader(TEN, num_workers=1, multiprocessing_context=given)
            assert loader.multiprocessing_context is context


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("generator", [None, 11])
def test_orders_of_epochs(generator, workers):
    """Three epochs, some left early, with numbers drawn between: each draws what PyTorch's does."""
    torch, seen = oracle("torch"), []
    for module in (weft, torch):
        module.manual_seed(1)
        source = generator and module.Generator().manual_seed(generator)
        loader = module.utils.data.DataLoader(
            TEN, batch_size=2, shuffle=True, generator=source, num_workers=workers, collate_fn=as_they_are
        )
        seen.append([list(loader), module.rand(1).item(), next(iter(loader)), module.rand(1).item(), list(loader)])
        seen[-1].append(source and module.rand(3, generator=source).tolist())
    assert seen[0] == seen[1]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}])
def test_samplers_that_draw_at_once(options):
    torch, seen = oracle("torch"), []
    for module in (weft, torch):

        class Drawing:
            def __iter__(self, module=module):
                return iter(module.randperm(6).tolist())

        module.manual_seed(1)
        loader = module.utils.data.DataLoader(range(6), sampler=Drawing(), batch_size=None, **options)
        seen.append([list(loader), list(loader), module.rand(1).item()])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("persistent", [False, True])
def test_seeds_of_workers(persistent):
    """A worker's numbers are those of PyTorch's worker: weft's, Python's and numpy's."""
    torch, seen = oracle("torch"), []
    for module in (weft, torch):
        module.manual_seed(4)
        data = module.utils.data

        class Drawing(data.Dataset):
            def __len__(self):
                return 6

            def __getitem__(self, index, module=module):
                info = module.utils.data.get_worker_info()
                drawn = module.randn(2).tolist(), random.random(), float(np.random.rand())  # noqa: NPY002
                return index, info.id, info.num_workers, info.seed, *drawn

        loader = data.DataLoader(Drawing(), num_workers=2, collate_fn=first, persistent_workers=persistent)
        seen.append([list(loader), list(loader), module.rand(1).item()])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("options", [{"batch_size": 2}, {"batch_size": None}, {"batch_size": 2, "drop_last": True}])
def test_iterable_datasets_of_workers(options):
    """Workers take turns; one that has come to its end is left out."""
    torch, seen = oracle("torch"), []
    for data in (weft.utils.data, torch.utils.data):

        class Uneven(data.IterableDataset):
            def __iter__(self, data=data):
                number = data.get_worker_info().id
                return iter([(number, place) for place in range((5, 1, 8)[number])])

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = data.DataLoader(Uneven(), num_workers=3, collate_fn=as_they_are, **options)
            seen.append([list(loader), list(loader)])
    assert seen[0] == seen[1]


def test_batches_are_built_alike(both):
    def loaded(module, data):
        samples = [{"x": module.arange(3) * i, "y": np.float32(i), "z": (i, str(i))} for i in range(5)]
        return [plain(batch) for batch in data.DataLoader(samples, batch_size=2)]

    ours, theirs = both(loaded)
    assert agree(ours, theirs), (ours, theirs)


def test_an_exception_ends_no_loop():
    def item(index):
        if index == 1:
            raise ValueError("one")
        return index

    class Items(weft.utils.data.Dataset):
        def __getitem__(self, index):
            return item(index)

        def __len__(self):
            return 3

    iterator = iter(weft.utils.data.DataLoader(Items(), batch_size=None))
    assert next(iterator) == 0
    with pytest.raises(ValueError, match="one"):
        next(iterator)
    assert list(iterator) == [2]


def test_workers_are_ahead_by_one_batch_at_least():
    loader = weft.utils.data.DataLoader(TEN, num_workers=1, prefetch_factor=0)
    with pytest.raises(AssertionError, match="prefetch_factor must be greater than 0"):
        iter(loader)


def test_iterators_cannot_be_pickled():
    with pytest.raises(NotImplementedError):
        iter(weft.utils.data.DataLoader(TEN)).__reduce__()
