"""The operators: importing this registers all of them."""

from . import (
    activation,
    adaptive_pool,
    attention,
    broadcast,
    conv,
    conv_grad,
    elemwise,
    expand,
    halo,
    image,
    index,
    init,
    join,
    magnitude,
    matmul,
    nn,
    norm,
    packed,
    pad,
    pool,
    reduce,
    repeat,
    scan,
    slicing,
    transform,
    views,
    winograd,
)

__all__ = [
    "activation", "adaptive_pool", "attention", "broadcast", "conv", "conv_grad", "elemwise",
    "expand", "halo", "image", "index", "init", "join", "magnitude", "matmul", "nn", "norm",
    "packed", "pad", "pool", "reduce", "repeat", "scan", "slicing", "transform", "views",
    "winograd",
]  # fmt: skip
