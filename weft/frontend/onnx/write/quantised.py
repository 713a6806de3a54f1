"""Writers of numbers as levels."""

from __future__ import annotations

from ..writing import Writing, writes

LINEAR = {"quantize": "QuantizeLinear", "dequantize": "DequantizeLinear"}


@writes("quantize", "dequantize")
def linear(w: Writing) -> None:
    """The same, but that ONNX has had blocks since version 21 of its operators alone."""
    w.require(not w.params.block_size, "blocks")
    w.give(LINEAR[w.op_name], *w.inputs, axis=w.params.axis)
