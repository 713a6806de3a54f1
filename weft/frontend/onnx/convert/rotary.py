"""The converter of RotaryEmbedding: pairs of numbers are turned by angles that depend on the position."""

from __future__ import annotations

from ....base.errors import FormatError
from ...building import Building, in_float32
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from .heads import merged_heads, split_heads


@converter("RotaryEmbedding", since=23)
@in_float32
def rotary_embedding(call: OnnxCall) -> Value:
    """Of heads that are an axis, or packed into the last one; cosines and sines by position, or one row a token."""
    data, packed = call[0], call.rank(call[0]) == 3
    heads = call.attr("num_heads", 0)
    data = split_heads(call, data, heads) if packed else data
    cos, sin = (angles(call, call[i], call.get(3)) for i in (1, 2))
    turned = rotated(call, data, cos, sin, bool(call.attr("interleaved")), call.attr("rotary_embedding_dim"))
    return merged_heads(call, turned) if packed else turned


def angles(call: Building, table: Value, positions: Value | None) -> Value:
    """The row of each token, for all heads: (batch, 1, length, pairs)."""
    rows = table if positions is None else call.op("take", table, positions, axis=0)
    return call.op("expand_dims", rows, axis=1)


def rotated(call: Building, data: Value, cos: Value, sin: Value, interleaved: bool, width: int = 0) -> Value:
    """(batch, heads, length, size) of which the first `width` numbers, or all, are turned in pairs: (x, y) becomes
    (x cos - y sin, x sin + y cos). The pairs are neighbours, or in the first and second half."""
    outer, size = call.told(call.dims(data))[:-1], call.extent(data, -1)
    width = width or size
    half = width // 2
    if call.extent(cos, -1) != half or call.extent(sin, -1) != half or width % 2 or width > size:
        raise FormatError(f"cosines of shape {cos.shape} for {width} of {size} numbers")
    turning = call.sliced(data, {3: (0, width, 1)})
    split = (half, 2) if interleaved else (2, half)
    pairs = call.reshape(turning, (*outer, *split))
    axis = 4 if interleaved else 3
    x, y = (call.reshape(call.sliced(pairs, {axis: (i, i + 1, 1)}), (*outer, half)) for i in range(2))
    (x_cos, y_cos), (x_sin, y_sin) = ([call.op("broadcast_mul", part, t) for part in (x, y)] for t in (cos, sin))
    first, second = call.op("broadcast_sub", x_cos, y_sin), call.op("broadcast_add", x_sin, y_cos)
    turned = call.reshape(call.op("stack", first, second, axis=axis), (*outer, width))
    return turned if width == size else call.joined([turned, call.sliced(data, {3: (width, size, 1)})], 3)
