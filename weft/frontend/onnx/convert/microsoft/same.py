"""Operators that ONNX took over later, or that are another form of one of its own."""

from __future__ import annotations

from ....emitter import Value
from ...call import OnnxCall
from ..index import pad, trilu
from ..quantized import dequantize, quantize
from .domain import microsoft

microsoft("Trilu", upper=1, decides=(1,))(trilu)
microsoft("Pad", mode="constant", decides=(1, 2, 3))(pad)
microsoft("DequantizeLinear", axis=1)(dequantize)
microsoft("QuantizeLinear", axis=1)(quantize)


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
