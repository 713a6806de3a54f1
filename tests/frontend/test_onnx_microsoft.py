"""Operators of com.microsoft, each as a model of one node: what weft makes of it is what ONNX Runtime makes of it."""

import numpy as np
import pytest
from microsoft_nodes import check, floats, levels, one_node, rng, weft_run
from onnx_runs import onnxruntime_run


@pytest.mark.parametrize("op_type", ["Gelu", "FastGelu", "QuickGelu"])
def test_gelu(op_type):
    check(op_type, floats(3, 5, 8, scale=2))


def test_gelu_with_bias():
    check("BiasGelu", floats(3, 5, 8), floats(8))
    check("FastGelu", floats(3, 5, 8), floats(8))
    check("QuickGelu", floats(3, 8), alpha=0.7)


# Fused convolutions and products.

ACTIVATIONS = [
    ("Relu", []),
    ("Tanh", []),
    ("Sigmoid", []),
    ("LeakyRelu", [0.2]),
    ("Clip", [-0.3, 0.6]),
    ("HardSigmoid", [0.3, 0.4]),
]


@pytest.mark.parametrize(("activation", "numbers"), ACTIVATIONS)
def test_fused_conv(activation, numbers):
    attrs = {
        "activation": activation,
        "pads": [1, 0, 1, 2],
        "strides": [2, 1],
        **({"activation_params": numbers} if numbers else {}),
    }
    check("FusedConv", floats(2, 4, 9, 8), floats(6, 2, 3, 3), floats(6), constants=(1, 2), group=2, **attrs)


def test_fused_conv_with_a_residual():
    data, weight = floats(1, 3, 6, 6), floats(5, 3, 1, 1)
    check("FusedConv", data, weight, floats(5), floats(1, 5, 6, 6), constants=(1, 2), activation="Relu")


@pytest.mark.parametrize("attrs", [{}, {"transA": 1}, {"transB": 1}, {"transA": 1, "transB": 1, "alpha": 0.3}])
def test_fused_matmul(attrs):
    a, b = floats(2, 3, 4, 5), floats(2, 3, 5, 6)
    check(
        "FusedMatMul",
        a.swapaxes(-1, -2) if "transA" in attrs else a,
        b.swapaxes(-1, -2) if "transB" in attrs else b,
        **attrs,
    )


@pytest.mark.parametrize("swap", [0, 1])
def test_fused_matmul_of_moved_batches(swap):
    left = floats(5, 2, 3, 4) if swap else floats(4, 2, 3, 5)
    check("FusedMatMul", left, floats(2, 3, 5, 6), transBatchA=1, transA=swap)


@pytest.mark.parametrize("activation", [("Relu", {}), ("LeakyRelu", {"activation_alpha": 0.3}), ("Tanh", {})])
def test_fused_gemm(activation):
    name, numbers = activation
    attrs = {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 1.5}
    check("FusedGemm", floats(7, 4), floats(5, 7), floats(5), activation=name, **numbers, **attrs)


# Normalisations.


@pytest.mark.parametrize("given", [{}, {"shift": True}, {"shift": True, "bias": True}])
@pytest.mark.parametrize("skip", [(2, 3, 8), (1, 3, 8), (3, 8)])
def test_skip_layer_norm(given, skip):
    shift, bias = (floats(8) if given.get(name) else None for name in ("shift", "bias"))
    arrays = floats(2, 3, 8), floats(*skip), floats(8), shift, bias
    check("SkipLayerNormalization", *arrays, epsilon=1e-3, outputs=[1, 0, 0, 1])


@pytest.mark.parametrize("bias", [False, True])
def test_skip_simplified_layer_norm(bias):
    arrays = floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8) if bias else None
    check("SkipSimplifiedLayerNormalization", *arrays, epsilon=1e-3, outputs=[1, 0, 0, 1])


def test_simplified_layer_norm():
    data, scale = floats(2, 3, 8), floats(8)
    check("SimplifiedLayerNormalization", data, scale, domain="", outputs=2, epsilon=1e-3, axis=-1)
    check(
        "SimplifiedLayerNormalization", data.astype(np.float16), scale.astype(np.float16), domain="", axis=-1, rtol=2e-3
    )


