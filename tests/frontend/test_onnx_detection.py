"""What detection networks of ONNX end in, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import helper
from onnx_runs import model_of, onnxruntime_run, weft_runs


def check(node, inputs, constants=None, opset=16):
    model = model_of([node], inputs, list(node.output), constants, opset)
    wanted = onnxruntime_run(model, inputs)
    for how, got in weft_runs(model, inputs, levels=(3,)):
        for mine, theirs in zip(got, wanted, strict=True):
            assert (mine.shape, mine.dtype) == (theirs.shape, theirs.dtype), how
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5, err_msg=how)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_the_best_in_every_opset(rng, axis):
    x = rng.standard_normal((4, 5, 6)).astype(np.float32)
    check(helper.make_node("TopK", ["x"], ["y", "places"], k=3, axis=axis), {"x": x}, opset=9)
    count = {"k": np.array([3])}
    check(helper.make_node("TopK", ["x", "k"], ["y", "places"], axis=axis), {"x": x}, count, opset=10)
    for largest in (0, 1):
        node = helper.make_node("TopK", ["x", "k"], ["y", "places"], axis=axis, largest=largest, sorted=1)
        check(node, {"x": x}, count, opset=21)


def regions_of(rng):
    """Images, boxes that may reach outside, and the image of each box."""
    corners = rng.uniform(-4, 14, (5, 2, 2))
    boxes = np.concatenate([corners.min(1), corners.max(1)], 1).astype(np.float32)
    return {"x": rng.standard_normal((2, 3, 9, 8)).astype(np.float32), "b": boxes, "i": np.array([0, 1, 1, 0, 1])}


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_regions(rng, mode, coordinates):
    attrs = {"mode": mode, "sampling_ratio": 2, "spatial_scale": 0.6, "output_height": 3, "output_width": 2}
    node = helper.make_node("RoiAlign", ["x", "b", "i"], ["y"], coordinate_transformation_mode=coordinates, **attrs)
    check(node, regions_of(rng))


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("scale", [1.0, 2.5])
def test_the_largest_of_points_that_follow_from_boxes(rng, coordinates, scale):
    attrs = {"mode": "max", "spatial_scale": scale, "output_height": 3, "output_width": 2}
    node = helper.make_node("RoiAlign", ["x", "b", "i"], ["y"], coordinate_transformation_mode=coordinates, **attrs)
    check(node, regions_of(rng))
