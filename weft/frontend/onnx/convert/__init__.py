"""Converters of ONNX operators, by subject; each file registers its own."""

from . import (
    attention,
    detection,
    einsum,
    image,
    index,
    layers,
    linear_attention,
    math,
    microsoft,
    norms,
    quantized,
    random,
    reduce,
    rotary,
    scatter,
    shape,
)
