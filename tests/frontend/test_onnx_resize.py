"""Resize of ONNX in every mode, drawn at random, against ONNX Runtime, or ONNX's reference
evaluator where the two disagree."""

import itertools

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator
from onnx_runs import model_of, onnxruntime_run, weft_runs

import weft
from weft.base.errors import FormatError, Unsupported
from weft.frontend import from_onnx

MODES = ["nearest", "linear", "cubic"]
COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "asymmetric", "align_corners"]
NEAREST = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def resized(node, x, constants, opset=19, wanted=None, tolerance=1e-4, levels=(3,)):
    model = model_of([node], {"x": x}, ["y"], constants, opset)
    (wanted,) = onnxruntime_run(model, {"x": x}) if wanted is None else wanted(model)
    for how, (got,) in weft_runs(model, {"x": x}, levels):
        assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype), how
        np.testing.assert_allclose(got, wanted, rtol=tolerance, atol=tolerance, err_msg=how)


def target_of(rng, shape, axes):
    """Scales or sizes of some axes, as inputs of a node and constants."""
    if rng.random() < 0.5:
        sizes = np.array([int(rng.integers(1, 10)) for _ in axes], np.int64)
        return ["x", "", "", "sizes"], {"sizes": sizes}
    scales = np.array([rng.choice([0.5, 1.5, 2.0, 3.0]) for _ in axes], np.float32)
    return ["x", "", "scales"], {"scales": scales}


