"""Converters of MXNet's numpy operators that change shapes, make tensors, and multiply matrices."""

from __future__ import annotations

import math

import numpy as np

from ....base.dtype import DType
from ....base.errors import FormatError, Unsupported
from ....base.shape import StaticShape, normalize_axis
from ...emitter import FOLDED_ELEMENTS, Value
from ...products import matrix_product
from ...shapes import squeezed_shape
from ..call import Call
from ..registry import converter
from .np import alike
from .reduce import dotted
from .shape import arange, reshaped_by

# Shapes.


@converter("_np_reshape", "_npx_reshape")
def reshape(call: Call) -> Value:
    """`_np_reshape` has one code, -1; `_npx_reshape` has six."""
    if call.attr("order") != "C":
        raise Unsupported(f"{call.op_type} in the order {call.attr('order')!r} is not supported")
    plain = call.op_type == "_np_reshape"
    return reshaped_by(call, call.attr("newshape"), {} if plain else _CODES, not plain and call.attr("reverse"))


_CODES = {-2: "keep", -3: "drop", -4: "all", -5: "product", -6: "split"}


@converter("_np_transpose")
def transpose(call: Call) -> Value:
    rank = call.rank(call[0])
    axes = call.attr("axes") if call.has("axes") and call.attr("axes") else range(rank)[::-1]
    call.ignore("axes")
    return call.transposed(call[0], axes)


@converter("_np_moveaxis")
def move_axis(call: Call) -> Value:
    rank = call.rank(call[0])
    source = [normalize_axis(axis, rank) for axis in call.attr("source")]
    target = [normalize_axis(axis, rank) for axis in call.attr("destination")]
    order = [axis for axis in range(rank) if axis not in source]
    for to, axis in sorted(zip(target, source)):
        order.insert(to, axis)
    if sorted(order) != list(range(rank)):
        raise FormatError(f"axes {source} cannot move to {target}")
    return call.transposed(call[0], order)


@converter("_np_squeeze")
def squeeze(call: Call) -> Value:
    return call.reshape(call[0], squeezed_shape(call.shape(call[0]), call.attr("axis")))


@converter("_npi_stack")
def stacked(call: Call) -> Value:
    values = call.all()
    return call.op("stack", *values, axis=normalize_axis(call.attr("axis"), call.rank(values[0]) + 1))


@converter("_npi_concatenate")
def concatenate(call: Call) -> Value:
    """Along an axis; along all in one where it is None."""
    call.ignore("dim")
    values, axis = call.all(), call.attr("axis")
    if axis is None:
        values, axis = [call.flat(value) for value in values], 0
    return call.joined(values, call.axis(axis, values[0]))


@converter("_npi_hstack", "_npi_vstack")
def side_by_side(call: Call) -> Value:
    """Along the second axis or the first; vectors are rows."""
    values = call.all()
    if call.op_type == "_npi_hstack":
        call.ignore("dim")
        return call.joined(values, min(call.rank(values[0]) - 1, 1))
    values = [call.reshape(v, (1, *call.shape(v))) if call.rank(v) == 1 else v for v in values]
    return call.joined(values, 0)


@converter("_npi_broadcast_to")
def broadcast_to(call: Call) -> Value:
    return call.broadcast_to(call[0], tuple(call.attr("shape")))


@converter("_np_roll")
def roll(call: Call) -> Value:
    """Elements move along axes, or along all in one; those that leave come in at the other end."""
    shape, shifts, axes = call.shape(call[0]), call.attr("shift"), call.attr("axis")
    data = call[0]
    if axes is None:
        data, axes = call.flat(data), (0,)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    for shift, axis in zip(shifts, axes, strict=True):
        axis = normalize_axis(axis, call.rank(data))
        extent = call.shape(data)[axis]
        cut = -shift % extent if extent else 0
        if cut:
            ends = (cut, extent, 1), (0, cut, 1)
            parts = [call.sliced(data, {axis: part}) for part in ends]
            data = call.op("concatenate", *parts, axis=axis)
    return call.reshape(data, shape)


@converter("_npi_tril")
def lower_triangle(call: Call) -> Value:
    """0 above the k-th diagonal of the last two axes."""
    shape = call.shape(call[0])
    if len(shape) < 2:
        raise Unsupported("tril of less than two axes is not supported")
    call.check_table(*shape[-2:])
    mask = call.make(np.tri(shape[-2], shape[-1], call.attr("k")), call.dtype(call[0]))
    return call.op("broadcast_mul", call[0], mask)


# Tensors from nothing.


def _filled(call: Call, shape: StaticShape, dtype: DType | None, fill: float) -> Value:
    call.ignore("ctx")
    return call.op("full", shape=shape, dtype=dtype, fill_value=fill) if shape else call.make(fill, dtype)


@converter("_npi_zeros", "_npi_ones")
def filled(call: Call) -> Value:
    fill = 0.0 if call.op_type == "_npi_zeros" else 1.0
    return _filled(call, tuple(call.attr("shape")), call.dtype_attr(), fill)


@converter("_npi_full_like")
def filled_like(call: Call) -> Value:
    dtype = call.dtype_attr() or call.dtype(call[0])
    return _filled(call, call.shape(call[0]), dtype, call.attr("fill_value"))


converter("_npi_arange")(arange)


@converter("_npi_identity")
def identity(call: Call) -> Value:
    shape = call.attr("shape")
    if len(shape) != 2 or shape[0] != shape[1] or not 0 < math.prod(shape) <= FOLDED_ELEMENTS:
        raise Unsupported(f"identity of {shape} is not supported")
    return call.make(np.eye(shape[0]), call.dtype_attr())


# Products of matrices.


@converter("_npi_matmul")
def matmul(call: Call) -> Value:
    a, b = alike(call, call[0], call[1])
    if not call.rank(a) or not call.rank(b):
        raise FormatError("matmul of a scalar")
    return matrix_product(call, a, b)


@converter("_np_dot", "_npi_tensordot", "_npi_tensordot_int_axes")
def tensordot(call: Call) -> Value:
    """Sums over axes of both; `dot` over the last of a and the last but one of b."""
    a, b = alike(call, call[0], call[1])
    ranks = call.rank(a), call.rank(b)
    if call.op_type == "_np_dot":
        if 0 in ranks:
            return call.op("broadcast_mul", a, b)
        axes = [ranks[0] - 1], [max(ranks[1] - 2, 0)]
    elif call.op_type == "_npi_tensordot":
        axes = call.attr("a_axes_summed"), call.attr("b_axes_summed")
    else:
        count = call.attr("axes")
        axes = list(range(ranks[0] - count, ranks[0])), list(range(count))
    return dotted(call, a, b, *axes)
