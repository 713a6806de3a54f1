"""Convolutions, pools and products with what is fused into them: activations, residuals, transposes, other layouts."""

from __future__ import annotations

from typing import Any

from .....base.errors import FormatError
from ....building import in_float32
from ....emitter import Value
from ....products import matrix_product
from ...call import OnnxCall
from ..layers import gemm
from ..windows import conv, conv_transpose, max_pool
from .activations import activated
from .domain import microsoft

CONV: dict[str, Any] = {"group": 1, "auto_pad": "NOTSET"}


@microsoft("FusedConv", **CONV)
@in_float32
def fused_conv(call: OnnxCall) -> Value:
    """activation(convolution + what else is added)."""
    outcome, other = conv(call), call.get(3)
    outcome = outcome if other is None else call.op("broadcast_add", outcome, other)
    return activated(call, outcome, call.attr("activation"), list(call.attr("activation_params", ())))


@microsoft("NhwcConv", **CONV)
def nhwc_conv(call: OnnxCall) -> Value:
    call.inputs[0] = channels_first(call, call[0])
    return channels_last(call, conv(call))


@microsoft("NhwcFusedConv", **CONV)
@in_float32
def nhwc_fused_conv(call: OnnxCall) -> Value:
    call.inputs[0] = channels_first(call, call[0])
    outcome, other = channels_last(call, conv(call)), call.get(3)
    outcome = outcome if other is None else call.op("broadcast_add", outcome, other)
    return activated(call, outcome, call.attr("activation"), list(call.attr("activation_params", ())))


@microsoft("NhwcMaxPool", auto_pad="NOTSET", ceil_mode=0)
def nhwc_max_pool(call: OnnxCall) -> Value:
    call.inputs[0] = channels_first(call, call[0])
    largest = max_pool(call)
    assert isinstance(largest, Value)  # the operator has no other output
    return channels_last(call, largest)


@microsoft("ConvTransposeWithDynamicPads", decides=(2,), **CONV)
def conv_transpose_with_pads(call: OnnxCall) -> Value:
    """The pads are an input, and the bias comes behind them."""
    pads, bias = call.optional_ints(2, "the pads"), call.get(3)
    if pads is not None:
        call.assume(pads=pads)
    call.inputs = [*call.inputs[:2], bias]
    return conv_transpose(call)


def channels_first(call: OnnxCall, value: Value) -> Value:
    rank = call.rank(value)
    return call.transposed(value, (0, rank - 1, *range(1, rank - 1)))


def channels_last(call: OnnxCall, value: Value) -> Value:
    return call.transposed(value, (0, *range(2, call.rank(value)), 1))


@microsoft("FusedGemm", alpha=1.0, beta=1.0, transA=0, transB=0)
@in_float32
def fused_gemm(call: OnnxCall) -> Value:
    numbers = [call.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return activated(call, gemm(call), call.attr("activation"), numbers)


_MATMUL: dict[str, Any] = {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0}


@microsoft("FusedMatMulActivation", **_MATMUL)
@in_float32
def activated_matmul(call: OnnxCall) -> Value:
    call.ignore("activation_axis")
    numbers = [call.attr(f"activation_{name}") for name in ("alpha", "beta", "gamma")]
    return activated(call, fused_matmul(call), call.attr("activation"), numbers)


@microsoft("GemmFastGelu")
@in_float32
def matmul_gelu(call: OnnxCall) -> Value:
    product, bias = matrix_product(call, call[0], call[1]), call.get(2)
    product = product if bias is None else call.op("broadcast_add", product, bias)
    return call.op("gelu", product, approximate="tanh")


@microsoft("FusedMatMul", "TransposeMatMul", **_MATMUL)
@in_float32
def fused_matmul(call: OnnxCall) -> Value:
    """alpha A B, of which either has its last two axes swapped, or its first one moved behind the other batches."""
    a, b = (_turned(call, call[i], side) for i, side in enumerate("AB"))
    product, alpha = matrix_product(call, a, b), call.attr("alpha")
    return product if alpha == 1 else call.scaled(product, alpha)


def _turned(call: OnnxCall, value: Value, side: str) -> Value:
    rank = call.rank(value)
    swap, batch = call.attr(f"trans{side}"), call.attr(f"transBatch{side}")
    if rank < 2:
        return value
    if batch and rank < 3:
        raise FormatError(f"transBatch{side} of {rank} axes")
    axes = [*range(1, rank - 1), 0, rank - 1] if batch else list(range(rank))
    return call.transposed(value, [*axes[:-2], axes[-1], axes[-2]] if swap else axes)
