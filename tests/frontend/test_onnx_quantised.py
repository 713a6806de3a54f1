"""Quantised operators of ONNX against ONNX Runtime and onnx's own evaluator, bit for bit where integers come out."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from onnx_runs import model_of, one_node, onnxruntime_run, weft_runs

import weft

rng = np.random.default_rng(17)
BYTE_PAIRS = [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")]


def levels(shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def scales(shape=()):
    return np.asarray(rng.uniform(0.01, 0.1, shape), np.float32)


def check(made, expected, exact=True):
    model, inputs = made
    for how, outputs in weft_runs(model, inputs):
        for found, wanted in zip(outputs, expected, strict=True):
            assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), how
            if exact:
                np.testing.assert_array_equal(found, wanted, err_msg=how)
            else:
                np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=how)


def check_by_onnxruntime(made, **options):
    check(made, onnxruntime_run(*made), **options)


def spread_data(shape, dtype=np.float32):
    """Numbers within and beyond the levels, of which some stand between two."""
    data = rng.normal(0, 4, shape)
    data.reshape(-1)[::5] *= 1000
    data.reshape(-1)[1::5] = np.rint(data.reshape(-1)[1::5]) / 2
    return data.astype(dtype)


@pytest.mark.parametrize("dtype", ["uint8", "int8", "uint16", "int16"])
@pytest.mark.parametrize(
    ("shape", "count", "attrs"),
    [
        ((3, 7), (), {}),
        ((3, 7), (1,), {}),
        ((2, 5, 3), (5,), {}),
        ((2, 5, 3), (3,), {"axis": -1}),
        ((5,), (5,), {"axis": 0}),
        ((3, 7), (3, 3), {"axis": 1, "block_size": 3}),
        ((5, 4), (2, 4), {"axis": 0, "block_size": 3}),
    ],
)
def test_numbers_to_levels_and_back(dtype, shape, count, attrs):
    scale, zero = scales(count), levels(count, dtype)
    check_by_onnxruntime(one_node("QuantizeLinear", spread_data(shape), scale, zero, **attrs))
    check_by_onnxruntime(one_node("DequantizeLinear", levels(shape, dtype), scale, zero, **attrs), exact=False)


def test_halves_go_to_the_even_level_and_infinities_to_the_ends():
    data = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, np.inf, -np.inf], np.float32)
    made = one_node("QuantizeLinear", data, np.float32(1), np.int8(1))
    check(made, [np.array([1, 3, 3, 1, -1, 127, -128, 127, -128], np.int8)])


def test_what_is_left_out():
    """The type is that of the zero point, else the one that is asked for, else uint8."""
    data, scale = spread_data((3, 4)), scales()
    check_by_onnxruntime(one_node("QuantizeLinear", data, scale))
    check_by_onnxruntime(one_node("QuantizeLinear", data, scale, output_dtype=TensorProto.INT16))
    check_by_onnxruntime(one_node("QuantizeLinear", data, scale, np.int8(7), output_dtype=TensorProto.INT8))
    check_by_onnxruntime(one_node("DequantizeLinear", levels((3, 4), "uint8"), scale), exact=False)
    check_by_onnxruntime(one_node("DequantizeLinear", levels((3, 4), "int32"), scale), exact=False)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23, 24, 25])
def test_every_opset(opset):
    """Before 13 there is one scale for all."""
    count, axis = ((), {}) if opset < 13 else ((3,), {"axis": 2})
    node = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **axis)]
    node += [helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **axis)]
    inputs = {"x": spread_data((2, 4, 3)), "s": scales(count), "z": levels(count, "int8")}
    model = model_of(node, inputs, ["q", "y"], opset=opset)
    wanted = ReferenceEvaluator(model).run(None, inputs) if opset > 13 else onnxruntime_run(model, inputs)
    check((model, inputs), wanted, exact=False)


@pytest.mark.parametrize("kind", [np.float16, "bfloat16"])
def test_narrow_scales(kind):
    kind = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16) if kind == "bfloat16" else kind
    data, scale, zero = spread_data((4, 6)).clip(-9, 9).astype(kind), scales((6,)).astype(kind), levels((6,), "int8")
    for made in (
        one_node("QuantizeLinear", data, scale, zero, axis=1),
        one_node("QuantizeLinear", data, scale, zero, axis=1, opset=23, precision=TensorProto.FLOAT),
        one_node("DequantizeLinear", levels((4, 6), "int8"), scale, zero, axis=1),
        one_node("DequantizeLinear", levels((4, 6), "int8"), scale, zero, axis=1, opset=23, output_dtype=1),
    ):
        check(made, ReferenceEvaluator(made[0]).run(None, made[1]))


@pytest.mark.parametrize("shift", [-3, 0, 5, None])
def test_dynamic_quantize(shift):
    data = np.zeros((3, 4), np.float32) if shift is None else spread_data((3, 4)) / 500 + np.float32(shift)
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    made = model_of([node], {"x": data}, ["q", "s", "z"]), {"x": data}
    check_by_onnxruntime(made)


@pytest.mark.parametrize("kinds", BYTE_PAIRS)
def test_matmul_integer(kinds):
    """ONNX Runtime refuses some pairs of types, so numpy says what is right."""
    a_kind, b_kind = kinds
    for left, right, a_zeros, b_zeros in (
        ((4, 19), (19, 21), (), (21,)),
        ((2, 3, 8), (8, 5), (1,), (1,)),
        ((3, 4), (4, 5), (3,), ()),
        ((2, 2, 3, 4), (2, 4, 5), (2, 2, 3, 1), (2, 1, 5)),
        ((6,), (6, 3), (), ()),
        ((3, 6), (6,), (3,), ()),
    ):
        a, b = levels(left, a_kind), levels(right, b_kind)
        a_zero, b_zero = levels(a_zeros, a_kind), levels(b_zeros, b_kind)
        rows = a_zero[:, None] if a_zero.shape == (3,) else a_zero
        wanted = np.matmul(a.astype(np.int32) - rows, b.astype(np.int32) - b_zero)
        check(one_node("MatMulInteger", a, b, a_zero, b_zero), [np.asarray(wanted)])
        check(one_node("MatMulInteger", a, constants=(b, a_zero, b_zero)), [np.asarray(wanted)])
    plain = np.matmul(a.astype(np.int32), b.astype(np.int32))
    check(one_node("MatMulInteger", a, b), [plain])


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("shapes", [((4, 19), (19, 21)), ((2, 3, 8), (8, 5))])
def test_qlinear_matmul(kind, shapes):
    for many in (False, True):
        columns = shapes[1][-1:] if many else ()
        b = levels(shapes[1], "int8")
        b_zero = np.zeros(columns, np.int8)  # ONNX Runtime takes no others, if there are several
        b_zero = b_zero if many else levels((), "int8")
        rest = (b, scales(columns), b_zero, np.float32(0.4), levels((), kind))
        a = levels(shapes[0], kind)
        check_by_onnxruntime(one_node("QLinearMatMul", a, scales(), levels((), kind), constants=rest))


def test_qlinear_matmul_with_a_scale_for_each_row():
    a, b = levels((3, 8), "uint8"), levels((8, 5), "int8")
    a_scale, b_scale, y_scale = scales((3,)), scales((5,)), np.float32(0.3)
    a_zero, b_zero, y_zero = levels((3,), "uint8"), levels((5,), "int8"), levels((), "uint8")
    sums = (a.astype(np.int32) - a_zero[:, None]) @ (b.astype(np.int32) - b_zero)
    level = np.rint(sums.astype(np.float32) * (a_scale[:, None] * b_scale / y_scale)) + y_zero
    made = one_node("QLinearMatMul", a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)
    check(made, [np.clip(level, 0, 255).astype(np.uint8)])


def test_qlinear_matmul_of_floats_in_8_bits():
    kind = helper.tensor_dtype_to_np_dtype(TensorProto.FLOAT8E4M3FN)
    a, b = (rng.normal(0, 3, shape).astype(kind) for shape in ((3, 8), (8, 5)))
    a_scale, b_scale, y_scale, zero = scales((3,)), scales((5,)), np.float32(0.01), np.zeros((), kind)
    numbers = (a.astype("d") * a_scale[:, None]) @ (b.astype("d") * b_scale) / y_scale
    wanted = numbers.astype("f").clip(-448, 448).astype(kind)
    zeros = np.zeros(3, kind), np.zeros(5, kind)
    made = one_node("QLinearMatMul", a, a_scale, zeros[0], b, b_scale, zeros[1], y_scale, zero)
    check(made, [wanted])


def test_weights_without_a_zero_point_stay_levels():
    """As those with one: the product sums integers."""
    x, w = levels((4, 8), "uint8"), levels((8, 5), "int8")
    constants = {"w": w, "s": scales(), "t": scales((5,)), "z": np.uint8(9)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "t"], ["b"], axis=1),
        helper.make_node("MatMul", ["a", "b"], ["y"]),
    ]
    model = model_of(nodes, {"x": x}, ["y"], constants)
    (found,), wanted = weft.compile(model).run({"x": x}), onnxruntime_run(model, {"x": x})[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert any("byte_matmul" in kernel.name for kernel in weft.compile(model).report().kernels)


CONVOLUTIONS = [  # data, weight, attributes
    ((1, 3, 8, 9), (5, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ((2, 4, 7, 7), (6, 2, 3, 2), {"group": 2, "strides": [2, 1], "pads": [0, 1, 2, 0]}),
    ((1, 6, 6, 6), (6, 1, 3, 3), {"group": 6, "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
    ((1, 8, 5, 5), (17, 8, 1, 1), {}),
    ((1, 3, 9, 9), (4, 3, 5, 5), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ((2, 3, 11), (4, 3, 3), {"pads": [1, 0], "strides": [2]}),
    ((1, 2, 5, 4, 6), (3, 2, 2, 3, 2), {"pads": [1, 0, 1, 0, 1, 0]}),
]


@pytest.mark.parametrize(("data", "weight", "attrs"), CONVOLUTIONS)
def test_convolutions(data, weight, attrs):
    for number, (x_kind, w_kind) in enumerate(BYTE_PAIRS):
        x, w = levels(data, x_kind), levels(weight, w_kind)
        if (x_kind, w_kind) != ("int8", "uint8"):  # which ONNX Runtime has not
            many = weight[:1] if number % 2 else ()
            w_zero = np.zeros(many, w_kind) if w_kind == "int8" else np.full(many, 128, np.uint8)
            bias = rng.integers(-5000, 5000, weight[0]).astype(np.int32)
            rest = (w, scales(many), w_zero, np.float32(0.7), levels((), x_kind), bias)
            check_by_onnxruntime(one_node("QLinearConv", x, scales(), levels((), x_kind), constants=rest, **attrs))
        if x_kind == "uint8" and len(data) == 4:
            zeros = (levels((), x_kind), levels((), w_kind))
            check_by_onnxruntime(one_node("ConvInteger", x, constants=(w, *zeros), **attrs))
