"""Patterns that model files of packages and exporters have, against ONNX Runtime; one model object answers all."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser
from oracles import oracle

import weft

MODELS = {
    "a branch that reads a constant around it": """m (float[a,b] x) => (float[b] y) {
        row = Constant <value = int64 {1}> () s = ReduceSum <keepdims = 0> (x) z = Constant <value = float {0.0}> ()
        c = Greater(s, z)
        y = If <then_branch = t () => (float[b] t1) { t1 = Gather <axis = 0> (x, row) },
                else_branch = e () => (float[b] e1) { g = Gather <axis = 0> (x, row) e1 = Neg(g) }> (c) }"""
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
