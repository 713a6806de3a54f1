"""Factors of matrices in the last two axes beyond the usual ones, eigenvalues of any square matrix,
the exponential and least squares. Like `linalg`, they run on the host."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...base.dtype import INT32, DType, dtype_name, is_complex, is_float
from ...base.errors import DTypeError
from ...base.shape import min_dims, unify, unify_dim
from ...core.schema import BOOL, FLOAT, attr, schema
from .._families import Array, F, Inferred, Shapes, as_written, define, first_dtype, holomorphic
from ..math.complex import whole_dtype
from ._elimination import ldl_factors, ldl_solution, lu_factors, permutation
from ._matrices import (
    adjoint,
    adjoint_product,
    diagonal_part,
    eigen_shape,
    lapack,
    lower_part,
    must_be_matrices,
    product,
    square_shape,
    swapped,
    swapped_axes,
    with_adjoints,
)
from .lapack import distances, pinv_slope, spread


def _must_not_be_whole(dtype: DType | None) -> None:
    if dtype is not None and not (is_float(dtype) or is_complex(dtype)):
        raise DTypeError(f"matrices of {dtype_name(dtype)} have no factors", hint="cast the input to float32")


def _with_integers(params: Any, ins: Any, outs: Any) -> Any:
    """The first output has the dtype of the input; places are int32."""
    _, (dtype, *_) = first_dtype(params, ins, outs[:1])
    _must_not_be_whole(dtype)
    return [dtype, *[None] * (len(ins) - 1)], [dtype, *[INT32] * (len(outs) - 1)]


# LU, and the swaps of rows that come with it.


@schema
class LUAttrs:
    pivot: bool = attr(BOOL, "swap rows, so that the largest element divides", default=True)


def _lu_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(ins[0], outs[0])
    must_be_matrices(shape, "lu_factor")
    if shape is None:
        return [None], [None, None]
    *lead, m, n = shape
    return [shape], [shape, (*lead, min_dims(m, n))]


def _lu_gradient(ctx: Any, g: Any, _: Any) -> list[Any]:
    """dA = P' L^-T (the lower triangle of L' dL + the upper one of dU U') U^-T, of square A."""
    factors, pivots = ctx.outputs
    low = F.elemwise_add(lower_part(factors, -1), diagonal_part(F.ones_like(factors)))
    up = F.triangle(factors, lower=False)
    inner = F.elemwise_add(
        lower_part(product(low, lower_part(g, -1), ta=True), -1),
        F.triangle(product(F.triangle(g, lower=False), up, tb=True), lower=False),
    )
    left = F.solve(low, inner, transposed=True, triangle="lower")
    grad = swapped_axes(F.solve(up, swapped_axes(left), triangle="upper"))
    return [F.row_swaps(grad, pivots, reverse=True)]


lu_factor = lapack(
    "lu_factor",
    "P A = L U: U in the upper triangle, below it L, whose diagonal is 1; and the "
    "row, counted from 1, that each row is swapped with in turn.",
    lambda p, a: lu_factors(a, p.pivot),
    attrs=LUAttrs,
    shape=_lu_shape,
    dtype=_with_integers,
    gradient=_lu_gradient,
    complex_gradient=holomorphic,
    output_names=["factors", "pivots"],
    native_from=64,
)


@schema
class SwapAttrs:
    reverse: bool = attr(BOOL, "undo the swaps", default=False)


def _swap_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape, pivots = unify(ins[0], outs[0]), ins[1]
    must_be_matrices(shape, "row_swaps")
    if shape is not None and pivots is not None:
        lead = unify(shape[:-2], pivots[:-1])
        shape, pivots = (*lead, *shape[-2:]), (*lead, pivots[-1])
    return [shape, pivots], [shape]


def _swap_reference(params: SwapAttrs, x: Array, pivots: Array) -> Array:
    order = permutation(pivots, x.shape[-2])
    if params.reverse:
        order = np.argsort(order, -1)
    return np.take_along_axis(x, order[..., None], -2)


row_swaps = define(
    "row_swaps",
    "Rows of matrices swapped in turn with those that pivots name, counted from 1.",
    level=5,
    attrs=SwapAttrs,
    named=False,
    shape=_swap_shape,
    dtype=first_dtype,
    inputs={"data": "the matrices", "pivots": "for each row, the one it is swapped with"},
    reference=_swap_reference,
)
row_swaps.gradient = lambda ctx, g: [F.row_swaps(g, ctx.inputs[1], reverse=not ctx.params.reverse), None]
row_swaps.complex_gradient = as_written

# L D L' of symmetric matrices.


@schema
class SymmetricAttrs:
    hermitian: bool = attr(BOOL, "A is its adjoint, rather than its transpose", default=False)


