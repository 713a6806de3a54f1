"""The same calls in weft and in PyTorch, and what both answer."""

import collections
import warnings

import numpy as np


def result_of(module, function):
    module.manual_seed(5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = plain(function(module, module.utils.data))
        except Exception as error:
            return _builtin(error)
    return result, module.rand(1).item(), [warning.category for warning in caught]


def _builtin(error):
    """The builtin that both raise; of weft's errors, whose several bases would all be caught, the names."""
    return {base for base in type(error).__mro__ if base.__module__ == "builtins"} - {object, BaseException, Exception}


def agree(ours, theirs):
    if isinstance(theirs, set):
        return isinstance(ours, set) and theirs <= ours
    return ours == theirs


def plain(value):
    """A result without what is a library's own."""
    if hasattr(value, "dtype") and hasattr(value, "tolist") and not isinstance(value, (np.ndarray, np.generic)):
        return ("tensor", str(value.dtype).split(".")[-1], tuple(value.shape), value.tolist())
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.tolist())
    if isinstance(value, collections.abc.Mapping):
        return type(value).__name__, {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [plain(entry) for entry in value]
    return value


def counting(data, size=7, length=None):
    class Counting(data.IterableDataset):
        def __iter__(self):
            return iter(range(size))

    class Sized(Counting):
        def __len__(self):
            return length

    return Counting() if length is None else Sized()
