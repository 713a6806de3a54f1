"""Attention of com.microsoft in all its forms, against ONNX Runtime."""

import numpy as np
import onnx
import pytest
from microsoft_nodes import check, floats, levels, one_node, rng, weft_run
from onnx import helper
from onnx_runs import onnxruntime_run

from weft.base.errors import Error


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


# A past in a buffer with places for more tokens, of which each beam may have another beam's.

BUFFER_INPUTS = {
    "MultiHeadAttention": ["bias", "mask", "added", "key", "value", "count", "beams"],
    "DecoderMaskedMultiHeadAttention": ["mask", "added", "key", "value", "count", "width", "beams", "bias"],
}


def buffered(op, past=4, **given):
    """The inputs of a node of four sequences: two of a batch, in two beams each."""
    cache = {"key": floats(4, 2, 10, 4), "value": floats(4, 2, 10, 4), "count": np.array([past], np.int32)}
    parts = {**cache, **given}
    return [floats(4, 1, 8) for _ in range(3)] + [parts.get(name) for name in BUFFER_INPUTS[op]]


def options(past=4):
    """All that may be given; of a bias for each sequence ONNX Runtime reads another part where there are beams."""
    mask = rng.integers(0, 2, (4, past + 1)).astype(np.int32)
    return {"bias": floats(24), "mask": mask, "added": floats(1, 2, 1, past + 1)} | beams()


def beams():
    return {"beams": rng.integers(0, 2, (2, 2, 10)).astype(np.int32), "width": np.array([2], np.int32)}


@pytest.mark.parametrize("op", BUFFER_INPUTS)
@pytest.mark.parametrize("chosen", [(), ("bias",), ("mask",), ("added",), ("beams", "width"), tuple(options())])
@pytest.mark.parametrize("past", [0, 4, 9])
def test_a_past_in_a_buffer(op, chosen, past):
    given = {name: value for name, value in options(past).items() if name in chosen}
    attrs = {"past_present_share_buffer": 1} if op[0] == "D" else {}
    check(op, *buffered(op, past, **given), num_heads=2, outputs=3, mask_filter_value=-3.0, **attrs)


def test_several_tokens_in_a_buffer():
    new, past = [floats(2, 3, 8) for _ in range(3)], [floats(2, 2, 10, 4) for _ in range(2)]
    arrays = *new, None, None, floats(2, 2, 3, 7), *past, np.array([4], np.int32)
    check("MultiHeadAttention", *arrays, num_heads=2, outputs=3, unidirectional=1)


