"""Converters of ONNX operators, by subject; each file registers its own."""

from . import attention, detection, einsum, image, index, layers, math, ml, quantized, random, reduce, scatter, shape
