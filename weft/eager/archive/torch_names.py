"""The functions that PyTorch's pickles name, under those names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from operator import add
from typing import Any

from .rebuild import from_type as _rebuild_from_type_v2
from .rebuild import parameter as _rebuild_parameter
from .rebuild import parameter_with_state as _rebuild_parameter_with_state
from .rebuild import tensor_v1 as _rebuild_tensor
from .rebuild import tensor_v2 as _rebuild_tensor_v2
from .rebuild import tensor_v3 as _rebuild_tensor_v3

__all__ = [
    "_accumulate",
    "_rebuild_from_type_v2",
    "_rebuild_parameter",
    "_rebuild_parameter_with_state",
    "_rebuild_tensor",
    "_rebuild_tensor_v2",
    "_rebuild_tensor_v3",
]


def _accumulate(values: Iterable[Any], function: Callable[[Any, Any], Any] = add) -> Iterator[Any]:
    """Running totals.

    >>> list(_accumulate([1, 2, 3]))
    [1, 3, 6]
    """
    return accumulate(values, function)
