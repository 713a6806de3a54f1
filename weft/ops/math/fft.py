"""Fourier transforms along the last axis, not scaled in either direction. Generated code has no
complex numbers: these operators have no body, and run as steps on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base.dtype import DType, dtype_name, is_complex
from ...base.errors import DTypeError, ShapeError
from ...base.shape import Shape, unify, unify_dim
from ...core.op import Op
from ...core.schema import BOOL, INT, attr, schema
from .._families import Array, Dtypes, F, Inferred, Shapes, as_written, define
from .complex import part_dtype, whole_dtype


@schema
class FourierAttrs:
    inverse: bool = attr(BOOL, "turn the other way: exp(+2 pi i k m / n)", default=False)


@schema
class HalfFourierAttrs:
    n: int = attr(INT, "how many real numbers there are", low=1)
    doubled: bool = attr(BOOL, "count what stands for two frequencies twice", default=False)


def _complex_only(dtype: DType) -> DType:
    if not is_complex(dtype):
        raise DTypeError(f"dtype {dtype_name(dtype)} is no complex one", hint="cast to complex64")
    return dtype


def _to_parts(dtype: DType) -> DType:
    return part_dtype(_complex_only(dtype))


def _transform(name: str, doc: str, attrs: type, dtype: Callable[[DType], DType], shape: Any) -> Op:
    def infer(params: Any, ins: Dtypes, outs: Dtypes) -> Inferred:
        return [ins[0]], [None if ins[0] is None else dtype(ins[0])]

    return define(name, doc, level=5, attrs=attrs, shape=shape, dtype=infer, complex_gradient=as_written)


def _lead(shape: Shape, extent: int | None) -> Shape:
    """The axes before the last, which has an extent."""
    if shape is None:
        return None
    if not shape:
        raise ShapeError("a Fourier transform needs an axis", why="the tensor has none")
    if extent is not None:
        unify_dim(shape[-1], extent)
    return shape[:-1]


def _same(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    _lead(shape, None)
    return [shape], [shape]


def _between(sizes: Callable[[int], tuple[int, int]]) -> Callable[..., Any]:
    """Shapes that differ in the last axis, whose extents n tells."""

    def rule(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
        before, after = sizes(params.n)
        lead = unify(_lead(ins[0], before), _lead(outs[0], after))
        if lead is None:
            return [None], [None]
        return [(*lead, before)], [(*lead, after)]

    return rule


fft = _transform(
    "fft", "y[k] = sum over m of x[m] exp(-2 pi i k m / n), along the last axis.", FourierAttrs, _complex_only, _same
)


def _fft(params: FourierAttrs, x: Array) -> Array:
    if not x.size:
        return x.copy()
    made = np.fft.ifft(x, norm="forward") if params.inverse else np.fft.fft(x)
    return made.astype(x.dtype, copy=False)


fft.reference = _fft
# The adjoint of a turn by exp(-i t) is one by exp(i t).
fft.gradient = lambda ctx, g: [F.fft(g, inverse=not ctx.params.inverse)]

rfft = _transform(
    "rfft",
    "The first n / 2 + 1 elements of the Fourier transform of n real numbers; with "
    "`doubled`, those twice that stand for a frequency and its negative.",
    HalfFourierAttrs,
    whole_dtype,
    _between(lambda n: (n, n // 2 + 1)),
)
irfft = _transform(
    "irfft",
    "The real part of the inverse Fourier transform of n / 2 + 1 elements and zeros; with "
    "`doubled`, those that stand for a frequency and its negative count twice, which makes it the "
    "inverse of rfft times n.",
    HalfFourierAttrs,
    _to_parts,
    _between(lambda n: (n // 2 + 1, n)),
)


def _scaled_middle(half: Array, n: int, factor: float) -> Array:
    """What stands for two frequencies: all but the constant, and the fastest of an even n."""
    half[..., 1 : (n + 1) // 2] *= factor
    return half


def _rfft(params: HalfFourierAttrs, x: Array) -> Array:
    kind = whole_dtype(x.dtype)
    if not x.size:
        return np.zeros((*x.shape[:-1], params.n // 2 + 1), kind)
    made = np.fft.rfft(x).astype(kind, copy=False)
    return _scaled_middle(made, params.n, 2) if params.doubled else made


def _irfft(params: HalfFourierAttrs, half: Array) -> Array:
    kind = part_dtype(half.dtype)
    if not half.size:
        return np.zeros((*half.shape[:-1], params.n), kind)
    given = half if params.doubled else _scaled_middle(half.copy(), params.n, 0.5)
    return np.fft.irfft(given, params.n, norm="forward").astype(kind, copy=False)


rfft.reference, irfft.reference = _rfft, _irfft
# Each is the adjoint of the other.
rfft.gradient = lambda ctx, g: [F.irfft(g, n=ctx.params.n, doubled=ctx.params.doubled)]
irfft.gradient = lambda ctx, g: [F.rfft(g, n=ctx.params.n, doubled=ctx.params.doubled)]
