"""Operators that ONNX took over later, or that are another form of one of its own."""

from __future__ import annotations

import numpy as np

from .....base.dtype import INT32
from .....base.errors import FormatError, Unsupported
from ....building import in_float32
from ....emitter import Value
from ....products import matrix_product
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


@microsoft("MatMulInteger16")
def product_of_int16(call: OnnxCall) -> Value:
    """Of which products and sums are int32."""
    return matrix_product(call, *(call.cast(call[i], INT32) for i in range(2)))


@microsoft("UnfoldTensor", dim=-1, step=1)
def unfold(call: OnnxCall) -> Value:
    """All slices of a size along an axis, one every so many steps; what is in them is a new last axis."""
    data, size, step = call[0], call.attr("size"), call.attr("step")
    axis, extent = call.axis(call.attr("dim"), data), call.shape(data)[call.axis(call.attr("dim"), data)]
    if size < 1 or step < 1 or size > extent:
        raise FormatError(f"slices of {size} every {step} places of {extent}")
    places = np.arange(0, extent - size + 1, step)[:, None] + np.arange(size)
    call.check_table(*places.shape)
    slices = call.op("take", data, call.make(places), axis=axis)
    order = [*range(call.rank(slices))]
    return call.transposed(slices, [*order[: axis + 1], *order[axis + 2 :], axis + 1])


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
