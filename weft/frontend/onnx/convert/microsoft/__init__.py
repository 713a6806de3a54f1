"""Converters of com.microsoft: operators that ONNX Runtime's optimiser and quantiser write into files, by subject."""

from . import activations, attention, block_weights, fused, grouped, norms, quantised, same

__all__ = ["activations", "attention", "block_weights", "fused", "grouped", "norms", "quantised", "same"]
