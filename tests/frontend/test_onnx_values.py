"""Values that simple formulas get wrong: the ends of the integers, infinities, NaN, float16 beyond
its range, and tensors without elements; by the reference and as machine code, against numpy."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_runs import model_of, one_node, onnxruntime_run, weft_runs

import weft
from weft.base.errors import FormatError
from weft.frontend import from_onnx
from weft.tools.demo import DATA

HALVES = [np.float16, ml_dtypes.bfloat16]
SIGNED = [np.int8, np.int16, np.int32, np.int64]
INFINITE = np.float32([np.inf, -np.inf, np.nan, 0.0, 1.0, -2.0, 2.0, 0.3])


def check(model_and_inputs, expected, rtol=1e-5, atol=0.0):
    expected = np.asarray(expected)
    for how, (made,) in weft_runs(*model_and_inputs):
        assert made.shape == expected.shape, how
        assert made.dtype == expected.dtype, how
        np.testing.assert_allclose(
            made.astype("float64") if made.dtype.kind not in "iub" else made,
            expected.astype("float64") if made.dtype.kind not in "iub" else expected,
            rtol=rtol,
            atol=atol,
            err_msg=how,
        )


# Integers.


@pytest.mark.parametrize("dtype", [*SIGNED, np.uint8, np.uint64])
def test_clip_of_integers_by_one_bound(dtype):
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    x = np.array([low, low + 1, 5, high - 1, high], dtype)
    seven = np.array(7, dtype)
    check(one_node("Clip", x, constants=(None, seven)), np.minimum(x, seven))
    check(one_node("Clip", x, constants=(seven, None)), np.maximum(x, seven))
    check(one_node("Clip", x, constants=(seven, np.array(high - 1, dtype))), np.clip(x, seven, high - 1))


@pytest.mark.parametrize("low", [-(2**63), 5])
def test_clip_operator_at_the_end_of_int64(low):
    x = np.array([-(2**63), -5, 7, 2**63 - 1])
    made = weft.symbol.clip(weft.symbol.Variable("x", shape=(4,), dtype="int64"), a_min=low, a_max=6)
    for level in (0, 3):
        (got,) = weft.compile(made, opt_level=level)(x)
        np.testing.assert_array_equal(got, np.minimum(np.maximum(x, low), 6))


def truncated(a, b, dtype):
    """Python's integers: towards zero, wrapped to the dtype; 0 where the divisor is 0."""
    bits = np.iinfo(dtype).bits
    quotient = 0 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return (quotient + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)


@pytest.mark.parametrize("dtype", SIGNED)
def test_division_of_integers_rounds_towards_zero(dtype):
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    some = [low, low + 1, -7, -1, 0, 1, 3, 7, high]
    pairs = [(a, b) for a in some for b in some]
    a, b = (np.array(side, dtype) for side in zip(*pairs))
    check(one_node("Div", a, b), np.array([truncated(p, q, dtype) for p, q in pairs], dtype))


@pytest.mark.parametrize(("op_type", "function"), [("ReduceMean", np.mean), ("ReduceL2", None)])
def test_means_and_norms_of_integers_lose_their_fraction(op_type, function):
    x = np.array([[3, -4, -2], [100, 5, 2]], np.int32)
    made = np.mean(x, 1) if function else np.sqrt(np.sum(x.astype(float) ** 2, 1))
    model = one_node(op_type, x, constants=(np.array([1]),), keepdims=0)
    check(model, np.trunc(made).astype(np.int32))


@pytest.mark.parametrize("number", [2**63 - 1, 2**53 + 1, -(2**63), 7])
def test_integers_that_floats_do_not_hold_are_stretched_exactly(number):
    chosen, x = np.array([True, False, True]), np.array([1, 2, 3])
    check(one_node("Where", chosen, x, constants=(np.array([number]),)), np.where(chosen, x, number))


# Remainders.


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_fmod_is_exact(dtype):
    a = np.array([5, 1e4, -1e4, -3, np.inf, 0, 7, 1e3], dtype)
    b = np.array([np.inf, 0.1, 0.1, 2, 1, 0, -np.inf, 1e-3], dtype)
    with np.errstate(invalid="ignore"):
        check(one_node("Mod", a, b, fmod=1), np.fmod(a, b), rtol=0)


@pytest.mark.parametrize(("start", "wanted"), [((2, 6), (3, 4)), ((0, 6), (3, 0))])
def test_a_shape_that_allows_zeros_may_have_none(start, wanted):
    x = np.arange(np.prod(start), dtype=np.float32).reshape(start)
    check(one_node("Reshape", x, constants=[np.array(wanted, np.int64)], allowzero=1), x.reshape(wanted))