def _ldl_reference(params: SymmetricAttrs, a: Array) -> Any:
    lead = a.shape[:-2]
    factors, pivots = np.empty(a.shape, a.dtype), np.empty(a.shape[:-1], INT32)
    info = np.zeros(lead, INT32)
    for place in np.ndindex(*lead):
        factors[place], pivots[place], info[place] = ldl_factors(a[place], params.hermitian)
    return factors, pivots, info


def _ldl_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    matrix = square_shape(params, [unify(ins[0], outs[0])], [])[0][0]
    return [matrix], [matrix, *([None] * 2 if matrix is None else [matrix[:-1], matrix[:-2]])]


ldl_factor = lapack(
    "ldl_factor",
    "P A P' = L D L' of symmetric matrices, of which the lower triangle is read: D, "
    "with blocks of one or two, on and beside the diagonal, and L below; swaps of rows and "
    "columns, negative for a block of two; and the place of the first block that is 0, if any.",
    _ldl_reference,
    attrs=SymmetricAttrs,
    shape=_ldl_shape,
    dtype=_with_integers,
    complex_gradient=as_written,
    output_names=["factors", "pivots", "info"],
)


def _ldl_solve_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    a, pivots, b = ins[0], ins[1], unify(ins[2], outs[0])
    must_be_matrices(a, "ldl_solve")
    must_be_matrices(b, "ldl_solve")
    if a is not None and b is not None:
        side = unify_dim(unify_dim(a[-1], a[-2]), b[-2])
        lead = unify(a[:-2], b[:-2])
        a, b, pivots = (*lead, side, side), (*lead, side, b[-1]), unify(pivots, (*lead, side))
    return [a, pivots, b], [b]


def _ldl_solve_reference(params: SymmetricAttrs, factors: Array, pivots: Array, b: Array) -> Array:
    x = np.empty(b.shape, b.dtype)
    for place in np.ndindex(*b.shape[:-2]):
        x[place] = ldl_solution(factors[place], pivots[place], b[place], params.hermitian)
    return x


def _ldl_solve_dtype(params: Any, ins: Any, outs: Any) -> Any:
    dtype = next((d for d in (ins[0], ins[2], outs[0]) if d is not None), None)
    _must_not_be_whole(dtype)
    return [dtype, None, dtype], [dtype]


ldl_solve = lapack(
    "ldl_solve",
    "X with A X = B, by the factors that ldl_factor gives.",
    _ldl_solve_reference,
    attrs=SymmetricAttrs,
    named=False,
    shape=_ldl_solve_shape,
    dtype=_ldl_solve_dtype,
    inputs={"factors": "L and D", "pivots": "the swaps", "rhs": "B, as many rows"},
    complex_gradient=as_written,
)

# Q R as reflections.


def _geqrf_reference(a: Array) -> Any:
    factors, tau = np.linalg.qr(a, mode="raw")
    return swapped(factors), tau


geqrf = lapack(
    "geqrf",
    "A = Q R: R in the upper triangle, below it vectors v, whose first element is 1; Q is "
    "the product of the reflections 1 - tau v v'.",
    _geqrf_reference,
    shape=_lu_shape,
    complex_gradient=as_written,
    output_names=["factors", "tau"],
)

# Eigenvalues of any square matrix.


def _complex_dtype(params: Any, ins: Any, outs: Any) -> Any:
    dtype: DType | None = ins[0]
    if dtype is None or is_complex(dtype):
        return [dtype], [dtype] * len(outs)
    return [dtype], [whole_dtype(dtype)] * len(outs)


def _eig_gradient(ctx: Any, g_values: Any, g_vectors: Any) -> list[Any]:
    """dA = V^-* (diag(de) + (V* dV - V* V Re(diag(V* dV))) / conj(e_j - e_i)) V*, where * is for
    the adjoint; the quotient counts off the diagonal."""
    values, vectors = ctx.outputs
    inner = adjoint_product(vectors, g_vectors, ta=True)
    along = F.cast_like(F.real(diagonal_part(inner)), inner)
    apart = F.elemwise_sub(inner, product(adjoint_product(vectors, vectors, ta=True), along))
    apart = F.elemwise_sub(apart, diagonal_part(apart))
    middle = F.elemwise_add(F.elemwise_div(apart, F.conj(distances(values))), spread(g_values))
    grad = F.solve(F.conj(vectors), adjoint_product(middle, vectors, tb=True), transposed=True)
    return [F.cast_like(grad, ctx.inputs[0])]


def _as_complex(a: Array) -> Any:
    values, vectors = np.linalg.eig(a)
    return values.astype(np.complex128), vectors.astype(np.complex128)


eig = lapack(
    "eig",
    "Eigenvalues and eigenvectors of square matrices, complex numbers.",
    _as_complex,
    shape=eigen_shape,
    dtype=_complex_dtype,
    gradient=_eig_gradient,
    complex_gradient=as_written,
    output_names=["values", "vectors"],
)


