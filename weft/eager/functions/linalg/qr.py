"""Rows of linalg: Q R, and products of the reflections that Q is made of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....base.errors import RunError
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..math.complex import adjoint
from ..shape.join import cat, tril, triu
from ..shape.parts import diag_embed, narrow
from ..table import row
from .matmul import batched
from .matrices import LINALG, eye, must_be_matrices
from .solve import solved

_QR, _GEQRF = (Op.get(name) for name in ("qr", "geqrf"))


class QRResult(NamedTuple):
    """Orthogonal columns and upper triangles."""

    Q: Tensor
    R: Tensor


class GeqrfResult(NamedTuple):
    """R with the vectors of reflections below it, and their factors."""

    a: Tensor
    tau: Tensor


@row(space=LINALG, method=False)
def qr(A: Tensor, mode: str = "reduced") -> QRResult:
    """A = Q R with orthogonal columns of Q and upper triangles R"""
    must_be_matrices("linalg.qr", A)
    m, n = A._shape[-2:]
    if mode == "r":
        made = apply(_QR, None, [A.detach()])[1]
        return QRResult(wrap(np.empty(0, A._dtype)), made)
    if mode == "complete":
        if A._followed() and m > n:
            raise RunError("linalg.qr: complete mode is not differentiable if A has more rows")
        full = [part.astype(A._dtype) for part in np.linalg.qr(array_of(A), "complete")]
        return QRResult(*map(wrap, full)) if m > n else _reduced(A)
    if mode != "reduced":
        raise RunError(f"qr received unrecognized mode {mode!r}")
    return _reduced(A)


def _reduced(A: Tensor) -> QRResult:
    """Columns that are too many are products with Q: the rule of gradients is for the others."""
    m, n = A._shape[-2:]
    if m >= n:
        return QRResult(*apply(_QR, None, [A]))
    q, r = apply(_QR, None, [narrow(A, -1, 0, m)])
    return QRResult(q, cat([r, batched(adjoint(q), narrow(A, -1, m, n - m))], -1))


@row(name="qr", out=True)
def _qr(input: Tensor, some: bool = True) -> QRResult:
    """`linalg.qr`, complete if not `some`"""
    return qr(input, "reduced" if some else "complete")


@row(out=True)
def geqrf(input: Tensor) -> GeqrfResult:
    """A = Q R: R, below it the vectors of reflections whose product is Q; and their factors"""
    if input.ndim < 2:
        raise RunError("torch.geqrf: input must have at least 2 dimensions.")
    must_be_matrices("torch.geqrf", input)
    return GeqrfResult(*apply(_GEQRF, None, [input]))


def _check_tau(name: str, input: Tensor, tau: Tensor) -> None:
    if input.ndim < 2:
        raise RunError(f"{name}: input must have at least 2 dimensions.")
    if input.ndim - tau.ndim != 1:
        raise RunError(
            f"{name}: Expected tau to have one dimension less than input, but got tau.ndim equal "
            f"to {tau.ndim} and input.ndim is equal to {input.ndim}"
        )
    if input._shape[:-2] != tau._shape[:-1]:
        raise RunError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {list(tau._shape[:-1])}"
        )
    if input._shape[-1] < tau._shape[-1]:
        raise RunError(f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]")
    must_be_matrices(name, input)
    if input._dtype != tau._dtype:
        raise RunError(f"{name}: tau dtype {tau.dtype.title} does not match input dtype {input.dtype.title}")


def _compact(input: Tensor, tau: Tensor) -> tuple[Tensor, Tensor]:
    """V and T with the product of the reflections = 1 - V T V': the columns of V are their vectors,
    and T = (1 + D S)^-1 D with D = diag(tau) and S = the part of V' V above the diagonal."""
    rows, count = input._shape[-2], tau._shape[-1]
    vectors = tril(narrow(input, -1, 0, count), -1) + eye(input, rows, count)
    factors = diag_embed(tau)
    above = triu(batched(adjoint(vectors), vectors), 1)
    return vectors, solved(eye(input, count, count) + batched(factors, above), factors)


@row(space=LINALG, method=False, out=True)
def householder_product(A: Tensor, tau: Tensor) -> Tensor:
    """The first columns of the product of reflections 1 - tau v v', whose vectors are in A"""
    if A.ndim >= 2 and A._shape[-2] < A._shape[-1]:
        raise RunError(
            "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]"
        )
    _check_tau("torch.linalg.householder_product", A, tau)
    rows, columns = A._shape[-2:]
    vectors, inner = _compact(A, tau)
    first = adjoint(narrow(vectors, -2, 0, columns))
    return eye(A, rows, columns) - batched(batched(vectors, inner), first)


row(householder_product, name="orgqr", out=True)


@row(out=True)
def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool = True, transpose: bool = False) -> Tensor:
    """A matrix multiplied with the product of reflections, or with its adjoint, from a side"""
    _check_tau("torch.ormqr", input, tau)
    _check_other(input, tau, other, left)
    vectors, inner = _compact(input, tau)
    inner = adjoint(inner) if transpose else inner
    if left:
        return other - batched(vectors, batched(inner, batched(adjoint(vectors), other)))
    return other - batched(batched(batched(other, vectors), inner), adjoint(vectors))


def _check_other(input: Tensor, tau: Tensor, other: Tensor, left: bool) -> None:
    if other.ndim < 2:
        raise RunError("torch.ormqr: other must have at least 2 dimensions.")
    side = -2 if left else -1
    if other._shape[side] < tau._shape[-1]:
        raise RunError(f"torch.ormqr: other.shape[{side}] must be greater than or equal to tau.shape[-1]")
    if other._shape[side] != input._shape[-2]:
        raise RunError(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    if input._shape[:-2] != other._shape[:-2]:
        raise RunError("torch.ormqr: Expected other and input to have the same batch dimensions")
    if input._dtype != other._dtype:
        raise RunError("torch.ormqr: Expected input and other to have the same dtype")
