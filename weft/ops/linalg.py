"""Linear algebra of the matrices in the last two axes, by LAPACK: these operators have no body, and
run as steps on the host. Axes before them are a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import te
from ..base.errors import RunError, ShapeError
from ..base.shape import Shape, show, unify, unify_dim
from ..core.schema import BOOL, FLOAT, INT, attr, schema
from . import _layouts as layouts
from ._families import INJECTIVE, OPAQUE, F, define, floating, same_shape

Array = NDArray[Any]
Shapes = Sequence[Shape]
Inferred = tuple[list[Any], list[Any]]


def _matrices(shape: Shape, name: str) -> None:
    if shape is not None and len(shape) < 2:
        raise ShapeError(f"{name} takes matrices, not shape {show(shape)}")


def _square(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    """All are square matrices of one size."""
    shape: Shape = None
    for known in (*ins, *outs):
        _matrices(known, "the operator")
        shape = unify(shape, known)
    if shape is not None:
        side = unify_dim(shape[-1], shape[-2])
        shape = (*shape[:-2], side, side)
    return [shape] * len(ins), [shape] * len(outs)


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that computes in float64 and gives the dtype of its first array."""

    def reference(*args: Any) -> Any:
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        params = [arg for arg in args if not isinstance(arg, np.ndarray)]
        try:
            made = function(*params, *(array.astype(np.float64) for array in arrays))
        except np.linalg.LinAlgError as error:
            raise RunError(
                f"the matrices {show(arrays[0].shape)} cannot be taken apart", why=str(error)
            ) from None
        if isinstance(made, tuple):
            return tuple(np.asarray(part).astype(arrays[0].dtype) for part in made)
        return np.asarray(made).astype(arrays[0].dtype)

    return reference


def _lapack(name: str, doc: str, reference: Callable[..., Any], **columns: Any) -> Any:
    return define(
        name, doc, level=5, pattern=OPAQUE, dtype=floating, layout=layouts.fixed_unknown,
        reference=_wide(reference), **columns,
    )  # fmt: skip


def _times(a: Any, b: Any, ta: bool = False, tb: bool = False) -> Any:
    return F.batch_matmul(a, b, transpose_a=ta, transpose_b=tb)


