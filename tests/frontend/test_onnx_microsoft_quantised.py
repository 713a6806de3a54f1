"""Quantised operators of com.microsoft, and weights of a few bits, against ONNX Runtime and numpy."""

import numpy as np
import pytest
from microsoft_nodes import check, floats, levels, rng

# Weights of a few bits.


def packed(numbers, bits):
    """Numbers along the last axis in bytes, the first ones in the lowest bits."""
    per_byte = 8 // bits
    short = -numbers.shape[-1] % per_byte
    numbers = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, short)])
    groups = numbers.reshape(*numbers.shape[:-1], -1, per_byte).astype(np.uint8)
    return (groups << np.arange(0, 8, bits, dtype=np.uint8)).sum(-1, dtype=np.uint8)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("zero", ["middle", "packed", "numbers"])
@pytest.mark.parametrize("columns", [64, 72])
def test_matmul_of_few_bits(bits, zero, columns):
    rows, size = 6, 16
    blocks = -(-columns // size)
    numbers = rng.integers(0, 2**bits, (rows, blocks, size))
    points = rng.integers(0, 2**bits, (rows, blocks))
    given = {"middle": None, "packed": packed(points, bits), "numbers": points.astype(np.float32)}[zero]
    scales, bias = rng.uniform(0.1, 1, (rows, blocks)).astype(np.float32), floats(rows)
    arrays = floats(2, 3, columns), packed(numbers, bits), scales, given, None, bias
    used = points if zero != "middle" else 2 ** (bits - 1)
    used = np.broadcast_to(used, (rows, blocks))
    weight = ((numbers - used[..., None]) * scales[..., None]).reshape(rows, -1)[:, :columns]
    expected = [(arrays[0] @ weight.T + bias).astype(np.float32)]
    how = {"K": columns, "N": rows, "bits": bits, "block_size": size, "constants": (1, 2, 3, 5)}
    check("MatMulNBits", *arrays, **how, expected=expected, rtol=1e-3, atol=1e-3)
    if zero != "numbers" and bits != 2:  # of which ONNX Runtime's CPU has not all
        check("MatMulNBits", *arrays, **how, rtol=1e-3, atol=1e-3)


def test_matmul_of_few_bits_in_groups():
    numbers, groups = rng.integers(0, 16, (6, 4, 16)), rng.permutation(np.arange(64) // 16).astype(np.int32)
    scales = rng.uniform(0.1, 1, (6, 4)).astype(np.float32)
    arrays = floats(3, 64), packed(numbers, 4), scales, None, groups
    expected = arrays[0] @ ((numbers.reshape(6, 64) - 8.0) * scales[:, groups]).T
    how = {"K": 64, "N": 6, "bits": 4, "block_size": 16, "constants": (1, 2, 4)}
    check("MatMulNBits", *arrays, **how, expected=[expected.astype(np.float32)], rtol=1e-3, atol=1e-3)


def test_matmul_of_few_bits_in_half_precision():
    numbers, scales = rng.integers(0, 16, (6, 2, 32)), rng.uniform(0.1, 1, (6, 2)).astype(np.float16)
    arrays = floats(3, 64).astype(np.float16), packed(numbers, 4), scales
    weight = ((numbers - 8.0) * scales[..., None].astype(np.float32)).reshape(6, 64)
    expected = (arrays[0].astype(np.float32) @ weight.T).astype(np.float16)
    how = {"K": 64, "N": 6, "bits": 4, "block_size": 32, "constants": (1, 2)}
    check("MatMulNBits", *arrays, **how, expected=[expected], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zero", [False, True])
def test_gather_of_few_bits(bits, zero):
    numbers, points = rng.integers(0, 2**bits, (10, 32)), rng.integers(0, 2**bits, (10, 2))
    scales, indices = rng.uniform(0.1, 1, (10, 2)).astype(np.float32), np.array([[3, 1], [0, 9]])
    arrays = packed(numbers, bits), indices, scales, packed(points, bits) if zero else None
    how = {"bits": bits, "block_size": 16, "quantize_axis": 1, "gather_axis": 0, "constants": (0, 2, 3)}
    check("GatherBlockQuantized", *arrays, **how)


# Quantised tensors: ONNX Runtime rounds in other places, so that a level may be the next one.


def scaled(dtype, *shape):
    """Levels, a scale and a zero point."""
    point = np.array(rng.integers(100, 150) if dtype == np.uint8 else rng.integers(-20, 20), dtype)
    return levels(*shape, dtype=dtype), np.float32(rng.uniform(0.01, 0.1)), point


BYTES = [np.uint8, np.int8]


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_arithmetic_of_levels(op_type, dtype):
    out = scaled(dtype)[1:]
    check(op_type, *scaled(dtype, 2, 3, 8), *scaled(dtype, 3, 1), *out, atol=1)


@pytest.mark.parametrize("dtype", BYTES)
def test_activations_of_levels(dtype):
    point = np.array(3, dtype)
    check("QLinearSigmoid", *scaled(dtype, 4, 9), np.float32(0.004), point, atol=1)
    check("QLinearLeakyRelu", *scaled(dtype, 4, 9), np.float32(0.04), point, constants=(1, 2, 3, 4), alpha=0.3, atol=1)
    low = np.array(0 if dtype == np.uint8 else -128, dtype)
    check(
        "QLinearSoftmax",
        *scaled(dtype, 4, 9),
        np.float32(1 / 256),
        low,
        constants=(1, 2, 3, 4),
        axis=-1,
        opset=13,
        atol=1,
    )


def test_concatenation_of_levels():
    parts = [x for shape in [(2, 3), (2, 5)] for x in scaled(np.uint8, *shape)]
    check("QLinearConcat", *scaled(np.uint8)[1:], *parts, constants=(0, 1, 3, 4, 6, 7), axis=1, atol=1)


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", BYTES)
def test_pools_of_levels(last, dtype):
    shape, out = ((2, 7, 6, 5) if last else (2, 5, 7, 6)), scaled(dtype)[1:]
    how = {"constants": (1, 2, 3, 4), "channels_last": last, "atol": 1}
    check("QLinearGlobalAveragePool", *scaled(dtype, *shape), *out, **how)
    attrs = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1], "count_include_pad": last}
    check("QLinearAveragePool", *scaled(dtype, *shape), *out, **attrs, **how)


def test_choice_of_levels():
    condition = rng.random((2, 5)) < 0.5
    arrays = condition, *scaled(np.uint8, 2, 5), *scaled(np.uint8, 5), *scaled(np.uint8)[1:]
    check("QLinearWhere", *arrays, constants=(2, 3, 5, 6, 7, 8), atol=1)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_products_of_levels(columns, bias):
    weight, more = levels(16, 6, dtype=np.int8), floats(6) if bias else None
    scale = rng.uniform(0.01, 0.1, 6).astype(np.float32) if columns else np.float32(0.03)
    point = levels(6, dtype=np.int8) // 10 if columns else np.array(4, np.int8)
    check("DynamicQuantizeMatMul", floats(2, 5, 16), weight, scale, point, more, constants=(1, 2, 3, 4), atol=1e-3)
    arrays = levels(2, 5, 16), weight, np.float32(0.02), scale, np.array(120, np.uint8), point, more
    check("MatMulIntegerToFloat", *arrays, constants=(1, 2, 3, 4, 5, 6), atol=1e-3)


@pytest.mark.parametrize("segments", [False, True])
def test_embeddings_of_levels(segments):
    words, kinds = rng.integers(0, 20, (2, 5)).astype(np.int32), rng.integers(0, 3, (2, 5)).astype(np.int32)
    shapes = (20, 8), (6, 8), (3, 8), (8,), (8,)
    tables, scales, points = map(list, zip(*(scaled(np.uint8, *shape) for shape in shapes)))
    if not segments:
        kinds = tables[2] = scales[2] = points[2] = None
    seen = (np.arange(5) < [[3], [5]]).astype(np.int32)
    arrays = words, kinds, *tables, seen, *scales, *points
    check("QEmbedLayerNormalization", *arrays, constants=tuple(range(8, 18)), outputs=2, epsilon=1e-3, atol=1e-4)


@pytest.mark.parametrize("written", [False, True])
def test_gemm_of_levels(written):
    data, weight = scaled(np.uint8, 5, 16), scaled(np.int8, 6, 16)
    extra = rng.integers(-3000, 3000, 6).astype(np.int32)
    out = (np.float32(3.0), np.array(110, np.uint8)) if written else ()
    check(
        "QGemm",
        *data,
        *weight,
        extra,
        *out,
        constants=tuple(range(1, 9)),
        transB=1,
        alpha=0.7,
        atol=1 if written else 1e-2,
    )


@pytest.mark.parametrize("kind", [0, 1])
def test_matmul_of_small_floats(kind):
    rows, columns = 6, 32
    weight, scales = levels(rows * columns // 2), rng.uniform(0.5, 2, rows * columns // 16).astype(np.float32)
    how = {"K": columns, "N": rows, "block_size": 16, "quant_type": kind, "constants": (1, 2)}
    check("MatMulBnb4", floats(3, columns), weight, scales, **how, rtol=1e-3, atol=1e-3)


def test_integers():
    left, right = levels(3, 4), levels(3, 4)
    expected = [(left.astype(np.int32) - 5) * (right.astype(np.int32) - 7)]
    check("MulInteger", left, np.uint8(5), right, np.uint8(7), expected=expected)
    check("ReduceSumInteger", left, axes=[1], keepdims=0, expected=[left.sum(1, dtype=np.int32)])


@pytest.mark.parametrize("last", [0, 1])
def test_convolution_of_levels(last):
    data, weight, out = scaled(np.uint8, 2, 4, 6, 5), scaled(np.int8, 6, 2, 3, 3), (np.float32(2.0), np.uint8(120))
    bias = rng.integers(-500, 500, 6).astype(np.int32)
    image = data[0].transpose(0, 2, 3, 1) if last else data[0]
    arrays = image, *data[1:], weight[0], weight[1], np.int8(0), *out, bias
    how = {"constants": tuple(range(1, 9)), "group": 2, "pads": [1, 0, 1, 1], "strides": [2, 1]}
    check("QLinearConv", *arrays, **how, channels_last=last, atol=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_levels_of_more_bits(dtype):
    data, scale, point = floats(4, 6), np.float32(0.01), np.array(7, dtype)
    check("QuantizeLinear", data, scale, point)
    check("DequantizeLinear", levels(4, 6, dtype=dtype), scale, point)
    scales, points = rng.uniform(0.01, 0.1, 4).astype(np.float32), levels(4, dtype=dtype)
    check("DequantizeLinear", levels(4, 6, dtype=dtype), scales, points, axis=0)
