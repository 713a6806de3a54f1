"""How a CPU likes integer products: bytes of data without a sign, weights in panels with one, and what zero points
contribute as a number for each column.

With levels x and w that stand for x - a and w - b, and c = the sum of w over K products of a column,

    sum (x - a) (w - b) = sum x w - b sum x - a (c - K b)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ....base.cpu_target import CpuTarget
from ....base.dtype import INT32
from ....base.shape import StaticShape, is_static
from ....core.ir import Fact
from ....core.op import Op
from ....core.schema import canonical
from ....core.symbol import Symbol
from ....ops.nn.byte_products import QUAD
from ....ops.nn.integer import BYTES, IntegerConvAttrs, ZeroAttrs, zeros_of
from ....ops.nn.words import INT8, SHIFT, UINT8
from ..layouts import as_written, padded_pool2d


def _apply(name: str, *inputs: Symbol, **attrs: Any) -> Symbol:
    made: Symbol = Op.get(name)(*inputs, **attrs)
    return made


def byte_matmul(params: ZeroAttrs, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """A product with one matrix of weights, and one zero point of the data."""
    data, weight, *zeros = inputs
    shape = facts[1].shape
    data_zero, weight_zero = zeros_of(params, zeros)
    zero_fact, _ = zeros_of(params, facts[2:])
    single = zero_fact is None or (is_static(zero_fact.shape) and prod(zero_fact.shape) == 1)
    if not is_static(facts[0].shape) or not is_static(shape) or len(shape) != 2 or not single or not prod(shape):
        return None
    depth, units = shape
    filters = _apply("reshape", _apply("transpose", weight, axes=(1, 0)), shape=(units, depth, 1, 1))
    rows = as_written(data, facts[0])
    if facts[0].dtype == INT8:
        rows = _apply("__add_scalar__", _apply("cast", rows, dtype=UINT8), scalar=SHIFT)
    if depth % QUAD:
        width = [(0, 0)] * (len(facts[0].shape) - 1) + [(0, -depth % QUAD)]
        rows = _apply("pad", rows, pad_width=width)
    filters, vectors = _weights(filters, (units, depth, 1, 1), facts, data_zero, weight_zero)
    panels = _apply("_word_panels", filters, lanes=target.lanes(INT32), together=QUAD)
    return _apply("_byte_matmul", rows, panels, *vectors, units=units, use_zeros=len(vectors) > 1)


def byte_conv2d(params: IntegerConvAttrs, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """A convolution of images in one group, or of each channel by itself."""
    data, weight, *zeros = inputs
    shape, image = facts[1].shape, facts[0].shape
    if not is_static(image) or not is_static(shape) or len(shape) != 4:
        return None
    single = params.groups == 1
    if not single and not params.groups == image[1] == params.channels:
        return None
    data_zero, weight_zero = zeros_of(params, zeros)
    if facts[0].dtype == INT8 or any(params.padding) or (single and shape[1] % QUAD):
        around = data_zero if data_zero is not None else _apply("zeros", shape=(1,), dtype=facts[0].dtype)
        data = _apply("_word_image", data, around, padding=params.padding, together=QUAD)
    filters, vectors = _weights(as_written(weight, facts[1]), shape, facts, data_zero, weight_zero)
    attrs = {
        "units": params.channels,
        "use_zeros": len(vectors) > 1,
        "kernel_size": params.kernel_size,
        "strides": params.strides,
        "dilation": params.dilation,
    }
    if single:
        panels = _apply("_word_panels", filters, lanes=target.lanes(INT32), together=QUAD)
        return _apply("_byte_conv2d", data, panels, *vectors, **attrs)
    taps = _apply("reshape", filters, shape=(params.channels, *params.kernel_size))
    return _apply("_byte_depthwise", data, _apply("transpose", taps, axes=(1, 2, 0)), *vectors, **attrs)


def _weights(
    filters: Symbol, shape: StaticShape, facts: Sequence[Fact], data_zero: Symbol | None, weight_zero: Symbol | None
) -> tuple[Symbol, list[Symbol]]:
    """Filters, offsets, and zero points of the weights if they have any; all shifted to the signs that kernels take."""
    units, depth = shape[0], prod(shape[1:])
    zero = None if weight_zero is None else _wide(weight_zero)
    if facts[1].dtype == UINT8:
        filters = _apply("__add_scalar__", _apply("cast", filters, dtype=INT8), scalar=SHIFT)
        shift = _apply("full", shape=(1,), dtype=INT32, fill_value=-SHIFT)
        zero = shift if zero is None else _apply("__add_scalar__", zero, scalar=-SHIFT)
    sums = _apply("sum", _apply("cast", filters, dtype=INT32), axis=(1, 2, 3))
    if zero is not None:
        sums = _apply("broadcast_sub", sums, _apply("__mul_scalar__", zero, scalar=depth))
    level = _apply("zeros", shape=(1,), dtype=INT32) if data_zero is None else _wide(data_zero)
    if facts[0].dtype == INT8:
        level = _apply("__add_scalar__", level, scalar=SHIFT)
    offsets = _apply("negative", _apply("broadcast_mul", sums, level))
    if zero is None:
        return filters, [offsets]
    return filters, [offsets, _apply("broadcast_to", zero, shape=(units,))]


def _wide(zero: Symbol) -> Symbol:
    """Zero points in int32, along one axis."""
    return _apply("reshape", _apply("cast", zero, dtype=INT32), shape=(-1,))


def byte_pool2d(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CpuTarget) -> Symbol | None:
    """The largest bytes of windows with channels side by side, as the convolutions around it have them."""
    if facts[0].dtype not in BYTES:
        return padded_pool2d(params, inputs, facts, target)
    shape = facts[0].shape
    if params.layout != "NCHW" or not is_static(shape) or shape[1] < target.lanes(INT32):
        return None
    return _apply("max_pool2d", inputs, **{**canonical(params), "layout": "NHWC"})


BYTE_RULES = {"integer_conv": byte_conv2d, "integer_matmul": byte_matmul, "max_pool2d": byte_pool2d}
