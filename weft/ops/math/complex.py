"""Parts of complex numbers, and complex numbers of parts. Generated code has no complex numbers:
these operators have no body, and run as steps on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.dtype import DTYPES, DType, dtype_name, is_complex, is_float
from ...base.errors import DTypeError, ShapeError
from ...base.shape import show, unify, unify_dim
from .. import _layouts as layouts
from .._families import Array, Dtypes, F, Inferred, Shapes, as_written, broadcast_shape, define, same_shape

PARTS = {DTYPES["complex64"]: DTYPES["float32"], DTYPES["complex128"]: DTYPES["float64"]}
WHOLES = {part: whole for whole, part in PARTS.items()}


def part_dtype(dtype: DType) -> DType:
    """The dtype of the parts of a number; that of a real one itself."""
    return PARTS.get(dtype, dtype)


def whole_dtype(dtype: DType) -> DType:
    """The dtype of complex numbers whose parts are of a dtype."""
    if dtype not in WHOLES:
        raise DTypeError(
            f"no complex number has parts of dtype {dtype_name(dtype)}", hint="cast them to float32 or float64"
        )
    return WHOLES[dtype]


def _mapped(rule: Callable[[DType], DType]) -> Callable[..., Any]:
    """The dtype of the output by that of the first input."""

    def infer(params: Any, ins: Dtypes, outs: Dtypes) -> Inferred:
        given = next((dtype for dtype in ins if dtype is not None), None)
        return [given] * len(ins), [None if given is None else rule(given)]

    return infer


def _same(dtype: DType) -> DType:
    if not (is_float(dtype) or is_complex(dtype)):
        raise DTypeError(f"dtype {dtype_name(dtype)} has no parts", hint="cast to float32")
    return dtype


def _on_host(name: str, doc: str, rule: Callable[[DType], DType], **columns: Any) -> Any:
    given = {"shape": same_shape, "layout": layouts.fixed_copy, **columns}
    return define(name, doc, level=5, dtype=_mapped(rule), complex_gradient=as_written, **given)


conj = _on_host("conj", "The conjugate: the imaginary part turned; of real numbers, x.", _same)
conj.reference = lambda x: np.conj(x) if is_complex(x.dtype) else x.copy()
conj.gradient = lambda ctx, g: [F.conj(g)]


def _parts(dtype: DType) -> DType:
    return part_dtype(_same(dtype))


real = _on_host("real", "The real part.", _parts)
real.reference = lambda x: np.real(x).copy()
real.gradient = lambda ctx, g: [F.cast_like(g, ctx.inputs[0])]

imag = _on_host("imag", "The imaginary part, which is 0 of real numbers.", _parts)
imag.reference = lambda x: np.imag(x).copy()


def _imag_gradient(ctx: Any, g: Any) -> list[Any]:
    """i g; nothing comes of a real number"""
    return [F.cast_like(F.complex(F.zeros_like(g), g), ctx.inputs[0])]


imag.gradient = _imag_gradient


def _of_parts(real: Array, imag: Array) -> Array:
    shape = np.broadcast_shapes(real.shape, imag.shape)
    made = np.empty(shape, whole_dtype(real.dtype))
    made.real, made.imag = real, imag
    return made


complex_ = _on_host(
    "complex",
    "x + i y of real numbers that broadcast.",
    whole_dtype,
    shape=broadcast_shape,
    layout=layouts.broadcast_pair,
    named=False,
    inputs={"real": "the real parts", "imag": "the imaginary parts"},
)
complex_.reference = _of_parts
complex_.gradient = lambda ctx, g: [F.collapse_sum(F.real(g), ctx.inputs[0]), F.collapse_sum(F.imag(g), ctx.inputs[1])]


def _as_pairs(x: Array) -> Array:
    """The parts along a new last axis, over the same memory."""
    if not x.ndim:
        return x.reshape(1).view(part_dtype(x.dtype))
    return x[..., None].view(part_dtype(x.dtype))


def _pairs_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is not None:
        return [None], [(*ins[0], 2)]
    return [None if outs[0] is None else outs[0][:-1]], [None]


def _must_be_complex(dtype: DType) -> DType:
    if not is_complex(dtype):
        raise DTypeError(f"dtype {dtype_name(dtype)} is no complex one")
    return part_dtype(dtype)


view_as_real = _on_host(
    "view_as_real",
    "The parts of complex numbers, along a new last axis.",
    _must_be_complex,
    shape=_pairs_shape,
    layout=layouts.fixed_unknown,
)
view_as_real.reference = lambda x: _as_pairs(x).copy()
view_as_real.gradient = lambda ctx, g: [F.view_as_complex(g)]


def _numbers_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = ins[0]
    if shape is None:
        return [None if outs[0] is None else (*outs[0], 2)], [None]
    if not shape:
        raise ShapeError(f"shape {show(shape)} has no axis of parts")
    unify_dim(shape[-1], 2)
    return [None], [unify(shape[:-1], outs[0])]


view_as_complex = _on_host(
    "view_as_complex",
    "Complex numbers of the parts that are along the last axis.",
    whole_dtype,
    shape=_numbers_shape,
    layout=layouts.fixed_unknown,
)
view_as_complex.reference = lambda x: _of_parts(x[..., 0], x[..., 1])
view_as_complex.gradient = lambda ctx, g: [F.view_as_real(g)]


def _angle_gradient(ctx: Any, g: Any) -> list[Any]:
    """i g z / |z|^2, which is 0 at 0: turning by an angle moves z by i z times it"""
    z = ctx.inputs[0]
    x, y = F.real(z), F.imag(z)
    square = F.elemwise_add(F.elemwise_mul(x, x), F.elemwise_mul(y, y))
    safe = F.elemwise_add(square, F.broadcast_equal(square, F.zeros_like(square)))
    share = F.elemwise_div(g, safe)
    across, along = F.negative(F.elemwise_mul(share, y)), F.elemwise_mul(share, x)
    return [F.cast_like(F.complex(across, along), z)]


angle = _on_host("angle", "The angle of a number in the plane, between -pi and pi.", _parts)
angle.reference = lambda x: np.where(np.isnan(x), np.nan, np.angle(x)).astype(part_dtype(x.dtype))
angle.gradient = _angle_gradient


def _sgn_reference(x: Array) -> Array:
    if not is_complex(x.dtype):
        return np.sign(x)
    size = np.abs(x)
    return np.where(size == 0, 0, x / np.where(size == 0, 1, size)).astype(x.dtype)


def _sgn_gradient(ctx: Any, g: Any) -> list[Any]:
    """(g - y Re(g conj y)) / |z|, which is 0 at 0: only what is across z turns it"""
    z, y = ctx.inputs[0], ctx.outputs[0]
    along = F.cast_like(F.real(F.elemwise_mul(g, F.conj(y))), g)
    size = F.cast_like(F.abs(z), g)
    across = F.elemwise_sub(g, F.elemwise_mul(y, along))
    return [F.broadcast_where(size, F.elemwise_div(across, size), size)]


sgn = _on_host("sgn", "x / |x|, which is 0 at 0.", _same)
sgn.reference = _sgn_reference
sgn.gradient = _sgn_gradient
