"""The converter of Attention: heads, masks and scores, as the opset defines them."""

from __future__ import annotations

import math

from ....base.dtype import BOOL
from ....base.errors import FormatError, Unsupported
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter


@converter("Attention", since=23)
def attention(call: OnnxCall) -> Value:
    """softmax(Q K^T scale + mask) V, for heads that are an axis, or packed into the last one."""
    call.only_first_output()
    call.ignore("softmax_precision", "qk_matmul_output_mode")
    packed = call.rank(call[0]) == 3
    query_heads, key_heads = (call.attr(f"{side}_num_heads") for side in ("q", "kv"))
    query = _heads(call, call[0], query_heads)
    key, value = (_heads(call, call[i], key_heads) for i in (1, 2))
    key, value = (_repeated(call, part, call.shape(query)[1]) for part in (key, value))
    mask = _full_mask(call, call.shape(key)[2])
    kind = "none" if mask is None else "boolean" if call.dtype(mask) == BOOL else "additive"
    attrs = {"scale": call.attr("scale"), "is_causal": bool(call.attr("is_causal"))}
    attended = call.op(
        "scaled_dot_product_attention", *(query, key, value, *([] if mask is None else [mask])), mask=kind, **attrs
    )
    return _packed(call, attended) if packed else attended


def _full_mask(call: OnnxCall, length: int) -> Value | None:
    """The mask; keys behind its end do not count."""
    mask = call.get(3)
    if mask is None or call.shape(mask)[-1] in (1, length):
        return mask
    missing = length - call.shape(mask)[-1]
    if missing < 0:
        raise FormatError(f"a mask of {call.shape(mask)} for {length} keys")
    width = ((0, 0),) * (call.rank(mask) - 1) + ((0, missing),)
    value = 0.0 if call.dtype(mask) == BOOL else -math.inf
    return call.op("pad", mask, pad_width=width, pad_value=value)


def _heads(call: OnnxCall, value: Value, heads: int | None) -> Value:
    """(batch, length, heads x size) as (batch, heads, length, size)."""
    if call.rank(value) == 4:
        return value
    batch, length, size = call.shape(value)
    if not heads or size % heads:
        raise FormatError(f"{size} columns do not split into {heads} heads")
    split = call.reshape(value, (batch, length, heads, size // heads))
    return call.op("transpose", split, axes=(0, 2, 1, 3))


def _packed(call: OnnxCall, value: Value) -> Value:
    batch, heads, length, size = call.shape(value)
    swapped = call.op("transpose", value, axes=(0, 2, 1, 3))
    return call.reshape(swapped, (batch, length, heads * size))


def _repeated(call: OnnxCall, value: Value, heads: int) -> Value:
    """Keys that several queries share, once for each."""
    count = call.shape(value)[1]
    if not count or heads % count:
        raise Unsupported(f"Attention of {heads} heads on {count} is not supported")
    return value if heads == count else call.op("repeat", value, repeats=heads // count, axis=1)
