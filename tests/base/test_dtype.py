import ml_dtypes
import numpy as np
import pytest

from weft.base.dtype import (
    CODE_OF,
    DTYPES,
    STORED_DTYPES,
    as_dtype,
    dtype_code,
    dtype_name,
    dtype_of_code,
    has_native_code,
    is_complex,
    is_float,
    is_integer,
    is_stored,
)
from weft.base.errors import InvalidValue

# NNVM's TypeFlag, and bfloat16 and complex after it.
CODES = (
    "float32 float64 float16 uint8 int32 int8 int64 int16 uint16 uint32 uint64 bool bfloat16 complex64 complex128"
).split()


@pytest.mark.parametrize(("code", "name"), list(enumerate(CODES)))
def test_codes(code, name):
    numpy_dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    assert dtype_code(numpy_dtype) == code
    assert dtype_of_code(code) == numpy_dtype
    assert dtype_name(numpy_dtype) == name
    assert as_dtype(name) is as_dtype(numpy_dtype)


def test_every_dtype_has_a_code():
    assert set(DTYPES) == set(CODE_OF) == set(CODES)


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (float, "float64"),
        (int, "int64"),
        (bool, "bool"),
        (complex, "complex128"),
        (np.int8, "int8"),
        (np.longlong, "int64"),
        (ml_dtypes.bfloat16, "bfloat16"),
        (np.dtype("<f4"), "float32"),
    ],
)
def test_python_and_numpy_types(value, name):
    assert dtype_name(as_dtype(value)) == name


@pytest.mark.parametrize("value", ["float31", "", "f4", ">f4", "object", "datetime64"])
def test_unknown_names(value):
    with pytest.raises(InvalidValue, match="unknown dtype") as caught:
        as_dtype(value)
    assert "bfloat16" in caught.value.why


@pytest.mark.parametrize("value", [None, object(), np.dtype(">f4"), np.dtype("U3"), list, 3, [1], {"names": 1}, (1, 2)])
def test_what_is_no_dtype(value):
    with pytest.raises(InvalidValue, match="is no dtype of weft"):
        as_dtype(value)


def test_a_close_name_is_proposed():
    with pytest.raises(InvalidValue, match="did you mean 'float32'"):
        as_dtype("flaot32")


@pytest.mark.parametrize("function", [dtype_name, dtype_code])
def test_foreign_dtype_has_no_name(function):
    with pytest.raises(InvalidValue, match="is no dtype of weft"):
        function(np.dtype(">i4"))


def test_unknown_code():
    with pytest.raises(InvalidValue, match="unknown dtype code 99"):
        dtype_of_code(99)


def test_kinds():
    floats = {"float16", "bfloat16", "float32", "float64"}
    assert {name for name, dtype in DTYPES.items() if is_float(dtype)} == floats
    assert {n for n, d in DTYPES.items() if is_complex(d)} == {"complex64", "complex128"}
    integers = {n for n, d in DTYPES.items() if is_integer(d)}
    assert integers == {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


@pytest.mark.parametrize("name", STORED_DTYPES)
def test_dtypes_that_are_stored_are_known_by_name_and_code(name):
    numpy_dtype = np.dtype(getattr(ml_dtypes, name))
    assert as_dtype(name) is as_dtype(numpy_dtype)
    assert dtype_name(numpy_dtype) == name
    assert dtype_of_code(dtype_code(numpy_dtype)) == numpy_dtype
    assert dtype_code(numpy_dtype) not in CODE_OF.values()


def test_dtypes_that_are_stored_are_not_computed_with():
    assert not set(STORED_DTYPES) & set(DTYPES)
    for dtype in STORED_DTYPES.values():
        assert is_stored(dtype)
        assert dtype.itemsize == 1
        assert not any(test(dtype) for test in (is_float, is_integer, is_complex, has_native_code))
    without_code = {name for name, dtype in DTYPES.items() if not has_native_code(dtype)}
    assert without_code == {"complex64", "complex128"}
