"""Random matrices: Wishart's, and triangular factors of correlation matrices (Lewandowski, Kurowicka and Joe)."""

from __future__ import annotations

import math
from typing import Any

from ..base.errors import InvalidValue
from ..eager.autograd.modes import no_grad
from ..eager.tensor.tensor import Tensor
from . import constraints
from .beta import Beta
from .constraints import Constraint
from .distribution import Distribution, ExponentialFamily, lazy_property, one_of
from .functions import (
    arange,
    broadcast_all,
    broadcast_shapes,
    cholesky,
    matmul,
    pad,
    smallest,
    solve_triangular,
    standard_normal,
    tensor,
    where,
)
from .gamma import Chi2
from .matrix_transforms import strictly_lower
from .multivariate_normal import factor_of_inverse, log_diagonal


def log_multigamma(a: Tensor, p: int) -> Tensor:
    """log of the multivariate gamma function"""
    return a.mvlgamma(p)


def multidigamma(a: Tensor, p: int) -> Tensor:
    """Its derivative: sum of digamma(a - i / 2)"""
    return (a.unsqueeze(-1) - 0.5 * arange(p, dtype=a.dtype)).digamma().sum(-1)


class Wishart(ExponentialFamily):
    """The sum of x x' over df normal vectors x: p(S) is proportional to |S|^((df - p - 1) / 2) exp(-tr(V^-1 S) / 2),
    for a p by p covariance V that is given as such, as its inverse or as its triangular factor."""

    support = constraints.positive_definite
    has_rsample = True
    _mean_carrier_measure: Any = 0.0
    _fixed = ("_unbroadcasted_scale_tril",)

    @property
    def arg_constraints(self) -> dict[str, Constraint]:
        return {
            "covariance_matrix": constraints.positive_definite,
            "precision_matrix": constraints.positive_definite,
            "scale_tril": constraints.lower_cholesky,
            "df": constraints.greater_than(self._event_shape[-1] - 1),
        }

    def __init__(
        self,
        df: Any,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name, matrix = one_of(
            covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        if matrix.ndim < 2:
            raise InvalidValue(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        df = df if isinstance(df, Tensor) else tensor(df, dtype=matrix.dtype)
        batch, event = broadcast_shapes(df.shape, matrix.shape[:-2]), matrix.shape[-2:]
        if bool((df <= event[-1] - 1).any()):
            raise InvalidValue(
                f"Value of df={df} expected to be greater than ndim - 1 = {event[-1] - 1}.",
                why="fewer vectors than axes make no invertible matrix",
            )
        self.df = df.expand(batch)
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        super().__init__(batch, event, validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril: Tensor = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = factor_of_inverse(matrix)
        rest = self.df.unsqueeze(-1) - arange(event[-1], dtype=matrix.dtype).expand((*batch, -1))
        self._dist_chi2 = Chi2(rest, validate_args=False)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return matmul(factor, factor.mT).expand(self._batch_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        return self._unbroadcasted_scale_tril.cholesky_inverse().expand(self._batch_shape + self._event_shape)

    @property
    def _matrix_df(self) -> Tensor:
        return self.df.reshape(*self._batch_shape, 1, 1)

    @property
    def mean(self) -> Tensor:
        return self._matrix_df * self.covariance_matrix

    @property
    def mode(self) -> Tensor:
        factor = self._matrix_df - self._event_shape[-1] - 1
        return where(factor > 0, factor, math.nan) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        matrix = self.covariance_matrix
        diagonal = matrix.diagonal(dim1=-2, dim2=-1)
        return self._matrix_df * (matrix**2 + diagonal.unsqueeze(-1) * diagonal.unsqueeze(-2))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """By Bartlett: L A A' L' of a triangular A with normal numbers below a diagonal of roots of chi-squares."""
        side = self._event_shape[-1]
        diagonal = self._dist_chi2.rsample(sample_shape).sqrt().diag_embed()
        shape = (*sample_shape, *self._batch_shape, side * (side - 1) // 2)
        root = diagonal + strictly_lower(standard_normal(shape, self.df), side)
        made = matmul(self._unbroadcasted_scale_tril, root)
        return matmul(made, made.mT)

    def log_prob(self, value: Tensor) -> Tensor:
        n, p, factor = self.df, self._event_shape[-1], self._unbroadcasted_scale_tril
        root = cholesky(self._checked(value))
        trace = (solve_triangular(factor, root, upper=False) ** 2).sum((-2, -1))
        constant = n * (0.5 * p * math.log(2) + log_diagonal(factor)) + log_multigamma(n / 2, p)
        return (n - p - 1) * log_diagonal(root) - 0.5 * trace - constant

    def entropy(self) -> Tensor:
        n, p = self.df, self._event_shape[-1]
        scale = (p + 1) * (0.5 * p * math.log(2) + log_diagonal(self._unbroadcasted_scale_tril))
        return scale + log_multigamma(n / 2, p) - (n - p - 1) / 2 * multidigamma(n / 2, p) + n * p / 2

    @property
    def _natural_params(self) -> tuple[Tensor, Tensor]:
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (p * math.log(2) - (-2 * x).slogdet()[1]) + log_multigamma(half, p)


class LKJCholesky(Distribution):
    """Triangular factors of dim by dim correlation matrices M, with a density of M that is proportional to
    |M|^(concentration - 1)."""

    arg_constraints: Any = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Any = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise InvalidValue(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        (self.concentration,) = broadcast_all(concentration)
        batch = self.concentration.shape
        marginal = self.concentration + 0.5 * (dim - 2)
        row = pad(arange(dim - 1, dtype=marginal.dtype), [1, 0])
        below = (row + 0.5).expand((*batch, dim))
        self._beta = Beta(below, marginal.unsqueeze(-1) - 0.5 * row)
        super().__init__(batch, (dim, dim), validate_args)

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """By the onion method: a row is a point on a sphere, of a beta-distributed radius."""
        with no_grad():
            radius = self._beta.sample(sample_shape).unsqueeze(-1)
            drawn = standard_normal(self._extended_shape(sample_shape), radius).tril(-1)
            length = (drawn**2).sum(-1, keepdim=True).sqrt()
            rows = radius.sqrt() * where(length > 0, drawn / length, 0.0)
            rest = (1 - (rows**2).sum(-1)).clamp(min=smallest(rows)).sqrt()
            return rows + rest.diag_embed()

    def log_prob(self, value: Tensor) -> Tensor:
        """The map from factors to matrices adds dim - i to the power of the i-th diagonal element."""
        n, rest = self.dim, self.dim - 1
        diagonal = self._checked(value).diagonal(dim1=-2, dim2=-1)[..., 1:]
        order = arange(2, n + 1, dtype=self.concentration.dtype)
        powers = 2 * (self.concentration - 1).unsqueeze(-1) + n - order
        alpha = self.concentration + 0.5 * rest
        constant = 0.5 * rest * math.log(math.pi) + log_multigamma(alpha - 0.5, rest) - rest * alpha.lgamma()
        return (powers * diagonal.log()).sum(-1) - constant
