"""Several streams of features side by side, (..., branches, features): their norms, mixtures and gates."""

from __future__ import annotations

import math

import numpy as np

from .....base.dtype import FLOAT32
from .....base.errors import FormatError
from ....building import in_float32
from ....emitter import Value
from ...call import OnnxCall
from ..norms import rms_norm
from .domain import microsoft


def _grouped(call: OnnxCall, streams: Value) -> Value:
    """Streams with an axis of branches, which may be packed into the last one."""
    branches, shape = call.attr("num_branches"), call.shape(streams)
    if not branches:
        return streams
    if shape[-1] % branches:
        raise FormatError(f"{shape[-1]} features do not split into {branches} branches")
    return call.reshape(streams, (*shape[:-1], branches, shape[-1] // branches))


def _gates(call: OnnxCall, gates: Value, streams: Value) -> Value:
    """One for each branch, or for each of its features, beside streams that have an axis of branches."""
    shape, given = call.shape(streams), call.shape(gates)
    if given == shape[:-1]:
        return call.reshape(gates, (*given, 1))
    return call.reshape(gates, shape) if math.prod(given) == math.prod(shape) else gates


@microsoft("BranchwiseRMSNorm", epsilon=1e-5, num_branches=0)
@in_float32
def branchwise_rms_norm(call: OnnxCall) -> Value:
    """Each branch by its own root mean square, times a scale of all features, or of those of one branch."""
    grouped, scale = _grouped(call, call[0]), call.get(1)
    *_, branches, size = call.shape(grouped)
    axis, epsilon = call.rank(grouped) - 1, call.attr("epsilon")
    normalised = rms_norm(call, grouped, call.make(np.ones(size), FLOAT32), axis, epsilon)
    if scale is not None:
        own = (size,) if call.shape(scale) == (size,) else (branches, size)
        normalised = call.op("broadcast_mul", normalised, call.reshape(scale, own))
    return call.reshape(normalised, call.shape(call[0]))


@microsoft("HyperConnectionPreMix", reduction_scale=1.0, num_branches=0)
@in_float32
def pre_mix(call: OnnxCall) -> Value:
    """The sum of all branches, each times its gates."""
    grouped = _grouped(call, call[0])
    weighted = call.op("broadcast_mul", grouped, _gates(call, call[1], grouped))
    total = call.op("sum", weighted, axis=(-2,))
    return call.scaled(total, call.attr("reduction_scale"))


@microsoft("HyperConnectionPostMix", num_branches=0)
@in_float32
def post_mix(call: OnnxCall) -> Value:
    """The branches, mixed by a matrix where there is one, and a new output in each, times its gates."""
    grouped, matrix = _grouped(call, call[0]), call.get(3)
    added = call.op("broadcast_mul", call.op("expand_dims", call[1], axis=-2), _gates(call, call[2], grouped))
    if matrix is not None:
        *outer, branches, size = call.shape(grouped)
        rows, square = (math.prod(outer), branches, size), (math.prod(outer), branches, branches)
        product = call.op("batch_matmul", call.reshape(matrix, square), call.reshape(grouped, rows), transpose_a=True)
        grouped = call.reshape(product, (*outer, branches, size))
    return call.reshape(call.op("broadcast_add", grouped, added), call.shape(call[0]))


@microsoft("EngramGate", epsilon=1e-5)
@in_float32
def engram_gate(call: OnnxCall) -> list[Value]:
    """sigmoid(sign(d) sqrt(max(|d|, 1e-6))) value, where d = norm(key) norm(query) / sqrt(size) by branches, and its
    norm."""
    *_, branches, size = call.shape(call[0])
    epsilon = call.attr("epsilon")

    def normalised(data: Value, index: int) -> Value:
        ones = call.make(np.ones(size), FLOAT32)
        scale = call.reshape(call[index], (branches, size))
        return call.op("broadcast_mul", rms_norm(call, data, ones, call.rank(data) - 1, epsilon), scale)

    product = call.op("broadcast_mul", normalised(call[0], 3), normalised(call[1], 4))
    dot = call.scaled(call.op("sum", product, axis=(-1,), keepdims=True), 1 / math.sqrt(size))
    root = call.op("sqrt", call.op("clip", call.op("abs", dot), a_min=1e-6, a_max=math.inf))
    gate = call.op("sigmoid", call.op("broadcast_mul", call.op("sign", dot), root))
    gated = call.op("broadcast_mul", gate, call.op("expand_dims", call[2], axis=-2))
    if 1 not in call.wanted:
        call.ignore(5)
        return [gated]
    return [gated, normalised(gated, 5)]


@microsoft("LinearAttentionGate")
@in_float32
def linear_attention_gate(call: OnnxCall) -> list[Value]:
    """decay_scale softplus(a + bias), and sigmoid(b)"""
    opened = call.op("softplus", call.op("broadcast_add", call[0], call[1]))
    rate = call.get(3)
    return [call.op("broadcast_mul", opened, call[2]), *([] if rate is None else [call.op("sigmoid", rate)])]


@microsoft("GatedAdd")
def gated_add(call: OnnxCall) -> Value:
    return call.op("broadcast_add", call[0], call.op("broadcast_mul", call[1], call[2]))


@microsoft("ScaledSiLU", alpha=1.0)
@in_float32
def scaled_silu(call: OnnxCall) -> Value:
    """z sigmoid(z), where z = scale x"""
    scale = call.get(1)
    if scale is None:
        return call.op("silu", call.scaled(call[0], call.attr("alpha")))
    call.ignore("alpha")
    return call.op("silu", call.op("broadcast_mul", call[0], call.reshape(scale, ())))
