"""Arrays of any library come in, numpy arrays over the same memory go out; nothing is copied."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from ..base import dlpack
from ..base.errors import Error, InvalidValue, NoDriver
from ..base.ndarray import NDArray
from .program import Array

_sharing: dict[int, Callable[[Any], Any]] = {}  # by DLPack's code of a kind of device
_CUDA = 2


def register_sharing(code: int, share: Callable[[Any], Any]) -> None:
    """Has arrays on a kind of device come in by a function."""
    _sharing[code] = share


def shared_array(value: Any) -> Any:
    """The memory of an array as numpy sees it, read-only where its owner says so; None for what has no memory to
    share: a list, a number. Arrays on devices that something here runs on come in as arrays of theirs.

    >>> ours = NDArray(np.zeros(3))
    >>> shared_array(ours)[1] = 7
    >>> ours[1], shared_array([1, 2])
    (np.float64(7.0), None)
    """
    if isinstance(value, np.ndarray) or getattr(value, "is_of_device", False):
        return value
    if isinstance(value, NDArray):
        return value.numpy()
    if isinstance(value, np.generic):
        return None
    if hasattr(value, "__dlpack__"):
        kind = value.__dlpack_device__()[0] if hasattr(value, "__dlpack_device__") else 1
        if kind in _sharing:
            with suppress(NoDriver):  # nothing here runs on such a device: the next line says where the array is
                return _sharing[kind](value)
        return dlpack.from_dlpack(value)
    if hasattr(value, "__cuda_array_interface__") and _CUDA in _sharing:
        return _sharing[_CUDA](value)
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    return None


REFUSALS = (ValueError, TypeError, OverflowError, RuntimeError, BufferError)  # what exporters raise


def refused(value: Any, what: str, expected: object, error: Exception) -> InvalidValue:
    """The error for an array that does not give its memory away."""
    told = f"{error.what}: {error.why}" if isinstance(error, Error) and error.why else str(error)
    return InvalidValue(
        f"{what} is a {type(value).__name__} that makes no array",
        why=f"expected {expected}; {told.splitlines()[0] if told else type(error).__name__}",
        hint=_remedy(value, error),
    )


def _remedy(value: Any, error: Exception) -> str | None:
    if getattr(value, "requires_grad", False):
        return "x.detach(): a compiled model records nothing for gradients"
    kind = getattr(getattr(value, "device", None), "type", "cpu")
    if kind != "cpu":
        return f"x.cpu(): the array is on {kind}, and weft runs on the CPU"
    return error.hint if isinstance(error, Error) else None


def span(array: Array) -> tuple[int, int]:
    """The addresses of an array's first byte, and of the byte behind its last; equal if it has no elements."""
    start: int = array.__array_interface__["data"][0]
    if array.flags.c_contiguous or not array.size:
        return start, start + array.nbytes
    reach = [(extent - 1) * stride for extent, stride in zip(array.shape, array.strides)]
    return start + sum(step for step in reach if step < 0), start + sum(s for s in reach if s > 0) + array.itemsize


def overlapping(arrays: Sequence[Array], others: Sequence[Array] = ()) -> set[int]:
    """The numbers of those arrays whose memory is also another's of them, or of the others.

    >>> x = np.zeros(8)
    >>> sorted(overlapping([x[:4], x[4:], np.zeros(2), x[5:6]], [x[:2]]))
    [0, 1, 3]
    """
    spans = [(*span(array), number) for number, array in enumerate(arrays)]
    spans += [(*span(array), -1) for array in others]
    spans = sorted(found for found in spans if found[0] < found[1])
    touched: set[int] = set()
    reached = 0  # where the memory of all before ends
    for place, (start, end, number) in enumerate(spans):
        runs_into_next = place + 1 < len(spans) and spans[place + 1][0] < end
        if number >= 0 and (start < reached or runs_into_next):
            touched.add(number)
        reached = max(reached, end)
    return touched
