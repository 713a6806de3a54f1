"""Rows: the greatest singular values of a matrix and their vectors, found from random ones."""

from __future__ import annotations

import numpy as np

from ....base.errors import InvalidValue
from ...tensor.tensor import Tensor
from ..math.arithmetic import sub
from ..math.complex import adjoint
from ..random.fill import randn
from ..reduce.reduce import mean
from ..shape.shape import expand
from ..table import row
from .factors import qr, svd
from .matmul import matmul

Parts = tuple[Tensor, Tensor, Tensor]


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
