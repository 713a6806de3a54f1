"""Operators that ONNX took over later, or that are another form of one of its own."""

from __future__ import annotations

from .....base.errors import Unsupported
from ....building import in_float32
from ....emitter import Value
from ...call import OnnxCall
from ..index import gather_nd, pad, trilu
from ..linear_attention import linear_attention
from ..quantized import dequantize, quantize
from ..sampling import grid_sample
from ..windows import causal_conv_with_state
from .domain import microsoft

microsoft("Trilu", upper=1, decides=(1,))(trilu)
microsoft("Pad", mode="constant", decides=(1, 2, 3))(pad)
microsoft("DequantizeLinear", axis=1)(dequantize)
microsoft("QuantizeLinear", axis=1)(quantize)
microsoft("GatherND")(gather_nd)
microsoft("GridSample", mode="bilinear", padding_mode="zeros", align_corners=0)(grid_sample)
microsoft("LinearAttention", chunk_size=64, scale=0.0, update_rule="gated_delta", state_window=0)(linear_attention)
microsoft("CausalConvWithState", activation="none", ndim=1, channels_last=0, dilation=1, state_window=0)(
    causal_conv_with_state
)


@microsoft("Range", decides=(0, 1, 2))
def range_(call: OnnxCall) -> Value:
    """The step is 1 where none is given."""
    start, stop, step = (call.number(i, "a limit of the range", 1 if i == 2 else None) for i in range(3))
    return call.op("arange", start=start, stop=stop, step=step, dtype=call.dtype(call[0]))


@microsoft("Inverse")
def inverse(call: OnnxCall) -> Value:
    return call.op("inverse", call[0])


@microsoft("ExpandDims", decides=(1,))
def expand_dims(call: OnnxCall) -> Value:
    axis = int(call.number(1, "the axis"))
    return call.op("expand_dims", call[0], axis=axis if axis >= 0 else axis + call.rank(call[0]) + 1)


@microsoft("CDist", metric="sqeuclidean")
def distances(call: OnnxCall) -> Value:
    """Of all rows of one matrix from all of another."""
    metric = call.attr("metric")
    if metric not in ("euclidean", "sqeuclidean"):
        raise Unsupported(f"CDist by metric {metric!r}")
    between = call.op("distances", call[0], call[1])
    return between if metric == "euclidean" else call.square(between)


@microsoft("BiasDropout", decides=(4,))
@in_float32
def bias_dropout(call: OnnxCall) -> Value:
    """Outside of training nothing is dropped."""
    if call.number(4, "whether it is training", 0):
        raise Unsupported("BiasDropout while training")
    call.ignore(3, "seed")
    call.only_first_output()
    total, residual = call.op("broadcast_add", call[0], call[1]), call.get(2)
    return total if residual is None else call.op("broadcast_add", total, residual)
