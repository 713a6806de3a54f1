"""Parameters as bytes: the layout byte by byte, the round trip, and hostile files."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base.dtype import STORED_DTYPES
from weft.base.errors import FormatError
from weft.base.ndarray import array
from weft.base.param_dict import load_param_dict, save_param_dict

INTEGERS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64".split()
DTYPES = [*INTEGERS, "float16", "float32", "float64", "complex64"]


def test_the_bytes_are_those_of_tvm():
    expected = struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, 1)
    expected += struct.pack("<Q", 1) + b"w" + struct.pack("<Q", 1)
    expected += struct.pack("<QQ", 0xDD5E40F096B4A13F, 0)
    expected += struct.pack("<ii", 1, 0) + struct.pack("<i", 2) + struct.pack("<BBH", 2, 32, 1)
    expected += struct.pack("<qq", 1, 2) + struct.pack("<q", 8) + struct.pack("<ff", 1.5, -2)
    assert save_param_dict({"w": np.array([[1.5, -2]], "float32")}) == expected


@pytest.mark.parametrize("dtype", [*DTYPES, ml_dtypes.bfloat16, *STORED_DTYPES.values()])
@pytest.mark.parametrize("shape", [(), (3,), (2, 0, 3), (2, 1, 4)])
def test_round_trip(dtype, shape):
    values = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    loaded = load_param_dict(save_param_dict({"größe": values, "b": array(values)}))
    assert list(loaded) == ["größe", "b"]
    for found in loaded.values():
        assert found.shape == shape
        assert found.numpy().dtype == values.dtype
        assert found.asnumpy().tobytes() == values.tobytes()


def test_strides_and_byte_order_do_not_matter():
    values = np.arange(12, dtype="float32").reshape(3, 4)
    plain = save_param_dict({"w": values})
    for other in (np.asfortranarray(values), values[::-1][::-1], values.astype(">f4")):
        assert save_param_dict({"w": other}) == plain


def test_nothing_at_all():
    assert load_param_dict(save_param_dict({})) == {}


def test_what_cannot_be_saved():
    for params in ({3: np.zeros(2)}, {"w": np.array(["a"])}, {"w": object()}, [1]):
        with pytest.raises((TypeError, ValueError)) as caught:
            save_param_dict(params)
        assert "weft" in type(caught.value).__module__


def test_every_truncation_is_noticed():
    data = save_param_dict({"a": np.ones((2, 3), "float32"), "b": np.zeros(2, "int64")})
    for size in range(len(data)):
        with pytest.raises(FormatError):
            load_param_dict(data[:size])
    with pytest.raises(FormatError, match="left over"):
        load_param_dict(data + b"\0")


def hostile(rank=1, code=2, bits=32, lanes=1, shape=(1,), size=4, names=1, count=1):
    data = struct.pack("<QQQ", 0xF7E58D4F05049CB7, 0, names)
    data += (struct.pack("<Q", 1) + b"w") * min(names, 2) + struct.pack("<Q", count)
    data += struct.pack("<QQiii", 0xDD5E40F096B4A13F, 0, 1, 0, rank)
    data += struct.pack("<BBH", code, bits, lanes) + struct.pack(f"<{len(shape)}q", *shape)
    return data + struct.pack("<q", size) + bytes(4)


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": -1},
        {"rank": 2**30},
        {"code": 9},
        {"bits": 7},
        {"lanes": 4},
        {"shape": (-1,)},
        {"shape": (2**62,)},
        {"shape": (2,)},
        {"size": -4},
        {"size": 2**60},
        {"names": 2**60},
        {"names": 2, "count": 2},
        {"count": 2**63},
    ],
)
def test_hostile_numbers(changes):
    load_param_dict(hostile())
    with pytest.raises(FormatError):
        load_param_dict(hostile(**changes))


@given(st.binary(max_size=200))
def test_random_bytes(data):
    with pytest.raises(FormatError):
        load_param_dict(data)
