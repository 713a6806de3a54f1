"""Rows of linalg: equations by least squares, by Cholesky's factor or a triangle, of tensors; the
condition number, the exponential of a matrix, and powers of numbers side by side."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....base.dtype import BOOL, is_complex, is_float
from ....base.errors import InvalidType, RunError
from ....core.op import Op
from ....ops.linalg._elimination import first_zero, lu_factors
from ....ops.linalg.factors import LstsqAttrs
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..math.compare import choose
from ..math.complex import adjoint
from ..math.unary import abs as magnitude
from ..math.unary import square
from ..reduce.reduce import sum as total
from ..shape.join import cat, flip, tril, triu
from ..shape.parts import narrow, select
from ..shape.shape import expand, movedim, reshape, squeeze, unsqueeze
from ..table import row
from .factors import inv, matrix_norm, must_be_matrices, must_be_squares, solve, solve_triangular, solved, svdvals
from .linear import LINALG
from .matmul import batched

_LSTSQ, _EXP, _CUMPROD = (Op.get(name) for name in ("lstsq", "matrix_exp", "cumprod"))
_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


class LstsqResult(NamedTuple):
    """The solution, sums of squares that are left, ranks and singular values."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class TriangularSolveResult(NamedTuple):
    """The solution, and the matrices it is of."""

    solution: Tensor
    cloned_coefficient: Tensor


def _must_fit(A: Tensor, B: Tensor, driver: str) -> None:
    if A.ndim < 2:
        raise RunError("torch.linalg.lstsq: input must have at least 2 dimensions.")
    if B.ndim < 1:
        raise RunError("torch.linalg.lstsq: other must have at least 1 dimension.")
    if A._dtype != B._dtype:
        raise RunError(
            "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's "
            f"dtype {A.dtype.title} and other's dtype {B.dtype.title}"
        )
    must_be_matrices("torch.linalg.lstsq", A)
    if not 0 <= A.ndim - B.ndim <= 1:
        raise RunError(
            "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and "
            "(input.dim() - other.dim()) <= 1"
        )
    if driver not in _DRIVERS:
        raise RunError("torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")


@row(space=LINALG, method=False, out=True)
def lstsq(A: Tensor, B: Tensor, rcond: Any = None, *, driver: Any = None) -> LstsqResult:
    """The X for which |A X - B| is smallest, what is left, and the rank of A"""
    driver = "gelsy" if driver is None else driver
    _must_fit(A, B, driver)
    vector = B.ndim < A.ndim
    right = unsqueeze(B, -1) if vector else B
    if right._shape[-2] != A._shape[-2]:
        place = -1 if vector else -2
        raise RunError(f"torch.linalg.lstsq: input.size(-2) should match other.size({place})")
    try:
        lead = np.broadcast_shapes(A._shape[:-2], right._shape[:-2])
    except ValueError as error:
        raise RunError("torch.linalg.lstsq: batches do not broadcast", why=str(error)) from None
    left, right = (expand(x, (*lead, *x._shape[-2:])) for x in (A, right))
    share = float(np.finfo(A._dtype).eps) * max(A._shape[-2:])
    share = share if rcond is None else float(rcond)
    exact = LstsqAttrs(rtol=0.0 if driver == "gels" else share)
    solution = apply(_LSTSQ, exact, [left, right])[0]
    rest, rank, sizes = _told(left, right, solution, driver, share)
    return LstsqResult(squeeze(solution, -1) if vector else solution, rest, rank, sizes)


def _told(A: Tensor, B: Tensor, solution: Tensor, driver: str, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """Sums of squares, ranks and singular values, each where the driver tells it."""
    m, n = A._shape[-2:]
    values = np.linalg.svd(array_of(A), compute_uv=False)
    ranks = (values > values.max(-1, keepdims=True, initial=0) * share).sum(-1)
    full = driver == "gels" or (driver != "gelsy" and bool((ranks == n).all()))
    rest = magnitude(reshape(narrow(solution, -2, 0, 0), (0,)))
    if m > n and full:
        rest = total(square(magnitude(B - batched(A, solution))), -2)
    rank = wrap(np.empty(0, np.int64) if driver == "gels" else np.asarray(ranks, np.int64))
    sizes = wrap(values) if driver in ("gelsd", "gelss") else wrap(np.empty(0, values.dtype))
    return rest, rank, sizes


# Factors that are there already.


def _must_be_systems(name: str, b: Tensor, A: Tensor) -> None:
    for label, tensor in (("b", b), ("A", A)):
        if tensor.ndim < 2:
            raise RunError(
                f"{name}: {label} should have at least 2 dimensions, but has {tensor.ndim} dimensions instead"
            )
    must_be_squares(name, A)
    if A._dtype != b._dtype:
        raise RunError(
            f"{name}: Expected b and A to have the same dtype, but found b of type "
            f"{b.dtype.title} and A of type {A.dtype.title} instead"
        )


@row(out=True)
def cholesky_solve(input: Tensor, L: Tensor, upper: bool = False) -> Tensor:
    """X with A X = B, by the factor that `cholesky` gives of A"""
    _must_be_systems("cholesky_solve", input, L)
    low = adjoint(triu(L)) if upper else tril(L)
    return solved(adjoint(low), solved(low, input, "lower"), "upper")


@row(out=True)
def cholesky_inverse(L: Tensor, upper: bool = False) -> Tensor:
    """The inverse of A, by the factor that `cholesky` gives of A"""
    must_be_squares("cholesky_inverse", L)
    low = inv(adjoint(triu(L)) if upper else tril(L))
    return batched(adjoint(low), low)


@row(out=True)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolveResult:
    """X with A X = B, where A is a triangle, or its transpose; and A"""
    _must_be_systems("torch.triangular_solve", input, A)
    matrix = A.transpose(-2, -1) if transpose else A  # type: ignore[attr-defined]
    up = bool(upper) != bool(transpose)
    made = solve_triangular(matrix, input, upper=up, unitriangular=unitriangular)
    lead = made._shape[:-2]
    kept = expand(A, (*lead, *A._shape[-2:])).clone()  # type: ignore[attr-defined]
    return TriangularSolveResult(made, kept)


# Equations of tensors.


@row(space=LINALG, method=False, out=True)
def tensorinv(A: Tensor, ind: int = 2) -> Tensor:
    """The inverse of a tensor as a map from its last dimensions to the first `ind`"""
    if ind <= 0:
        raise RunError(f"Expected a strictly positive integer for 'ind', but got {ind}")
    first, last = A._shape[:ind], A._shape[ind:]
    if math.prod(first) != math.prod(last):
        raise RunError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {math.prod(last)} != {math.prod(first)}"
        )
    side = math.prod(first)
    return reshape(inv(reshape(A, (side, side))), (*last, *first))


