"""Conversion of elements between dtypes, as PyTorch on x86 has it: numpy arrays or Python numbers
come in, numpy arrays go out. Where C leaves the result of a cast open, the rule is written here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.dtype import BOOL, DTYPES, DType, is_complex, is_float, is_integer
from ...base.errors import InvalidType, InvalidValue, RunError

_FLOAT32, _INT32, _INT64, _UINT64 = (DTYPES[name] for name in "float32 int32 int64 uint64".split())
_NARROW_FLOATS = (DTYPES["float16"], DTYPES["bfloat16"])


def convert(values: NDArray[Any], target: DType) -> NDArray[Any]:
    """The values as elements of another dtype, in new memory.

    Floats are cut toward zero to make integers and integers wrap; what is not zero is True.

    >>> convert(np.array([1.7, -2.9, 300.0]), np.dtype("uint8")).tolist()
    [1, 254, 44]
    """
    source = values.dtype
    if target == BOOL:
        return np.asarray(values != 0)
    if is_complex(source) and not is_complex(target):
        values = values.real
    if is_integer(target) and is_float(values.dtype):
        return _cut(values, target)
    with np.errstate(all="ignore"):
        if target in _NARROW_FLOATS and source != target:
            values = values.astype(_FLOAT32)  # PyTorch rounds twice: to float32, then to 16 bits
        return values.astype(target)


def _cut(values: NDArray[Any], target: DType) -> NDArray[Any]:
    """Floats cut toward zero. What does not fit the register that x86 converts in becomes its
    lowest integer, and then wraps into the target."""
    if values.dtype.itemsize < 4:
        values = values.astype(_FLOAT32)
    if target == _UINT64:
        return _cut_to_uint64(values)
    register = _INT32 if target.itemsize < 4 or target == _INT32 else _INT64
    return _to_register(values, register).astype(target)


def _to_register(values: NDArray[Any], register: DType) -> NDArray[Any]:
    end = 2.0 ** (register.itemsize * 8 - 1)
    fits = (values >= -end) & (values < end)
    return np.where(fits, values, values.dtype.type(-end)).astype(register)


def _cut_to_uint64(values: NDArray[Any]) -> NDArray[Any]:
    half = values.dtype.type(2.0**63)
    low = _to_register(values, _INT64).astype(_UINT64)
    high = _to_register(values - half, _INT64).astype(_UINT64) + _UINT64.type(2**63)
    return np.where(values >= half, high, low)


def from_python(data: Iterable[Any], target: DType) -> NDArray[Any]:
    """A sequence of Python numbers as a one-dimensional array; a number that does not fit raises.

    >>> from_python([1.7, True], np.dtype("int32")).tolist()
    [1, 1]
    """
    try:
        values = np.array(data if isinstance(data, (list, tuple, np.ndarray)) else list(data))
    except (TypeError, ValueError) as error:
        raise InvalidType(f"a {type(data).__name__} is no sequence of numbers: {error}") from None
    if values.ndim != 1:
        raise InvalidValue(f"expected one dimension of numbers, got {values.ndim} dimensions")
    if values.size == 0:
        return np.empty(0, target)
    if values.dtype.kind == "O":
        values = _of_large_integers(values, target)
    if values.dtype != DTYPES["bfloat16"] and values.dtype.kind not in "biufc":
        kind = type(next(iter(data))).__name__
        raise InvalidType(f"can't make a {target} of a {kind}")
    return _checked(values, target)


def _of_large_integers(values: NDArray[Any], target: DType) -> NDArray[Any]:
    """Python integers of more than 64 bits, which only a float can hold."""
    if not all(isinstance(value, (int, float, np.integer, np.floating)) for value in values):
        kinds = sorted({type(value).__name__ for value in values})
        raise InvalidType(f"can't make a {target} of {', '.join(kinds)}")
    if is_integer(target):
        raise _overflow(target)
    return values.astype(np.float64)


def _checked(values: NDArray[Any], target: DType) -> NDArray[Any]:
    if is_complex(values.dtype) and not is_complex(target):
        raise InvalidType(f"can't make a {target} of a complex number")
    if is_integer(target):
        whole = values if is_integer(values.dtype) else np.trunc(values.astype(np.float64))
        low, high = number_limits(target, is_integer(values.dtype))
        if not _within(whole, low, high):
            raise _overflow(target)
    return convert(values, target)


def number_limits(target: DType, whole: bool) -> tuple[int, int]:
    """Which Python numbers an integer dtype takes: negative whole ones wrap into unsigned dtypes.

    >>> number_limits(np.dtype("uint8"), True), number_limits(np.dtype("uint8"), False)
    ((-255, 255), (0, 255))
    """
    limits = np.iinfo(target)
    low, high = int(limits.min), int(limits.max)
    return (-high if whole and low == 0 else low), high


def _within(whole: NDArray[Any], low: int, high: int) -> bool:
    least, most = whole.min(), whole.max()  # a NaN among them fails both comparisons
    if is_float(whole.dtype):
        return bool(least >= low and most < high + 1)
    return int(least) >= low and int(most) <= high


def _overflow(target: DType) -> RunError:
    return RunError(f"value cannot be converted to type {target} without overflow")
