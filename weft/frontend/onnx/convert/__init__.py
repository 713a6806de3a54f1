"""Converters of ONNX operators, by subject; each file registers its own."""

from . import (
    attention,
    rotary,
    detection,
    einsum,
    image,
    index,
    layers,
    math,
    quantized,
    random,
    reduce,
    scatter,
    shape,
)
