"""Rows of linalg: eigenvalues of any square matrix, products of reflections, factors under their
older names, and functions that are no more."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....base.errors import InvalidValue, RunError, Unsupported
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..math.complex import adjoint
from ..shape.join import flip, tril, triu
from ..shape.parts import diag_embed, narrow
from ..table import row
from .factors import QRResult, cholesky, eigh, must_be_matrices, must_be_squares, solved, svdvals
from .factors import qr as factor_qr
from .factors import svd as factor_svd
from .linear import LINALG
from .lu import eye
from .matmul import batched

_EIG, _EIGVALS, _GEQRF = (Op.get(name) for name in ("eig", "eigvals", "geqrf"))


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors, complex numbers."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class OldSVDResult(NamedTuple):
    """Singular values between orthogonal factors."""

    U: Tensor
    S: Tensor
    V: Tensor


class GeqrfResult(NamedTuple):
    """R with the vectors of reflections below it, and their factors."""

    a: Tensor
    tau: Tensor


def _must_be_finite(name: str, A: Tensor) -> None:
    must_be_squares(name, A)
    if not np.isfinite(array_of(A)).all():
        raise RunError(f"torch.{name}: input tensor should not contain infs or NaNs.")


@row(space=LINALG, method=False, out=True)
def eig(A: Tensor) -> EigResult:
    """Eigenvalues and eigenvectors of a square matrix, complex numbers in no order"""
    _must_be_finite("linalg.eig", A)
    return EigResult(*apply(_EIG, None, [A]))


@row(space=LINALG, method=False, out=True)
def eigvals(A: Tensor) -> Tensor:
    """Eigenvalues of a square matrix, complex numbers in no order"""
    _must_be_finite("linalg.eigvals", A)
    return apply(_EIGVALS, None, [A])[0]


# Reflections.


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


# Older names.


@row(name="qr", out=True)
def _qr(input: Tensor, some: bool = True) -> QRResult:
    """`linalg.qr`, complete if not `some`"""
    return factor_qr(input, "reduced" if some else "complete")


@row(name="svd", out=True)
def _svd(input: Tensor, some: bool = True, compute_uv: bool = True) -> OldSVDResult:
    """`linalg.svd` with V instead of its adjoint; zeros for both if not `compute_uv`"""
    if not compute_uv:
        must_be_matrices("linalg.svd", input)
        *lead, m, n = input._shape
        none = [wrap(np.zeros((*lead, k, k), input._dtype)) for k in (m, n)]
        return OldSVDResult(none[0], svdvals(input), none[1])
    u, s, vh = factor_svd(input, not some)
    return OldSVDResult(u, s, adjoint(vh))


# What PyTorch removed in version 1.9.


def _removed(name: str, instead: str, note: str) -> None:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        raise RunError(
            "This function was deprecated since version 1.9 and is now removed. "
            f"`torch.{name}` is deprecated in favor of `torch.linalg.{instead}`. {note}"
        )

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Removed: `linalg.{instead}` takes its place"
    row(function)


_removed("eig", "eig", "It returns complex tensors rather than pairs of real numbers.")
_removed("solve", "solve", "It has its arguments reversed and does not return the factors.")
_removed("symeig", "eigh", "It reads the lower triangle by default, with UPLO='U' the upper one.")
_removed("lstsq", "lstsq", "It has its arguments reversed and does not return the QR factors.")
_removed("matrix_rank", "matrix_rank", "Its parameter 'symmetric' is called 'hermitian' there.")


# Eigenvalues at an end.


@row(method=False)
def lobpcg(
    A: Tensor,
    k: Any = None,
    B: Any = None,
    X: Any = None,
    n: Any = None,
    iK: Any = None,
    niter: Any = None,
    tol: Any = None,
    largest: Any = None,
    method: Any = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:
    """The k largest eigenvalues of A V = B V E with symmetric A, and V; exact, from all of them"""
    must_be_squares("lobpcg", A)
    if tracker is not None:
        raise Unsupported("lobpcg has no iterations that could be tracked")
    if method not in (None, "basic", "ortho"):
        raise InvalidValue(f"lobpcg: no such method: {method}")
    side = A._shape[-1]
    count = (1 if X is None else X._shape[-1]) if k is None else k
    wanted = count if n is None else n
    if side < 3 * wanted:
        raise InvalidValue(
            f"LPBPCG algorithm is not applicable when the number of A rows (={side}) is smaller "
            f"than 3 x the number of requested eigenpairs (={wanted})"
        )
    if B is None:
        values, vectors = eigh(A)
    else:
        low = cholesky(B)
        values, inner = eigh(solved(low, adjoint(solved(low, adjoint(A), "lower")), "lower"))
        vectors = solved(adjoint(low), inner, "upper")
    if largest is None or largest:
        values, vectors = flip(values, (-1,)), flip(vectors, (-1,))
    return narrow(values, -1, 0, count), narrow(vectors, -1, 0, count)