@pytest.mark.parametrize("seed", range(30))
def test_modes_at_random(seed):
    rng = np.random.default_rng(seed)
    mode, spatial = MODES[seed % 3], 2 if seed % 3 == 2 else int(rng.integers(1, 4))
    shape = (2, 3, *(int(n) for n in rng.integers(2, 8, spatial)))
    attrs = {"mode": mode, "coordinate_transformation_mode": COORDINATES[seed % 4]}
    if mode == "nearest":
        attrs["nearest_mode"] = NEAREST[seed // 3 % 4]
    if mode == "cubic":
        attrs |= {"cubic_coeff_a": -0.5, "exclude_outside": int(rng.integers(2))}
    if mode != "nearest" and spatial == 2:
        attrs["antialias"] = int(rng.integers(2))
    axes = list(range(2, 2 + spatial))
    names, constants = target_of(rng, shape, axes)
    node = helper.make_node("Resize", names, ["y"], axes=axes, **attrs)
    resized(node, rng.standard_normal(shape).astype(np.float32), constants)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_scales_that_cut_elements(rng, mode, coordinates):
    """ONNX Runtime has corners at rounded sizes, ONNX's evaluator and its data do not."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=coordinates)
    x = rng.standard_normal((1, 2, 7, 6)).astype(np.float32)
    scales = np.array([1, 1, 0.7, 1.3], np.float32)
    of_onnx = lambda model: ReferenceEvaluator(model).run(None, {"x": x})
    resized(node, x, {"scales": scales}, wanted=of_onnx if coordinates == "align_corners" else None)


@pytest.mark.parametrize("mode", MODES)
def test_regions(rng, mode):
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 3.5}
    x = rng.standard_normal((1, 2, 6, 7)).astype(np.float32)
    region, sizes = np.array([0.3, -0.2, 0.9, 0.8], np.float32), np.array([4, 9], np.int64)
    node = helper.make_node("Resize", ["x", "region", "", "sizes"], ["y"], axes=[2, 3], **attrs)
    resized(node, x, {"region": region, "sizes": sizes}, 18)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
@pytest.mark.parametrize("mode", MODES)
def test_kept_ratios(rng, mode, policy):
    x = rng.standard_normal((1, 2, 5, 8)).astype(np.float32)
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode=mode, axes=[3, 2], keep_aspect_ratio_policy=policy
    )
    resized(node, x, {"sizes": np.array([7, 9], np.int64)})


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int32"])
@pytest.mark.parametrize("antialias", [0, 1])
def test_whole_numbers(rng, dtype, antialias):
    """Cut towards zero, or rounded where they are filtered against aliases."""
    x = rng.integers(0, 120, (1, 3, 9, 11)).astype(dtype)
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear", antialias=antialias)
    resized(node, x, {"sizes": np.array([1, 3, 5, 7])}, tolerance=1.0 if antialias else 1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_truth_and_complex_numbers(rng, mode):
    """True is what reaches 1; the parts of a complex number are resized each by itself."""
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode)
    sizes = {"sizes": np.array([1, 2, 7, 3])}
    x = rng.standard_normal((1, 2, 4, 5)) + 1j * rng.standard_normal((1, 2, 4, 5))
    parts = [{"x": part.astype(np.float32)} for part in (x.real, x.imag)]
    (real,), (imaginary,) = (onnxruntime_run(model_of([node], part, ["y"], sizes, 19), part) for part in parts)
    resized(node, x.astype(np.complex64), sizes, wanted=lambda _: [real + 1j * imaginary])
    truth = {"x": (x.real > 0).astype(np.float32)}
    (shares,) = onnxruntime_run(model_of([node], truth, ["y"], sizes, 19), truth)
    resized(node, x.real > 0, sizes, wanted=lambda _: [shares > 1 - 1e-6])


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("mode", MODES)
def test_other_floats(rng, dtype, mode):
    x = rng.standard_normal((1, 2, 4, 5)).astype(dtype)
    attrs = {"mode": mode, "coordinate_transformation_mode": "half_pixel_symmetric"}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], **attrs)
    sizes = {"sizes": np.array([1, 2, 7, 3])}
    wide = x.astype(np.float32)
    (wanted,) = onnxruntime_run(model_of([node], {"x": wide}, ["y"], sizes, 19), {"x": wide})
    resized(node, x, sizes, wanted=lambda _: [wanted.astype(dtype)], tolerance=2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize(
    ("mode", "shape"),
    [
        ("nearest", (2, 3, 4)),  # ONNX Runtime has no old linear form of three axes
        *itertools.product(["nearest", "linear"], [(1, 2, 3, 4), (1, 2, 2, 3, 4)]),
    ],
)
def test_older_forms(rng, mode, shape):
    x = rng.standard_normal(shape).astype(np.float32)
    scales = np.array([1, 1, *[2.0, 3.0, 1.5][: len(shape) - 2]], np.float32)
    resized(helper.make_node("Upsample", ["x"], ["y"], mode=mode, scales=scales.tolist()), x, {}, 7)
    resized(helper.make_node("Upsample", ["x", "s"], ["y"], mode=mode), x, {"s": scales}, 9)
    resized(helper.make_node("Resize", ["x", "s"], ["y"], mode=mode), x, {"s": scales}, 10)
    attrs = {"mode": mode, "coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"}
    if mode == "nearest":
        resized(helper.make_node("Resize", ["x", "r", "s"], ["y"], **attrs), x, {"r": scales[:0], "s": scales}, 11)


@pytest.mark.parametrize("mode", MODES)
def test_sizes_that_only_a_run_knows(rng, mode):
    x, sizes = rng.standard_normal((1, 2, 4, 5)).astype(np.float32), np.array([1, 2, 7, 3])
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], mode=mode)
    model = model_of([node], {"x": x, "sizes": sizes}, ["y"], opset=19)
    for dim, name in zip(model.graph.input[0].type.tensor_type.shape.dim[2:], ("height", "width")):
        dim.dim_param = name
    with weft.compile(model) as compiled:
        for extents, size in (((4, 5), (7, 3)), ((3, 6), (2, 6)), ((4, 5), (5, 5))):
            given = {"x": rng.standard_normal((1, 2, *extents)).astype(np.float32), "sizes": np.array([1, 2, *size])}
            (got,), (wanted,) = compiled.run(given), onnxruntime_run(model, given)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_infinite_elements_that_do_not_count(rng):
    x = rng.standard_normal((1, 1, 2, 5)).astype(np.float32)
    x[..., 2] = np.inf
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode="cubic", coordinate_transformation_mode="align_corners"
    )
    (got,) = weft_runs(model_of([node], {"x": x}, ["y"], {"sizes": np.array([1, 1, 2, 5])}), {"x": x})[0][1]
    np.testing.assert_array_equal(got, x)
    (got,) = weft_runs(model_of([node], {"x": x}, ["y"], {"sizes": np.array([1, 1, 2, 3])}), {"x": x})[0][1]
    np.testing.assert_array_equal(got, x[..., ::2])


def test_what_makes_no_sense_is_refused(rng):
    x = rng.standard_normal((1, 2, 4, 4)).astype(np.float32)
    constants = {"s": np.array([1, 1, 2, 2], np.float32)}
    for attrs, match in [
        ({"mode": "strange"}, "mode 'strange'"),
        ({"mode": "cubic", "coordinate_transformation_mode": "odd"}, "coordinates 'odd'"),
        ({"axes": [2, 3]}, "for axes"),
    ]:
        node = helper.make_node("Resize", ["x", "", "s"], ["y"], **attrs)
        with pytest.raises((FormatError, Unsupported), match=match):
            from_onnx(model_of([node], {"x": x}, ["y"], constants))