@row(space=LINALG, method=False, out=True)
def tensorsolve(A: Tensor, B: Tensor, dims: Any = None) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B; the dimensions `dims` of A are moved to its end"""
    moved = A
    if dims is not None:
        moved = movedim(A, tuple(dims), tuple(range(-len(dims), 0)))
    rank = B.ndim
    first, last = moved._shape[:rank], moved._shape[rank:]
    if math.prod(first) != math.prod(last):
        raise RunError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {math.prod(last)} != {math.prod(first)}"
        )
    side = math.prod(last)
    made = solve(reshape(moved, (side, side)), reshape(B, (-1,) if side else (0,)))
    return reshape(made, last)


# Condition, exponential, powers.


@row(space=LINALG, method=False, out=True)
def cond(A: Tensor, p: Any = None) -> Tensor:
    """The condition number: the norm of A times that of its inverse; infinite if there is none"""
    if A.ndim < 2:
        raise RunError("linalg.cond: The input tensor A must have at least 2 dimensions.")
    if p is None or p in (2, -2):
        values = svdvals(A)
        if not values.numel():
            return total(values, -1)
        ends = select(values, -1, 0), select(values, -1, -1)
        return ends[1] / ends[0] if p == -2 else ends[0] / ends[1]
    must_be_squares(f"linalg.cond(ord={p})", A)
    if p not in ("fro", "nuc", 1, -1, math.inf, -math.inf):
        raise RunError(f"linalg.cond got an invalid norm type: {p}")
    if not A.numel():
        return wrap(np.zeros(A._shape[:-2], array_of(A).real.dtype))
    kind = np.complex128 if is_complex(A._dtype) else np.float64
    none = first_zero(lu_factors(array_of(A).astype(kind), True)[0]) != 0
    if not none.any():
        return matrix_norm(A, p) * matrix_norm(inv(A), p)
    one = np.broadcast_to(np.eye(A._shape[-1], dtype=A._dtype), A._shape)
    safe = choose(wrap(none[..., None, None]), wrap(one), A)
    return choose(wrap(none), math.inf, matrix_norm(safe, p) * matrix_norm(inv(safe), p))


@row
def matrix_exp(A: Tensor) -> Tensor:
    """1 + A + A A / 2! + ... of a square matrix"""
    must_be_squares("linalg.matrix_exp", A)
    return apply(_EXP, None, [A])[0]


row(matrix_exp, space=LINALG, method=False)


@row(name="vander", space=LINALG, method=False)
def _vander(x: Tensor, N: Any = None) -> Tensor:
    """1, x, x^2 ... along a new last dimension"""
    if x._dtype == BOOL:
        raise RunError("linalg.vander supports floating point, complex, and integer tensors")
    count = (x._shape[-1] if x.ndim else 1) if N is None else _whole(N)
    if count <= 1:
        raise RunError("N must be greater than 1.")
    return _powers(reshape(x, (1,)) if not x.ndim else x, count)


def _whole(N: Any) -> int:
    if not isinstance(N, (int, np.integer)):
        raise InvalidType(f"vander(): argument 'N' must be int, not {type(N).__name__}")
    return int(N)


def _powers(x: Tensor, count: int) -> Tensor:
    kind = x._dtype
    x = x if is_float(kind) or is_complex(kind) else x._cast(np.dtype(np.int64))
    rest = expand(unsqueeze(x, -1), (*x._shape, count - 1))
    ones = wrap(np.ones((*x._shape, 1), x._dtype))
    return cat([ones, rest.cumprod(-1)], -1)  # type: ignore[attr-defined]


@row(method=False)
def vander(x: Tensor, N: Any = None, increasing: bool = False) -> Tensor:
    """Descending powers of the elements of a vector, a row for each"""
    if x.ndim != 1:
        raise RunError("x must be a one-dimensional tensor.")
    count = x._shape[0] if N is None else _whole(N)
    if count < 0:
        raise RunError("N must be non-negative.")
    kind = x._dtype
    wide = x if is_float(kind) or is_complex(kind) else x._cast(np.dtype(np.int64))
    if count == 0:
        return wrap(np.empty((x._shape[0], 0), wide._dtype))
    made = _powers(wide, count) if count > 1 else wrap(np.ones((len(array_of(x)), 1), wide._dtype))
    return made if increasing else flip(made, (-1,))
