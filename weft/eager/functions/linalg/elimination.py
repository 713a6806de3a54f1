"""Rows of linalg: factors by elimination, L U of any matrix, L D L' of symmetric and L L' of positive ones, and what
they solve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....base.dtype import is_complex, is_float, is_integer
from ....base.errors import LinAlgError, RunError, Unsupported
from ....core.op import Op
from ....ops.linalg._elimination import first_zero
from ....ops.linalg.factors import LUAttrs, SwapAttrs, SymmetricAttrs
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..math.complex import adjoint as adjoint_of
from ..shape.join import cat, tril, triu
from ..shape.parts import narrow
from ..shape.shape import expand, transpose
from ..table import row
from .matmul import batched
from .matrices import LINALG, common_batch, eye, must_be_squares, must_be_systems
from .solve import inv, solved

_LU, _SWAPS, _LDL, _LDL_SOLVE, _CHOLESKY = (
    Op.get(name) for name in ("lu_factor", "row_swaps", "ldl_factor", "ldl_solve", "cholesky")
)


class LUFactorResult(NamedTuple):
    """Both factors in one matrix, and the swaps of rows."""

    LU: Tensor
    pivots: Tensor


class LUFactorExResult(NamedTuple):
    """Both factors in one matrix, the swaps of rows, and the first 0 on the diagonal of U."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class LUResult(NamedTuple):
    """A = P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


class LDLFactorResult(NamedTuple):
    """L and D in one matrix, and the swaps of rows and columns."""

    LD: Tensor
    pivots: Tensor


class LDLFactorExResult(NamedTuple):
    """L and D in one matrix, the swaps, and the first block of D that is 0."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


def must_have_factors(name: str, A: Tensor) -> None:
    """Refuses what has no two dimensions, and numbers that are whole."""
    if A.ndim < 2:
        raise RunError(f"{name}: Expected tensor with 2 or more dimensions. Got size: {list(A._shape)} instead")
    kind = A._dtype
    if not (is_float(kind) or is_complex(kind)):
        raise Unsupported(f'"{name}" not implemented for {A.dtype.title!r}')


def swap_rows(A: Tensor, pivots: Tensor, reverse: bool = False) -> Tensor:
    """Rows in the order that the swaps bring them to, or back."""
    return apply(_SWAPS, SwapAttrs(reverse=reverse), [A, pivots])[0]


def _factored(name: str, A: Tensor, pivot: bool) -> LUFactorResult:
    must_have_factors(name, A)
    m, n = A._shape[-2:]
    params = LUAttrs(pivot=bool(pivot))
    if m == n or not A._followed():
        return LUFactorResult(*apply(_LU, params, [A]))
    pivots = apply(_LU, params, [A.detach()])[1]
    return LUFactorResult(_of_oblong(swap_rows(A, pivots), min(m, n)), pivots)


def _of_oblong(A: Tensor, side: int) -> Tensor:
    """The factors of a matrix that is not square, whose rows are in order: of its first square, and
    what follows from them of the rest. The rule of gradients is for squares."""
    m, n = A._shape[-2:]
    rows = narrow(A, -2, 0, side)
    made = apply(_LU, LUAttrs(pivot=False), [narrow(rows, -1, 0, side)])[0]
    if n > side:
        rest = solved(_unit_lower(made), narrow(rows, -1, side, n - side), "lower")
        return cat([made, rest], -1)
    rest = narrow(A, -2, side, m - side)
    turned = solved(transpose(triu(made), -2, -1), transpose(rest, -2, -1), "lower")
    return cat([made, transpose(turned, -2, -1)], -2)


def _unit_lower(factors: Tensor) -> Tensor:
    return tril(factors, -1) + eye(factors, *factors._shape[-2:])


@row(space=LINALG, method=False, out=True)
def lu_factor_ex(A: Tensor, *, pivot: bool = True, check_errors: bool = False) -> LUFactorExResult:
    """`lu_factor`, and the place of the first 0 on the diagonal of U, 0 if there is none"""
    made, pivots = _factored("linalg.lu_factor", A, pivot)
    info = wrap(np.asarray(first_zero(array_of(made))))
    if check_errors:
        _check_pivots("linalg.lu_factor_ex", info)
    return LUFactorExResult(made, pivots, info)