def _eigvals_gradient(ctx: Any, g: Any) -> list[Any]:
    """dA = V^-* diag(de) V*"""
    _, vectors = F.eig(ctx.inputs[0])
    right = adjoint_product(spread(g), vectors, tb=True)
    grad = F.solve(F.conj(vectors), right, transposed=True)
    return [F.cast_like(grad, ctx.inputs[0])]


def _eigvals_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    matrix = square_shape(params, ins, [])[0][0]
    return [matrix], [None if matrix is None else matrix[:-1]]


eigvals = lapack(
    "eigvals",
    "Eigenvalues of square matrices, complex numbers.",
    lambda a: np.linalg.eigvals(a).astype(np.complex128),
    shape=_eigvals_shape,
    dtype=_complex_dtype,
    gradient=_eigvals_gradient,
    complex_gradient=as_written,
)

# The exponential.

# Of the numerator, times the last one.
_PADE = [math.factorial(26 - k) // (math.factorial(13 - k) * math.factorial(k)) for k in range(14)]
_EXACT_TO = 5.371920351148152  # the norm up to which the quotient is exact in float64


def _exp_reference(a: Array) -> Array:
    """The quotient of two polynomials of degree 13 at A / 2^s, squared s times."""
    norm = np.abs(a).sum(-2).max(-1, initial=0)
    ratio = np.where(np.isfinite(norm), norm, 0) / _EXACT_TO
    times = np.ceil(np.log2(np.maximum(ratio, 1))).astype(int)
    x = a * np.exp2(-times.astype(float))[..., None, None]
    square = x @ x
    odd, even = (_matrix_polynomial(square, _PADE[k::2]) for k in (1, 0))
    odd = x @ odd
    good = np.isfinite(norm)[..., None, None]
    power = np.linalg.solve(np.where(good, even - odd, np.eye(a.shape[-1])), even + odd)
    power = np.where(good, power, np.nan)
    for step in range(int(times.max(initial=0))):
        power = np.where((times > step)[..., None, None], power @ power, power)
    return np.asarray(power)


def _matrix_polynomial(x: Array, coefficients: Any) -> Array:
    eye = np.eye(x.shape[-1])
    total = coefficients[-1] / _PADE[0] * eye
    for c in reversed(coefficients[:-1]):
        total = total @ x + c / _PADE[0] * eye
    return np.asarray(total)


def _exp_gradient(ctx: Any, g: Any) -> list[Any]:
    """dA stands beside exp(A') in exp([[A', g], [0, A']])."""
    turned = swapped_axes(ctx.inputs[0])
    above = F.concatenate(turned, g, axis=-1)
    below = F.concatenate(F.zeros_like(turned), turned, axis=-1)
    whole = F.matrix_exp(F.concatenate(above, below, axis=-2))
    top = F.split(whole, indices_or_sections=2, axis=-2)[0]
    return [F.split(top, indices_or_sections=2, axis=-1)[1]]


matrix_exp = lapack(
    "matrix_exp",
    "1 + A + A^2 / 2! + ... of square matrices.",
    _exp_reference,
    shape=square_shape,
    gradient=_exp_gradient,
    complex_gradient=holomorphic,
)

# Least squares.


@schema
class LstsqAttrs:
    rtol: float = attr(FLOAT, "singular values count from this share of the largest on", default=1e-6)


def _lstsq_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    a, b, x = ins[0], ins[1], outs[0]
    must_be_matrices(a, "lstsq")
    must_be_matrices(b, "lstsq")
    if a is not None and b is not None:
        lead, rows = unify(a[:-2], b[:-2]), unify_dim(a[-2], b[-2])
        a, b = (*lead, rows, a[-1]), (*lead, rows, b[-1])
        x = unify(x, (*lead, a[-1], b[-1]))
    return [a, b], [x]


def _lstsq_reference(params: LstsqAttrs, a: Array, b: Array) -> Array:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    counts = s > s.max(-1, keepdims=True, initial=0) * params.rtol
    over = np.where(counts, 1 / np.where(counts, s, 1), 0)
    return np.asarray(adjoint(vh) @ (over[..., None] * (adjoint(u) @ b)))


def _lstsq_gradient(ctx: Any, g: Any, times: Any = product) -> list[Any]:
    """With P the pseudo-inverse and X = P B: dB = P' g; dA by dP = g B'."""
    a, b = ctx.inputs
    p = F.pinv(a, rtol=ctx.params.rtol)
    return [pinv_slope(a, p, times(g, b, tb=True), times), times(p, g, ta=True)]


lstsq = lapack(
    "lstsq",
    "The shortest X of those for which |A X - B| is smallest.",
    _lstsq_reference,
    attrs=LstsqAttrs,
    inputs={"lhs": "A", "rhs": "B, as many rows"},
    named=False,
    shape=_lstsq_shape,
    gradient=_lstsq_gradient,
    complex_gradient=with_adjoints(_lstsq_gradient),
)
