"""quantize, dequantize and requantize: numbers as integers of few bits, with a scale and a zero point.

Scales and zero points are one number for all, one for each place along an axis, or one for each block along it. A build
fuses what stands between two of these into integer operators, and writes what is left as element-wise arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import FLOAT32, INT32, DType, dtype_name, is_float, is_integer
from ...base.errors import DTypeError, ShapeError
from ...base.shape import Shape, broadcast, normalize_axis, show, unify
from ...core.op import Op
from ...core.schema import BOOL, INT, attr, schema
from .. import _layouts as layouts
from .._families import BROADCAST, Array, Dtypes, Inferred, Shapes, define, known, pointwise


@schema
class QuantizeAttrs:
    axis: int = attr(INT, "along which scales differ, where there are several", default=1)
    block_size: int = attr(INT, "elements along the axis that share a scale, if the scales have all axes", default=0)


@schema
class DequantizeAttrs(QuantizeAttrs):
    use_zero: bool = attr(BOOL, "whether there is a zero point; else it is 0", default=True)


def _shape(params: QuantizeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    for given, what in zip(ins[1:], ("scale", "zero point")):
        _check(params, given, shape, what)
    return [shape, *ins[1:]], [shape]


def _check(params: QuantizeAttrs, given: Shape, shape: Shape, what: str) -> None:
    """Whether scales or zero points are as many as the data needs."""
    if shape is None or given is None or is_one(given):
        return
    axis = normalize_axis(params.axis, len(shape))
    if params.block_size and len(given) == len(shape):
        extent = shape[axis]
        blocks = -(-extent // params.block_size) if isinstance(extent, int) else None
        unify(given, (*shape[:axis], blocks, *shape[axis + 1 :]))
    elif len(given) == 1 and not params.block_size:
        unify(given, (shape[axis],))
    else:
        raise ShapeError(
            f"a {what} of shape {show(given)} for data of shape {show(shape)}",
            why="it is one number, one for each place along the axis, or one for each block, if block_size is given",
        )


def is_one(shape: Shape) -> bool:
    """Whether scales of that shape are one number for all."""
    return shape in ((), (1,))


def _quantize_dtype(params: QuantizeAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    data, scale, zero = ins
    number = data if data is not None else scale
    if number is not None and not is_float(number):
        raise DTypeError(f"data of {dtype_name(number)} to quantize", hint="cast it to float32")
    level = zero if zero is not None else outs[0]
    if level is not None and not (is_integer(level) and level.itemsize <= 2):
        raise DTypeError(f"numbers quantized to {dtype_name(level)}", why="integers of 8 and 16 bits hold them")
    return [number, number, level], [level]


def _dequantize_dtype(params: DequantizeAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    level = ins[0]
    if level is not None and not (is_integer(level) and level.itemsize <= 4):
        raise DTypeError(f"quantized data of {dtype_name(level)}", why="it is of integers of 8, 16 or 32 bits")
    number = ins[1] if ins[1] is not None else outs[0]
    _check_float(number, "scale")
    return [level, number, level][: len(ins)], [number]


def _check_float(dtype: DType | None, what: str) -> None:
    if dtype is not None and not (is_float(dtype) and dtype.itemsize <= 4):
        raise DTypeError(f"a {what} of {dtype_name(dtype)}", why="it is of floats of 16 or 32 bits", hint="cast it")


def _spread(params: QuantizeAttrs, value: Array, shape: Sequence[int]) -> Array:
    """Scales or zero points so that they broadcast over data of a shape."""
    if value.ndim <= 1 and value.size == 1:
        return value.reshape(())
    axis = normalize_axis(params.axis, len(shape))
    if not params.block_size:
        return value.reshape(-1, *(1,) * (len(shape) - 1 - axis))
    return np.repeat(value, params.block_size, axis).take(np.arange(shape[axis]), axis)


def _te_at(params: QuantizeAttrs, value: te.Tensor, index: Sequence[te.Expr]) -> te.Expr:
    """The scale or the zero point of the element at an index."""
    if is_one(value.shape):
        return value[(0,) * value.rank]
    axis = normalize_axis(params.axis, len(index))
    if not params.block_size:
        return value[index[axis]]
    return value[(*index[:axis], index[axis] // params.block_size, *index[axis + 1 :])]


def _quantize_reference(params: QuantizeAttrs, x: Array, scale: Array, zero: Array) -> Array:
    with np.errstate(all="ignore"):
        level = np.rint(x / _spread(params, scale, x.shape)).astype(np.float32)
        level += _spread(params, zero, x.shape).astype(np.float32)
        limits = np.iinfo(zero.dtype)
        return np.clip(level, limits.min, limits.max).astype(np.int32).astype(zero.dtype)


def _quantize_compute(params: QuantizeAttrs, x: te.Tensor, scale: te.Tensor, zero: te.Tensor) -> te.Tensor:
    limits = np.iinfo(zero.dtype)

    def element(*i: te.Expr) -> te.Expr:
        quotient = _wide(x[i]) / _wide(_te_at(params, scale, i))
        level = te.cast(te.round(te.cast(quotient, x.dtype)), FLOAT32)  # of 16 bits, it is rounded to those first
        level = level + te.cast(_te_at(params, zero, i), FLOAT32)
        return te.cast(te.min(te.max(level, int(limits.min)), int(limits.max)), zero.dtype)

    return te.compute(x.shape, element, name="quantize")


def _wide(number: te.Expr) -> te.Expr:
    return te.cast(number, FLOAT32) if number.dtype.itemsize == 2 else number


def _dequantize_reference(params: DequantizeAttrs, x: Array, scale: Array, *zero: Array) -> Array:
    steps = x.astype(np.int32)
    if zero:
        steps = steps - _spread(params, zero[0], x.shape).astype(np.int32)
    factor = _spread(params, scale, x.shape).astype(np.float32)
    return np.asarray(steps.astype(np.float32) * factor).astype(scale.dtype)


def _dequantize_compute(params: DequantizeAttrs, x: te.Tensor, scale: te.Tensor, *zero: te.Tensor) -> te.Tensor:
    def element(*i: te.Expr) -> te.Expr:
        steps = te.cast(x[i], INT32)
        if zero:
            steps = steps - te.cast(_te_at(params, zero[0], i), INT32)
        factor = te.cast(_te_at(params, scale, i), FLOAT32)
        return te.cast(te.cast(steps, FLOAT32) * factor, scale.dtype)

    return te.compute(x.shape, element, name="dequantize")


_INPUTS = {
    "data": "the input",
    "scale": "the distance of two levels: one number, one for each place along the axis, or one for each block",
    "zero_point": "the level that stands for 0, in the dtype of the levels: one number, or as many as there are scales",
}


def _define(name: str, doc: str, **columns: Any) -> Op:
    return define(
        name,
        doc,
        level=5,
        inputs=_INPUTS,
        named=False,
        pattern=BROADCAST,
        shape=_shape,
        layout=layouts.fixed_copy,
        **columns,
    )


quantize = _define(
    "quantize",
    "round(data / scale) + zero_point, limited to what the dtype of the zero point holds; halves go to the even level.",
    attrs=QuantizeAttrs,
    dtype=_quantize_dtype,
    reference=_quantize_reference,
    compute=_quantize_compute,
)
dequantize = _define(
    "dequantize",
    "(data - zero_point) scale, computed in float32, in the dtype of the scale.",
    attrs=DequantizeAttrs,
    dtype=_dequantize_dtype,
    reference=_dequantize_reference,
    compute=_dequantize_compute,
)
dequantize.set_num_inputs(lambda params: 3 if params.use_zero else 2)
dequantize.input_names = lambda params: list(_INPUTS)[: 3 if params.use_zero else 2]


# What sums of products become.


def _requantize_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    for given in ins[1:]:
        if known(shape, given):
            unify(broadcast(shape, given), shape)
    return [shape, *ins[1:]], [shape]


def _requantize_dtype(params: Any, ins: Dtypes, outs: Dtypes) -> Inferred:
    (_, _, zero), (level,) = _quantize_dtype(params, [None, None, ins[2]], outs)
    if ins[0] is not None and ins[0] != INT32:
        raise DTypeError(f"sums of {dtype_name(ins[0])}", why="they are of int32")
    _check_float(ins[1], "multiplier")
    return [INT32, ins[1], zero], [level]


def _requantize_reference(data: Array, multiplier: Array, zero: Array) -> Array:
    level = np.rint(data.astype(np.float32) * multiplier.astype(np.float32)) + zero.astype(np.float32)
    limits = np.iinfo(zero.dtype)
    return np.clip(level, limits.min, limits.max).astype(zero.dtype)


def _requantized(data: te.Expr, multiplier: te.Expr, zero: te.Expr) -> te.Expr:
    level = te.round(te.cast(data, FLOAT32) * te.cast(multiplier, FLOAT32)) + te.cast(zero, FLOAT32)
    limits = np.iinfo(zero.dtype)
    return te.cast(te.min(te.max(level, int(limits.min)), int(limits.max)), zero.dtype)


requantize = define(
    "requantize",
    "round(data * multiplier) + zero_point, limited to what the dtype of the zero point holds: sums of products "
    "become levels. Multipliers and zero points broadcast to the data.",
    level=5,
    inputs={
        "data": "sums in int32",
        "multiplier": "the scale of the data over that of the result",
        "zero_point": "the level that stands for 0, in the dtype of the result",
    },
    named=False,
    pattern=BROADCAST,
    shape=_requantize_shape,
    dtype=_requantize_dtype,
    layout=layouts.fixed_copy,
    reference=_requantize_reference,
    compute=pointwise(_requantized),
)
