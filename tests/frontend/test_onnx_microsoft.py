"""Operators of com.microsoft, each as a model of one node: what weft makes of it is what ONNX Runtime makes of it."""

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_runs import model_of, onnxruntime_run

import weft

rng = np.random.default_rng(7)


def floats(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def levels(*shape, dtype=np.uint8):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def one_node(op_type, *arrays, constants=(), outputs=1, domain="com.microsoft", **attrs):
    """A model of one node and its inputs; None is an input left out, `constants` are inputs by number that are stored,
    and an output that is None has no name."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(arrays)]
    given = {n: np.asarray(x) for i, (n, x) in enumerate(zip(names, arrays)) if n and i not in constants}
    stored = {n: np.asarray(x) for i, (n, x) in enumerate(zip(names, arrays)) if n and i in constants}
    outputs = [
        f"y{i}" if wanted else "" for i, wanted in enumerate([True] * outputs if isinstance(outputs, int) else outputs)
    ]
    node = helper.make_node(op_type, names, outputs, domain=domain, **attrs)
    model = model_of([node], given, [name for name in outputs if name], stored, opset=17)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model, given


def weft_run(model, inputs):
    with weft.compile(model, shape={name: x.shape for name, x in inputs.items()}) as compiled:
        results = compiled.run(inputs)
    return [np.asarray(result) for result in results]


def check(op_type, *arrays, expected=None, rtol=1e-4, atol=1e-5, **how):
    model, inputs = one_node(op_type, *arrays, **how)
    expected = onnxruntime_run(model, inputs) if expected is None else expected
    for ours, theirs in zip(weft_run(model, inputs), expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)


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


# Attention.


def projected(batch=2, length=5, hidden=8, widths=(8, 8, 8)):
    return floats(batch, length, hidden), floats(hidden, sum(widths), scale=0.5), floats(sum(widths))


MASKS = {
    "none": None,
    "lengths": np.array([3, 5], np.int32),
    "ends and starts": np.array([4, 5, 1, 0], np.int32),
    "keys": np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 0]], np.int32),
    "queries": (np.random.default_rng(0).random((2, 5, 5)) < 0.7).astype(np.int32),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("unidirectional", [0, 1])
def test_attention(mask, unidirectional):
    check("Attention", *projected(), MASKS[mask], num_heads=2, unidirectional=unidirectional)


def test_attention_with_values_of_another_size():
    check("Attention", *projected(widths=(8, 8, 12)), num_heads=2, qkv_hidden_sizes=[8, 8, 12], scale=0.3)


def test_attention_with_a_filter_value_and_a_bias():
    arrays = *projected(), MASKS["keys"], None, floats(2, 2, 5, 5)
    check("Attention", *arrays, num_heads=2, mask_filter_value=-3.0)


def test_attention_with_a_past():
    past = floats(2, 2, 2, 3, 4)
    check("Attention", *projected(), None, past, num_heads=2, unidirectional=1, outputs=2)
    mask = np.array([[0, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 1, 1, 1, 1]], np.int32)
    check("Attention", *projected(), mask, past, num_heads=2, unidirectional=1, outputs=2)


@pytest.mark.parametrize("past", [False, True])
def test_quantised_attention(past):
    data, weight = levels(2, 5, 8), levels(8, 24, dtype=np.int8)
    points = np.array(117, np.uint8), np.array(3, np.int8)
    arrays = data, weight, floats(24), np.float32(0.01), np.float32(0.02), None, *points
    arrays = (*arrays, floats(2, 2, 2, 3, 4)) if past else arrays
    check(
        "QAttention",
        *arrays,
        constants=(1, 2, 3, 4, 6, 7),
        num_heads=2,
        unidirectional=int(past),
        outputs=2 if past else 1,
    )


MHA_MASKS = {
    "none": None,
    "lengths": np.array([3, 6], np.int32),
    "keys": np.array([[1, 1, 0, 1, 1, 0], [1, 1, 1, 1, 0, 1]], np.int32),
    "queries": (np.random.default_rng(0).random((2, 5, 6)) < 0.7).astype(np.int32),
}


@pytest.mark.parametrize("mask", MHA_MASKS)
def test_multi_head_attention(mask):
    arrays = floats(2, 5, 8), floats(2, 6, 8), floats(2, 6, 12), floats(28), MHA_MASKS[mask], floats(1, 2, 5, 6)
    check("MultiHeadAttention", *arrays, num_heads=2)


def test_multi_head_attention_one_way():
    arrays = floats(2, 5, 8), floats(2, 5, 8), floats(2, 5, 8)
    check("MultiHeadAttention", *arrays, num_heads=2, unidirectional=1, scale=0.7)


def test_multi_head_attention_of_packed_tensors():
    """ONNX Runtime has them on other devices only: on the CPU it is given the parts."""
    parts = [floats(2, 5, 2, 4) for _ in range(3)]
    model, inputs = one_node("MultiHeadAttention", *(part.reshape(2, 5, 8) for part in parts), num_heads=2)
    expected = onnxruntime_run(model, inputs)
    check("MultiHeadAttention", np.stack(parts, 3), num_heads=2, expected=expected)
    query, pair = parts[0].reshape(2, 5, 8), np.stack(parts[1:], 3)
    check("MultiHeadAttention", query, pair, num_heads=2, expected=expected)


def test_multi_head_attention_shows_its_scores():
    arrays = floats(2, 5, 8), floats(2, 6, 8), floats(2, 6, 8), None, MHA_MASKS["keys"]
    model, inputs = one_node("MultiHeadAttention", *arrays, num_heads=2, outputs=[1, 0, 0, 1])
    model.graph.output[1].CopyFrom(helper.make_tensor_value_info("y3", onnx.TensorProto.FLOAT, None))
    for ours, theirs in zip(weft_run(model, inputs), onnxruntime_run(model, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_multi_head_attention_of_an_encoder():
    arrays = floats(2, 5, 8), floats(2, 2, 6, 4), floats(2, 2, 6, 4)
    check("MultiHeadAttention", *arrays, num_heads=2)


def test_multi_head_attention_with_a_past():
    new, past = [floats(2, 1, 8) for _ in range(3)], [floats(2, 2, 4, 4) for _ in range(2)]
    mask = np.array([[1, 1, 0, 1, 1], [1, 1, 1, 1, 1]], np.int32)
    check("MultiHeadAttention", *new, None, mask, None, *past, num_heads=2, outputs=3)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("first", [False, True])
def test_rotary_embedding(interleaved, packed, first):
    data = floats(2, 3, 16) if packed else floats(2, 2, 3, 8)
    places = np.array([4]) if first else rng.integers(0, 10, (2, 3))
    check("RotaryEmbedding", data, places, floats(10, 4), floats(10, 4), interleaved=interleaved)


def test_rotary_embedding_of_a_part():
    places, tables = rng.integers(0, 10, (2, 3)), [floats(10, 2), floats(10, 2)]
    check("RotaryEmbedding", floats(2, 3, 16), places, *tables, num_heads=2, rotary_embedding_dim=4)


# Heads of queries that share keys.


class Grouped:
    """Inputs of GroupQueryAttention: a batch of two, four heads on two, vectors of 16."""

    def __init__(self, length, past=0, lengths=None, capacity=None, batch=2):
        self.new = [floats(batch, length, heads * 16) for heads in (4, 2, 2)]
        capacity = past if capacity is None else capacity
        self.past = [floats(batch, 2, capacity, 16) for _ in range(2)]
        lengths = [past + length] * batch if lengths is None else lengths
        self.lengths, self.total = np.array(lengths, np.int32) - 1, np.array(max(lengths), np.int32)
        self.tables = [floats(32, 8), floats(32, 8)]

    def node(self, *more, rotary=False, **attrs):
        tables = self.tables if rotary else [None, None]
        arrays = *self.new, *self.past, self.lengths, self.total, *tables, *more
        return arrays, {"num_heads": 4, "kv_num_heads": 2, "do_rotary": int(rotary), "constants": (6,), **attrs}

    def check(self, *more, outputs=3, **how):
        arrays, attrs = self.node(*more, **how)
        check("GroupQueryAttention", *arrays, outputs=outputs, **attrs)

    def check_defined(self, rows):
        """Rows of queries beyond the end of a sequence, and places of the cache there, hold nothing defined."""
        arrays, attrs = self.node(rotary=True)
        model, inputs = one_node("GroupQueryAttention", *arrays, outputs=3, **attrs)
        ours, theirs = weft_run(model, inputs), onnxruntime_run(model, inputs)
        for item, (count, last) in enumerate(zip(rows, self.lengths)):
            np.testing.assert_allclose(ours[0][item, :count], theirs[0][item, :count], rtol=1e-4, atol=1e-5)
            for mine, other in zip(ours[1:], theirs[1:]):
                assert mine.shape == other.shape
                np.testing.assert_allclose(mine[item, :, : last + 1], other[item, :, : last + 1], rtol=1e-4, atol=1e-5)


def test_grouped_prompt():
    Grouped(5).check()


def test_grouped_prompt_with_a_rotary_embedding():
    Grouped(5).check(rotary=True)
    Grouped(5).check(rotary=True, rotary_interleaved=1)


@pytest.mark.parametrize("rotary", [False, True])
def test_grouped_token(rotary):
    Grouped(1, past=6).check(rotary=rotary)


def test_grouped_tokens_of_one_sequence():
    Grouped(3, past=6, batch=1).check(rotary=True)


@pytest.mark.parametrize(
    "attrs", [{"softcap": 1.5}, {"local_window_size": 3}, {"scale": 0.2}, {"smooth_softmax": 1}, {"causal": 0}]
)
@pytest.mark.parametrize("past", [0, 6])
def test_grouped_attributes(attrs, past):
    Grouped(1 if past else 7, past).check(**attrs)


def test_grouped_packed():
    grouped = Grouped(1, past=4)
    grouped.new = [np.concatenate(grouped.new, 2), None, None]
    grouped.check(rotary=True)


def test_grouped_bias_and_sink():
    Grouped(1, past=4).check(None, floats(2, 4, 1, 5), floats(4))


def test_grouped_positions():
    Grouped(1, past=4).check(np.array([[2], [7]]), rotary=True)


def test_grouped_sequences_of_unequal_lengths():
    Grouped(1, past=6, lengths=[4, 7]).check_defined(rows=[1, 1])
    Grouped(5, lengths=[3, 5]).check_defined(rows=[3, 5])


def test_grouped_buffer():
    """A cache with places for more tokens than there are."""
    Grouped(1, past=6, capacity=12).check_defined(rows=[1, 1])
    Grouped(4, capacity=12).check_defined(rows=[4, 4])


@pytest.mark.parametrize("mode", [1, 2])
def test_grouped_scores(mode):
    Grouped(1, past=4).check(qk_output=mode, outputs=4)


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


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_levels_of_more_bits(dtype):
    data, scale, point = floats(4, 6), np.float32(0.01), np.array(7, dtype)
    check("QuantizeLinear", data, scale, point)
    check("DequantizeLinear", levels(4, 6, dtype=dtype), scale, point)
    scales, points = rng.uniform(0.01, 0.1, 4).astype(np.float32), levels(4, dtype=dtype)
    check("DequantizeLinear", levels(4, 6, dtype=dtype), scales, points, axis=0)
