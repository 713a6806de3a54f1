"""Rows of linalg: inverses, determinants, traces, and X with A X = B; of triangles, of tensors, by least squares."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ....base.errors import RunError
from ....core.op import Op
from ....ops.linalg.factors import LstsqAttrs
from ....ops.linalg.lapack import InverseAttrs, SolveAttrs
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..math.unary import abs as magnitude
from ..math.unary import log, square
from ..reduce.reduce import sum as total
from ..shape.join import tril, triu
from ..shape.parts import diagonal, narrow
from ..shape.shape import expand, movedim, reshape, squeeze, transpose, unsqueeze
from ..table import row
from .matmul import batched
from .matrices import LINALG, common_batch, eye, must_be_matrices, must_be_squares, must_be_systems

_INVERSE, _SOLVE, _DET, _SLOGDET, _LSTSQ = (Op.get(name) for name in ("inverse", "solve", "det", "slogdet", "lstsq"))


class SlogdetResult(NamedTuple):
    """Sign and logarithm of the absolute value of determinants."""

    sign: Tensor
    logabsdet: Tensor


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


@row(space=LINALG, method=False, out=True)
def inv(A: Tensor) -> Tensor:
    """The inverse of a square matrix

    >>> import weft
    >>> weft.linalg.inv(weft.tensor([[2.0, 0.0], [0.0, 4.0]]))
    tensor([[0.5000, 0.0000],
            [0.0000, 0.2500]])
    """
    must_be_squares("linalg.inv", A)
    return apply(_INVERSE, InverseAttrs(), [A])[0]


row(inv, name="inverse", out=True)


@row(space=LINALG, method=False, out=True)
def det(A: Tensor) -> Tensor:
    """The determinant of a square matrix

    >>> import weft
    >>> weft.linalg.det(weft.tensor([[2.0, 1.0], [4.0, 6.0]]))
    tensor(8.)
    """
    must_be_squares("linalg.det", A)
    return apply(_DET, None, [A])[0]


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


@row
def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's diagonal

    >>> import weft
    >>> weft.trace(weft.tensor([[1, 2], [3, 4]]))
    tensor(5)
    """
    if input.ndim != 2:
        raise RunError(f"trace: expected a matrix, but got tensor with dim {input.ndim}")
    return total(diagonal(input))


@row(space=LINALG, method=False, out=True)
def solve(A: Tensor, B: Tensor, *, left: bool = True) -> Tensor:
    """X with A X = B; with `left=False`, X A = B

    >>> import weft
    >>> weft.linalg.solve(weft.tensor([[2.0, 0.0], [1.0, 1.0]]), weft.tensor([4.0, 5.0]))
    tensor([2., 3.])
    """
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
    lead = common_batch("linalg.solve", A, B)
    inputs = [expand(A, (*lead, *a[-2:])), expand(B, (*lead, *b[-2:]))]
    return apply(_SOLVE, SolveAttrs(triangle=triangle), inputs)[0]


@row(space=LINALG, method=False, out=True)
def solve_triangular(A: Tensor, B: Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Tensor:
    """X with A X = B, where A is a triangle"""
    must_be_squares("linalg.solve_triangular", A)
    part = A
    if unitriangular:
        strict = triu(A, 1) if upper else tril(A, -1)
        part = strict + eye(A, *A._shape[-2:])
    if not left:
        turned = transpose(part, -2, -1), transpose(B, -2, -1)
        return transpose(solved(*turned, "lower" if upper else "upper"), -2, -1)
    return solved(part, B, "upper" if upper else "lower")


@row(out=True)
def triangular_solve(
    input: Tensor, A: Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> TriangularSolveResult:
    """X with A X = B, where A is a triangle, or its transpose; and A"""
    must_be_systems("torch.triangular_solve", input, A)
    matrix = A.transpose(-2, -1) if transpose else A
    up = bool(upper) != bool(transpose)
    made = solve_triangular(matrix, input, upper=up, unitriangular=unitriangular)
    lead = made._shape[:-2]
    kept = expand(A, (*lead, *A._shape[-2:])).clone()
    return TriangularSolveResult(made, kept)


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
    lead = common_batch("torch.linalg.lstsq", A, right)
    left, right = (expand(x, (*lead, *x._shape[-2:])) for x in (A, right))
    share = float(np.finfo(A._dtype).eps) * max(A._shape[-2:])
    share = share if rcond is None else float(rcond)
    exact = LstsqAttrs(rtol=0.0 if driver == "gels" else share)
    solution = apply(_LSTSQ, exact, [left, right])[0]
    rest, rank, sizes = _told(left, right, solution, driver, share)
    return LstsqResult(squeeze(solution, -1) if vector else solution, rest, rank, sizes)


_DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


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
