"""Converters of ONNX operators, by subject; each file registers its own."""

from . import (
    attention,
    batch_norm,
    casts,
    detection,
    einsum,
    image,
    index,
    layers,
    losses,
    math,
    optimizers,
    quantized,
    random,
    reduce,
    scatter,
    shape,
)
