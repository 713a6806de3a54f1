"""Models with open dimensions are written with them, and ONNX Runtime runs what was written at any shape."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from oracles import oracle

import weft

MODELS = {
    "heads": """m (float[n, s, 16] x) => (float[n, 4, s, 4] y) {
        shape = Shape(x) i = Constant <value_ints = [0, 1]> () first = Gather(shape, i)
        rest = Constant <value_ints = [4, 4]> () target = Concat <axis = 0> (first, rest)
        r = Reshape(x, target) t = Transpose <perm = [0, 2, 1, 3]> (r) y = Softmax <axis = -1> (t) }""",
    "halves": """m (float[n, s, 16] x) => (float[n, p, 16] y) {
        shape = Shape(x) one = Constant <value_ints = [1]> () length = Gather(shape, one)
        two = Constant <value_ints = [2]> () half = Div(length, two) zero = Constant <value_ints = [0]> ()
        part = Slice(x, zero, half, one) twice = Concat <axis = 1> (part, part) y = Relu(twice) }""",
    "flat": """m (float[n, s, 16] x) => (float[p, 16] y) {
        t = Constant <value_ints = [-1, 16]> () r = Reshape(x, t) y = Exp(r) }""",
    "positions": """m (float[n, s, 16] x) => (float[n, s, 16] y) {
        shape = Shape(x) one = Constant <value_int = 1> () length = Gather(shape, one)
        zero = Constant <value_int = 0> () line = Range(zero, length, one) f = Cast <to = 1> (line)
        axes = Constant <value_ints = [0, 2]> () column = Unsqueeze(f, axes) y = Add(x, column) }""",
}


@pytest.mark.parametrize("name", MODELS)
def test_dimensions_stay_open(name: str, rng: np.random.Generator) -> None:
    graph = parser.parse_graph(MODELS[name])
    source: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    written = weft.frontend.to_onnx(*weft.frontend.from_onnx(source))
    assert [dim.dim_param for dim in written.graph.input[0].type.tensor_type.shape.dim] == ["n", "s", ""]
    runtime = oracle("onnxruntime")
    expected, other = (runtime.InferenceSession(proto.SerializeToString()) for proto in (source, written))
    again = weft.compile(written)
    for shape in ((2, 6, 16), (1, 4, 16), (3, 9, 16)):
        x = rng.standard_normal(shape).astype("float32")
        (wanted,) = expected.run(None, {"x": x})
        for output in (*other.run(None, {"x": x}), *again(x)):
            assert output.shape == wanted.shape
            np.testing.assert_allclose(output, wanted, rtol=1e-5, atol=1e-6)


def test_a_dimension_without_a_name_is_asked_for() -> None:
    x = weft.symbol.Variable("x")
    with pytest.raises(weft.Error, match="not known"):
        weft.frontend.to_onnx(weft.symbol.relu(x), {}, shape={"x": (None, 3)})
    model = weft.frontend.to_onnx(weft.symbol.relu(x), {}, shape={"x": ("rows", 3)})
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "rows"
