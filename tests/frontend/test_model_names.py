"""A compiled model calls its inputs and outputs as its file does, in the file's order."""

import mxnet_files
import numpy as np
import onnx
import pytest
from onnx import parser

import weft
from weft.frontend import from_mxnet, from_onnx, to_onnx

TEXT = """
m (float[2,3] second, float[2,3] first) => (
  float[2,3] sum, float[2,3] again, float[2,3] passed, float[2,3] fixed, float[1,3] half
) <float[2,3] fixed = {1, 2, 3, 4, 5, 6}> {
  inner = Relu(first)
  sum = Add(inner, second)
  again = Identity(sum)
  passed = Identity(first)
  other, half = Split<axis = 0>(sum)
}
"""
OUTPUTS = ["sum", "again", "passed", "fixed", "half"]


@pytest.fixture
def model():
    opset = [onnx.helper.make_opsetid("", 13)]
    return onnx.helper.make_model(parser.parse_graph(TEXT), opset_imports=opset)


@pytest.fixture
def inputs(rng):
    return {name: rng.standard_normal((2, 3)).astype("float32") for name in ("second", "first")}


def expected(inputs):
    total = np.maximum(inputs["first"], 0) + inputs["second"]
    fixed = np.arange(1, 7, dtype="float32").reshape(2, 3)
    return [total, total, inputs["first"], fixed, total[1:]]


def check(outputs, inputs):
    for output, wanted in zip(outputs, expected(inputs), strict=True):
        np.testing.assert_array_equal(output, wanted)


def test_compiled_file(model, inputs, tmp_path):
    onnx.save(model, tmp_path / "m.onnx")
    compiled = weft.compile(tmp_path / "m.onnx")
    assert compiled.outputs == OUTPUTS
    assert [spec.name for spec in compiled.inputs] == ["second", "first"]
    check(compiled(inputs["second"], inputs["first"]), inputs)
    check(compiled.run(inputs), inputs)
    compiled.save(tmp_path / "m.weft")
    loaded = weft.runtime.load(tmp_path / "m.weft")
    assert [spec.name for spec in loaded.program.outputs] == OUTPUTS


def test_names_outlive_json(model):
    symbol, _ = from_onnx(model)
    again = weft.graph.load_json(weft.graph.create(symbol).json())
    assert again.symbol.list_output_names() == OUTPUTS


def test_names_outlive_the_way_back(model):
    made = to_onnx(*from_onnx(model))
    names = [item.name for item in made.graph.output]
    assert [name for name in names if name != "fixed_1"] == [n for n in OUTPUTS if n != "fixed"]


def test_an_operator_that_does_nothing_still_names_the_output():
    nodes = [
        mxnet_files.node("null", "x"),
        mxnet_files.node("Activation", "a", [(0, 0)], act_type="relu"),
        mxnet_files.node("Dropout", "d", [(1, 0)], p="0.5"),
    ]
    text = mxnet_files.text(nodes, [[2, 0, 0], [1, 0, 0], [0, 0, 0]])
    symbol, params = from_mxnet(text, shape={"x": (2, 3)})
    compiled = weft.compile((symbol, params))
    assert compiled.outputs == ["d_output", "a_output", "x"]
    x = np.float32([[-1, 2, 3], [4, -5, 6]])
    for output, wanted in zip(compiled(x), [x.clip(0), x.clip(0), x], strict=True):
        np.testing.assert_array_equal(output, wanted)
