"""Converters of layers: products of matrices, normalisations."""

from __future__ import annotations

from math import prod

from ...building import in_float32
from ...emitter import Value
from ...products import matrix_product
from ...windows import Windows, window_sums
from ..call import OnnxCall
from ..registry import converter

# Products of matrices.


@converter("MatMul")
def matmul(call: OnnxCall) -> Value:
    return matrix_product(call, call[0], call[1])


@converter("Gemm")
def gemm(call: OnnxCall) -> Value:
    """alpha A B + beta C; with B transposed and C a vector it is a dense layer."""
    call.ignore("broadcast")  # of opsets before 7: whether C has another shape
    scaled = (call.attr("alpha"), call.attr("beta")) != (1, 1)
    return in_float32(_scaled_product)(call) if scaled else _scaled_product(call)


def _scaled_product(call: OnnxCall) -> Value:
    a, b, c = call[0], call[1], call.get(2)
    a = call.op("transpose", a, axes=(1, 0)) if call.attr("transA") else a
    b = b if call.attr("transB") else call.op("transpose", b, axes=(1, 0))
    units = call.shape(b, "the weight")[0]
    if not units:
        return call.op("zeros", shape=(call.shape(a)[0], 0), dtype=call.dtype(a))
    alpha, beta = call.attr("alpha"), call.attr("beta")
    if c is not None and alpha == beta == 1 and c.shape in ((units,), (1, units)):
        return call.op("dense", a, b, call.reshape(c, (units,)), units=units, use_bias=True)
    product = call.op("dense", a, b, units=units, use_bias=False)
    product = product if alpha == 1 else call.scaled(product, alpha)
    if c is None or beta == 0:
        return product
    c = c if beta == 1 else call.scaled(c, beta)
    return call.op("broadcast_add", product, c)


# Normalisations.


@converter("InstanceNormalization", since=6)
@in_float32
def instance_norm(call: OnnxCall) -> Value:
    return call.op("instance_norm", call[0], call[1], call[2], epsilon=call.attr("epsilon"))


@converter("MeanVarianceNormalization", since=9)
@in_float32
def mean_variance_norm(call: OnnxCall) -> Value:
    """(x - mean) / (deviation + 1e-9)"""
    axes = tuple(call.axis(axis, call[0]) for axis in call.attr("axes"))
    _, centred = call.centred(call[0], axes)
    deviation = call.op("sqrt", call.op("mean", call.square(centred), axis=axes, keepdims=True))
    return call.op("broadcast_div", centred, call.shifted(deviation, 1e-9))


@converter("LRN")
@in_float32
def local_response_norm(call: OnnxCall) -> Value:
    """A window wider than all channels sums no more than one that just reaches them."""
    size, alpha = call.attr("size"), call.attr("alpha")
    whole = max(2 * call.shape(call[0])[1] - 1, 1)
    if size > whole:
        size, alpha = whole, alpha * whole / size
    if size % 2 == 0:
        return _even_response_norm(call, size)
    return call.op("lrn", call[0], size=size, axis=1, alpha=alpha, **call.attrs("beta bias"))


def _even_response_norm(call: OnnxCall, size: int) -> Value:
    """x / (bias + alpha / size sum(x^2))^beta, of the channels around, one more of which is behind."""
    n, channels, *rest = call.shape(call[0])
    squares = call.reshape(call.square(call[0]), (n, 1, channels, prod(rest)))
    windows = Windows((size, 1), (1, 1), (size // 2 - 1, 0, size // 2, 0), (1, 1))
    sums = call.scaled(window_sums(call, squares, windows, False), call.attr("alpha") / size)
    base = call.reshape(call.shifted(sums, call.attr("bias")), call.shape(call[0]))
    return call.op("elemwise_mul", call[0], call.op("__pow_scalar__", base, scalar=-call.attr("beta")))
