"""Normalisations with what is added before them, and of embeddings."""

from __future__ import annotations

from functools import reduce

from .....base.dtype import INT32
from .....base.errors import FormatError
from ....building import in_float32
from ....emitter import Value
from ...call import OnnxCall
from ...registry import converter
from ...tensors import dtype_of
from ..norms import layer_norm, moments, rms_norm
from .domain import microsoft
from .fused import channels_first, channels_last
from .quantised import dequantised


@converter("SimplifiedLayerNormalization")
def simplified_layer_norm(call: OnnxCall) -> list[Value]:
    """Division by the root mean square, and 1 / that where it is used. It is in ONNX's own domain, without a schema."""
    call.assume(axis=-1, epsilon=1e-5, stash_type=1)
    axis, epsilon = call.axis(call.attr("axis"), call[0]), call.attr("epsilon")
    stash = dtype_of(call.attr("stash_type"), "attribute 'stash_type'")
    normalised = rms_norm(call, call[0], call[1], axis, epsilon)
    return [normalised, *([call.cast(_inverse_root(call, call[0], axis, epsilon), stash)] if 1 in call.wanted else [])]


def _inverse_root(call: OnnxCall, data: Value, axis: int, epsilon: float) -> Value:
    axes = tuple(range(axis, call.rank(data)))
    mean = call.op("mean", call.square(call.widened(data)), axis=axes, keepdims=True)
    return call.op("__pow_scalar__", call.shifted(mean, epsilon), scalar=-0.5)


@microsoft("SkipLayerNormalization", epsilon=1e-12)
def skip_layer_norm(call: OnnxCall) -> list[Value | None]:
    """The normalised sum of input, skip and bias, and the sum itself."""
    scale, shift, epsilon = call[2], call.get(3), call.attr("epsilon")
    dtype, total = call.dtype(call[0]), _sum(call, call[0], call[1], call.get(4))
    axis = call.rank(total) - 1
    normalised = call.cast(layer_norm(call, total, scale, shift, axis, epsilon), dtype)
    mean, inverse = moments(call, total, axis, epsilon) if call.wanted & {1, 2} else (None, None)
    return [normalised, mean, inverse, call.cast(total, dtype)]


@microsoft("SkipSimplifiedLayerNormalization", epsilon=1e-12)
def skip_simplified_layer_norm(call: OnnxCall) -> list[Value | None]:
    scale, epsilon = call[2], call.attr("epsilon")
    dtype, total = call.dtype(call[0]), _sum(call, call[0], call[1], call.get(3))
    axis = call.rank(total) - 1
    normalised = call.cast(rms_norm(call, total, call.widened(scale), axis, epsilon), dtype)
    inverse = _inverse_root(call, total, axis, epsilon) if 2 in call.wanted else None
    return [normalised, None, inverse, call.cast(total, dtype)]


def _sum(call: OnnxCall, *parts: Value | None) -> Value:
    """What is added, in float32 where numbers are narrow."""
    given = [call.widened(part) for part in parts if part is not None]
    return reduce(lambda a, b: call.op("broadcast_add", a, b), given)


@microsoft("EmbedLayerNormalization", epsilon=1e-12, mask_index_type=0)
def embed_layer_norm(call: OnnxCall) -> list[Value | None]:
    """The normalised sum of the embeddings of words, positions and segments; the words that a mask leaves; the sum."""
    call.ignore("mask_index_type")
    words, segments, mask, places = call[0], call.get(1), call.get(7), call.get(8)
    batch, length = call.shape(words)
    dtype = call.dtype(call[2])
    if places is None:
        places = call.positions(length, 1, 2, INT32)
    tables = [(call[2], words), (call[3], places), *([] if segments is None else [(call[4], segments)])]
    if segments is None:
        call.ignore(4)
    total = _sum(call, *(call.op("take", table, indices, axis=0) for table, indices in tables))
    normalised = layer_norm(call, total, call[5], call[6], 2, call.attr("epsilon"))
    if mask is None:
        count = call.op("zeros", shape=(batch,), dtype=INT32)
    else:
        count = call.op("sum", call.cast(mask, INT32), axis=(1,))
    return [call.cast(normalised, dtype), count, call.cast(total, dtype)]


@microsoft("QEmbedLayerNormalization", epsilon=1e-12)
def quantised_embed_layer_norm(call: OnnxCall) -> list[Value | None]:
    """The same with quantised tables and parameters, whose scales and then zero points follow the mask."""
    numbers = [
        None if table is None else dequantised(call, table, call[8 + i], call.get(13 + i))
        for i, table in enumerate(call.get(2 + i) for i in range(5))
    ]
    call.inputs = [*call.inputs[:2], *numbers, call.get(7)]
    return embed_layer_norm(call)[:2]


@microsoft("GroupNorm", epsilon=1e-5, channels_last=1)
@in_float32
def group_norm(call: OnnxCall) -> Value:
    return _grouped(call, call[0])


@microsoft("SkipGroupNorm", epsilon=1e-5, channels_last=1)
@in_float32
def skip_group_norm(call: OnnxCall) -> list[Value]:
    """The same of x + skip + bias, and that sum."""
    shape, skip = call.shape(call[0]), call[3]
    if call.rank(skip) == 2:
        skip = call.reshape(skip, (shape[0], *(1,) * (len(shape) - 2), call.shape(skip)[1]))
    total = _sum(call, call[0], skip, call.get(4))
    return [_grouped(call, total), total]


def _grouped(call: OnnxCall, data: Value) -> Value:
    """Group normalisation, then x sigmoid(x) where the activation is 1."""
    last = call.attr("channels_last")
    first = channels_first(call, data) if last else data
    scale, shift = (call.cast(call[i], call.dtype(first)) for i in (1, 2))
    attrs = {"num_groups": call.attr("groups"), "epsilon": call.attr("epsilon")}
    outcome = call.op("group_norm", first, scale, shift, **attrs)
    outcome = call.op("silu", outcome) if call.attr("activation") else outcome
    return channels_last(call, outcome) if last else outcome


@microsoft("GatedRMSNorm", epsilon=1e-5, activation="silu")
@in_float32
def gated_rms_norm(call: OnnxCall) -> Value:
    """The norm of each group of as many numbers as there are scales, times a gate that an activation opens."""
    shape, size, gate = call.shape(call[0]), call.shape(call[1])[0], call[2]
    if shape[-1] % size or call.attr("activation") not in ("silu", "swish", "sigmoid"):
        raise FormatError(f"{shape[-1]} numbers in groups of {size}, gated by {call.attr('activation')!r}")
    groups = call.reshape(call[0], (*shape[:-1], shape[-1] // size, size))
    normalised = call.reshape(rms_norm(call, groups, call[1], len(shape), call.attr("epsilon")), shape)
    opened = call.op("sigmoid" if call.attr("activation") == "sigmoid" else "silu", gate)
    return call.op("elemwise_mul", normalised, opened)
