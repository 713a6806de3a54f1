"""Layers of networks with their gradients: products, convolutions, pools, norms, attention, recurrence, losses."""

from . import (
    activation,
    adaptive_pool,
    attention,
    byte_products,
    conv,
    conv_grad,
    cross_entropy,
    ctc,
    dense_softmax,
    halo,
    integer,
    norm,
    norm_grad,
    packed,
    pool,
    quantised,
    recurrence,
    rnn,
    strided_attention,
    winograd,
)
