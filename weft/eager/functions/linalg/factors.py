"""Rows of linalg: inverses, solutions, determinants and factors of matrices."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import is_complex, is_float
from ....base.errors import LinAlgError, RunError
from ....core.op import Op
from ....ops.linalg.lapack import InverseAttrs, PinvAttrs, SolveAttrs, TriangleAttrs, mirrored
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, axis_of, wrap
from ..math.complex import adjoint
from ..math.unary import abs as magnitude
from ..math.unary import log
from ..reduce.extreme import amax, amin
from ..reduce.reduce import sum as total
from ..reduce.reduce import vector_norm
from ..shape.join import cat
from ..shape.parts import narrow
from ..shape.shape import expand, reshape, squeeze, transpose, unsqueeze
from ..table import row
from .linear import LINALG, must_be_square
from .matmul import batched

_INVERSE, _SOLVE, _DET, _SLOGDET, _CHOLESKY, _EIGH, _QR, _SVD, _SVDVALS, _PINV, _TRIANGLE = (
    Op.get(name)
    for name in ("inverse", "solve", "det", "slogdet", "cholesky", "eigh", "qr", "svd", "svdvals", "pinv", "triangle")
)


class EighResult(NamedTuple):
    """Eigenvalues and eigenvectors."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class QRResult(NamedTuple):
    """Orthogonal columns and upper triangles."""

    Q: Tensor
    R: Tensor


class SVDResult(NamedTuple):
    """Singular values between orthogonal factors."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the absolute value of determinants."""

    sign: Tensor
    logabsdet: Tensor


def must_be_matrices(name: str, A: Tensor) -> None:
    if A.ndim < 2:
        raise RunError(f"{name}: The input tensor A must have at least 2 dimensions.")
    if not (is_float(A._dtype) or is_complex(A._dtype)):
        raise RunError(f"{name}: Expected a floating point or complex tensor as input. Got {A.dtype.title}")


def must_be_squares(name: str, A: Tensor) -> None:
    must_be_matrices(name, A)
    must_be_square(name, A)


def _one(op: Op, params: Any, *inputs: Tensor) -> Tensor:
    return apply(op, params, list(inputs))[0]


@row(space=LINALG, method=False, out=True)
def inv(A: Tensor) -> Tensor:
    """The inverse of a square matrix"""
    must_be_squares("linalg.inv", A)
    return _one(_INVERSE, InverseAttrs(), A)


row(inv, name="inverse", out=True)


@row(space=LINALG, method=False, out=True)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B; with `left=False`, X A = B"""
    must_be_squares("linalg.solve", A)
    if A._dtype != B._dtype:
        raise RunError(
            f"linalg.solve: Expected A and B to have the same dtype, but found A of type "
            f"{A.dtype.title} and B of type {B.dtype.title} instead"
        )
    a, b = A._shape, B._shape
    vector = len(b) == 1 or (len(a) - 1 == len(b) and b == a[:-1])
    if not left:
        if vector:
            raise RunError("linalg.solve: Vector broadcasting of the left hand side is not supported for left=False.")
        return transpose(solved(transpose(A, -2, -1), transpose(B, -2, -1)), -2, -1)
    return squeeze(solved(A, unsqueeze(B, -1)), -1) if vector else solved(A, B)


def solved(A: Tensor, B: Tensor, triangle: str = "none") -> Tensor:
    """X with A X = B, where A may be known to be a triangle."""
    a, b = A._shape, B._shape
    if a[-1] != b[-2]:
        raise RunError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B "
            f"({a[-2]}x{a[-1]} and {b[-2]}x{b[-1]})"
        )
    try:
        lead = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError as error:
        raise RunError(f"linalg.solve: batches {list(a)} and {list(b)} do not broadcast") from error
    given = expand(A, (*lead, *a[-2:])), expand(B, (*lead, *b[-2:]))
    return _one(_SOLVE, SolveAttrs(triangle=triangle), *given)


@row(space=LINALG, method=False, out=True)
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with A X = B, where A is a triangle"""
    must_be_squares("linalg.solve_triangular", A)
    part = A
    if unitriangular:
        eye = wrap(np.broadcast_to(np.eye(A._shape[-1], dtype=A._dtype), A._shape))
        strict = TriangleAttrs(lower=not upper, diagonal=1 if upper else -1)
        part = _one(_TRIANGLE, strict, A) + eye
    if not left:
        turned = transpose(part, -2, -1), transpose(B, -2, -1)
        return transpose(solved(*turned, "lower" if upper else "upper"), -2, -1)
    return solved(part, B, "upper" if upper else "lower")


