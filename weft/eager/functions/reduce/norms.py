"""Rows: norms of vectors, slices and matrices by their names."""

from __future__ import annotations

from typing import Any

from ....base.errors import InvalidType
from ...tensor.tensor import Tensor, axis_of
from ..linalg.matrix_norms import matrix_norm
from ..shape.shape import reshape
from ..table import row
from .reduce import vector_norm


@row(out=True)
def norm(input: Tensor, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Tensor:
    """the p-norm of vectors along dimensions; "fro" is the root of the sum of squares, "nuc" the
    sum of singular values

    >>> import weft
    >>> weft.norm(weft.tensor([3.0, 4.0]))
    tensor(5.)
    >>> weft.norm(weft.tensor([[3.0, 4.0], [1.0, -2.0]]), p=1, dim=1)
    tensor([7., 3.])
    """
    if p == "nuc":
        return matrix_norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, dtype=dtype)
    if isinstance(p, str):
        if p != "fro":
            raise InvalidType(f"norm(): order {p!r} is no number, 'fro' or 'nuc'")
        p = 2
    return vector_norm(input, 2 if p is None else p, dim, keepdim, dtype=dtype)


@row(method=False)
def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm of each slice along the first or the last dimension; of everything for -1"""
    rank = v.ndim
    if dim == -1:
        return vector_norm(v, pow)
    if dim not in (0, rank - 1):
        dim = axis_of(dim, rank)
    others = tuple(axis for axis in range(rank) if axis != dim)
    return vector_norm(v, pow, others, True) if others else vector_norm(reshape(v, (-1, 1)), pow, 1)


@row(method=False, out=True)
def frobenius_norm(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """The root of the sum of squares along dimensions"""
    return vector_norm(input, 2, tuple(dim) if isinstance(dim, (tuple, list)) else dim, keepdim)


@row(method=False, out=True)
def nuclear_norm(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The sum of the singular values of a matrix, or of matrices in two dimensions"""
    if isinstance(dim, bool):
        dim, keepdim = None, dim
    return matrix_norm(input, "nuc", (-2, -1) if dim is None else tuple(dim), keepdim)