def test_beams_of_a_past_that_grows():
    arrays = buffered("MultiHeadAttention", count=None, added=floats(4, 2, 1, 11))
    ours = weft_run(*one_node("MultiHeadAttention", *arrays[:9], beams()["beams"] * 0, num_heads=2, outputs=3))
    first = [np.repeat(part.reshape(2, 2, 2, 10, 4)[:, :1], 2, 1).reshape(4, 2, 10, 4) for part in arrays[6:8]]
    plain = [*arrays[:6], *first]
    expected = onnxruntime_run(*one_node("MultiHeadAttention", *plain, num_heads=2, outputs=3))
    np.testing.assert_allclose(ours[0], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(ours[1][:, :, :10], arrays[6])


@pytest.mark.parametrize("masked", [False, True])
def test_a_decoder_that_reads_an_encoder(masked):
    mask = rng.integers(0, 2, (2, 6)).astype(np.int32) if masked else None
    arrays = floats(2, 1, 8), floats(2, 2, 6, 4), floats(2, 2, 6, 4), mask, *[None] * 6, floats(24)
    check("DecoderMaskedMultiHeadAttention", *arrays, num_heads=2)


def test_buffers_that_make_no_sense():
    op = "MultiHeadAttention"
    with pytest.raises(Error, match="a table of beams of shape"):
        weft_run(*one_node(op, *buffered(op, beams=np.zeros((3, 2, 10), np.int32)), num_heads=2))
    with pytest.raises(Error, match="shows the scores of a buffer"):
        weft_run(*one_node(op, *buffered(op), num_heads=2, outputs=4))
    op = "DecoderMaskedMultiHeadAttention"
    with pytest.raises(Error, match="no past_sequence_length"):
        weft_run(*one_node(op, *buffered(op, count=None), num_heads=2, past_present_share_buffer=1))


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

    def check_first(self, kept, *more, **how):
        """All but what the cache holds behind the tokens that are kept, a number for all or for each sequence."""
        arrays, attrs = self.node(*more, **how)
        model, inputs = one_node("GroupQueryAttention", *arrays, outputs=4 if "qk_output" in how else 3, **attrs)
        (ours, *mine), (theirs, *other) = weft_run(model, inputs), onnxruntime_run(model, inputs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
        for cache, expected in zip(mine[:2], other[:2], strict=True):
            assert (cache.shape, cache.dtype) == (expected.shape, expected.dtype)
            for item, count in enumerate(np.broadcast_to(kept, len(cache))):
                np.testing.assert_allclose(cache[item, :, :count], expected[item, :, :count], rtol=1e-4, atol=1e-5)
        for scores, expected in zip(mine[2:], other[2:], strict=True):
            np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


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
@pytest.mark.parametrize("attrs", [{}, {"softcap": 1.5}, {"local_window_size": 2}])
def test_grouped_scores(mode, attrs):
    Grouped(1, past=4).check(None, floats(2, 4, 1, 5), qk_output=mode, outputs=4, **attrs)
    Grouped(5).check(qk_output=mode, outputs=4, **attrs)


def test_grouped_scores_of_a_buffer():
    """There are as many as the longest sequence has tokens, not as the cache has places."""
    Grouped(1, past=3, capacity=7).check_first(4, qk_output=2)
    Grouped(4, capacity=9).check_first(4, qk_output=1)


@pytest.mark.parametrize("seed", range(12))
def test_grouped_options_together(seed):
    """Any of them, whatever the others are."""
    draw = np.random.default_rng(seed)
    chance = lambda share: bool(draw.random() < share)
    past = int(draw.choice([0, 4]))
    length = 1 if past else int(draw.integers(2, 6))
    grouped, total = Grouped(length, past), past + length
    attrs = {"rotary": chance(0.6), "softcap": float(draw.choice([0.0, 0.7, 20.0]))}
    attrs["scale"] = float(draw.choice([0.0, 0.3]))
    if attrs["rotary"]:
        attrs["rotary_interleaved"] = int(chance(0.5))
    if chance(0.5):
        attrs["local_window_size"] = int(draw.integers(1, 7))
    sink = floats(4) if chance(0.4) else None
    if sink is None:
        attrs["smooth_softmax"] = int(chance(0.5))
    bias = floats(int(draw.choice([1, 2])), int(draw.choice([1, 4])), length, total) if chance(0.5) else None
    places = np.arange(past, total)[None].repeat(2, 0) + 3 if attrs["rotary"] and chance(0.5) else None
    if chance(0.5):
        grouped.new = [np.concatenate(grouped.new, 2), None, None]
    grouped.check(places, bias, sink, **attrs)


@pytest.mark.parametrize("kind", ["PER_TENSOR", "PER_CHANNEL"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(
    ("length", "past", "capacity", "batch"), [(1, 4, 4, 2), (1, 3, 8, 2), (5, 0, 0, 2), (3, 6, 6, 1)]
)
def test_grouped_cache_of_levels(kind, bits, length, past, capacity, batch):
    grouped = Grouped(length, past, capacity=capacity, batch=batch)
    dtype, size = (np.int8, 16) if bits == 8 else (np.uint8, 8)
    grouped.past = [levels(batch, 2, capacity, size, dtype=dtype) for _ in range(2)]
    shape, step = (1,) if kind == "PER_TENSOR" else (1, 2, 1, 16), 4 / 2**bits
    scales = [rng.uniform(0.5 * step, step, shape).astype(np.float32) for _ in range(2)]
    attrs = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": bits, "rotary": True}
    grouped.check_first(past + length, None, None, None, *scales, **attrs)


@pytest.mark.parametrize(
    ("length", "lengths", "capacity", "window"),
    [
        (1, [4], 6, 3),
        (1, [10], 6, 3),
        (1, [4, 13], 6, 3),
        (5, [5], 6, 3),
        (9, [9, 9], 6, 3),
        (4, [9], 6, 6),
        (9, [29], 7, 2),
    ],
)
@pytest.mark.parametrize("bits", [0, 8])
def test_grouped_cache_of_the_last_tokens(length, lengths, capacity, window, bits):
    """Its places behind the last token hold nothing defined."""
    batch, group = len(lengths), capacity - window + 1
    kept = [last - group * max(-(-(last - capacity) // group), 0) for last in lengths]
    grouped = Grouped(length, lengths=lengths, capacity=capacity, batch=batch)
    attrs, scales = {"sliding_window_cache": 1, "local_window_size": window, "rotary": True, "softcap": 2.0}, []
    if bits:
        grouped.past = [levels(batch, 2, capacity, 16, dtype=np.int8) for _ in range(2)]
        scales = [rng.uniform(0.01, 0.02, (1, 2, 1, 16)).astype(np.float32) for _ in range(2)]
        attrs |= {"k_quant_type": "PER_CHANNEL", "v_quant_type": "PER_CHANNEL", "kv_cache_bit_width": bits}
    grouped.check_first(kept, None, floats(batch, 1, length, max(lengths)), floats(4), *scales, **attrs)


def test_grouped_caches_that_make_no_sense():
    for attrs, told in (
        ({"k_quant_type": "PER_TENSOR", "kv_cache_bit_width": 3}, "cache of 3 bits"),
        ({"sliding_window_cache": 1, "local_window_size": 9}, "a cache of 4 places for a window of 9"),
        ({"sliding_window_cache": 1, "local_window_size": 2, "causal": 0}, "read one way"),
    ):
        arrays, given = Grouped(1, past=4).node(None, None, None, np.ones(1, np.float32), **attrs)
        with pytest.raises(Error, match=told):
            weft_run(*one_node("GroupQueryAttention", *arrays, **given))


# In its place.


@pytest.mark.parametrize("rule", ["linear", "gated", "delta", "gated_delta"])
def test_linear_attention(rule):
    decay = -np.abs(floats(2, 6, 4)) if "gated" in rule else None
    beta = rng.random((2, 6, 4)).astype(np.float32) if "delta" in rule else None
    arrays = floats(2, 6, 32), floats(2, 6, 32) / np.float32(4), floats(2, 6, 24), floats(2, 4, 8, 6), decay, beta
    check("LinearAttention", *arrays, outputs=2, update_rule=rule, q_num_heads=4, kv_num_heads=4)


def test_causal_convolution():
    arrays = floats(2, 6, 5), floats(6, 1, 4), floats(6), floats(2, 6, 3)
    check("CausalConvWithState", *arrays, outputs=2, activation="silu")
