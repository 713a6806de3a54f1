"""Files with large tensors, which are read past protobuf: the same models and the same errors."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_models import make_model, node

from weft.base.errors import Error, FormatError
from weft.core.interpret import evaluate
from weft.frontend import from_onnx
from weft.frontend.onnx import large

SMALL = 4096  # bytes that count as large here


@pytest.fixture(autouse=True)
def many_are_large(monkeypatch):
    monkeypatch.setattr(large, "LARGE", SMALL)


def weights(rng):
    """Some above the limit and some below, of several dtypes and alignments in the file."""
    return {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "bb": rng.standard_normal((33, 64)).astype(np.float32),
        "ccc": rng.integers(-9, 9, (2000,)),
        "d": rng.standard_normal((5, 999)).astype(np.float16),
        "eeee": rng.standard_normal((7,)).astype(np.float32),
        "f": rng.standard_normal((1024,)).astype(np.float32),
    }


def using(rng):
    """A model in whose outputs all weights are, so that all of them are parameters."""
    made = weights(rng)
    nodes = [node("Add", f"{name} {name}", f"{name}_out") for name in made]
    outputs = [f"{name}_out" for name in made]
    inputs = {"x": [2]}
    return make_model([*nodes, node("Relu", "x", "y")], inputs, ["y", *outputs], made), made


def values(source):
    _, params = from_onnx(source)
    return {name: value.numpy() for name, value in params.items()}


def test_tensors_are_what_the_file_holds(rng, tmp_path):
    proto, made = using(rng)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    cut = large.read_without_large(path)
    assert sorted(cut.tensors) == [1, 2, 3, 5]
    assert len(cut.data) < 2 * SMALL
    symbol, params = from_onnx(path)
    known = {name: value.numpy() for name, value in params.items()}
    _, *found = evaluate(symbol, {**known, "x": np.zeros(2, np.float32)})
    for value, result in zip(made.values(), found, strict=True):
        np.testing.assert_array_equal(result, value + value)


def test_a_parameter_may_be_written_to(rng, tmp_path):
    made = rng.standard_normal((64, 64)).astype(np.float32)
    proto = make_model([node("MatMul", "x w", "y")], {"x": [2, 64]}, ["y"], {"w": made})
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    _, params = from_onnx(path)
    np.testing.assert_array_equal(params["w"].numpy(), made)
    assert params["w"].aligned
    params["w"].numpy()[0, 0] = 7
    assert from_onnx(path)[1]["w"].numpy()[0, 0] == made[0, 0]


def outcome(source):
    try:
        return {name: value.tobytes() for name, value in values(source).items()}
    except Error as error:
        return type(error)


def test_truncated_and_flipped_files_are_what_their_bytes_are(rng, tmp_path):
    data = using(rng)[0].SerializeToString()
    path = tmp_path / "m.onnx"
    kinds = set()
    for turn in range(300):
        broken = bytearray(data)
        if turn % 3 == 0:
            del broken[rng.integers(len(data)) :]
        else:
            heads = rng.integers(min(len(data), 300), size=3)
            for place in (*heads, rng.integers(len(data))):
                broken[place] = rng.choice([0, 255, rng.integers(256)])
        path.write_bytes(broken)
        found = outcome(path)
        assert found == outcome(bytes(broken))
        kinds.add(found if isinstance(found, type) else "model")
    assert {"model", FormatError} <= kinds


def test_a_length_that_does_not_fit_the_shape(rng, tmp_path):
    wrong = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[64, 63])
    wrong.raw_data = rng.bytes(64 * 64 * 4)
    proto = make_model([node("MatMul", "x w", "y")], {"x": [2, 64]}, ["y"])
    proto.graph.initializer.append(wrong)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(FormatError, match="16384 bytes"):
        from_onnx(path)


def test_what_is_not_simple_is_left_to_protobuf(rng, tmp_path):
    proto, _ = using(rng)
    data = proto.SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data + data[:0])
    assert large.read_without_large(path) is not None
    path.write_bytes(data + proto.SerializeToString())  # two graphs, which protobuf merges
    assert large.read_without_large(path) is None
    proto.functions.append(helper.make_function("own", "f", [], [], [], []))
    path.write_bytes(proto.SerializeToString())
    assert large.read_without_large(path) is None
    assert large.read_without_large(tmp_path / "missing.onnx") is None
