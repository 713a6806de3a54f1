"""Independent: axes of a batch become axes of an event."""

from __future__ import annotations

from typing import Any

from ..base.errors import InvalidValue
from ..eager.tensor.size import Size
from ..eager.tensor.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .functions import sum_rightmost


class Independent(Distribution):
    """A distribution whose last batch axes count as axes of one event, over which log probabilities are summed.

    >>> import weft
    >>> from weft.distributions import Normal
    >>> Independent(Normal(weft.zeros(3, 2), 1.0), 1).log_prob(weft.zeros(3, 2)).shape
    weft.Size([3])
    """

    arg_constraints: Any = {}

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        rank = len(base_distribution.batch_shape)
        if reinterpreted_batch_ndims > rank:
            raise InvalidValue(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {reinterpreted_batch_ndims} vs {rank}"
            )
        shape = base_distribution.batch_shape + base_distribution.event_shape
        cut = rank - reinterpreted_batch_ndims
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims
        super().__init__(shape[:cut], shape[cut:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Independent:
        made = super().expand(batch_shape, _instance)
        inner = self.event_shape[: self.reinterpreted_batch_ndims]
        made.base_dist = self.base_dist.expand(Size(batch_shape) + inner)
        return made

    _fixed = ("base_dist",)

    @property
    def has_rsample(self) -> bool:
        return self.base_dist.has_rsample

    @property
    def has_enumerate_support(self) -> bool:
        return not self.reinterpreted_batch_ndims and self.base_dist.has_enumerate_support

    @property
    def support(self) -> Constraint:
        found = self.base_dist.support
        count = self.reinterpreted_batch_ndims
        return constraints.independent(found, count) if count else found

    @property
    def mean(self) -> Tensor:
        return self.base_dist.mean

    @property
    def mode(self) -> Tensor:
        return self.base_dist.mode

    @property
    def variance(self) -> Tensor:
        return self.base_dist.variance

    def sample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand=expand)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_dist!r}, {self.reinterpreted_batch_ndims})"
