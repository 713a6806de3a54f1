"""Element types. Inside weft a dtype is always a `numpy.dtype`; those that numpy has not come from ml_dtypes."""

from __future__ import annotations

import difflib
from typing import Any

import ml_dtypes
import numpy as np

from .errors import InvalidValue

DType = np.dtype[Any]

_NAMES = ("bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 float32 float64 complex64 complex128").split()
DTYPES: dict[str, DType] = {name: np.dtype(name) for name in _NAMES}
DTYPES["bfloat16"] = np.dtype(ml_dtypes.bfloat16)

# What values can be stored and moved in, an element a byte, but not computed: that needs a cast to another dtype first.
_STORED_NAMES = (
    "float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz float8_e8m0fnu float6_e2m3fn float6_e3m2fn "
    "float4_e2m1fn int4 uint4 int2 uint2"
).split()
STORED_DTYPES: dict[str, DType] = {name: np.dtype(getattr(ml_dtypes, name)) for name in _STORED_NAMES}
NAMED_DTYPES: dict[str, DType] = {**DTYPES, **STORED_DTYPES}
_NAME_OF: dict[DType, str] = {dtype: name for name, dtype in NAMED_DTYPES.items()}
_STORED = frozenset(STORED_DTYPES.values())

FLOAT32, FLOAT64, INT32, INT64, BOOL = (DTYPES[name] for name in ("float32", "float64", "int32", "int64", "bool"))
FLOAT16, BFLOAT16 = DTYPES["float16"], DTYPES["bfloat16"]

# NNVM's integer codes, as they appear in the `dtype` attribute of variables and in saved graphs.
CODE_OF: dict[str, int] = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "uint8": 3,
    "int32": 4,
    "int8": 5,
    "int64": 6,
    "int16": 7,
    "uint16": 8,
    "uint32": 9,
    "uint64": 10,
    "bool": 11,
    "bfloat16": 12,
    "complex64": 13,
    "complex128": 14,
}
_STORED_CODES = {name: code for code, name in enumerate(_STORED_NAMES, len(CODE_OF))}  # which NNVM has not
_DTYPE_OF_CODE = {code: NAMED_DTYPES[name] for name, code in {**CODE_OF, **_STORED_CODES}.items()}
_CODE_OF_DTYPE = {dtype: code for code, dtype in _DTYPE_OF_CODE.items()}


def as_dtype(value: object) -> DType:
    """The dtype meant by a name, a numpy dtype or a Python type.

    >>> as_dtype("bfloat16").itemsize, as_dtype(np.float32)
    (2, dtype('float32'))
    """
    if isinstance(value, str):
        found = NAMED_DTYPES.get(value)
        if found is not None:
            return found
        close = difflib.get_close_matches(value, NAMED_DTYPES, n=1)
        raise InvalidValue(
            f"unknown dtype {value!r}",
            why="weft has " + ", ".join(DTYPES),
            hint=f"did you mean {close[0]!r}?" if close else None,
        )
    dtype = _numpy_dtype(value)
    if dtype not in _NAME_OF:
        raise _foreign(value)
    return NAMED_DTYPES[_NAME_OF[dtype]]


def _numpy_dtype(value: object) -> DType | None:
    if value is None:  # numpy takes None for float64
        return None
    try:
        return np.dtype(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        return None


def _foreign(value: object) -> InvalidValue:
    return InvalidValue(f"{value!r} is no dtype of weft", why="weft has " + ", ".join(DTYPES))


def dtype_name(dtype: DType) -> str:
    """The name of a dtype, as `as_dtype` takes it.

    >>> dtype_name(np.dtype("float32"))
    'float32'
    """
    name = _NAME_OF.get(dtype)
    if name is None:
        raise _foreign(dtype)
    return name


def dtype_code(dtype: DType) -> int:
    """NNVM's code of a dtype."""
    code = _CODE_OF_DTYPE.get(dtype)
    if code is None:
        raise _foreign(dtype)
    return code


def dtype_of_code(code: int) -> DType:
    """The dtype of one of NNVM's codes."""
    if code not in _DTYPE_OF_CODE:
        raise InvalidValue(f"unknown dtype code {code}", why=f"known codes: {CODE_OF}")
    return _DTYPE_OF_CODE[code]


def is_stored(dtype: DType) -> bool:
    """Whether values of a dtype are stored and moved, and cast to be computed with.

    >>> is_stored(as_dtype("int4")), is_stored(as_dtype("int8"))
    (True, False)
    """
    return dtype in _STORED


def has_native_code(dtype: DType) -> bool:
    """Whether kernels read and write values of a dtype; operators on others run their references."""
    return dtype not in _STORED and dtype.kind != "c"


def is_float(dtype: DType) -> bool:
    """Whether values of a dtype are computed as floating-point numbers."""
    return (dtype.kind == "f" and dtype.itemsize > 1) or dtype == DTYPES["bfloat16"]


def is_integer(dtype: DType) -> bool:
    return dtype.kind in "iu"


def is_complex(dtype: DType) -> bool:
    return dtype.kind == "c"
