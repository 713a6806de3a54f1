"""The dtype that operands of different dtypes meet in, as PyTorch has it: among dtypes of one kind
the wider wins, a higher kind (bool, integer, float, complex) wins over width, and tensors with
dimensions outvote those without and Python numbers unless their kind is lower."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from ...base.dtype import BOOL, DTYPES, INT64, DType, is_complex, is_float, is_integer
from ...base.errors import RunError
from .types import get_default_dtype

BFLOAT16 = DTYPES["bfloat16"]


@cache
def promote(a: DType, b: DType) -> DType:
    """The dtype of two operands that count the same.

    >>> promote(np.dtype("int64"), np.dtype("float16"))
    dtype('float16')
    """
    if a == b:
        return a
    low, high = sorted((a, b), key=_kind)
    if _kind(low) != _kind(high):
        if is_complex(high) and low == DTYPES["float64"]:
            return DTYPES["complex128"]
        return high
    if is_float(a) and BFLOAT16 in (a, b):
        other = a if b == BFLOAT16 else b
        return DTYPES["float32"] if other.itemsize == 2 else other
    made = np.promote_types(a, b)
    if is_integer(a) and not is_integer(made):
        raise RunError(
            f"no dtype holds both {a} and {b}",
            why="an unsigned and a signed integer of 64 bits have no common type",
            hint="cast one of them",
        )
    return DTYPES[str(made)]


def _kind(dtype: DType) -> int:
    if dtype == BOOL:
        return 0
    if is_integer(dtype):
        return 1
    return 2 if is_float(dtype) else 3


def number_dtype(value: Any) -> DType:
    """The dtype that a Python number has among tensors."""
    if isinstance(value, (bool, np.bool_)):
        return BOOL
    if isinstance(value, (int, np.integer)):
        return INT64
    default: DType = get_default_dtype().numpy
    if isinstance(value, (complex, np.complexfloating)) and not isinstance(value, float):
        return complex_of(default)
    return default


def complex_of(dtype: DType) -> DType:
    return DTYPES["complex128" if dtype.itemsize == 8 else "complex64"]


def result_dtype(operands: Iterable[Any]) -> DType:
    """The dtype in which tensors and numbers meet."""
    dims = zero = wrapped = None
    for value in operands:
        dtype = getattr(value, "_dtype", None)
        if dtype is None or value._wrapped:
            dtype = number_dtype(value if dtype is None else value.item())
            wrapped = dtype if wrapped is None else promote(wrapped, dtype)
        elif value.ndim:
            dims = dtype if dims is None else promote(dims, dtype)
        else:
            zero = dtype if zero is None else promote(zero, dtype)
    made = _outvoted(dims, _outvoted(zero, wrapped))
    assert made is not None
    return made


def _outvoted(higher: DType | None, lower: DType | None) -> DType | None:
    """The dtype of operands that count more with those that count less."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if is_complex(higher):
        return higher
    if is_float(higher):
        return complex_of(higher) if is_complex(lower) else higher
    if higher == BOOL or _kind(lower) > 1:
        return promote(higher, lower)
    return higher
