"""Transforms to simplices, triangular factors and matrices, and the one that joins transforms of parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..base.errors import InvalidValue
from ..eager.tensor.size import Size
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import int64
from . import constraints
from .constraints import Constraint
from .elementwise_transforms import Transform, added
from .functions import (
    arange,
    cat,
    cholesky,
    epsilon,
    eye,
    logsigmoid,
    pad,
    smallest,
    softplus,
    sum_rightmost,
    tensor,
    zeros,
)


class _OfType(Transform):
    """One without parameters: two of a class are equal."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = object.__hash__


class StickBreakingTransform(_OfType):
    """n numbers to n + 1 shares of one: each takes a part of what those before it left, the last takes the rest."""

    domain = constraints.real_vector
    codomain = constraints.simplex
    bijective = True

    def _offset(self, x: Tensor) -> Tensor:
        """Zeros would be even shares: part i is one of n + 1 - i that are left."""
        return arange(x.shape[-1], 0, -1, dtype=x.dtype).log()

    def _call(self, x: Tensor) -> Tensor:
        part = (x - self._offset(x)).sigmoid()
        left = (1 - part).cumprod(-1)
        return pad(part, [0, 1], value=1.0) * pad(left, [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        shares = y[..., :-1]
        left = (1 - shares.cumsum(-1)).clamp(min=smallest(y))
        return shares.log() - left.log() + self._offset(shares)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        x = x - self._offset(x)
        return (-x + logsigmoid(x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape: Any) -> Size:
        return Size((*_vector(shape)[:-1], shape[-1] + 1))

    def inverse_shape(self, shape: Any) -> Size:
        return Size((*_vector(shape)[:-1], shape[-1] - 1))


def _vector(shape: Any) -> Any:
    if len(shape) < 1:
        raise InvalidValue("Too few dimensions on input")
    return shape


class CorrCholeskyTransform(_OfType):
    """n (n - 1) / 2 numbers to the triangular factor of an n by n correlation matrix.

    tanh of them are partial correlations z below the diagonal; in each row an element is z times the square root of
    what the squares before it leave of 1, and the diagonal is what is left in the end.
    """

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        eps = epsilon(x)
        r = strictly_lower(x.tanh().clamp(-1 + eps, 1 - eps), _side(x.shape[-1]))
        left = (1 - r * r).sqrt().cumprod(-1)
        r = r + eye(r.shape[-1], dtype=r.dtype)
        return r * pad(left[..., :-1], [1, 0], value=1.0)

    def _inverse(self, y: Tensor) -> Tensor:
        left = 1 - (y * y).cumsum(-1)
        z = _below_diagonal(y / pad(left[..., :-1], [1, 0], value=1.0).clamp(min=smallest(y)).sqrt())
        return (z.log1p() - (-z).log1p()) / 2

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        left = (1 - (y * y).cumsum(-1)).clamp(min=smallest(y))
        rows = 0.5 * _below_diagonal(left.log(), -2).sum(-1)
        return rows - 2 * (x + softplus(-2 * x) - math.log(2.0)).sum(-1)

    def forward_shape(self, shape: Any) -> Size:
        side = _side(_vector(shape)[-1])
        return Size((*shape[:-1], side, side))

    def inverse_shape(self, shape: Any) -> Size:
        _square(shape)
        return Size((*shape[:-2], shape[-1] * (shape[-1] - 1) // 2))


def _places(side: int, diagonal: int) -> tuple[Tensor, Tensor]:
    """Rows and columns of elements below a diagonal, row by row."""
    pairs = [(i, j) for i in range(side) for j in range(i + diagonal + 1)]
    rows, columns = zip(*pairs) if pairs else ((), ())
    return tensor(rows, dtype=int64), tensor(columns, dtype=int64)


def _side(count: int) -> int:
    """The side of the matrix that has a number of elements below the diagonal."""
    side = round((0.25 + 2 * count) ** 0.5 + 0.5)
    if side * (side - 1) // 2 != count:
        raise InvalidValue("Input is not a flattened lower-diagonal number", why=f"{count} is no n (n - 1) / 2")
    return side


def strictly_lower(vector: Tensor, side: int) -> Tensor:
    """Numbers as the elements of matrices below the diagonal, row by row."""
    rows, columns = _places(side, -1)
    made = zeros((*vector.shape[:-1], side * side), dtype=vector.dtype)
    places = (rows * side + columns).expand(vector.shape)
    return made.scatter(-1, places, vector).reshape(*vector.shape[:-1], side, side)


def _below_diagonal(matrix: Tensor, diagonal: int = -1) -> Tensor:
    """The elements of matrices below a diagonal, row by row."""
    rows, columns = _places(matrix.shape[-1], diagonal)
    return matrix[..., rows, columns]


def _square(shape: Any) -> None:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise InvalidValue("Input is not square", why=f"its shape is {tuple(shape)}")


class LowerCholeskyTransform(_OfType):
    """Any matrices to lower triangular ones with exp of the diagonal."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x: Tensor) -> Tensor:
        return x.tril(-1) + x.diagonal(dim1=-2, dim2=-1).exp().diag_embed()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.tril(-1) + y.diagonal(dim1=-2, dim2=-1).log().diag_embed()


class PositiveDefiniteTransform(_OfType):
    """Any matrices to positive definite ones, L L' of a lower triangular L."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x: Tensor) -> Tensor:
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y: Tensor) -> Tensor:
        return LowerCholeskyTransform().inv(cholesky(y))


class CatTransform(Transform):
    """A transform for each of several parts along an axis, of the given lengths."""

    def __init__(
        self, tseq: Sequence[Transform], dim: int = 0, lengths: Sequence[int] | None = None, cache_size: int = 0
    ) -> None:
        super().__init__(cache_size)
        self.transforms = [each.with_cache(cache_size) for each in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.dim = dim

    @property
    def event_dim(self) -> int:
        return max(each.event_dim for each in self.transforms)

    @property
    def length(self) -> int:
        """Of all parts together."""
        return sum(self.lengths)

    @property
    def bijective(self) -> bool:
        return all(each.bijective for each in self.transforms)

    @property
    def domain(self) -> Constraint:
        return constraints.cat([each.domain for each in self.transforms], self.dim, self.lengths)

    @property
    def codomain(self) -> Constraint:
        return constraints.cat([each.codomain for each in self.transforms], self.dim, self.lengths)

    def _call(self, x: Tensor) -> Tensor:
        parts = x.split(self.lengths, self.dim)
        return cat([each(part) for each, part in zip(self.transforms, parts)], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        parts = y.split(self.lengths, self.dim)
        return cat([each.inv(part) for each, part in zip(self.transforms, parts)], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, x.split(self.lengths, self.dim), y.split(self.lengths, self.dim))
        rank = self.event_dim
        terms = [sum_rightmost(each.log_abs_det_jacobian(a, b), rank - each.event_dim) for each, a, b in parts]
        axis = self.dim if self.dim < 0 else self.dim - x.ndim
        axis += rank
        return cat(terms, axis) if axis < 0 else added(terms)
