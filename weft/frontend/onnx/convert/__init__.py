"""Converters of ONNX operators, by subject; each file registers its own."""

from . import (
    attention,
    detection,
    einsum,
    image,
    index,
    layers,
    losses,
    math,
    quantized,
    random,
    recurrent,
    reduce,
    sampling,
    scatter,
    shape,
    windows,
)