def _turned(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


# Triangles.


@schema
class TriangleAttrs:
    lower: bool = attr(
        BOOL, "whether the lower triangle stays, rather than the upper", default=True
    )
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
    made = same_shape(params, ins, outs)
    _matrices(made[0][0], "triangle")
    return made


def _same_triangle(params: TriangleAttrs, x: Any) -> Any:
    return F.triangle(x, lower=params.lower, diagonal=params.diagonal)


triangle = define(
    "triangle", "The lower or upper triangle of matrices, 0 elsewhere.", level=5,
    attrs=TriangleAttrs, pattern=INJECTIVE, shape=_triangle_shape, layout=layouts.fixed_copy,
    reference=_triangle_reference, compute=_triangle_compute,
    gradient=lambda ctx, g: [_same_triangle(ctx.params, g)],
)  # fmt: skip


def _lower(x: Any, diagonal: int = 0) -> Any:
    return F.triangle(x, lower=True, diagonal=diagonal)


def _diagonal_part(x: Any) -> Any:
    return F.triangle(_lower(x), lower=False)


# Inverse, solution, determinant.


@schema
class InverseAttrs:
    transposed: bool = attr(BOOL, "of the transposed matrices", default=False)


def _inverse_gradient(ctx: Any, g: Any) -> list[Any]:
    """With Y = A^-1: dA = -Y' g Y'; with Y = A^-T: dA = -Y g' Y."""
    y = ctx.outputs[0]
    if ctx.params.transposed:
        return [F.negative(_times(_times(y, g, tb=True), y))]
    return [F.negative(_times(_times(y, g, ta=True), y, tb=True))]


inverse = _lapack(
    "inverse", "The inverses of square matrices.",
    lambda p, a: np.linalg.inv(_turned(a) if p.transposed else a), attrs=InverseAttrs,
    shape=_square, gradient=_inverse_gradient,
)  # fmt: skip


def _solve_shape(params: InverseAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    a, b = ins[0], unify(ins[1], outs[0])
    _matrices(a, "solve")
    _matrices(b, "solve")
    if a is not None and b is not None:
        side = unify_dim(unify_dim(a[-1], a[-2]), b[-2])
        lead = unify(a[:-2], b[:-2])
        a, b = (*lead, side, side), (*lead, side, b[-1])
    return [a, b], [b]


def _solve_gradient(ctx: Any, g: Any) -> list[Any]:
    """dB = A^-T g; dA = -dB X', or its transpose if A was transposed."""
    a, x = ctx.inputs[0], ctx.outputs[0]
    turned = ctx.params.transposed
    on_b = F.solve(a, g, transposed=not turned)
    on_a = _times(x, on_b, tb=True) if turned else _times(on_b, x, tb=True)
    return [F.negative(on_a), on_b]


solve = _lapack(
    "solve", "X with A X = B.",
    lambda p, a, b: np.linalg.solve(_turned(a) if p.transposed else a, b), attrs=InverseAttrs,
    inputs={"lhs": "A, square matrices", "rhs": "B, as many rows"}, named=False,
    shape=_solve_shape, gradient=_solve_gradient,
)  # fmt: skip


def _number_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    """A number for each matrix."""
    made = _square(params, ins, [])[0]
    return made, [None if made[0] is None else made[0][:-2]] * len(outs)


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
    return np.asarray((u * others[..., None, :]) @ vh * sign[..., None, None])


_lapack("_cofactors", "The derivatives of determinants.", _cofactors, shape=_square)
det = _lapack("det", "The determinants of square matrices.", np.linalg.det, shape=_number_shape)
det.gradient = lambda ctx, g: [F.broadcast_mul(_each(g), F._cofactors(ctx.inputs[0]))]

slogdet = _lapack(
    "slogdet", "The signs of determinants, and the logarithms of their absolute values.",
    lambda a: tuple(np.linalg.slogdet(a)), shape=_number_shape,
    output_names=["sign", "logabsdet"],
)  # fmt: skip
slogdet.set_num_outputs(2)
slogdet.gradient = lambda ctx, _, g: [
    F.broadcast_mul(_each(g), F.inverse(ctx.inputs[0], transposed=True))
]

# Factors.


def _cholesky_gradient(ctx: Any, g: Any) -> list[Any]:
    """dA = (S + S') / 2 with S = L^-T P L^-1, P = the lower triangle of L' g, half the diagonal."""
    low = ctx.outputs[0]
    product = _times(low, g, ta=True)
    part = F.elemwise_sub(_lower(product), _diagonal_part(product) * 0.5)
    inverse_low = F.inverse(low)
    both = [_times(_times(inverse_low, part, ta=True, tb=tb), inverse_low) for tb in (False, True)]
    return [F.elemwise_add(*both) * 0.5]


def _mirrored(a: Array) -> Array:
    """Symmetric matrices by their lower triangles."""
    return np.tril(a) + _turned(np.tril(a, -1))


_lapack(
    "cholesky", "Lower triangles L with A = L L'; only the lower triangle of A is read.",
    lambda a: np.linalg.cholesky(_mirrored(a)), shape=_square, gradient=_cholesky_gradient,
)  # fmt: skip


def _eigh_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    made = _square(params, [unify(ins[0], outs[1])], [])[0][0]
    return [made], [None if made is None else made[:-1], made]


def _gaps(values: Any) -> Any:
    """e_j - e_i, and 1 on the diagonal."""
    columns = F.expand_dims(values, axis=-1)
    across = _times(F.ones_like(columns), columns, tb=True)
    down = _times(columns, F.ones_like(columns), tb=True)
    return F.elemwise_sub(across, down) + _diagonal_part(F.ones_like(across))


def _spread(values: Any, matrix: Any) -> Any:
    """Numbers along the diagonal of matrices."""
    columns = F.expand_dims(values, axis=-1)
    return _diagonal_part(_times(columns, F.ones_like(columns), tb=True))


def _eigh_gradient(ctx: Any, g_values: Any, g_vectors: Any) -> list[Any]:
    """dA = V (diag(de) + (V' dV) / (e_j - e_i)) V', nothing from the diagonal of V' dV."""
    values, vectors = ctx.outputs
    inner = _times(vectors, g_vectors, ta=True)
    inner = F.elemwise_sub(inner, _diagonal_part(inner))
    middle = F.elemwise_add(F.elemwise_div(inner, _gaps(values)), _spread(g_values, inner))
    return [_times(_times(vectors, middle), vectors, tb=True)]


eigh = _lapack(
    "eigh", "Eigenvalues in ascending order and eigenvectors of symmetric matrices, of which the "
    "lower triangle is read.",
    lambda a: tuple(np.linalg.eigh(_mirrored(a))), shape=_eigh_shape, gradient=_eigh_gradient,
    output_names=["values", "vectors"],
)  # fmt: skip
eigh.set_num_outputs(2)


def _qr_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = ins[0]
    _matrices(shape, "qr")
    if shape is None or not all(isinstance(n, int) for n in shape[-2:]):
        return [None], [None, None]
    *lead, m, n = shape
    return [None], [(*lead, m, min(m, n)), (*lead, min(m, n), n)]


def _qr_gradient(ctx: Any, g_q: Any, g_r: Any) -> list[Any]:
    """dA = (dQ + Q C) R^-T with C = M's lower triangle, mirrored, and M = R dR' - dQ' Q; where A
    has no more columns than rows."""
    q, r = ctx.outputs
    m = F.elemwise_sub(_times(r, g_r, tb=True), _times(g_q, q, ta=True))
    turned = F.elemwise_add(_times(q, _lower(m)), _times(q, _lower(m, -1), tb=True))
    return [_times(F.elemwise_add(g_q, turned), F.inverse(r), tb=True)]


qr = _lapack(
    "qr", "A = Q R with orthogonal columns of Q and upper triangles R.",
    lambda a: tuple(np.linalg.qr(a)), shape=_qr_shape, gradient=_qr_gradient,
    output_names=["q", "r"],
)  # fmt: skip
qr.set_num_outputs(2)


def _svd_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    shape = ins[0]
    _matrices(shape, "svd")
    if shape is None or not all(isinstance(n, int) for n in shape[-2:]):
        return [None], [None] * 3
    *lead, m, n = shape
    k = min(m, n)
    return [None], [(*lead, m, k), (*lead, k), (*lead, k, n)]


def _svd_gradient(ctx: Any, g_u: Any, g_s: Any, g_vh: Any) -> list[Any]:
    """dA = U ((K(U' dU) / E) S + S (K(V' dV) / E) + diag(ds)) V' + (dU - U U' dU) S^-1 V'
    + U S^-1 (dV' - dV' V V'), with K(X) = X - X' and E_ij = s_j^2 - s_i^2."""
    u, s, vh = ctx.outputs
    gaps = _gaps(F.elemwise_mul(s, s))
    size = _spread(s, gaps)
    over = _spread(1 / s, gaps)
    on_u, on_v = _times(u, g_u, ta=True), _times(vh, g_vh, tb=True)
    skew = lambda x, turned: F.elemwise_div(F.elemwise_sub(x, turned), gaps)
    left = _times(skew(on_u, _times(g_u, u, ta=True)), size)
    right = _times(size, skew(on_v, _times(g_vh, vh, tb=True)))
    middle = F.elemwise_add(F.elemwise_add(left, right), _spread(g_s, gaps))
    inner = _times(_times(u, middle), vh)
    rest_u = F.elemwise_sub(g_u, _times(u, on_u))
    rest_v = F.elemwise_sub(g_vh, _times(_times(g_vh, vh, tb=True), vh))
    outer = F.elemwise_add(_times(_times(rest_u, over), vh), _times(_times(u, over), rest_v))
    return [F.elemwise_add(inner, outer)]


svd = _lapack(
    "svd", "A = U diag(s) V' with orthogonal columns of U and V, s in descending order.",
    lambda a: tuple(np.linalg.svd(a, full_matrices=False)), shape=_svd_shape,
    gradient=_svd_gradient, output_names=["u", "s", "vh"],
)  # fmt: skip
svd.set_num_outputs(3)


def _svdvals_gradient(ctx: Any, g: Any) -> list[Any]:
    """dA = U diag(ds) V'"""
    u, _, vh = F.svd(ctx.inputs[0])
    return [_times(_times(u, _spread(g, u)), vh)]


_lapack(
    "svdvals", "The singular values of matrices, in descending order.",
    lambda a: np.linalg.svd(a, compute_uv=False),
    shape=lambda params, ins, outs: ([None], [_svd_shape(params, ins, outs)[1][1]]),
    gradient=_svdvals_gradient,
)  # fmt: skip


def _pinv_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    _matrices(ins[0], "pinv")
    if ins[0] is None:
        return [None], [None]
    *lead, m, n = ins[0]
    return [None], [(*lead, n, m)]


def _pinv_gradient(ctx: Any, g: Any) -> list[Any]:
    """dA = -P' g P' + (1 - A P) g' P P' + P' P g' (1 - P A) with P the pseudo-inverse."""
    a, p = ctx.inputs[0], ctx.outputs[0]
    first = _times(_times(p, g, ta=True), p, tb=True)
    second = _times(_times(g, p, ta=True), p, tb=True)
    second = F.elemwise_sub(second, _times(a, _times(p, second)))
    third = _times(_times(p, p, ta=True), g, tb=True)
    third = F.elemwise_sub(third, _times(_times(third, p), a))
    return [F.elemwise_sub(F.elemwise_add(second, third), first)]


@schema
class PinvAttrs:
    rtol: float = attr(
        FLOAT, "singular values count from this share of the largest on", default=1e-6
    )
    atol: float = attr(FLOAT, "singular values count from here on", default=0.0)


def _pinv_reference(params: PinvAttrs, a: Array) -> Array:
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    limit = np.maximum(s.max(-1, keepdims=True, initial=0) * params.rtol, params.atol)
    over = np.where(s > limit, 1 / np.where(s > limit, s, 1), 0)
    return np.asarray(_turned(vh) @ (over[..., None] * _turned(u)))


_lapack(
    "pinv", "The pseudo-inverses of matrices.", _pinv_reference, attrs=PinvAttrs,
    shape=_pinv_shape, gradient=_pinv_gradient,
)  # fmt: skip
