"""Attention of ONNX's own domain and what stands around it, against onnx's reference evaluator."""

import numpy as np
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator
from onnx_runs import model_of

import weft

rng = np.random.default_rng(11)


def floats(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def check(op_type, *arrays, outputs=1, opset=25, rtol=1e-4, atol=1e-5, **attrs):
    """A model of one node gives what the reference evaluator says; None is an input left out."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(arrays)]
    inputs = {name: np.asarray(x) for name, x in zip(names, arrays) if name}
    results = [f"y{i}" for i in range(outputs)]
    model = model_of([helper.make_node(op_type, names, results, **attrs)], inputs, results, opset=opset)
    expected = ReferenceEvaluator(model).run(None, inputs)
    with weft.compile(model, shape={name: x.shape for name, x in inputs.items()}) as compiled:
        made = [np.asarray(result) for result in compiled.run(inputs)]
    for ours, theirs in zip(made, expected, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=rtol, atol=atol)


def heads(queries=4, keys=4, length=5, total=6, size=8, values=8, dtype=np.float32):
    """Query, key and value."""
    shapes = (2, queries, length, size), (2, keys, total, size), (2, keys, total, values)
    return [floats(*shape, dtype=dtype) for shape in shapes]


# Attention.

MASKS = {
    "additive of one axis": floats(6),
    "additive": floats(5, 6),
    "additive of heads": floats(4, 5, 6),
    "additive of all": floats(2, 4, 5, 6),
    "boolean": rng.random((5, 6)) < 0.6,
    "boolean of the batch": rng.random((2, 1, 5, 6)) < 0.6,
    "boolean and short": rng.random((5, 4)) < 0.8,
    "additive and short": floats(2, 1, 5, 4),
    "integers": rng.integers(-2, 3, (5, 6)),
}


@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask):
    check("Attention", *heads(), MASKS[mask])


@pytest.mark.parametrize("mask", [name for name in MASKS if MASKS[name].ndim > 1 and name != "integers"])
def test_masks_with_a_triangle(mask):
    """The reference evaluator has none of one axis, or of integers."""
    check("Attention", *heads(), MASKS[mask], is_causal=1)


def test_short_mask_of_integers():
    """The reference evaluator is given the same numbers as floats."""
    query, key, value = heads()
    mask = rng.integers(-2, 3, (5, 4))
    node = helper.make_node("Attention", ["q", "k", "v", "mask"], ["y"])
    inputs = {"q": query, "k": key, "v": value, "mask": mask.astype(np.float32)}
    (expected,) = ReferenceEvaluator(model_of([node], inputs, ["y"], opset=24)).run(None, inputs)
    inputs["mask"] = mask
    with weft.compile(model_of([node], inputs, ["y"], opset=24)) as compiled:
        np.testing.assert_allclose(np.asarray(compiled.run(inputs)[0]), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [23, 24, 25])
def test_shared_heads_and_other_sizes(opset):
    check("Attention", *heads(queries=6, keys=2, values=4), opset=opset, scale=0.3)


def test_packed_heads():
    arrays = floats(2, 5, 32), floats(2, 6, 16), floats(2, 6, 12)
    check("Attention", *arrays, q_num_heads=4, kv_num_heads=2)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("packed", [False, True])
def test_cache(causal, packed):
    past = floats(2, 2, 3, 8), floats(2, 2, 3, 8)
    arrays = (floats(2, 5, 32), floats(2, 6, 16), floats(2, 6, 16)) if packed else heads(keys=2)
    attrs = {"q_num_heads": 4, "kv_num_heads": 2} if packed else {}
    check("Attention", *arrays, floats(5, 9), *past, outputs=3, is_causal=causal, **attrs)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("lengths", [(4, 6), (5, 5), (2, 6)])  # the last has queries that see nothing
def test_lengths_of_sequences(causal, lengths):
    check("Attention", *heads(), None, None, None, np.array(lengths), is_causal=causal)
    check("Attention", *heads(), rng.random((5, 6)) < 0.7, None, None, np.array(lengths), is_causal=causal)


@pytest.mark.parametrize("window", [(2, -1), (-1, 1), (1, 2), (0, 0)])
def test_windows(window):
    attrs = dict(zip(("left_window_size", "right_window_size"), window))
    check("Attention", *heads(), **attrs)
    check("Attention", *heads(), None, None, None, np.array([5, 6]), is_causal=1, **attrs)
    past = floats(2, 4, 3, 8), floats(2, 4, 3, 8)
    check("Attention", *heads(), None, *past, outputs=3, **attrs)


def test_a_query_that_sees_nothing():
    mask = np.ones((5, 6), bool)
    mask[2] = False
    for mode in (0, 1, 3):
        check("Attention", *heads(), mask, outputs=4, qk_matmul_output_mode=mode)


@pytest.mark.parametrize("mode", [1, 2, 3])
@pytest.mark.parametrize("softcap", [0.0, 1.5])
def test_steps_that_are_shown(mode, softcap):
    check("Attention", *heads(), floats(5, 6), outputs=4, qk_matmul_output_mode=mode, softcap=softcap)


def test_scores_are_shown_before_their_cap():
    """The text says so; the reference evaluator shows them capped."""
    query, key, value = heads()
    node = helper.make_node("Attention", ["q", "k", "v"], ["", "", "", "scores"], softcap=1.5)
    node.output[0] = "y"
    inputs = {"q": query, "k": key, "v": value}
    model = model_of([node], inputs, ["y", "scores"], opset=23)
    with weft.compile(model) as compiled:
        scores = np.asarray(compiled.run(inputs)[1])
    np.testing.assert_allclose(scores, query @ key.swapaxes(-1, -2) / np.sqrt(8), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_types(dtype):
    tolerance, rough = (1e-3, 1e-3) if dtype == np.float16 else (1e-9, 1e-6)
    arrays = heads(dtype=dtype)
    check("Attention", *arrays, floats(5, 6, dtype=dtype), rtol=tolerance, atol=tolerance)
    check("Attention", *arrays, softcap=2.0, softmax_precision=TensorProto.FLOAT, rtol=rough, atol=rough)


def test_many_queries():
    """As many as the fused kernel takes."""
    check("Attention", *heads(length=24, total=24, size=16), is_causal=1)
    check("Attention", *heads(queries=4, keys=2, length=24, total=30, size=16), rng.random((2, 1, 24, 30)) < 0.5)


# What stands around it.


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("width", [0, 4])
@pytest.mark.parametrize("positions", [False, True])
def test_rotary_embedding(interleaved, width, positions):
    pairs = (width or 8) // 2
    tables = [floats(10, pairs) if positions else floats(2, 5, pairs) for _ in range(2)]
    places = rng.integers(0, 10, (2, 5)) if positions else None
    attrs = {"interleaved": interleaved, "rotary_embedding_dim": width}
    check("RotaryEmbedding", floats(2, 3, 5, 8), *tables, places, **attrs)
    check("RotaryEmbedding", floats(2, 5, 24), *tables, places, num_heads=3, **attrs)


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [-2, 1])
def test_cache_that_is_written(mode, axis):
    start = np.array([2, 0, 1] if mode == "linear" else [4, 0, 7])
    update = floats(3, 2, 3, 4) if axis == -2 else floats(3, 3, 6, 4)
    check(
        "TensorScatter", floats(3, 2, 6, 4) if axis == -2 else floats(3, 5, 6, 4), update, start, mode=mode, axis=axis
    )
    check("TensorScatter", floats(3, 6, 4), floats(3, 2, 4), mode=mode)


@pytest.mark.parametrize("axis", [-1, 1])
def test_layer_norm(axis):
    shape = (3, 4, 5)[axis:]
    check("LayerNormalization", floats(3, 4, 5), floats(*shape), floats(*shape), outputs=3, axis=axis, epsilon=1e-3)
    check("LayerNormalization", floats(3, 4, 5), floats(*shape), axis=axis)


def test_norms_with_a_scale_for_each_item():
    data, scale, shift = floats(3, 4, 5), floats(3, 1, 5), floats(4, 1)
    unit = (data - data.mean(-1, keepdims=True)) / np.sqrt(data.var(-1, keepdims=True) + 1e-5)
    assert_node([unit * scale + shift], "LayerNormalization", data, scale, shift)
    root = np.sqrt(np.square(data).mean(-1, keepdims=True) + 1e-5)
    assert_node([data / root * scale], "RMSNormalization", data, scale)


def assert_node(expected, op_type, *arrays, **attrs):
    """A node gives what numpy says."""
    inputs = {f"x{i}": x for i, x in enumerate(arrays)}
    results = [f"y{i}" for i in range(len(expected))]
    model = model_of([helper.make_node(op_type, list(inputs), results, **attrs)], inputs, results, opset=23)
    with weft.compile(model) as compiled:
        for ours, theirs in zip(compiled.run(inputs), expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-4, atol=1e-5)


def test_moments_are_in_the_type_that_is_asked_for():
    data, scale = floats(3, 8, dtype=np.float16), floats(8, dtype=np.float16)
    wide = data.astype(np.float32)
    mean, deviation = wide.mean(-1, keepdims=True), np.sqrt(wide.var(-1, keepdims=True) + 1e-5)
    normalised = ((wide - mean) / deviation * scale.astype(np.float32)).astype(np.float16)
    inputs = {"x": data, "scale": scale}
    node = helper.make_node("LayerNormalization", list(inputs), ["y", "mean", "inverse"])
    with weft.compile(model_of([node], inputs, ["y", "mean", "inverse"], opset=17)) as compiled:
        made = [np.asarray(result) for result in compiled.run(inputs)]
    for ours, theirs in zip(made, [normalised, mean, 1 / deviation], strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-3)


def test_rms_norm_in_the_type_of_its_scale():
    data, scale = floats(3, 8, dtype=np.float16), floats(8)
    wide = data.astype(np.float32)
    unit = (wide / np.sqrt(np.square(wide).mean(-1, keepdims=True) + 1e-5)).astype(np.float16)
    assert_node([unit.astype(np.float32) * scale], "RMSNormalization", data, scale)


# Recurrent layers of language models.


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
@pytest.mark.parametrize("length", [1, 7])
@pytest.mark.parametrize("past", [False, True])
def test_linear_attention(rule, length, past):
    """Four heads of queries on two, keys of 8, values of 6; fading for each row of the state."""
    decay = -np.abs(floats(2, length, 16)) if "gated" in rule else None
    beta = rng.random((2, length, 2)).astype(np.float32) if "delta" in rule else None
    key = floats(2, length, 16) / np.float32(4)
    arrays = floats(2, length, 32), key, floats(2, length, 12), floats(2, 2, 8, 6) if past else None, decay, beta
    check("LinearAttention", *arrays, outputs=2, opset=27, update_rule=rule, q_num_heads=4, kv_num_heads=2)


@pytest.mark.parametrize("activation", ["none", "silu"])
@pytest.mark.parametrize("past", [False, True])
def test_causal_convolution(activation, past):
    state, bias = (floats(2, 6, 3), floats(6)) if past else (None, None)
    arrays = floats(2, 6, 5), floats(6, 1, 4), bias, state
    check("CausalConvWithState", *arrays, outputs=2, opset=27, activation=activation)


def test_gated_activation():
    check("SwiGLU", floats(3, 8), floats(3, 8), opset=28, alpha=1.3)


# Attention that subgraphs change.

FLEX = """
<ir_version: 10, opset_import: ["" : 21, "ai.onnx.preview" : 1]>
m (float[batch, 4, n, 8] q, float[batch, 2, s, 8] k, float[batch, 2, s, 6] v, float[n, s] bias)
=> (float[batch, 4, n, 6] y) {
    y = ai.onnx.preview.FlexAttention <%s> (q, k, v)
}
"""
SCORES = "score_mod: graph = f (float[b, h, n, s] x) => (float[b, h, n, s] z) { t = Tanh(x) z = Add(t, bias) }"
WEIGHTS = "prob_mod: graph = g (float[b, h, n, s] x) => (float[b, h, n, s] z) { z = Mul(x, x) }"


@pytest.mark.parametrize("attributes", ["scale: float = 0.3", SCORES, WEIGHTS, f"{SCORES}, {WEIGHTS}"])
@pytest.mark.parametrize("open_shapes", [False, True])
def test_flexible_attention(attributes, open_shapes):
    """With lengths that are open in the file, or given; the oracle is numpy."""
    query, key, value, bias = floats(2, 4, 5, 8), floats(2, 2, 6, 8), floats(2, 2, 6, 6), floats(5, 6)
    scores = query @ key.repeat(2, 1).swapaxes(-1, -2) * (0.3 if "scale" in attributes else 8**-0.5)
    scores = np.tanh(scores) + bias if SCORES in attributes else scores
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    weights = weights**2 if WEIGHTS in attributes else weights
    inputs = {"q": query, "k": key, "v": value, "bias": bias}
    shapes = None if open_shapes else {name: x.shape for name, x in inputs.items()}
    with weft.compile(parser.parse_model(FLEX % attributes), shape=shapes) as compiled:
        ours = np.asarray(compiled.run(inputs)[0])
    np.testing.assert_allclose(ours, weights @ value.repeat(2, 1), rtol=1e-4, atol=1e-5)