def _check_pivots(name: str, info: Tensor) -> None:
    bad = np.flatnonzero(array_of(info))
    if not bad.size:
        return
    which = f"(Batch element {bad[0]}): " if info.ndim else ""
    place = int(array_of(info).flat[bad[0]])
    raise LinAlgError(
        f"{name}: {which}U[{place},{place}] is zero and using it on lu_solve would result in a division by zero",
        hint="linalg.lu and linalg.lu_factor_ex give the factors all the same",
    )


@row(space=LINALG, method=False, out=True)
def lu_factor(A: Tensor, *, pivot: bool = True) -> LUFactorResult:
    """P A = L U with both factors in one matrix, and the swaps of rows, counted from 1"""
    made, pivots, info = lu_factor_ex(A, pivot=pivot)
    _check_pivots("linalg.lu_factor", info)
    return LUFactorResult(made, pivots)


@row(space=LINALG, method=False, out=True)
def lu(A: Tensor, *, pivot: bool = True) -> LUResult:
    """A = P L U with a permutation, a lower and an upper triangle"""
    made, pivots = _factored("linalg.lu", A, pivot)
    parts = lu_unpack(made, pivots, unpack_pivots=pivot)
    return LUResult(*parts)


@row(method=False, out=True)
def lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True) -> LUResult:
    """The permutation and both triangles of what `lu_factor` gives"""
    if unpack_pivots and LU_pivots._dtype != np.int32:
        raise RunError("torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of int32")
    must_have_factors("torch.lu_unpack", LU_data)
    *lead, m, n = LU_data._shape
    side = min(m, n)
    if unpack_pivots and LU_pivots._shape != (*lead, side):
        raise RunError(
            "torch.lu_unpack: LU_pivots must have a place for each row of LU_data",
            why=f"it is of {list(LU_pivots._shape)}",
        )
    order = low = up = wrap(np.empty(0, LU_data._dtype))
    if unpack_pivots:
        order = swap_rows(eye(LU_data, m, m), LU_pivots, reverse=True)
    if unpack_data:
        low = tril(narrow(LU_data, -1, 0, side), -1) + eye(LU_data, m, side)
        up = triu(narrow(LU_data, -2, 0, side))
    return LUResult(order, low, up)