def test_layer_norm_before_it_was_an_operator_of_onnx():
    model, inputs = one_node("LayerNormalization", floats(2, 3, 8), floats(8), floats(8), domain="", axis=-1)
    model.opset_import[0].version = 14
    np.testing.assert_allclose(weft_run(model, inputs)[0], onnxruntime_run(model, inputs)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("mask", [False, True])
def test_embed_layer_norm(segments, mask):
    words, lengths = rng.integers(0, 20, (2, 5)).astype(np.int32), np.array([[3], [5]])
    kind = rng.integers(0, 3, (2, 5)).astype(np.int32) if segments else None
    tables = floats(20, 8), floats(6, 8), floats(3, 8) if segments else None
    seen = (np.arange(5) < lengths).astype(np.int32) if mask else None
    arrays = words, kind, *tables, floats(8), floats(8), seen
    check("EmbedLayerNormalization", *arrays, outputs=3, epsilon=1e-3)


def test_embed_layer_norm_of_given_positions():
    words, places = rng.integers(0, 20, (2, 5)).astype(np.int32), rng.integers(0, 6, (2, 5)).astype(np.int32)
    arrays = words, None, floats(20, 8), floats(6, 8), None, floats(8), floats(8), None, places
    check("EmbedLayerNormalization", *arrays, outputs=2)


# Layouts, and what ONNX Runtime has on other devices only, of which the oracle is numpy, or its own operator of ONNX.


def onnx_node(op_type, *arrays, **attrs):
    """What ONNX Runtime makes of an operator of ONNX."""
    return onnxruntime_run(*one_node(op_type, *arrays, domain="", **attrs))[0]


def gelu(x):
    return onnx_node("Mul", x, 0.5 * (1 + onnx_node("Erf", x / np.float32(np.sqrt(2)))))


def test_added_biases():
    data, bias, skip = floats(2, 3, 8), floats(8), floats(2, 3, 8)
    check("BiasAdd", data, bias, skip, expected=[data + bias + skip])
    left, right = np.split(data + bias, 2, axis=-1)
    check("BiasSplitGelu", data, bias, expected=[left * gelu(right)])


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_group_norm(last, activation):
    data, scale, shift = floats(2, 6, 4, 5), floats(6), floats(6)
    skip, bias = floats(2, 6, 4, 5), floats(6)

    def normalised(x):
        groups = x.reshape(2, 3, -1)
        unit = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-3)
        y = unit.reshape(x.shape) * scale[:, None, None] + shift[:, None, None]
        return y / (1 + np.exp(-y)) if activation else y

    order = (0, 2, 3, 1) if last else (0, 1, 2, 3)
    attrs = {"groups": 3, "epsilon": 1e-3, "activation": activation, "channels_last": last}
    check("GroupNorm", data.transpose(order), scale, shift, expected=[normalised(data).transpose(order)], **attrs)
    if last:
        total = data + skip + bias[:, None, None]
        arrays = data.transpose(order), scale, shift, skip.transpose(order), bias
        expected = [normalised(total).transpose(order), total.transpose(order)]
        check("SkipGroupNorm", *arrays, outputs=2, expected=expected, **attrs)


def test_convolutions_with_channels_last():
    data, weight, bias = floats(2, 4, 7, 6), floats(6, 2, 3, 3), floats(6)
    attrs = {"group": 2, "pads": [1, 0, 1, 2], "strides": [2, 1]}
    expected = onnx_node("Conv", data, weight, bias, **attrs).transpose(0, 2, 3, 1)
    check("NhwcConv", data.transpose(0, 2, 3, 1), weight, bias, constants=(1, 2), expected=[expected], **attrs)
    residual = floats(*expected.shape)
    arrays = data.transpose(0, 2, 3, 1), weight, bias, residual
    expected = [np.maximum(expected + residual, 0)]
    check("NhwcFusedConv", *arrays, constants=(1, 2), activation="Relu", expected=expected, **attrs)


def test_pool_with_channels_last():
    check("NhwcMaxPool", levels(2, 7, 6, 5), kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])


def test_transposed_convolution_with_given_pads():
    data, weight, bias, pads = floats(1, 3, 5, 5), floats(3, 4, 3, 3), floats(4), np.array([1, 0, 1, 2])
    how = {"constants": (1, 2, 3), "strides": [2, 2], "output_padding": [1, 1]}
    check("ConvTransposeWithDynamicPads", data, weight, pads, bias, **how)


