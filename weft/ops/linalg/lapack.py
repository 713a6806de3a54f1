"""Linear algebra of the matrices in the last two axes, by LAPACK: these operators have no body, and
run as steps on the host. Axes before them are a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import is_complex
from ...base.shape import min_dims, unify, unify_dim
from ...core.schema import BOOL, FLOAT, INT, attr, choice, schema
from .. import _layouts as layouts
from .._families import INJECTIVE, Array, F, Inferred, Shapes, as_written, define, holomorphic, same_shape
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
    with_adjoints,
)

# Triangles.


@schema
class TriangleAttrs:
    lower: bool = attr(BOOL, "whether the lower triangle stays, rather than the upper", default=True)
    diagonal: int = attr(INT, "the last diagonal that stays; above the main one if > 0", default=0)


def _triangle_reference(params: TriangleAttrs, x: Array) -> Array:
    return (np.tril if params.lower else np.triu)(x, params.diagonal).astype(x.dtype)


def _triangle_compute(params: TriangleAttrs, x: te.Tensor) -> te.Tensor:
    def value(*i: Any) -> Any:
        offset = i[-1] - i[-2]
        stays = offset <= params.diagonal if params.lower else offset >= params.diagonal
        return te.select(stays, x[i], te.const(0, x.dtype))

    return te.compute(x.shape, value)


def _triangle_shape(params: TriangleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    inferred = same_shape(params, ins, outs)
    must_be_matrices(inferred[0][0], "triangle")
    return inferred


def _same_triangle(params: TriangleAttrs, x: Any) -> Any:
    return F.triangle(x, lower=params.lower, diagonal=params.diagonal)


triangle = define(
    "triangle",
    "The lower or upper triangle of matrices, 0 elsewhere.",
    level=5,
    attrs=TriangleAttrs,
    pattern=INJECTIVE,
    shape=_triangle_shape,
    layout=layouts.fixed_copy,
    reference=_triangle_reference,
    compute=_triangle_compute,
    gradient=lambda ctx, g: [_same_triangle(ctx.params, g)],
    complex_gradient=holomorphic,
    native_from=512,
    open_body=True,
)


# Inverse, solution, determinant.


@schema
class InverseAttrs:
    transposed: bool = attr(BOOL, "of the transposed matrices", default=False)


def _inverse_gradient(ctx: Any, g: Any) -> list[Any]:
    """With Y = A^-1: dA = -Y' g Y'; with Y = A^-T: dA = -Y g' Y."""
    y = ctx.outputs[0]
    if ctx.params.transposed:
        return [F.negative(product(product(y, g, tb=True), y))]
    return [F.negative(product(product(y, g, ta=True), y, tb=True))]


inverse = lapack(
    "inverse",
    "The inverses of square matrices.",
    lambda p, a: np.linalg.inv(swapped(a) if p.transposed else a),
    attrs=InverseAttrs,
    shape=square_shape,
    gradient=_inverse_gradient,
    complex_gradient=holomorphic,
    native_from=64,
)


@schema
class SolveAttrs:
    transposed: bool = attr(BOOL, "of the transposed matrices", default=False)
    triangle: str = attr(
        choice("none", "lower", "upper"),
        "the triangle of A, before it is transposed, outside of which nothing is read, and all counts as 0",
        default="none",
    )