@row(space=LINALG, method=False, out=True)
def det(A: Tensor) -> Tensor:
    """The determinant of a square matrix"""
    must_be_squares("linalg.det", A)
    return _one(_DET, None, A)


row(det)


@row(space=LINALG, method=False, out=True)
def slogdet(A: Tensor) -> SlogdetResult:
    """The sign of the determinant, and the logarithm of its absolute value"""
    must_be_squares("linalg.slogdet", A)
    return SlogdetResult(*apply(_SLOGDET, None, [A]))


row(slogdet)


@row
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant, NaN if that is negative"""
    sign, size = slogdet(input)
    return size + log(sign)


@row(space=LINALG, method=False, out=True)
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangle L with A = L L', or the upper one"""
    must_be_squares("linalg.cholesky", A)
    made = _one(_CHOLESKY, None, adjoint(A) if upper else A)
    if np.isnan(np.diagonal(array_of(made), axis1=-2, axis2=-1)).any():
        raise LinAlgError("linalg.cholesky: the input is not positive-definite: it has NaNs")
    return adjoint(made) if upper else made


@row(name="cholesky", out=True)
def _cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The lower triangle L with A = L L', or the upper one"""
    return cholesky(input, upper=upper)


@row(space=LINALG, method=False)
def eigh(A: Tensor, UPLO: str = "L") -> EighResult:
    """Eigenvalues in ascending order and eigenvectors of a symmetric matrix"""
    must_be_squares("linalg.eigh", A)
    if UPLO.upper() not in ("L", "U"):
        raise RunError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    source = A if UPLO.upper() == "L" else adjoint(A)
    return EighResult(*apply(_EIGH, None, [source]))


@row(space=LINALG, method=False, out=True)
def eigvalsh(A: Tensor, UPLO: str = "L") -> Tensor:
    """Eigenvalues of a symmetric matrix, in ascending order"""
    return eigh(A, UPLO).eigenvalues


@row(space=LINALG, method=False)
def qr(A: Tensor, mode: str = "reduced") -> QRResult:
    """A = Q R with orthogonal columns of Q and upper triangles R"""
    must_be_matrices("linalg.qr", A)
    m, n = A._shape[-2:]
    if mode == "r":
        made = apply(_QR, None, [A.detach()])[1]
        return QRResult(wrap(np.empty(0, A._dtype)), made)
    if mode == "complete":
        if A.requires_grad and m > n:
            raise RunError("linalg.qr: complete mode is not differentiable if A has more rows")
        full = [part.astype(A._dtype) for part in np.linalg.qr(array_of(A), "complete")]
        return QRResult(*map(wrap, full)) if m > n else _qr(A)
    if mode != "reduced":
        raise RunError(f"qr received unrecognized mode {mode!r}")
    return _qr(A)


def _qr(A: Tensor) -> QRResult:
    """Columns that are too many are products with Q: the rule of gradients is for the others."""
    m, n = A._shape[-2:]
    if m >= n:
        return QRResult(*apply(_QR, None, [A]))
    q, r = apply(_QR, None, [narrow(A, -1, 0, m)])
    return QRResult(q, cat([r, batched(adjoint(q), narrow(A, -1, m, n - m))], -1))


@row(space=LINALG, method=False)
def svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None) -> SVDResult:
    """A = U diag(S) Vh with orthogonal U and Vh, S in descending order"""
    must_be_matrices("linalg.svd", A)
    u, s, vh = apply(_SVD, None, [A])
    if full_matrices:
        u, vh = _completed(u), adjoint(_completed(adjoint(vh)))
    return SVDResult(u, s, vh)


def _completed(columns: Tensor) -> Tensor:
    """Orthogonal columns, and others that make a square of them: those have no gradient."""
    m, n = columns._shape[-2:]
    if m == n:
        return columns
    kind = columns._dtype
    full = np.linalg.qr(array_of(columns), "complete").Q
    return cat([columns, wrap(full[..., n:].astype(kind))], -1)