@row(name="lu", out=True)
def _lu(A: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    """`linalg.lu_factor`, with `get_infos` `linalg.lu_factor_ex`"""
    made = lu_factor_ex(A, pivot=pivot)
    return tuple(made) if get_infos else tuple(made[:2])


@row(name="lu_solve", space=LINALG, method=False, out=True)
def _lu_solve(LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False) -> Tensor:
    """X with A X = B by A's factors; with `left=False` X A = B; with `adjoint`, of A's adjoint"""
    must_be_squares("linalg.lu_solve", LU)
    _must_be_alike("linalg.lu_solve", LU, B)
    if pivots._dtype != np.int32 or pivots._shape != LU._shape[:-1]:
        raise RunError(
            "linalg.lu_solve: pivots must be int32, one for each row of LU",
            why=f"it is {pivots.dtype} of {list(pivots._shape)}",
        )
    if left:
        return _by_factors(LU, pivots, B, adjoint)
    return adjoint_of(_by_factors(LU, pivots, adjoint_of(B), not adjoint))


def _must_be_alike(name: str, A: Tensor, B: Tensor) -> None:
    if A._dtype != B._dtype:
        raise RunError(
            f"{name}: Expected both matrices to have the same dtype, but found {A.dtype.title} "
            f"and {B.dtype.title} instead"
        )
    if B.ndim < 2:
        raise RunError(f"{name}: The input tensor B must have at least 2 dimensions.")


def _by_factors(LU: Tensor, pivots: Tensor, B: Tensor, turned: bool) -> Tensor:
    lead = _common("linalg.lu_solve", LU, B)
    LU, B = (expand(x, (*lead, *x._shape[-2:])) for x in (LU, B))
    pivots = expand(pivots, (*lead, pivots._shape[-1]))
    low, up = _unit_lower(LU), triu(LU)
    if turned:
        inner = solved(adjoint_of(up), B, "lower")
        return swap_rows(solved(adjoint_of(low), inner, "upper"), pivots, reverse=True)
    return solved(up, solved(low, swap_rows(B, pivots), "lower"), "upper")


def _common(name: str, A: Tensor, B: Tensor) -> tuple[int, ...]:
    a, b = A._shape, B._shape
    if a[-1] != b[-2]:
        raise RunError(f"{name}: {a[-2]}x{a[-1]} factors do not fit {b[-2]}x{b[-1]} of B")
    return common_batch(name, A, B)


@row(out=True)
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    """`linalg.lu_solve` with B first"""
    return _lu_solve(LU_data, LU_pivots, b)


# Symmetric matrices.


@row(space=LINALG, method=False, out=True)
def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> LDLFactorExResult:
    """`ldl_factor`, and the place of the first block of D that is 0, 0 if there is none"""
    must_be_squares("linalg.ldl_factor_ex", A)
    made = LDLFactorExResult(*apply(_LDL, SymmetricAttrs(hermitian=_of(A, hermitian)), [A]))
    if check_errors and array_of(made.info).any():
        place = int(array_of(made.info)[array_of(made.info) != 0][0])
        raise LinAlgError(f"linalg.ldl_factor_ex: block {place} of D is zero")
    return made


def _of(A: Tensor, hermitian: bool) -> bool:
    """Real matrices that are Hermitian are symmetric."""
    return bool(hermitian) and is_complex(A._dtype)


@row(space=LINALG, method=False, out=True)
def ldl_factor(A: Tensor, *, hermitian: bool = False) -> LDLFactorResult:
    """L D L' of a symmetric matrix in one matrix, and the swaps; its lower triangle is read"""
    made, pivots, _ = ldl_factor_ex(A, hermitian=hermitian, check_errors=True)
    return LDLFactorResult(made, pivots)


@row(space=LINALG, method=False, out=True)
def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X with A X = B, by what `ldl_factor` gives"""
    must_be_squares("linalg.ldl_solve", LD)
    _must_be_alike("linalg.ldl_solve", LD, B)
    if not is_integer(pivots._dtype) or pivots._shape != LD._shape[:-1]:
        raise RunError(
            "linalg.ldl_solve: Expected pivots to be integers, one for each row of LD",
            why=f"it is {pivots.dtype} of {list(pivots._shape)}",
        )
    lead = _common("linalg.ldl_solve", LD, B)
    LD, B = (expand(x, (*lead, *x._shape[-2:])) for x in (LD, B))
    pivots = expand(pivots, (*lead, pivots._shape[-1]))
    return apply(_LDL_SOLVE, SymmetricAttrs(hermitian=_of(LD, hermitian)), [LD, pivots, B])[0]


@row(space=LINALG, method=False, out=True)
def cholesky(A: Tensor, *, upper: bool = False) -> Tensor:
    """The lower triangle L with A = L L', or the upper one

    >>> import weft
    >>> weft.linalg.cholesky(weft.tensor([[4.0, 2.0], [2.0, 5.0]]))
    tensor([[2., 0.],
            [1., 2.]])
    """
    must_be_squares("linalg.cholesky", A)
    made = apply(_CHOLESKY, None, [adjoint_of(A) if upper else A])[0]
    if np.isnan(np.diagonal(array_of(made), axis1=-2, axis2=-1)).any():
        raise LinAlgError("linalg.cholesky: the input is not positive-definite: it has NaNs")
    return adjoint_of(made) if upper else made


@row(name="cholesky", out=True)
def _cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """The lower triangle L with A = L L', or the upper one"""
    return cholesky(input, upper=upper)


@row(out=True)
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, by the factor that `cholesky` gives of A"""
    must_be_systems("cholesky_solve", input, L)
    low = adjoint_of(triu(L)) if upper else tril(L)
    return solved(adjoint_of(low), solved(low, input, "lower"), "upper")


@row(out=True)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, by the factor that `cholesky` gives of A"""
    must_be_squares("cholesky_inverse", L)
    low = inv(adjoint_of(triu(L)) if upper else tril(L))
    return batched(adjoint_of(low), low)
