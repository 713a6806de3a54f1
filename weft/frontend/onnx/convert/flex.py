"""Converters of the steps of FlexAttention, between which subgraphs of the file may stand."""

from __future__ import annotations

import math

from ....base.dtype import FLOAT32, DType
from ...building import NARROW
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of
from .heads import for_all_heads

STEPS = "weft.flex_attention"  # the domain of nodes that stand for one node of the file


@converter("Scores", domain=STEPS)
def scores(call: OnnxCall) -> Value:
    """Q K' scale, of which either has the root, in the precision of the softmax."""
    query, key = call[0], call[1]
    _, heads, _, size = call.shape(query)
    root = math.sqrt(call.attr("scale", 1 / math.sqrt(max(size, 1))))
    left, right = call.scaled(query, root), for_all_heads(call, call.scaled(key, root), heads)
    return call.cast(call.op("batch_matmul", left, right, transpose_b=True), _precision(call, query))


def _precision(call: OnnxCall, query: Value) -> DType:
    code, dtype = call.attr("softmax_precision", 0), call.dtype(query)
    if code:
        return dtype_of(code, "attribute 'softmax_precision'")
    return FLOAT32 if dtype in NARROW else dtype


@converter("Weights", domain=STEPS)
def weights(call: OnnxCall) -> Value:
    return call.op("softmax", call[0], axis=-1)


@converter("Output", domain=STEPS)
def output(call: OnnxCall) -> Value:
    """The weighted values, in their own dtype."""
    value = call.cast(call[1], call.dtype(call[0]))
    seen = call.op("batch_matmul", call[0], for_all_heads(call, value, call.shape(call[0])[1]))
    return call.cast(seen, call.dtype(call[1]))
