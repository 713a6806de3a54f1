"""Rows of linalg: eigenvalues and eigenvectors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....base.errors import InvalidValue, RunError, Unsupported
from ....core.op import Op
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor
from ..math.complex import adjoint
from ..shape.join import flip
from ..shape.parts import narrow
from ..table import row
from .elimination import cholesky
from .matrices import LINALG, must_be_squares
from .solve import solved

_EIGH, _EIG, _EIGVALS = (Op.get(name) for name in ("eigh", "eig", "eigvals"))


class EighResult(NamedTuple):
    """Eigenvalues and eigenvectors."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class EigResult(NamedTuple):
    """Eigenvalues and eigenvectors, complex numbers."""

    eigenvalues: Tensor
    eigenvectors: Tensor


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
    """Eigenvalues of a symmetric matrix, in ascending order

    >>> import weft
    >>> weft.linalg.eigvalsh(weft.tensor([[2.0, 0.0], [0.0, 1.0]]))
    tensor([1., 2.])
    """
    return eigh(A, UPLO).eigenvalues


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


def _must_be_finite(name: str, A: Tensor) -> None:
    must_be_squares(name, A)
    if not np.isfinite(array_of(A)).all():
        raise RunError(f"torch.{name}: input tensor should not contain infs or NaNs.")


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
