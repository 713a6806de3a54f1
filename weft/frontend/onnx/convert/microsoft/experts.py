"""Mixtures of experts: each token goes through a few of many small networks, which a router chooses."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from .....base.dtype import FLOAT32, INT32, INT64
from .....base.errors import FormatError, Unsupported
from ....building import in_float32
from ....emitter import Value
from ...call import OnnxCall
from .block_weights import unpacked
from .domain import microsoft

_DEFAULTS: dict[str, Any] = {"k": 1, "activation_type": "relu", "normalize_routing_weights": 0, "use_sparse_mixer": 0}
_DEFAULTS |= {"swiglu_fusion": 0, "activation_alpha": 1.0, "activation_beta": 0.0}


class _Experts(NamedTuple):
    """Matrices (experts, to, from) and biases (experts, to) of the two layers of every expert."""

    first: Value
    first_bias: Value | None
    second: Value
    second_bias: Value | None


@microsoft("MoE", **_DEFAULTS)
@in_float32
def mixture_of_experts(call: OnnxCall) -> Value:
    if call.get(6) is not None or call.get(7) is not None:
        raise Unsupported("MoE with a third layer of experts")
    return _mixed(call, _Experts(call[2], call.get(3), call[4], call.get(5)), None)


@microsoft(
    "QMoE", decides=(2, 3, 5, 6, 11, 12), expert_weight_bits=4, quant_type="int", weights_prepacked=-1, **_DEFAULTS
)
@in_float32
def quantised_mixture_of_experts(call: OnnxCall) -> Value:
    """The same with matrices of levels, which become numbers at import."""
    call.ignore("accuracy_level", "weights_prepacked", "fc3_expert_weight_bits")
    if call.attr("quant_type") != "int" or call.attr("weights_prepacked") == 1 or call.get(8) is not None:
        raise Unsupported("QMoE with a third layer, with floats for levels, or with weights in the layout of a device")
    first, second = _matrix(call, 2, 11, "fc1"), _matrix(call, 5, 12, "fc2")
    return _mixed(call, _Experts(first, call.get(4), second, call.get(7)), call.get(14))


def _matrix(call: OnnxCall, index: int, zero_index: int, layer: str) -> Value:
    """(level - zero point) scale, with a scale for each row, or for each block of one."""
    bits = call.attr(f"{layer}_expert_weight_bits") or call.attr("expert_weight_bits")
    levels = unpacked(call.constant(index, "the weight"), bits).astype(np.float32)
    scale = call.constant(index + 1, "the scale").astype(np.float32)
    experts, rows, columns = levels.shape
    by_block = scale.ndim == 3
    size = call.attr("block_size", 0) if by_block else columns
    scale = scale.reshape(experts, rows, -1)
    blocks = scale.shape[2]
    if not size or blocks * size != columns:
        raise FormatError(f"{blocks} scales for rows of {columns} in blocks of {size}")
    zero: np.ndarray = np.full((1, 1, 1), 2 ** (bits - 1), np.float32)
    if call.get(zero_index) is not None:
        packed = unpacked(call.constant(zero_index, "the zero points"), bits).astype(np.float32)
        zero = packed[:, :, :blocks] if by_block else packed[:, :rows, None]
    blocked = levels.reshape(experts, rows, blocks, size)
    return call.make(((blocked - zero[..., None]) * scale[..., None]).reshape(levels.shape), FLOAT32)


def _mixed(call: OnnxCall, experts: _Experts, weighing: Value | None) -> Value:
    """The sum of what the best experts of each token give, by the weights of the router. Where tokens choose fewer
    experts than there are their matrices are gathered; else all experts are computed, and others count as 0."""
    if call.attr("use_sparse_mixer"):
        raise Unsupported(f"{call.op_type} with a sparse mixer")
    shape, count, chosen = call.shape(call[0]), call.shape(experts.first)[0], call.attr("k")
    tokens = call.reshape(call[0], (math.prod(shape[:-1]), shape[-1]))
    total = call.shape(tokens)[0]
    if not 1 <= chosen <= count or call.shape(call[1]) != (total, count):
        raise FormatError(f"{chosen} of {count} experts, and a router of {call.shape(call[1])} for {total} tokens")
    likely = call.op("softmax", call[1], axis=-1)
    share, number = call.ops("topk", likely, k=chosen, axis=-1, dtype=INT64)
    if weighing is not None:
        share = call.op("gather_elements", weighing, number, axis=1)
    always = call.op_type == "QMoE" and weighing is None  # a softmax of those that are chosen
    if call.attr("normalize_routing_weights") or always:
        share = call.op("broadcast_div", share, call.op("sum", share, axis=(1,), keepdims=True))
    mixed = _gathered if total * chosen <= count else _of_all
    return call.reshape(mixed(call, experts, tokens, share, call.cast(number, INT32)), shape)


def _gathered(call: OnnxCall, experts: _Experts, tokens: Value, share: Value, number: Value) -> Value:
    """Of each token, the experts that it chooses."""
    (total, chosen), size = call.shape(number), call.shape(tokens)[1]
    which = call.reshape(number, (total * chosen,))

    def layer(data: Value, matrix: Value, bias: Value | None) -> Value:
        own = call.op("take", matrix, which, axis=0)
        product = call.op("batch_matmul", call.op("expand_dims", data, axis=1), own, transpose_b=True)
        product = call.reshape(product, (total * chosen, call.shape(matrix)[1]))
        return product if bias is None else call.op("elemwise_add", product, call.op("take", bias, which, axis=0))

    spread = call.op("repeat", tokens, repeats=chosen, axis=0)
    hidden = _activated(call, layer(spread, experts.first, experts.first_bias))
    output = call.reshape(layer(hidden, experts.second, experts.second_bias), (total, chosen, size))
    return call.op("sum", call.op("broadcast_mul", output, call.op("expand_dims", share, axis=2)), axis=(1,))


def _of_all(call: OnnxCall, experts: _Experts, tokens: Value, share: Value, number: Value) -> Value:
    """All experts for all tokens, as two products of matrices."""
    total, (count, width, size) = call.shape(tokens)[0], call.shape(experts.first)
    is_chosen = call.op("broadcast_equal", call.op("expand_dims", number, axis=2), call.positions(count, 2, 3, INT32))
    shares = call.op(
        "broadcast_where", is_chosen, call.op("expand_dims", share, axis=2), call.make(0, call.dtype(share))
    )
    weight = call.op("sum", shares, axis=(1,))
    product = call.op("matmul", tokens, call.transposed(call.reshape(experts.first, (count * width, size)), (1, 0)))
    hidden = call.reshape(product, (total, count, width))
    if experts.first_bias is not None:
        hidden = call.op("broadcast_add", hidden, experts.first_bias)
    hidden = call.op("broadcast_mul", _activated(call, hidden), call.op("expand_dims", weight, axis=2))
    inner = call.shape(hidden)[2]
    back = call.reshape(call.transposed(experts.second, (0, 2, 1)), (count * inner, size))
    output = call.op("matmul", call.reshape(hidden, (total, count * inner)), back)
    if experts.second_bias is None:
        return output
    return call.op("broadcast_add", output, call.op("matmul", weight, experts.second_bias))


def _activated(call: OnnxCall, hidden: Value) -> Value:
    kind = call.attr("activation_type")
    if kind == "swiglu":
        return _swiglu(call, hidden)
    call.ignore("swiglu_fusion", "activation_alpha", "activation_beta", "swiglu_limit")
    if kind == "gelu":
        return call.op("gelu", hidden, approximate="tanh")
    if kind not in ("relu", "silu", "identity"):
        raise FormatError(f"{call.op_type} with activation {kind!r}")
    return hidden if kind == "identity" else call.op(kind, hidden)


def _swiglu(call: OnnxCall, hidden: Value) -> Value:
    """g sigmoid(alpha g) (l + beta), where g and l are in turn, or one behind the other."""
    fusion, limit = call.attr("swiglu_fusion"), call.attr("swiglu_limit", math.inf)
    alpha, beta = call.attr("activation_alpha"), call.attr("activation_beta")
    axis, size = call.rank(hidden) - 1, call.shape(hidden)[-1]
    if fusion not in (1, 2) or size % 2:
        raise Unsupported(f"{call.op_type} with swiglu_fusion {fusion} of {size} numbers")
    parts = [(0, size, 2), (1, size, 2)] if fusion == 1 else [(0, size // 2, 1), (size // 2, size, 1)]
    gate, linear = (call.sliced(hidden, {axis: part}) for part in parts)
    gate = call.op("clip", gate, a_min=-math.inf, a_max=limit)
    linear = call.op("clip", linear, a_min=-limit, a_max=limit)
    opened = call.op("elemwise_mul", gate, call.op("sigmoid", call.scaled(gate, alpha)))
    return call.op("elemwise_mul", opened, call.shifted(linear, beta))
