"""Size: the shape of a tensor, a tuple of ints that stays a Size when sliced, added or repeated."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, SupportsIndex

from ...base.errors import InvalidType, InvalidValue

_INT64 = range(-(2**63), 2**63)


class Size(tuple[int, ...]):
    """The shape of a tensor.

    >>> Size([2, 3]), Size([2, 3]).numel(), Size([2, 3])[:1] + (4,)
    (weft.Size([2, 3]), 6, weft.Size([2, 4]))
    """

    __module__ = "weft"
    __slots__ = ()

    def __new__(cls, sizes: Iterable[SupportsIndex] = (), /) -> Size:
        if not isinstance(sizes, Iterable):
            kind = type(sizes).__name__
            raise InvalidType(f"weft.Size() takes an iterable of 'int', not {kind!r}")
        return tuple.__new__(cls, [_extent(i, value) for i, value in enumerate(sizes)])

    @staticmethod
    def of(sizes: Iterable[int], /) -> Size:
        """A Size of what is known to be Python ints."""
        return tuple.__new__(Size, sizes)

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        return math.prod(self)

    def __repr__(self) -> str:
        return f"weft.Size([{', '.join(map(repr, self))}])"

    def __reduce__(self) -> tuple[Any, tuple[tuple[int, ...]]]:
        return _rebuild, (tuple(self),)

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size.of(found) if isinstance(index, slice) else found

    def __add__(self, other: object) -> Any:
        if not isinstance(other, tuple):
            raise InvalidType(f"can only concatenate tuple (not {type(other).__name__}) to weft.Size")
        return Size(tuple.__add__(self, other))

    def __radd__(self, other: object) -> Any:
        if not isinstance(other, tuple):
            return NotImplemented
        return Size(other + tuple(self))

    def __mul__(self, times: Any) -> Size:
        return Size.of(tuple.__mul__(self, times))

    __rmul__ = __mul__


def _rebuild(sizes: tuple[int, ...]) -> Size:
    return Size(sizes)


def _extent(position: int, value: object) -> int:
    try:
        extent = operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError):
        raise InvalidType(
            f"weft.Size() takes an iterable of 'int' (item {position} is '{type(value).__name__}')"
        ) from None
    if extent not in _INT64:
        raise InvalidValue("Overflow when unpacking long long")
    return extent
