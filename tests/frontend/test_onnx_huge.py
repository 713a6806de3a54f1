"""ONNX nodes that ask for more elements than any machine has."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.base.errors import OutOfMemory
from weft.frontend import from_onnx

HUGE = 1 << 50

NODES = {
    "ConstantOfShape": ([np.array([HUGE])], {}),
    "Expand": ([np.float32(1), np.array([HUGE])], {}),
    "Tile": ([np.ones(1, "f"), np.array([HUGE])], {}),
    "OneHot": ([np.array([1]), np.int64(HUGE), np.array([0, 1], "f")], {}),
    "Pad": ([np.ones(1, "f"), np.array([HUGE, 0])], {}),
}


@pytest.mark.parametrize("name", NODES)
@pytest.mark.parametrize("read", [from_onnx, weft.compile])
def test_huge_results_are_refused(name, read):
    values, attrs = NODES[name]
    inputs = [f"i{number}" for number in range(len(values))]
    stored = [numpy_helper.from_array(np.asarray(v), n) for n, v in zip(inputs, values)]
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    node = helper.make_node(name, inputs, ["y"], name="big", **attrs)
    graph = helper.make_graph([node], "g", [], [made], stored)
    with pytest.raises(OutOfMemory, match="more than any machine holds") as caught:
        read(onnx.ModelProto.FromString(helper.make_model(graph).SerializeToString()))
    assert "big" in caught.value.where
