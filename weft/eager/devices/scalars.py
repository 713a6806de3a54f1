"""Numbers on a device: each is copied there once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import DType
from ...base.kept import Kept
from ...runtime.cuda.context import platform
from ..tensor.memory import Array
from .copies import copy_elements
from .memory import OnDevice, empty_on, uploaded

_constants: Kept[OnDevice] = Kept(1 << 10)
_unread: Kept[OnDevice] = Kept(1 << 10)


def constant_on(index: int, number: Array) -> OnDevice:
    """An array of one element on a device, which nobody writes to."""
    key = (platform().context(index), number.shape, number.dtype, number.tobytes())
    return _constants.find(key, lambda: uploaded(index, number))


def unread_on(index: int, shape: tuple[int, ...], dtype: DType) -> OnDevice:
    """Memory on a device that stands for a shape: nobody reads its values."""
    key = (platform().context(index), shape, dtype)
    return _unread.find(key, lambda: constant_on(index, np.zeros((), dtype)).broadcast(shape))


def filled(index: int, shape: Sequence[int], dtype: DType, value: Any) -> OnDevice:
    """New memory, full of one value."""
    made = empty_on(index, shape, dtype)
    copy_elements(made, constant_on(index, np.array(value, dtype)).broadcast(tuple(shape)))
    return made


def forget() -> None:
    """Lets the numbers go."""
    _constants.clear()
    _unread.clear()