def _solve_shape(params: SolveAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    a, b = ins[0], unify(ins[1], outs[0])
    must_be_matrices(a, "solve")
    must_be_matrices(b, "solve")
    if a is not None and b is not None:
        side = unify_dim(unify_dim(a[-1], a[-2]), b[-2])
        lead = unify(a[:-2], b[:-2])
        a, b = (*lead, side, side), (*lead, side, b[-1])
    return [a, b], [b]


def _solve_gradient(ctx: Any, g: Any) -> list[Any]:
    """dB = A^-T g; dA = -dB X', or its transpose if A was transposed."""
    a, x = ctx.inputs[0], ctx.outputs[0]
    turned = ctx.params.transposed
    on_b = F.solve(a, g, transposed=not turned, triangle=ctx.params.triangle)
    on_a = F.negative(product(x, on_b, tb=True) if turned else product(on_b, x, tb=True))
    if ctx.params.triangle != "none":
        on_a = F.triangle(on_a, lower=ctx.params.triangle == "lower")
    return [on_a, on_b]


def _solve(params: SolveAttrs, a: Array, b: Array) -> Array:
    parts: dict[str, Callable[[Array], Array]] = {"none": np.asarray, "lower": np.tril, "upper": np.triu}
    part = parts[params.triangle](a)
    return np.linalg.solve(swapped(part) if params.transposed else part, b)


solve = lapack(
    "solve",
    "X with A X = B.",
    _solve,
    attrs=SolveAttrs,
    inputs={"lhs": "A, square matrices", "rhs": "B, as many rows"},
    named=False,
    shape=_solve_shape,
    gradient=_solve_gradient,
    complex_gradient=holomorphic,
    native_from=1,
)


def _number_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    """A number for each matrix."""
    matrices = square_shape(params, ins, [])[0]
    return matrices, [None if matrices[0] is None else matrices[0][:-2]] * len(outs)


def _each(g: Any) -> Any:
    """A number for each matrix as a matrix of one element."""
    return F.expand_dims(g, axis=-1, num_newaxis=2)


def _cofactors(a: Array) -> Array:
    """det(A) A^-T, also of matrices that have no inverse: by singular values."""
    u, s, vh = np.linalg.svd(a)
    others = np.ones_like(s)
    for i in range(s.shape[-1]):
        others[..., i] = np.delete(s, i, -1).prod(-1)
    sign = np.linalg.det(u) * np.linalg.det(vh)
    return np.asarray((np.conj(u) * others[..., None, :]) @ np.conj(vh) * sign[..., None, None])


def _cofactors_gradient(ctx: Any, g: Any) -> list[Any]:
    """With Y = A^-T and C = det(A) Y: dA = (the sum of g C) Y - C g' Y, of matrices that have an
    inverse."""
    c, y = ctx.outputs[0], F.inverse(ctx.inputs[0], transposed=True)
    share = F.sum(F.elemwise_mul(g, c), axis=(-2, -1), keepdims=True)
    return [F.elemwise_sub(F.broadcast_mul(share, y), product(product(c, g, tb=True), y))]


lapack(
    "_cofactors",
    "The derivatives of determinants.",
    _cofactors,
    shape=square_shape,
    gradient=_cofactors_gradient,
    complex_gradient=holomorphic,
)
det = lapack(
    "det", "The determinants of square matrices.", np.linalg.det, shape=_number_shape, complex_gradient=holomorphic
)
det.gradient = lambda ctx, g: [F.broadcast_mul(_each(g), F._cofactors(ctx.inputs[0]))]

slogdet = lapack(
    "slogdet",
    "The signs of determinants, and the logarithms of their absolute values.",
    lambda a: tuple(np.linalg.slogdet(a)),
    shape=_number_shape,
    output_names=["sign", "logabsdet"],
)
slogdet.gradient = lambda ctx, _, g: [F.broadcast_mul(_each(g), F.inverse(ctx.inputs[0], transposed=True))]


def _slogdet_gradient(ctx: Any, g_sign: Any, g: Any) -> list[Any]:
    """dA = (g - i Im(s conj(ds))) times the adjoint of A^-1: the angle of the determinant turns s,
    and grows with the imaginary part of the trace of A^-1 dA."""
    turned = F.negative(F.imag(F.elemwise_mul(ctx.outputs[0], F.conj(g_sign))))
    inverse = F.conj(F.inverse(ctx.inputs[0], transposed=True))
    return [F.broadcast_mul(_each(F.complex(g, turned)), inverse)]


slogdet.complex_gradient = _slogdet_gradient

# Factors.


def _half_diagonal(x: Any) -> Any:
    """Lower triangles with half of the diagonal."""
    return F.elemwise_sub(lower_part(x), diagonal_part(x) * 0.5)


def _cholesky_gradient(ctx: Any, g: Any, times: Any = product) -> list[Any]:
    """dA = (S + S') / 2 with S = L^-T P L^-1, P = the lower triangle of L' g, half the diagonal."""
    low = ctx.outputs[0]
    part = _half_diagonal(times(low, g, ta=True))
    inverse_low = F.inverse(low)
    both = [times(times(inverse_low, part, ta=True, tb=tb), inverse_low) for tb in (False, True)]
    return [F.elemwise_add(*both) * 0.5]


def mirrored(a: Array) -> Array:
    """Symmetric matrices by their lower triangles; Hermitian ones of complex numbers."""
    whole = np.tril(a) + adjoint(np.tril(a, -1))
    if is_complex(whole.dtype):
        places = np.arange(whole.shape[-1])
        whole[..., places, places] = whole[..., places, places].real
    return whole


lapack(
    "cholesky",
    "Lower triangles L with A = L L'; only the lower triangle of A is read.",
    lambda a: np.linalg.cholesky(mirrored(a)),
    shape=square_shape,
    gradient=_cholesky_gradient,
    complex_gradient=with_adjoints(_cholesky_gradient),
)


def distances(values: Any) -> Any:
    """e_j - e_i, and 1 on the diagonal."""
    columns = F.expand_dims(values, axis=-1)
    across = product(F.ones_like(columns), columns, tb=True)
    down = product(columns, F.ones_like(columns), tb=True)
    return F.elemwise_sub(across, down) + diagonal_part(F.ones_like(across))


def spread(values: Any) -> Any:
    """Numbers along the diagonal of matrices."""
    columns = F.expand_dims(values, axis=-1)
    return diagonal_part(product(columns, F.ones_like(columns), tb=True))


def _eigh_gradient(ctx: Any, g_values: Any, g_vectors: Any, times: Any = product) -> list[Any]:
    """dA = V (diag(de) + (V' dV) / (e_j - e_i)) V', nothing from the diagonal of V' dV."""
    values, vectors = ctx.outputs
    inner = times(vectors, g_vectors, ta=True)
    inner = F.elemwise_sub(inner, diagonal_part(inner))
    gaps, on_values = (F.cast_like(x, g_vectors) for x in (distances(values), spread(g_values)))
    middle = F.elemwise_add(F.elemwise_div(inner, gaps), on_values)
    return [times(times(vectors, middle), vectors, tb=True)]


eigh = lapack(
    "eigh",
    "Eigenvalues in ascending order and eigenvectors of symmetric matrices, of which the lower triangle is read.",
    lambda a: tuple(np.linalg.eigh(mirrored(a))),
    shape=eigen_shape,
    gradient=_eigh_gradient,
    complex_gradient=with_adjoints(_eigh_gradient),
    output_names=["values", "vectors"],
)


def _qr_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = ins[0]
    must_be_matrices(shape, "qr")
    if shape is None:
        return [None], [None, None]
    *lead, m, n = shape
    k = min_dims(m, n)
    return [None], [(*lead, m, k), (*lead, k, n)]


def _qr_gradient(ctx: Any, g_q: Any, g_r: Any, times: Any = product) -> list[Any]:
    """dA = (dQ + Q C) R^-T with C = M's lower triangle, mirrored, and M = R dR' - dQ' Q; where A
    has no more columns than rows."""
    q, r = ctx.outputs
    half = _half_diagonal(F.elemwise_sub(times(r, g_r, tb=True), times(g_q, q, ta=True)))
    turned = F.elemwise_add(times(q, half), times(q, half, tb=True))
    return [times(F.elemwise_add(g_q, turned), F.inverse(r), tb=True)]


qr = lapack(
    "qr",
    "A = Q R with orthogonal columns of Q and upper triangles R.",
    lambda a: tuple(np.linalg.qr(a)),
    shape=_qr_shape,
    gradient=_qr_gradient,
    complex_gradient=with_adjoints(_qr_gradient),
    output_names=["q", "r"],
)


def _svd_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = ins[0]
    must_be_matrices(shape, "svd")
    if shape is None:
        return [None], [None] * 3
    *lead, m, n = shape
    k = min_dims(m, n)
    return [None], [(*lead, m, k), (*lead, k), (*lead, k, n)]


def _svd_gradient(ctx: Any, g_u: Any, g_s: Any, g_vh: Any, times: Any = product) -> list[Any]:
    """dA = U ((K(U' dU) / E) S + S (K(V' dV) / E) + diag(ds)) V' + (dU - U U' dU) S^-1 V'
    + U S^-1 (dV' - dV' V V'), with K(X) = X - X' off the diagonal and E_ij = s_j^2 - s_i^2. Where
    they are complex, U and V turn together: diag(K(U' dU)) / 2 S counts, too."""
    u, s, vh = ctx.outputs
    like = lambda x: F.cast_like(x, g_u)
    gaps, size, over = like(distances(F.elemwise_mul(s, s))), like(spread(s)), like(spread(1 / s))
    on_u, on_v = times(u, g_u, ta=True), times(vh, g_vh, tb=True)
    skew_u = F.elemwise_sub(on_u, times(g_u, u, ta=True))
    skew_v = F.elemwise_sub(on_v, times(g_vh, vh, tb=True))
    apart = lambda x: F.elemwise_div(F.elemwise_sub(x, diagonal_part(x)), gaps)
    middle = F.elemwise_add(product(apart(skew_u), size), product(size, apart(skew_v)))
    middle = F.elemwise_add(middle, like(spread(g_s)))
    if times is adjoint_product:
        middle = F.elemwise_add(middle, product(diagonal_part(skew_u), over) * 0.5)
    inner = product(product(u, middle), vh)
    rest_u = F.elemwise_sub(g_u, product(u, on_u))
    rest_v = F.elemwise_sub(g_vh, product(times(g_vh, vh, tb=True), vh))
    outer = F.elemwise_add(product(product(rest_u, over), vh), product(product(u, over), rest_v))
    return [F.elemwise_add(inner, outer)]


svd = lapack(
    "svd",
    "A = U diag(s) V' with orthogonal columns of U and V, s in descending order.",
    lambda a: tuple(np.linalg.svd(a, full_matrices=False)),
    shape=_svd_shape,
    gradient=_svd_gradient,
    complex_gradient=with_adjoints(_svd_gradient),
    output_names=["u", "s", "vh"],
)


def _svdvals_gradient(ctx: Any, g: Any) -> list[Any]:
    """dA = U diag(ds) V'"""
    u, _, vh = F.svd(ctx.inputs[0])
    return [product(product(u, F.cast_like(spread(g), u)), vh)]


lapack(
    "svdvals",
    "The singular values of matrices, in descending order.",
    lambda a: np.linalg.svd(a, compute_uv=False),
    shape=lambda params, ins, outs: ([None], [_svd_shape(params, ins, outs)[1][1]]),
    gradient=_svdvals_gradient,
    complex_gradient=as_written,
)


def _pinv_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    must_be_matrices(ins[0], "pinv")
    if ins[0] is None:
        return [None], [None]
    *lead, m, n = ins[0]
    return [None], [(*lead, n, m)]


def pinv_slope(a: Any, p: Any, g: Any, times: Any) -> Any:
    """dA = -P' g P' + (1 - A P) g' P P' + P' P g' (1 - P A) with P the pseudo-inverse."""
    first = times(times(p, g, ta=True), p, tb=True)
    second = times(times(g, p, ta=True), p, tb=True)
    second = F.elemwise_sub(second, times(a, times(p, second)))
    third = times(times(p, p, ta=True), g, tb=True)
    third = F.elemwise_sub(third, times(times(third, p), a))
    return F.elemwise_sub(F.elemwise_add(second, third), first)


def _pinv_gradient(ctx: Any, g: Any, times: Any = product) -> list[Any]:
    return [pinv_slope(ctx.inputs[0], ctx.outputs[0], g, times)]


@schema
class PinvAttrs:
    rtol: float = attr(FLOAT, "singular values count from this share of the largest on", default=1e-6)
    atol: float = attr(FLOAT, "singular values count from here on", default=0.0)


def _pinv_reference(params: PinvAttrs, a: Array) -> Array:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    limit = np.maximum(s.max(-1, keepdims=True, initial=0) * params.rtol, params.atol)
    over = np.where(s > limit, 1 / np.where(s > limit, s, 1), 0)
    return np.asarray(adjoint(vh) @ (over[..., None] * adjoint(u)))


lapack(
    "pinv",
    "The pseudo-inverses of matrices.",
    _pinv_reference,
    attrs=PinvAttrs,
    shape=_pinv_shape,
    gradient=_pinv_gradient,
    complex_gradient=with_adjoints(_pinv_gradient),
)
