"""Collation: a list of samples comes in, and a batch goes out that is built as they are, with tensors at the leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from ...base.errors import InvalidType, OutOfRange, RunError
from ...eager.functions.create.data import as_tensor, tensor
from ...eager.functions.shape.join import stack
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.types import float64

Collate = Callable[..., Any]
_NOT_NUMBERS = "SUaO"  # kinds of numpy's dtypes: text, bytes, objects


def default_convert(data: Any) -> Any:
    """A sample with tensors in place of numpy's arrays and numbers.

    >>> default_convert([np.arange(2), "a"])
    [tensor([0, 1]), 'a']
    """
    if isinstance(data, np.ndarray | np.generic):
        return data if data.dtype.kind in _NOT_NUMBERS else as_tensor(data)
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(data[key]) for key in data})
    if _is_named(data):
        return type(data)(*map(default_convert, data))
    if isinstance(data, tuple):
        return list(map(default_convert, data))
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _like(data, list(map(default_convert, data)))
    return data


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of samples: tensors, arrays and numbers are stacked, text is listed, and of mappings and sequences each
    entry is a batch.

    >>> default_collate([{"x": 1, "name": "a"}, {"x": 2, "name": "b"}])
    {'x': tensor([1, 2]), 'name': ['a', 'b']}
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)


def collate(batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Collate] | None = None) -> Any:
    """`default_collate` with another table of what to do with the leaves: functions by a type or a tuple of types.

    >>> collate([(1, "a"), (2, "b")], collate_fn_map={int: lambda batch, *, collate_fn_map: sum(batch), str: listed})
    [3, ('a', 'b')]
    """
    if not len(batch):
        raise OutOfRange("no samples make no batch", why="the list of samples is empty")
    first, table = batch[0], collate_fn_map or {}
    for kind in (type(first), *table):
        if kind in table and isinstance(first, kind):
            return table[kind](batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        return _like(first, {key: collate([s[key] for s in batch], collate_fn_map=collate_fn_map) for key in first})
    if not isinstance(first, Sequence):
        raise _no_leaf(type(first))
    if not _is_named(first) and any(len(sample) != len(first) for sample in batch):
        raise RunError(
            "each element in list of batch should be of equal size",
            why=f"they have {sorted({len(sample) for sample in batch})} entries",
            hint="give a collate_fn of your own that pads them",
        )
    entries = [collate(samples, collate_fn_map=collate_fn_map) for samples in zip(*batch)]
    if _is_named(first):
        return type(first)(*entries)
    return entries if isinstance(first, tuple) else _like(first, entries)


def stacked(batch: Sequence[Tensor], *, collate_fn_map: Any = None) -> Tensor:
    """Tensors along a new first dimension."""
    return stack(list(batch))


def stacked_arrays(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Arrays along a new first dimension."""
    if batch[0].dtype.kind in _NOT_NUMBERS:
        raise _no_leaf(batch[0].dtype)
    return stack([as_tensor(array) for array in batch])


def numpy_numbers(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Numbers of numpy, in their dtype."""
    return as_tensor(np.asarray(batch))


def floats(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Python's floats, in double precision, which is theirs."""
    return tensor(batch, dtype=float64)


def integers(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Tensor:
    """Whole numbers and truth values."""
    return tensor(batch)


def listed(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
    """Text, as it is."""
    return batch


default_collate_fn_map: dict[Any, Collate] = {
    Tensor: stacked,
    np.ndarray: stacked_arrays,
    (np.bool_, np.number, np.object_): numpy_numbers,
    float: floats,
    int: integers,
    str: listed,
    bytes: listed,
}


def _is_named(value: Any) -> bool:
    """Whether it is a tuple whose entries have names."""
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _like(model: Any, entries: Any) -> Any:
    """Entries in a container of the model's type where it can be made or copied; else a plain dict or list."""
    if type(model) in (dict, list):
        return entries
    try:
        if isinstance(model, MutableMapping):
            made: Any = copy.copy(model)  # which keeps what else it holds, such as the factory of a defaultdict
            made.update(entries)
            return made
        if isinstance(model, MutableSequence):
            made = copy.copy(model)
            made[:] = entries
            return made
        return type(model)(entries)
    except TypeError:
        return entries


def _no_leaf(found: Any) -> InvalidType:
    return InvalidType(
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {found}",
        hint="give a collate_fn of your own",
    )
