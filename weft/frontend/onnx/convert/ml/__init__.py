"""Converters of the operators of ai.onnx.ml, by subject; each file registers its own."""
