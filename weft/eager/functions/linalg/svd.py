"""Rows of linalg: singular values and their vectors, all or the greatest; ranks and pseudo-inverses by them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....base.errors import InvalidValue
from ....core.op import Op
from ....ops.linalg.lapack import PinvAttrs, mirrored
from ...dispatch import apply
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, wrap
from ..math.arithmetic import sub
from ..math.complex import adjoint
from ..random.fill import randn
from ..reduce.reduce import mean
from ..shape.join import cat
from ..shape.shape import expand
from ..table import row
from .matmul import matmul
from .matrices import LINALG, must_be_matrices
from .qr import qr

_SVD, _SVDVALS, _PINV = (Op.get(name) for name in ("svd", "svdvals", "pinv"))
Parts = tuple[Tensor, Tensor, Tensor]


class SVDResult(NamedTuple):
    """Singular values between orthogonal factors."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class OldSVDResult(NamedTuple):
    """Singular values between orthogonal factors."""

    U: Tensor
    S: Tensor
    V: Tensor


@row(space=LINALG, method=False)
def svd(A: Tensor, full_matrices: bool = True, *, driver: Any = None) -> SVDResult:
    """A = U diag(S) Vh with orthogonal U and Vh, S in descending order

    >>> import weft
    >>> weft.linalg.svd(weft.tensor([[0.0, 2.0], [3.0, 0.0]])).S
    tensor([3., 2.])
    """
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


@row(name="svd", out=True)
def _svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> OldSVDResult:
    """`linalg.svd` with V instead of its adjoint; zeros for both if not `compute_uv`"""
    if not compute_uv:
        must_be_matrices("linalg.svd", input)
        *lead, m, n = input._shape
        none = [wrap(np.zeros((*lead, k, k), input._dtype)) for k in (m, n)]
        return OldSVDResult(none[0], svdvals(input), none[1])
    u, s, vh = svd(input, not some)
    return OldSVDResult(u, s, adjoint(vh))


@row(space=LINALG, method=False, out=True)
def svdvals(A: Tensor, *, driver: Any = None) -> Tensor:
    """Singular values in descending order

    >>> import weft
    >>> weft.linalg.svdvals(weft.tensor([[0.0, 2.0], [3.0, 0.0]]))
    tensor([3., 2.])
    """
    must_be_matrices("linalg.svdvals", A)
    return apply(_SVDVALS, None, [A])[0]


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
    return apply(_PINV, PinvAttrs(rtol=float(share), atol=float(atol or 0.0)), [A])[0]


@row
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse of a matrix"""
    return pinv(input, rcond=rcond)


@row(space=LINALG, method=False)
def matrix_rank(A: Tensor, tol: Any = None, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Tensor:
    """How many singular values are not nearly 0"""
    must_be_matrices("linalg.matrix_rank", A)
    sizes = np.linalg.svd(array_of(A), compute_uv=False)
    if tol is not None:
        limit = _beside(tol)
    else:
        eps = np.finfo(A._dtype).eps * max(A._shape[-2:])
        share = _beside(eps if rtol is None and atol is None else 0.0 if rtol is None else rtol)
        largest = sizes.max(-1, keepdims=True, initial=0)
        limit = np.maximum(largest * share, _beside(0.0 if atol is None else atol))
    return wrap(np.asarray((sizes > limit).sum(-1), np.int64))


def _beside(limit: Any) -> Array:
    """A number for each matrix, beside its singular values."""
    return np.asarray(array_of(limit) if isinstance(limit, Tensor) else limit)[..., None]


@row(method=False)
def svd_lowrank(A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None) -> Parts:
    """U, S and V of the q greatest singular values of A - M, found from random vectors"""
    m, n = A._shape[-2:]
    if M is not None:
        A = sub(A, expand(M, A._shape))
    turned = m < n
    if turned:
        A = adjoint(A)
    basis = _basis(A, 6 if q is None else q, 2 if niter is None else niter)
    u, s, vh = svd(matmul(adjoint(basis), A), False)
    left, right = matmul(basis, u), adjoint(vh)
    return (right, s, left) if turned else (left, s, right)


def _basis(A: Tensor, q: int, niter: int) -> Tensor:
    """Orthogonal columns near those of the q greatest singular values, from random ones that are
    multiplied with A and its adjoint again and again."""
    made = randn(A._shape[-1], q, dtype=A.dtype)
    found: Tensor = qr(matmul(A, made)).Q
    for _ in np.arange(niter):
        found = qr(matmul(adjoint(A), found)).Q
        found = qr(matmul(A, found)).Q
    return found


@row(method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> Parts:
    """U, S and V of the q greatest singular values of A, its columns less their means"""
    least = min(A._shape[-2:])
    count = min(6, least) if q is None else q
    if not 0 <= count <= least:
        raise InvalidValue(f"q(={count}) must be non-negative integer and not greater than min(m, n)={least}")
    if niter < 0:
        raise InvalidValue(f"niter(={niter}) must be non-negative integer")
    moved = sub(A, mean(A, -2, True)) if center else A
    return svd_lowrank(moved, count, niter)