def test_fmod_of_integers_has_the_sign_of_the_dividend():
    a, b = (np.array([7, -7, 7, -7, -(2**31), 5], np.int32), np.array([3, 3, -3, -3, -1, 7], np.int32))
    check(one_node("Mod", a, b, fmod=1), np.array([1, -1, 1, -1, 0, 5], np.int32))


# Infinities: what is not chosen has no part in the result.


def choosing():
    x = INFINITE
    shrunk = np.where(x < -0.5, x + 0.25, np.where(x > 0.5, x - 0.25, np.float32(0)))
    slopes = np.float32([2.0])
    return {
        "Shrink": (one_node("Shrink", x, bias=0.25, lambd=0.5), shrunk),
        "ThresholdedRelu": (one_node("ThresholdedRelu", x, alpha=0.5), np.where(x > 0.5, x, np.float32(0))),
        "LeakyRelu": (one_node("LeakyRelu", x, alpha=-0.5), np.where(x < 0, -0.5 * x, x)),
        "PRelu": (one_node("PRelu", x, constants=(slopes,)), np.where(x < 0, 2 * x, x)),
        "PRelu of channels": (
            one_node("PRelu", x[None], constants=(np.repeat(slopes, 8),)),
            np.where(x < 0, 2 * x, x)[None],
        ),
    }


@pytest.mark.parametrize("name", choosing())
def test_infinities_are_chosen_not_multiplied(name):
    model, expected = choosing()[name]
    check(model, expected.astype(np.float32))


def test_log_sum_exp_of_infinities():
    x = np.float32([[np.inf, 1], [-np.inf, -np.inf], [np.nan, 0], [np.inf, -np.inf], [90, 90]])
    expected = np.logaddexp(*x.T.astype("float64")).astype("float32")
    check(one_node("ReduceLogSumExp", x, constants=(np.array([1]),), keepdims=0), expected)


# float16 and bfloat16: only the result has to fit.


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    ("op_type", "values", "expected"),
    [
        ("ReduceL2", [300, 400], 500),
        ("ReduceL1", [3e4, -2e4, -1e4], 6e4),
        ("ReduceSumSquare", [100, -100], 2e4),
        ("ReduceLogSum", [6e4, 6e4], np.log(1.2e5)),
        ("ReduceLogSumExp", [300, 300], 300 + np.log(2)),
        ("ReduceMean", [6e4, 6e4], 6e4),
        ("ReduceSum", [6e4, 6e4, -6e4], 6e4),
        ("ReduceProd", [6e4, 2, 0.25], 3e4),
    ],
)
def test_reductions_of_halves_compute_in_float32(op_type, values, expected, dtype):
    model = one_node(op_type, np.array(values, dtype), keepdims=0)
    check(model, np.array(expected, dtype), rtol=2e-2 if dtype != np.float16 else 2e-3)


def test_means_of_more_elements_than_float16_counts_to():
    x = np.full((1, 2, 300, 300), 3, np.float16)
    check(one_node("ReduceMean", x), np.full((1, 1, 1, 1), 3, np.float16))
    check(one_node("GlobalAveragePool", x), np.full((1, 2, 1, 1), 3, np.float16))
    line = x.reshape(1, 2, -1)
    check(one_node("GlobalAveragePool", line), np.full((1, 2, 1), 3, np.float16))


def normalised(x, axis, epsilon=1e-5):
    wide = x.astype(np.float64)
    centred = wide - wide.mean(axis, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis, keepdims=True) + epsilon)


def norms(dtype):
    x = (np.arange(24).reshape(1, 2, 3, 4) * 900.0 - 1e4).astype(dtype)
    one, two = np.ones(4, dtype), np.ones(2, dtype)
    square = x.astype(np.float64)
    return {
        "LayerNormalization": (one_node("LayerNormalization", x, constants=(one,)), normalised(x, -1)),
        "InstanceNormalization": (
            one_node("InstanceNormalization", x, constants=(two, 0 * two)),
            normalised(x, (2, 3)),
        ),
        "GroupNormalization": (
            one_node("GroupNormalization", x, constants=(two, 0 * two), num_groups=1),
            normalised(x, (1, 2, 3)),
        ),
        "MeanVarianceNormalization": (one_node("MeanVarianceNormalization", x, axes=[2, 3]), normalised(x, (2, 3), 0)),
        "RMSNormalization": (
            one_node("RMSNormalization", x, constants=(one,), opset=23),
            square / np.sqrt((square**2).mean(-1, keepdims=True) + 1e-5),
        ),
        "LpNormalization": (
            one_node("LpNormalization", x, axis=3),
            square / np.sqrt((square**2).sum(-1, keepdims=True)),
        ),
    }


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("name", norms(np.float16))
def test_norms_of_halves_compute_in_float32(name, dtype):
    model, expected = norms(dtype)[name]
    check(model, expected.astype(dtype), rtol=2e-2, atol=2e-3 if dtype == np.float16 else 1e-2)


