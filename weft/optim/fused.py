"""The native way of a step: all parameters of a group and their states in one call for each dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ..base.dtype import FLOAT32, FLOAT64, DType, is_complex
from ..base.errors import RunError
from ..eager.native.lists import ListUpdate, Words, addresses, places_of
from ..eager.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
COMPLEX_PARTS = {np.dtype("complex64"): FLOAT32, np.dtype("complex128"): FLOAT64}


@lru_cache(256)
def update_of(rule: Callable[..., Any], on: frozenset[str], dtype: DType, lists: int, numbers: tuple[str, ...]) -> Any:
    """The kernel of a rule; its lists are parameters, gradients and states, of which it writes all but gradients."""

    def elements(m: Any, n: Any, *x: Any) -> Any:
        return rule(m, on, n, *x)

    return ListUpdate(elements, dtype, lists, numbers, (0, *range(2, lists)))


class Batch:
    """Parameters of one dtype with their states, as they lie in memory; `members` are their places in the group."""

    def __init__(self, dtype: DType, members: Sequence[int], columns: Sequence[Sequence[Array]]) -> None:
        self.dtype, self.members = dtype, members
        self.lists = [[column[member] for member in members] for column in columns]  # parameters, then states
        sizes = np.array([a.size * (a.itemsize // dtype.itemsize) for a in self.lists[0]], np.int64)
        self.places = places_of(sizes)
        self.elements = int(sizes.sum())
        self.table: Words = np.zeros((len(members), len(columns) + 3), np.int64)
        for number, column in zip((0, *range(2, len(columns) + 1)), self.lists):
            self.table[:, number] = self._steps(column)
        self.table[:, -2] = sizes

    def _steps(self, arrays: Sequence[Array]) -> Words:
        """How many elements arrays are away from the first."""
        at = addresses(arrays)
        steps: Words = (at - at[0]) // self.dtype.itemsize
        return steps

    def run(self, update: ListUpdate, grads: Sequence[Array], kinds: Sequence[int] | None, numbers: Array) -> None:
        self.table[:, 1] = self._steps(grads)
        self.table[:, -1] = 0 if kinds is None else kinds
        first, *states = [column[0] for column in self.lists]
        update.run([first, grads[0], *states], self.table, numbers, self.places, self.elements)


class Plan:
    """How a group's parameters with gradients are stepped: in batches, and one by one where memory is not plain."""

    def __init__(self, params: Sequence[Tensor], columns: Sequence[Sequence[Array]]) -> None:
        self.held = params, columns  # so that identities stay theirs
        self.identities = _identities(params, columns)
        kinds: dict[DType, list[int]] = {}
        self.alone: list[int] = []
        for number, (p, *arrays) in enumerate(zip(params, *columns)):
            dtype = _plain(p, arrays)
            (self.alone if dtype is None else kinds.setdefault(dtype, [])).append(number)
        if _overlap([column[n] for members in kinds.values() for n in members for column in columns]):
            kinds, self.alone = {}, list(range(len(params)))
        self.batches = [Batch(dtype, members, columns) for dtype, members in kinds.items()]

    def serves(self, params: Sequence[Tensor], columns: Sequence[Sequence[Array]]) -> bool:
        return _identities(params, columns) == self.identities


def _identities(params: Sequence[Tensor], columns: Sequence[Sequence[Array]]) -> list[list[int]]:
    return [list(map(id, params)), *[list(map(id, column)) for column in columns]]


def _plain(p: Tensor, arrays: Sequence[Array]) -> DType | None:
    """The dtype in which native code steps a parameter: floats in order of memory, which nothing else knows of. Where
    empty arrays begin means nothing."""
    first = arrays[0]
    if p._base is not None or p._grad_fn is not None or p._inference or not first.size:
        return None
    dtype = COMPLEX_PARTS[first.dtype] if is_complex(first.dtype) else first.dtype
    fits = [
        type(a) is np.ndarray and a.flags.carray and a.dtype == first.dtype and a.shape == first.shape for a in arrays
    ]
    return dtype if dtype in (FLOAT32, FLOAT64) and all(fits) else None


def _overlap(arrays: Sequence[Array]) -> bool:
    """Whether some memory would be written twice."""
    arrays = [array for array in arrays if array.size]
    starts = addresses(arrays)
    order = np.argsort(starts)
    ends = (starts + np.array([a.nbytes for a in arrays], np.int64))[order]
    return bool((starts[order][1:] < ends[:-1]).any())


def gradients(params: Sequence[Tensor]) -> list[Array]:
    """The gradients of parameters, in order of memory."""
    found = []
    for p in params:
        grad: Any = p._grad
        array, own = grad._array, p._array
        if array.shape != own.shape or array.dtype != own.dtype:
            check_gradient(p, grad)
        flags = array.flags
        found.append(array if flags.c_contiguous and flags.aligned else np.array(array, order="C"))
    return found


def check_gradient(p: Tensor, grad: Tensor) -> None:
    """Refuses a gradient that is not one of the parameter."""
    if grad._shape != p._shape or grad._dtype != p._dtype:
        raise RunError(
            f"a parameter of shape {list(p.shape)} and {p.dtype} has a gradient of shape {list(grad.shape)} "
            f"and {grad.dtype}"
        )
