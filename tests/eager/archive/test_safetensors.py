"""safetensors files: written and read by the letter of the format, and nothing else."""

import io
import json
import struct

import numpy as np
import pytest

from weft.base.errors import Error
from weft.eager.archive.load import load
from weft.eager.archive.safetensors import load_safetensors, read_safetensors, save_safetensors
from weft.eager.tensor import types
from weft.eager.tensor.tensor import wrap

CODES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
}


def build(header, body=b"", size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if size is None else size) + text + body


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 4)])
def test_every_dtype(name, shape):
    kind = types.as_dtype(name).numpy
    array = np.random.default_rng(1).integers(0, 2, shape).astype(kind)
    expected = build({"x": entry(CODES[name], shape, (0, array.nbytes))}, array.tobytes())
    found = load_safetensors(expected)["x"]
    assert found.dtype.name == name
    assert found.tolist() == array.tolist()
    file = io.BytesIO()
    save_safetensors({"x": wrap(array)}, file)
    data = file.getvalue()
    (size,) = struct.unpack_from("<Q", data)
    assert size % 8 == 0
    assert json.loads(data[8 : 8 + size]) == {"x": entry(CODES[name], shape, (0, array.nbytes))}
    assert data[8 + size :] == array.tobytes()


def test_a_path_with_metadata_and_views(tmp_path):
    base = wrap(np.arange(12, dtype=np.float32).reshape(3, 4))
    tensors = {"all": base, "turned": wrap(base._array.T), "bytes": wrap(np.arange(3, dtype="u1"))}
    path = tmp_path / "m.safetensors"
    save_safetensors(tensors, path, {"format": "pt", "é": "ü"})
    found, metadata = read_safetensors(path)
    assert metadata == {"format": "pt", "é": "ü"}
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in tensors.items()}
    assert all(tensor.data_ptr() % 64 == 0 for tensor in found.values())
    with open(path, "rb") as file:
        assert set(load_safetensors(file)) == set(tensors)
    found["all"].untyped_storage().resize_(4096)
    assert found["all"].tolist() == base.tolist()
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


EIGHT = bytes(8)
deep = []
for _ in range(900):
    deep = [deep]
BAD = [
    (b"", "less than 8 bytes"),
    (build(b"{}", size=2**63), "larger than the file"),
    (build(b"{}", size=3), "larger than the file"),
    (build(b"[]"), "does not start with"),
    (build(b" {}"), "does not start with"),
    (build(b"{"), "no JSON"),
    (build(b'{"\xff":1}'), "no JSON"),
    (build(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "no JSON|has dtype"),
    (build(b'{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"x":{}}', EIGHT), "twice"),
    (build({"x": 5}), "has dtype, shape and data_offsets"),
    (build({"x": {**entry(), "more": 1}}, EIGHT), "has dtype, shape and data_offsets"),
    (build({"x": entry("F31")}, EIGHT), "unknown element type"),
    (build({"x": entry(["F32"])}, EIGHT), "unknown element type|unhashable"),
    (build({"x": entry(deep)}, EIGHT), "unknown element type a list|no JSON"),
    (build(b'{"x":' + b"9" * 5000 + b"}"), "no JSON"),
    (build(b'{"x":NaN}'), "has dtype"),
    (build({"x": entry("F8_E4M3")}, EIGHT), "elements of type F8_E4M3"),
    (build({"x": entry(shape=(-2,))}, EIGHT), "no list of sizes"),
    (build({"x": entry(shape=(2.0,))}, EIGHT), "no list of sizes"),
    (build({"x": entry(shape=(True,))}, EIGHT), "no list of sizes"),
    (build({"x": entry(shape=(1,) * 70)}, EIGHT), "no list of sizes"),
    (build({"x": entry(shape=(3,))}, EIGHT), r"8 bytes for shape \[3\]"),
    (build({"x": entry(shape=(2**40, 2**40))}, EIGHT), "8 bytes for shape"),
    (build({"x": entry(offsets=(8, 0))}, EIGHT), "-8 bytes"),
    (build({"x": entry(offsets=(0, 8, 9))}, EIGHT), "no two offsets"),
    (build({"x": entry(offsets=(8, 16))}, bytes(16)), "starts at byte 8"),
    (build({"x": entry()}, bytes(16)), "take 8 bytes, the file has 16"),
    (build({"x": entry()}, bytes(4)), "take 8 bytes, the file has 4"),
    (build({"x": entry(), "y": entry()}, EIGHT), "starts at byte 0"),
    (build({"__metadata__": {"a": 1}}), "text by name"),
    (build({"__metadata__": []}), "text by name"),
]


@pytest.mark.parametrize(("data", "message"), BAD)
def test_wrong_files(data, message):
    with pytest.raises(Error, match=message):
        load_safetensors(data)


def test_wrong_arguments():
    one = wrap(np.ones(1, np.float32))
    for tensors in ({"x": 5}, {5: one}, {"__metadata__": one}):
        with pytest.raises(TypeError, match="tensors by name"):
            save_safetensors(tensors, io.BytesIO())
    with pytest.raises(NotImplementedError, match="no complex128"):
        save_safetensors({"x": wrap(np.ones(1, complex))}, io.BytesIO())
    with pytest.raises(TypeError, match="text by name"):
        save_safetensors({}, io.BytesIO(), {"a": 5})
    with pytest.raises(AttributeError):
        save_safetensors({}, 5)
    with pytest.raises(AttributeError):
        load_safetensors(5)


def test_bytes_that_are_no_booleans():
    found = load_safetensors(build({"x": entry("BOOL", (3,), (0, 3))}, b"\0\2\1"))
    assert found["x"].tolist() == [False, True, True]


def test_the_other_reader_says_which_one_to_use():
    file = io.BytesIO()
    save_safetensors({"x": wrap(np.ones(2, np.float32))}, file)
    file.seek(0)
    with pytest.raises(Error, match="load_safetensors reads it"):
        load(file)