def test_moments_of_a_layer_norm_are_float32():
    x = np.array([[300, 400, -500, 2]], np.float16)
    node = helper.make_node("LayerNormalization", ["x", "s"], ["y", "mean", "inverse"])
    model = model_of([node], {"x": x}, ["y", "mean", "inverse"], {"s": np.ones(4, np.float16)})
    expected = onnxruntime_run(model, {"x": x})
    for _, made in weft_runs(model, {"x": x}):
        assert [part.dtype for part in made] == [np.float16, np.float32, np.float32]
        for part, wanted in zip(made, expected):
            np.testing.assert_allclose(part, wanted, rtol=1e-3)


# Without elements.


def test_a_network_on_no_images():
    model = onnx.load(DATA / "digits.onnx")
    x = np.zeros((0, 1, 8, 8), np.float32)
    (expected,) = onnxruntime_run(model, {"input": x})
    for how, (made,) in weft_runs(model, {"input": x}):
        assert made.shape == expected.shape == (0, 10), how


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((3, 0), (0, 4)),
        ((0, 3), (3, 4)),
        ((3, 4), (4, 0)),
        ((2, 3, 0), (2, 0, 4)),
        ((0, 3, 2), (0, 2, 4)),
        ((0,), (0,)),
    ],
    ids=str,
)
def test_products_over_nothing_are_zeros(a, b, rng):
    x, y = (rng.standard_normal(shape).astype(np.float32) for shape in (a, b))
    check(one_node("MatMul", x, y), np.matmul(x, y))
    check(one_node("MatMul", x, constants=(y,)), np.matmul(x, y))
    if len(a) == 2:
        bias = rng.standard_normal(b[1]).astype(np.float32)
        check(one_node("Gemm", x, y, bias), x @ y + bias)
        check(one_node("Gemm", x, constants=(y, bias), alpha=0.5), x @ y / 2 + bias)


@pytest.mark.parametrize("widths", [(0, 0), (0, 3), (2, 0, 1)])
def test_concatenation_of_empty_parts(widths, rng):
    """Each part is computed, so that a build may compute it in its place."""
    parts = {f"x{i}": rng.standard_normal((2, w)).astype("float32") for i, w in enumerate(widths)}
    nodes = [helper.make_node("Relu", [name], [f"{name}r"]) for name in parts]
    nodes.append(helper.make_node("Concat", [f"{name}r" for name in parts], ["c"], axis=1))
    nodes.append(helper.make_node("Exp", ["c"], ["y"]))
    model = model_of(nodes, parts, ["y"])
    check((model, parts), np.exp(np.maximum(np.concatenate(list(parts.values()), 1), 0)))


# Places.


@pytest.mark.parametrize("step", [-1, -2, 1, 2])
def test_slices_that_start_outside(step):
    """ONNX limits the start to the elements there are; Python does not where it steps back."""
    x = np.arange(5, dtype=np.float32)
    for start in (-9, -6, -5, -1, 0, 4, 5, 9):
        for end in (-(2**63), -9, -5, -1, 0, 3, 5, 9):
            bounds = [np.array([n]) for n in (start, end, 0, step)]
            model, inputs = one_node("Slice", x, constants=bounds)
            (expected,) = onnxruntime_run(model, inputs)
            _, (made,) = weft_runs(model, inputs, levels=())[0]
            np.testing.assert_array_equal(made, expected, err_msg=f"{start} {end}")


def test_a_slice_backwards_from_before_the_first_element_is_that_element():
    x = np.arange(4, dtype=np.float32)
    bounds = [np.array([n]) for n in (-9, -(2**63), 0, -1)]
    check(one_node("Slice", x, constants=bounds), x[:1])


@pytest.mark.parametrize("index", [-4, 3, 2**62])
def test_known_indices_must_name_elements(index):
    x = np.zeros((3, 3), np.float32)
    places = np.array([[index, 0, 0]])
    for op_type in ("Gather", "GatherElements", "GatherND"):
        known = places[:, :2] if op_type == "GatherND" else places
        with pytest.raises(FormatError, match=r"outside \[-3, 2\]"):
            from_onnx(one_node(op_type, x, constants=(known,))[0])


def test_indices_of_a_run_stay_within_the_data():
    x = np.arange(4, dtype=np.float32)
    where = np.array([-5, -4, -1, 0, 3, 4, 2**62, -(2**63)])
    expected = np.float32([0, 0, 3, 0, 3, 3, 3, 0])
    check(one_node("Gather", x, where), expected)
    check(one_node("GatherElements", x, where), expected)
    check(one_node("GatherND", x, where[:, None]), expected)