@row(space=LINALG, method=False, out=True)
def svdvals(A: Tensor, *, driver: Any = None) -> Tensor:
    """Singular values in descending order"""
    must_be_matrices("linalg.svdvals", A)
    return _one(_SVDVALS, None, A)


@row(space=LINALG, method=False, out=True)
def pinv(A: Tensor, *, atol: Any = None, rtol: Any = None, rcond: Any = None, hermitian: bool = False) -> Tensor:
    """The pseudo-inverse of a matrix"""
    must_be_matrices("linalg.pinv", A)
    if hermitian:
        A = A + wrap(mirrored(array_of(A)) - array_of(A))  # its gradient is that of any matrix
    share = rcond if rtol is None else rtol
    if share is None:
        nearly = float(np.finfo(A._dtype).eps) * max(A._shape[-2:])
        share = nearly if atol is None else 0.0
    return _one(_PINV, PinvAttrs(rtol=float(share), atol=float(atol or 0.0)), A)


@row
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse of a matrix"""
    return pinv(input)


@row(space=LINALG, method=False, out=True)
def matrix_norm(
    A: Tensor, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None
) -> Tensor:
    """A norm of matrices: "fro", "nuc", or by sums of rows or columns or by singular values"""
    must_be_matrices("linalg.matrix_norm", A)
    rank = A.ndim
    if dtype is not None:
        A = A._cast(dtype.numpy)
    first, second = (axis_of(at, rank) for at in dim)
    if first == second:
        raise RunError(f"linalg.matrix_norm: dims must be different. Got {dim}")
    if ord == "fro":
        return vector_norm(A, 2, (first, second), keepdim)
    if ord in (1, -1, math.inf, -math.inf):
        summed, kept = (first, second) if ord in (1, -1) else (second, first)
        sums = total(magnitude(A), summed, True)
        return _without(amax(sums, kept, True) if ord > 0 else amin(sums, kept, True), dim, keepdim)
    if ord not in ("nuc", 2, -2):
        raise RunError(f"linalg.matrix_norm: Order {ord} not supported.")
    others = [at for at in range(rank) if at not in (first, second)]
    values = svdvals(A.permute([*others, first, second]))  # type: ignore[attr-defined]
    if ord == "nuc":
        made = total(values, -1)
    else:
        made = amax(values, -1) if ord > 0 else amin(values, -1)
    shape = [1 if at in (first, second) else A._shape[at] for at in range(rank)]
    return reshape(made, shape) if keepdim else made


def _without(made: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return made if keepdim else squeeze(made, tuple(dim))


@row(name="norm", space=LINALG, method=False, out=True)
def _norm(A: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """A norm of vectors along one axis, or of matrices along two"""
    if dim is not None:
        axes = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    else:
        axes = tuple(range(A.ndim))
    if ord is None:
        return vector_norm(A, 2, None if dim is None else axes, keepdim, dtype=dtype)
    if dim is None and A.ndim not in (1, 2):
        raise RunError("linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D")
    if len(axes) == 1:
        return vector_norm(A, ord, axes, keepdim, dtype=dtype)
    if len(axes) != 2:
        raise RunError("linalg.norm: If dim is specified, it must be of length 1 or 2.")
    return matrix_norm(A, ord, axes, keepdim, dtype=dtype)


@row(space=LINALG, method=False)
def matrix_rank(A: Tensor, tol: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """How many singular values are not nearly 0"""
    must_be_matrices("linalg.matrix_rank", A)
    sizes = np.linalg.svd(array_of(A), compute_uv=False)
    number = lambda x: np.asarray(array_of(x) if isinstance(x, Tensor) else x)[..., None]
    if tol is not None:
        limit = number(tol)
    else:
        eps = np.finfo(A._dtype).eps * max(A._shape[-2:])
        share = number(eps if rtol is None and atol is None else 0.0 if rtol is None else rtol)
        largest = sizes.max(-1, keepdims=True, initial=0)
        limit = np.maximum(largest * share, number(0.0 if atol is None else atol))
    return wrap(np.asarray((sizes > limit).sum(-1), np.int64))
