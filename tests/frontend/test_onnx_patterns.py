"""Patterns that model files of packages and exporters have, against ONNX Runtime; one model object answers all."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from oracles import oracle

import weft

MODELS = {
    "an extent that fills an open shape": """m (float[a,b] x) => (int64[a,b] y) {
        s = Shape(x) i = Constant <value = int64 {1}> () n = Gather(s, i) y = Expand(n, s) }""",
    "a branch that reads a constant around it": """m (float[a,b] x) => (float[b] y) {
        row = Constant <value = int64 {1}> () s = ReduceSum <keepdims = 0> (x) z = Constant <value = float {0.0}> ()
        c = Greater(s, z)
        y = If <then_branch = t () => (float[b] t1) { t1 = Gather <axis = 0> (x, row) },
                else_branch = e () => (float[b] e1) { g = Gather <axis = 0> (x, row) e1 = Neg(g) }> (c) }""",
    "a loop whose turns hand weights on": """m (float[a,b] x, int64 n) => (float[b] u, float[a,b] y, float[d] v) {
        go = Constant <value = bool {1}> () k = Constant <value = float[1] {0.5}> ()
        w = ReduceMean <axes = [0], keepdims = 0> (x)
        u, y, v = Loop <body = b (int64 i, bool ci, float[r] wi, float[p,q] st, float[s] ki) =>
            (bool co, float[r] wo, float[p,q] so, float[s] ko) {
            co = Identity(ci) m1 = Mul(st, wi) so = Add(m1, ki) wo = Identity(wi) ko = Identity(ki)
            }> (n, go, w, x, k) }""",
}


def fed(name: str, rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Inputs of several shapes."""
    x = rng.standard_normal((3, 4)).astype("float32")
    if "loop" in name:
        return [{"x": x, "n": np.array(3)}, {"x": x[:2], "n": np.array(0)}, {"x": x[:, :2], "n": np.array(5)}]
    return [{"x": x}, {"x": x[:2]}, {"x": -x}]


def model_of(name: str) -> onnx.ModelProto:
    """The model, its constants as bytes, as exporters write them."""
    opsets = [helper.make_opsetid("", 17)]
    proto = helper.make_model(parser.parse_graph(MODELS[name]), opset_imports=opsets, ir_version=8)
    for node in proto.graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t)))
    return proto


@pytest.mark.parametrize("name", MODELS)
def test_one_model_answers_every_shape(name: str, rng: np.random.Generator) -> None:
    proto = model_of(name)
    peer = oracle("onnxruntime").InferenceSession(proto.SerializeToString())
    model = weft.compile(proto)
    for feed in fed(name, rng):
        for expected, result in zip(peer.run(None, feed), model.run(feed), strict=True):
            assert result.shape == expected.shape
            assert result.dtype == expected.dtype
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "wrap"])
def test_negative_pads_crop_before_others_fill(mode: str, rng: np.random.Generator) -> None:
    """As features of sound are shifted by a step."""
    text = f"""m (float[a,b] x) => (float[c,d] y) {{
        pads = Constant <value_ints = [1, -2, -1, 3]> () y = Pad <mode = "{mode}"> (x, pads) }}"""
    proto = helper.make_model(parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    feed = {"x": rng.standard_normal((5, 7)).astype("float32")}
    (expected,) = oracle("onnxruntime").InferenceSession(proto.SerializeToString()).run(None, feed)
    (result,) = weft.compile(proto).run(feed)
    np.testing.assert_array_equal(result, expected)
