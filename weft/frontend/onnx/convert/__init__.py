"""Converters of ONNX operators, by subject; each file registers its own."""

from . import (
    attention,
    casts,
    detection,
    einsum,
    image,
    index,
    layers,
    linalg,
    math,
    quantized,
    random,
    reduce,
    scatter,
    shape,
    signal,
)