def test_softmax_with_a_bias():
    data = floats(2, 3, 4, 5)
    for bias, inner in ((floats(2, 1, 1, 5), 1), (floats(3, 4, 5), 0)):
        total = np.exp(data + bias)
        expected = [total / total.sum(-1, keepdims=True)]
        check("BiasSoftmax", data, bias, axis=3, is_inner_broadcast=inner, expected=expected)


# Operators that ONNX has, too.


def test_ranges():
    check("Range", np.int64(2), np.int64(11), np.int64(3), constants=(0, 1, 2))
    check("Range", np.float32(2), np.float32(5), constants=(0, 1))


@pytest.mark.parametrize("upper", [0, 1])
def test_triangles(upper):
    check("Trilu", floats(2, 4, 5), np.int64(1), constants=(1,), upper=upper)
    check("Trilu", floats(4, 5), upper=upper)


def test_inverse():
    check("Inverse", floats(3, 4, 4) + 3 * np.eye(4, dtype=np.float32), rtol=1e-3)


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge"])
def test_padding(mode):
    check("Pad", floats(3, 4), np.array([1, 0, 2, 1]), np.float32(1.5), constants=(1, 2), mode=mode)


def test_new_axis():
    for axis in (0, 2, -1, -2):
        check("ExpandDims", floats(2, 3), np.array([axis], np.int32), constants=(1,))


def test_grids_and_places():
    check("GridSample", floats(2, 3, 5, 6), rng.uniform(-1.2, 1.2, (2, 4, 3, 2)).astype(np.float32), align_corners=1)
    places = np.array([[0, 1], [1, 2]])
    data = floats(2, 3, 4)
    check("GatherND", data, places, expected=[data[places[:, 0], places[:, 1]]])


def test_different_elements():
    check("Unique", np.array([2, 1, 1, 3, 4, 3], np.float32), outputs=3)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_distances(metric):
    check("CDist", floats(5, 7), floats(4, 7), metric=metric)


def test_dropout_with_a_bias():
    data, bias, residual = floats(2, 3, 8), floats(8), floats(2, 3, 8)
    check("BiasDropout", data, bias, residual, expected=[data + bias + residual])


@pytest.mark.parametrize("activation", ["silu", "sigmoid"])
def test_gated_norm(activation):
    data, scale, gate = floats(2, 3, 12), floats(4), floats(2, 3, 12)
    groups = data.reshape(2, 3, 3, 4)
    unit = (groups / np.sqrt(np.square(groups).mean(-1, keepdims=True) + 1e-5) * scale).reshape(data.shape)
    opened = 1 / (1 + np.exp(-gate))
    expected = [unit * opened * (gate if activation == "silu" else 1)]
    check("GatedRMSNorm", data, scale, gate, activation=activation, expected=expected)


def test_products_with_gelu():
    data, weight, bias = floats(3, 8), floats(8, 6), floats(6)
    x = data @ weight + bias
    expected = [0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))]
    check("GemmFastGelu", data, weight, bias, expected=expected)
    other = floats(6, 8)
    expected = [np.maximum(0.5 * data @ other.T, 0)]
    check("FusedMatMulActivation", data, other, activation="Relu", transB=1, alpha=0.5, expected=expected)


# In half precision.

HALF = [
    ("SkipSimplifiedLayerNormalization", [(2, 3, 8), (2, 3, 8), (8,)], {"epsilon": 1e-3}),
    ("SkipLayerNormalization", [(2, 3, 8), (2, 3, 8), (8,), (8,)], {"epsilon": 1e-3}),
    ("MultiHeadAttention", [(2, 5, 8), (2, 6, 8), (2, 6, 8)], {"num_heads": 2}),
    ("GroupQueryAttention", [(1, 5, 64), (1, 5, 32), (1, 5, 32), (1, 2, 0, 16), (1, 2, 0, 16)], {"num_heads": 4}),
    ("BiasGelu", [(3, 8), (8,)], {}),
    ("QuickGelu", [(3, 8)], {}),
    ("FusedMatMul", [(3, 8), (8, 4)], {"alpha": 0.5}),
]


@pytest.mark.parametrize(("op_type", "shapes", "attrs"), HALF)
def test_half_precision(op_type, shapes, attrs):
    arrays, how = [floats(*shape).astype(np.float16) for shape in shapes], dict(attrs)
    if op_type == "GroupQueryAttention":
        arrays += [np.array([4], np.int32), np.array(5, np.int32)]
        how |= {"kv_num_heads": 2, "outputs": 3}
    check(op_type, *arrays, **how, rtol=1e-3, atol=1e-3)
