"""Rows of linalg: results that tell which matrices of a batch have none, instead of an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ....base.dtype import INT32, is_complex
from ....base.errors import LinAlgError
from ....ops.linalg._elimination import first_bad_minor, first_zero, lu_factors
from ...tensor.memory import Array, array_of
from ...tensor.tensor import Tensor, wrap
from ..math.compare import choose
from ..math.complex import adjoint
from ..table import row
from .elimination import cholesky
from .matrices import LINALG, eye
from .solve import inv, solve


class InverseExResult(NamedTuple):
    """The inverse, and the place of the first 0 that divides, if any."""

    inverse: Tensor
    info: Tensor


class SolveExResult(NamedTuple):
    """The solution, and the place of the first 0 that divides, if any."""

    result: Tensor
    info: Tensor


class CholeskyExResult(NamedTuple):
    """The factor, and how many first rows have none, if any."""

    L: Tensor
    info: Tensor


def _in_double(A: Tensor) -> Array:
    kind = np.complex128 if is_complex(A._dtype) else np.float64
    return array_of(A).astype(kind)


def _singular(A: Tensor) -> Array:
    """Where elimination meets a 0, for each matrix."""
    return np.asarray(first_zero(lu_factors(_in_double(A), True)[0]), INT32)


def _indefinite(A: Tensor) -> Array:
    """How many first rows have no Cholesky factor, for each matrix."""
    wide = _in_double(A)
    made = np.zeros(wide.shape[:-2], INT32)
    for place in np.ndindex(*made.shape):
        made[place] = first_bad_minor(wide[place])
    return made


def _told(
    A: Tensor, make: Callable[[Tensor], Tensor], find: Callable[[Tensor], Array], error: str
) -> tuple[Tensor, Tensor]:
    """What is made of the matrices, NaN of those that have none, and `find` of them; an error if
    there is a text for it."""
    try:
        return make(A), wrap(np.zeros(A._shape[:-2], INT32))
    except LinAlgError:
        info = find(A)
        if not info.any():
            raise
    bad = info != 0
    if error:
        place = int(bad.argmax())
        which = f"(Batch element {place}): " if bad.ndim else ""
        raise LinAlgError(error.format(which=which, info=info.flat[place])) from None
    made = make(choose(wrap(bad[..., None, None]), eye(A, *A._shape[-2:]), A))
    extra = made.ndim - bad.ndim
    return choose(wrap(bad.reshape(bad.shape + (1,) * extra)), np.nan, made), wrap(info)


_SINGULAR = (
    "{which}The diagonal element {info} is zero, the inversion could not be completed because the "
    "input matrix is singular."
)


@row(space=LINALG, method=False, out=True)
def inv_ex(A: Tensor, *, check_errors: bool = False) -> InverseExResult:
    """The inverse of a square matrix; where there is none, NaN and the place of the first 0"""
    error = f"linalg.inv: {_SINGULAR}" if check_errors else ""
    return InverseExResult(*_told(A, inv, _singular, error))


@row(space=LINALG, method=False, out=True)
def solve_ex(A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False) -> SolveExResult:
    """`solve`; where there is no solution, NaN and the place of the first 0"""
    error = "torch.linalg.solve: {which}The solver failed because the input matrix is singular."
    make = lambda matrix: solve(matrix, B, left=left)
    return SolveExResult(*_told(A, make, _singular, error if check_errors else ""))


@row(space=LINALG, method=False, out=True)
def cholesky_ex(A: Tensor, *, upper: bool = False, check_errors: bool = False) -> CholeskyExResult:
    """`cholesky`; where there is no factor, NaN and how many first rows have none"""
    error = (
        "linalg.cholesky: {which}The factorization could not be completed because the input is not "
        "positive-definite (the leading minor of order {info} is not positive-definite)."
    )
    read = lambda matrix: _indefinite(adjoint(matrix) if upper else matrix)
    make = lambda matrix: cholesky(matrix, upper=upper)
    return CholeskyExResult(*_told(A, make, read, error if check_errors else ""))
