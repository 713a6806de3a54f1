"""Linear algebra of the matrices in the last two axes, by LAPACK: these operators have no body, and
run as steps on the host. Axes before them are a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import te
from ..base.dtype import DType, is_complex
from ..base.errors import RunError, ShapeError
from ..base.shape import Shape, show, unify, unify_dim
from ..core.schema import BOOL, FLOAT, INT, attr, schema
from . import _layouts as layouts
from ._families import INJECTIVE, OPAQUE, F, as_written, define, floating, holomorphic, same_shape
from .complex import part_dtype

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
    """A reference that computes in double precision and gives the dtype of its first array, or
    that of the parts if the result is real."""

    def reference(*args: Any) -> Any:
        arrays = [arg for arg in args if isinstance(arg, np.ndarray)]
        params = [arg for arg in args if not isinstance(arg, np.ndarray)]
        try:
            made = function(*params, *(array.astype(_double(array.dtype)) for array in arrays))
        except np.linalg.LinAlgError as error:
            raise RunError(
                f"the matrices {show(arrays[0].shape)} cannot be taken apart", why=str(error)
            ) from None
        if isinstance(made, tuple):
            return tuple(_narrow(part, arrays[0].dtype) for part in made)
        return _narrow(made, arrays[0].dtype)

    return reference


def _double(dtype: DType) -> Any:
    return np.complex128 if is_complex(dtype) else np.float64


def _narrow(made: Any, dtype: DType) -> Array:
    array = np.asarray(made)
    return array.astype(dtype if is_complex(array.dtype) else part_dtype(dtype))


def _lapack(name: str, doc: str, reference: Callable[..., Any], **columns: Any) -> Any:
    return define(
        name, doc, level=5, pattern=OPAQUE, dtype=floating, layout=layouts.fixed_unknown,
        reference=_wide(reference), **columns,
    )  # fmt: skip


def _times(a: Any, b: Any, ta: bool = False, tb: bool = False) -> Any:
    return F.batch_matmul(a, b, transpose_a=ta, transpose_b=tb)


def _adjoint_times(a: Any, b: Any, ta: bool = False, tb: bool = False) -> Any:
    """The same of complex matrices, where what is transposed is conjugated, too."""
    return _times(F.conj(a) if ta else a, F.conj(b) if tb else b, ta, tb)


def _with_adjoints(rule: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """The rule of a gradient with adjoint matrices where it has transposed ones."""
    return lambda ctx, *grads: rule(ctx, *grads, times=_adjoint_times)


def _turned(x: Array) -> Array:
    return np.swapaxes(x, -1, -2)


def _adjoint(x: Array) -> Array:
    return np.conj(np.swapaxes(x, -1, -2))


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
    gradient=lambda ctx, g: [_same_triangle(ctx.params, g)], complex_gradient=holomorphic,
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
    shape=_square, gradient=_inverse_gradient, complex_gradient=holomorphic,
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
    shape=_solve_shape, gradient=_solve_gradient, complex_gradient=holomorphic,
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
    return np.asarray((np.conj(u) * others[..., None, :]) @ np.conj(vh) * sign[..., None, None])


def _cofactors_gradient(ctx: Any, g: Any) -> list[Any]:
    """With Y = A^-T and C = det(A) Y: dA = (the sum of g C) Y - C g' Y, of matrices that have an
    inverse."""
    c, y = ctx.outputs[0], F.inverse(ctx.inputs[0], transposed=True)
    share = F.sum(F.elemwise_mul(g, c), axis=(-2, -1), keepdims=True)
    return [F.elemwise_sub(F.broadcast_mul(share, y), _times(_times(c, g, tb=True), y))]


_lapack(
    "_cofactors", "The derivatives of determinants.", _cofactors, shape=_square,
    gradient=_cofactors_gradient, complex_gradient=holomorphic,
)  # fmt: skip
det = _lapack(
    "det", "The determinants of square matrices.", np.linalg.det, shape=_number_shape,
    complex_gradient=holomorphic,
)  # fmt: skip
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
    return F.elemwise_sub(_lower(x), _diagonal_part(x) * 0.5)


def _cholesky_gradient(ctx: Any, g: Any, times: Any = _times) -> list[Any]:
    """dA = (S + S') / 2 with S = L^-T P L^-1, P = the lower triangle of L' g, half the diagonal."""
    low = ctx.outputs[0]
    part = _half_diagonal(times(low, g, ta=True))
    inverse_low = F.inverse(low)
    both = [times(times(inverse_low, part, ta=True, tb=tb), inverse_low) for tb in (False, True)]
    return [F.elemwise_add(*both) * 0.5]


def mirrored(a: Array) -> Array:
    """Symmetric matrices by their lower triangles; Hermitian ones of complex numbers."""
    made = np.tril(a) + _adjoint(np.tril(a, -1))
    if is_complex(made.dtype):
        places = np.arange(made.shape[-1])
        made[..., places, places] = made[..., places, places].real
    return made


_lapack(
    "cholesky", "Lower triangles L with A = L L'; only the lower triangle of A is read.",
    lambda a: np.linalg.cholesky(mirrored(a)), shape=_square, gradient=_cholesky_gradient,
    complex_gradient=_with_adjoints(_cholesky_gradient),
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


def _spread(values: Any) -> Any:
    """Numbers along the diagonal of matrices."""
    columns = F.expand_dims(values, axis=-1)
    return _diagonal_part(_times(columns, F.ones_like(columns), tb=True))


def _eigh_gradient(ctx: Any, g_values: Any, g_vectors: Any, times: Any = _times) -> list[Any]:
    """dA = V (diag(de) + (V' dV) / (e_j - e_i)) V', nothing from the diagonal of V' dV."""
    values, vectors = ctx.outputs
    inner = times(vectors, g_vectors, ta=True)
    inner = F.elemwise_sub(inner, _diagonal_part(inner))
    gaps, own = (F.cast_like(x, g_vectors) for x in (_gaps(values), _spread(g_values)))
    middle = F.elemwise_add(F.elemwise_div(inner, gaps), own)
    return [times(times(vectors, middle), vectors, tb=True)]


eigh = _lapack(
    "eigh", "Eigenvalues in ascending order and eigenvectors of symmetric matrices, of which the "
    "lower triangle is read.",
    lambda a: tuple(np.linalg.eigh(mirrored(a))), shape=_eigh_shape, gradient=_eigh_gradient,
    complex_gradient=_with_adjoints(_eigh_gradient),
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


def _qr_gradient(ctx: Any, g_q: Any, g_r: Any, times: Any = _times) -> list[Any]:
    """dA = (dQ + Q C) R^-T with C = M's lower triangle, mirrored, and M = R dR' - dQ' Q; where A
    has no more columns than rows."""
    q, r = ctx.outputs
    half = _half_diagonal(F.elemwise_sub(times(r, g_r, tb=True), times(g_q, q, ta=True)))
    turned = F.elemwise_add(times(q, half), times(q, half, tb=True))
    return [times(F.elemwise_add(g_q, turned), F.inverse(r), tb=True)]


qr = _lapack(
    "qr", "A = Q R with orthogonal columns of Q and upper triangles R.",
    lambda a: tuple(np.linalg.qr(a)), shape=_qr_shape, gradient=_qr_gradient,
    complex_gradient=_with_adjoints(_qr_gradient),
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


def _svd_gradient(ctx: Any, g_u: Any, g_s: Any, g_vh: Any, times: Any = _times) -> list[Any]:
    """dA = U ((K(U' dU) / E) S + S (K(V' dV) / E) + diag(ds)) V' + (dU - U U' dU) S^-1 V'
    + U S^-1 (dV' - dV' V V'), with K(X) = X - X' off the diagonal and E_ij = s_j^2 - s_i^2. Where
    they are complex, U and V turn together: diag(K(U' dU)) / 2 S counts, too."""
    u, s, vh = ctx.outputs
    like = lambda x: F.cast_like(x, g_u)
    gaps, size, over = like(_gaps(F.elemwise_mul(s, s))), like(_spread(s)), like(_spread(1 / s))
    on_u, on_v = times(u, g_u, ta=True), times(vh, g_vh, tb=True)
    skew_u = F.elemwise_sub(on_u, times(g_u, u, ta=True))
    skew_v = F.elemwise_sub(on_v, times(g_vh, vh, tb=True))
    apart = lambda x: F.elemwise_div(F.elemwise_sub(x, _diagonal_part(x)), gaps)
    middle = F.elemwise_add(_times(apart(skew_u), size), _times(size, apart(skew_v)))
    middle = F.elemwise_add(middle, like(_spread(g_s)))
    if times is _adjoint_times:
        middle = F.elemwise_add(middle, _times(_diagonal_part(skew_u), over) * 0.5)
    inner = _times(_times(u, middle), vh)
    rest_u = F.elemwise_sub(g_u, _times(u, on_u))
    rest_v = F.elemwise_sub(g_vh, _times(times(g_vh, vh, tb=True), vh))
    outer = F.elemwise_add(_times(_times(rest_u, over), vh), _times(_times(u, over), rest_v))
    return [F.elemwise_add(inner, outer)]


svd = _lapack(
    "svd", "A = U diag(s) V' with orthogonal columns of U and V, s in descending order.",
    lambda a: tuple(np.linalg.svd(a, full_matrices=False)), shape=_svd_shape,
    gradient=_svd_gradient, complex_gradient=_with_adjoints(_svd_gradient),
    output_names=["u", "s", "vh"],
)  # fmt: skip
svd.set_num_outputs(3)


def _svdvals_gradient(ctx: Any, g: Any) -> list[Any]:
    """dA = U diag(ds) V'"""
    u, _, vh = F.svd(ctx.inputs[0])
    return [_times(_times(u, F.cast_like(_spread(g), u)), vh)]


_lapack(
    "svdvals", "The singular values of matrices, in descending order.",
    lambda a: np.linalg.svd(a, compute_uv=False),
    shape=lambda params, ins, outs: ([None], [_svd_shape(params, ins, outs)[1][1]]),
    gradient=_svdvals_gradient, complex_gradient=as_written,
)  # fmt: skip


def _pinv_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    _matrices(ins[0], "pinv")
    if ins[0] is None:
        return [None], [None]
    *lead, m, n = ins[0]
    return [None], [(*lead, n, m)]


def _pinv_gradient(ctx: Any, g: Any, times: Any = _times) -> list[Any]:
    """dA = -P' g P' + (1 - A P) g' P P' + P' P g' (1 - P A) with P the pseudo-inverse."""
    a, p = ctx.inputs[0], ctx.outputs[0]
    first = times(times(p, g, ta=True), p, tb=True)
    second = times(times(g, p, ta=True), p, tb=True)
    second = F.elemwise_sub(second, times(a, times(p, second)))
    third = times(times(p, p, ta=True), g, tb=True)
    third = F.elemwise_sub(third, times(times(third, p), a))
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
    return np.asarray(_adjoint(vh) @ (over[..., None] * _adjoint(u)))


_lapack(
    "pinv", "The pseudo-inverses of matrices.", _pinv_reference, attrs=PinvAttrs,
    shape=_pinv_shape, gradient=_pinv_gradient, complex_gradient=_with_adjoints(_pinv_gradient),
)  # fmt: skip
