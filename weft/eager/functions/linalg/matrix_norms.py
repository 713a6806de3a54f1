"""Rows of linalg: norms of matrices, and the condition numbers and bounds that are made of norms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....base.dtype import is_complex
from ....base.errors import RunError
from ....core.op import Op
from ....ops.linalg._elimination import first_zero, lu_factors
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, axis_of, wrap
from ..math.arithmetic import add, div, mul
from ..math.compare import choose
from ..math.unary import abs as magnitude
from ..reduce.extreme import amax, amin
from ..reduce.reduce import sum as total
from ..reduce.reduce import vector_norm
from ..shape.parts import select
from ..shape.shape import reshape, squeeze
from ..table import row
from .matrices import LINALG, eye, must_be_matrices, must_be_squares
from .solve import inv
from .svd import svdvals


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
    values = svdvals(A.permute([*others, first, second]))
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
    """A norm of vectors along one axis, or of matrices along two

    >>> import weft
    >>> x = weft.tensor([[3.0, 0.0], [0.0, 4.0]])
    >>> weft.linalg.norm(x), weft.linalg.norm(x, 2), weft.linalg.norm(x, dim=1)
    (tensor(5.), tensor(4.), tensor([3., 4.]))
    """
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
    safe = choose(wrap(none[..., None, None]), eye(A, *A._shape[-2:]), A)
    return choose(wrap(none), math.inf, matrix_norm(safe, p) * matrix_norm(inv(safe), p))


@row(inplace=True, out=True)
def renorm(input: Tensor, p: float, dim: int, maxnorm: float) -> Tensor:
    """Slices of an axis scaled down to a norm where theirs is greater"""
    rank = input.ndim
    if rank < 2:
        raise RunError("renorm: input needs at least 2 dimensions, got " + str(rank))
    if p <= 0:
        raise RunError("renorm: non-positive-norm not supported")
    if maxnorm < 0:
        raise RunError(f"renorm: expected maxnorm to be >= 0 but got {maxnorm}")
    axis = axis_of(dim, rank)
    others = tuple(at for at in range(rank) if at != axis)
    norms = vector_norm(input, p, others, True)
    scale = div(wrap(np.array(maxnorm, norms._dtype)), add(norms, 1e-7))
    wanted = norms > maxnorm
    return mul(input, _where(wanted, scale))


def _where(wanted: Tensor, scale: Tensor) -> Tensor:
    made: Tensor = Op.get("broadcast_where")(wanted, scale, wrap(np.ones((), scale._dtype)))
    return made
