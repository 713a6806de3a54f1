"""The operators: importing this registers all of them. The families are for writing new ones:
`from weft.ops import unary, pointwise`."""

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
    multibox,
    nn,
    norm,
    packed,
    pad,
    pool,
    reduce,
    reorg,
    repeat,
    roi,
    scan,
    slicing,
    sort,
    suppress,
    transform,
    views,
    winograd,
)
from ._families import F, binary, broadcasting, define, pointwise, scalar, unary

__all__ = [
    "F", "binary", "broadcasting", "define", "pointwise", "scalar", "unary",
    "activation", "adaptive_pool", "attention", "broadcast", "conv", "conv_grad", "elemwise",
    "expand", "halo", "image", "index", "init", "join", "magnitude", "matmul", "multibox", "nn",
    "norm", "packed", "pad", "pool", "reduce", "reorg", "repeat", "roi", "scan", "slicing", "sort",
    "suppress", "transform", "views", "winograd",
]  # fmt: skip
