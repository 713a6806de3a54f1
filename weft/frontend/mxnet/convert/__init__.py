"""Converters of MXNet operators, by subject; each file registers its own."""

from . import (
    attention,
    control,
    deformable,
    detection,
    index,
    layers,
    math,
    np,
    np_shape,
    pool,
    random,
    reduce,
    regions,
    rnn,
    shape,
    spatial,
)
