"""Normal vectors: of any covariance, and of one that is a diagonal and a matrix of low rank."""

from __future__ import annotations

import math
from typing import Any

from ..base.errors import InvalidValue
from ..eager.tensor.tensor import Tensor
from . import constraints
from .distribution import Distribution, lazy_property, one_of
from .functions import broadcast_shapes, cholesky, eye, matmul, solve_triangular, standard_normal, times_vector


def log_diagonal(factor: Tensor) -> Tensor:
    """The sum of the logarithms of a triangular matrix's diagonal: half of log |L L'|"""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def factor_of_inverse(precision: Tensor) -> Tensor:
    """The lower triangular L with L L' = P^-1: from P = R' R of reversed axes, L = (R reversed)^-T"""
    reversed_factor = cholesky(precision.flip(-2, -1)).flip(-2, -1).mT
    unit = eye(precision.shape[-1], dtype=precision.dtype)
    return solve_triangular(reversed_factor, unit, upper=False)


def distance(factor: Tensor, apart: Tensor) -> Tensor:
    """apart' (L L')^-1 apart, for a triangular L"""
    solved = solve_triangular(factor, apart.unsqueeze(-1), upper=False)
    return (solved**2).sum((-2, -1))


class MultivariateNormal(Distribution):
    """Normal vectors of a mean, and of a covariance that is given as such, as its inverse or as its triangular factor.

    >>> import weft
    >>> MultivariateNormal(weft.zeros(2), weft.eye(2)).entropy()
    tensor(2.8379)
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "covariance_matrix": constraints.positive_definite,
        "precision_matrix": constraints.positive_definite,
        "scale_tril": constraints.lower_cholesky,
    }
    support = constraints.real_vector
    has_rsample = True
    _fixed = ("_unbroadcasted_scale_tril",)

    def __init__(
        self,
        loc: Tensor,
        covariance_matrix: Tensor | None = None,
        precision_matrix: Tensor | None = None,
        scale_tril: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        if loc.ndim < 1:
            raise InvalidValue("loc must be at least one-dimensional.")
        name, matrix = one_of(
            covariance_matrix=covariance_matrix, precision_matrix=precision_matrix, scale_tril=scale_tril
        )
        if matrix.ndim < 2:
            raise InvalidValue(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch, event = broadcast_shapes(matrix.shape[:-2], loc.shape[:-1]), loc.shape[-1:]
        setattr(self, name, matrix.expand((*batch, -1, -1)))
        self.loc = loc.expand((*batch, -1))
        super().__init__(batch, event, validate_args)
        if name == "scale_tril":
            self._unbroadcasted_scale_tril: Tensor = matrix
        elif name == "covariance_matrix":
            self._unbroadcasted_scale_tril = cholesky(matrix)
        else:
            self._unbroadcasted_scale_tril = factor_of_inverse(matrix)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        return self._unbroadcasted_scale_tril.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_scale_tril
        return matmul(factor, factor.mT).expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        found = self._unbroadcasted_scale_tril.cholesky_inverse()
        return found.expand(self._batch_shape + self._event_shape + self._event_shape)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @property
    def variance(self) -> Tensor:
        found = (self._unbroadcasted_scale_tril**2).sum(-1)
        return found.expand(self._batch_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        drawn = standard_normal(self._extended_shape(sample_shape), self.loc)
        return self.loc + times_vector(self._unbroadcasted_scale_tril, drawn)

    def log_prob(self, value: Tensor) -> Tensor:
        factor = self._unbroadcasted_scale_tril
        far = distance(factor, self._checked(value) - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + far) - log_diagonal(factor)

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (constant + log_diagonal(self._unbroadcasted_scale_tril)).expand(self._batch_shape)


class LowRankMultivariateNormal(Distribution):
    """Normal vectors whose covariance is W W' + diag(d): W = cov_factor has few columns, d = cov_diag.

    With the capacitance C = I + W' D^-1 W, which is small, the inverse of the covariance is
    D^-1 - D^-1 W C^-1 W' D^-1 and its determinant |C| |D|.
    """

    arg_constraints: Any = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _fixed = ("_unbroadcasted_cov_factor", "_unbroadcasted_cov_diag", "_capacitance_tril")

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise InvalidValue("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.ndim < 2:
            raise InvalidValue("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event:
            raise InvalidValue(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise InvalidValue(f"cov_diag must be a batch of vectors with shape {event}")
        batch = broadcast_shapes(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        self.loc = loc.expand((*batch, -1))
        self.cov_diag = cov_diag.expand((*batch, -1))
        self.cov_factor = cov_factor.expand((*batch, *cov_factor.shape[-2:]))
        self._unbroadcasted_cov_factor, self._unbroadcasted_cov_diag = cov_factor, cov_diag
        scaled = cov_factor.mT / cov_diag.unsqueeze(-2)
        capacitance = matmul(scaled, cov_factor) + eye(cov_factor.shape[-1], dtype=cov_factor.dtype)
        super().__init__(batch, event, validate_args)
        self._capacitance_tril = cholesky(capacitance)

    @property
    def mean(self) -> Tensor:
        return self.loc

    mode = mean

    @lazy_property
    def variance(self) -> Tensor:
        """The variance of each element."""
        found = (self._unbroadcasted_cov_factor**2).sum(-1) + self._unbroadcasted_cov_diag
        return found.expand(self._batch_shape + self._event_shape)

    @lazy_property
    def scale_tril(self) -> Tensor:
        """The lower triangular factor of the covariance."""
        root = self._unbroadcasted_cov_diag.sqrt().unsqueeze(-1)
        scaled = self._unbroadcasted_cov_factor / root
        inner = matmul(scaled, scaled.mT) + eye(self._event_shape[0], dtype=scaled.dtype)
        return (root * cholesky(inner)).expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def covariance_matrix(self) -> Tensor:
        """The covariance."""
        factor = self._unbroadcasted_cov_factor
        found = matmul(factor, factor.mT) + self._unbroadcasted_cov_diag.diag_embed()
        return found.expand(self._batch_shape + self._event_shape + self._event_shape)

    @lazy_property
    def precision_matrix(self) -> Tensor:
        """The inverse of the covariance."""
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        solved = solve_triangular(self._capacitance_tril, scaled, upper=False)
        found = self._unbroadcasted_cov_diag.reciprocal().diag_embed() - matmul(solved.mT, solved)
        return found.expand(self._batch_shape + self._event_shape + self._event_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(sample_shape)
        few = standard_normal((*shape[:-1], self.cov_factor.shape[-1]), self.loc)
        each = standard_normal(shape, self.loc)
        made = self.loc + times_vector(self._unbroadcasted_cov_factor, few)
        return made + self._unbroadcasted_cov_diag.sqrt() * each

    def _log_determinant(self) -> Tensor:
        return 2 * log_diagonal(self._capacitance_tril) + self._unbroadcasted_cov_diag.log().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        apart = self._checked(value) - self.loc
        scaled = self._unbroadcasted_cov_factor.mT / self._unbroadcasted_cov_diag.unsqueeze(-2)
        far = (apart**2 / self._unbroadcasted_cov_diag).sum(-1)
        far = far - distance(self._capacitance_tril, times_vector(scaled, apart))
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + self._log_determinant() + far)

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (0.5 * (constant + self._log_determinant())).expand(self._batch_shape)
