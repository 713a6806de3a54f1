"""TransformedDistribution: samples of another distribution, sent through transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.errors import InvalidType, InvalidValue
from ..eager.autograd.modes import no_grad
from ..eager.tensor.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .functions import sum_rightmost
from .independent import Independent
from .transforms import ComposeTransform, Transform


class TransformedDistribution(Distribution):
    """y = f(x) of x of a base distribution: log p(y) = log p(x) - log |dy/dx|.

    >>> from weft.distributions import ExpTransform, Normal
    >>> TransformedDistribution(Normal(0.0, 1.0), [ExpTransform()]).support
    GreaterThan(lower_bound=0.0)
    """

    arg_constraints: Any = {}
    _fixed = ("base_dist",)

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | Sequence[Transform],
        validate_args: bool | None = None,
    ) -> None:
        self.transforms = [transforms] if isinstance(transforms, Transform) else list(transforms)
        if not all(isinstance(each, Transform) for each in self.transforms):
            raise InvalidType(f"transforms must be a Transform or a list, but was {transforms!r:.80}")
        whole = ComposeTransform(self.transforms)
        shape = base_distribution.batch_shape + base_distribution.event_shape
        rank = len(base_distribution.event_shape)
        goes_from, goes_to = whole.domain.event_dim, whole.codomain.event_dim
        if len(shape) < goes_from:
            raise InvalidValue(f"base_distribution needs to have shape with size at least {goes_from}, but got {shape}")
        made = whole.forward_shape(shape)
        wide = whole.inverse_shape(made)
        if wide != shape:
            base_distribution = base_distribution.expand(wide[: len(wide) - rank])
        if goes_from > rank:
            base_distribution = Independent(base_distribution, goes_from - rank)
        self.base_dist: Any = base_distribution
        cut = len(made) - max(goes_to, rank + goes_to - goes_from)
        super().__init__(made[:cut], made[cut:], validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        made = super().expand(batch_shape, _instance)
        shape = ComposeTransform(self.transforms).inverse_shape(made.batch_shape + made.event_shape)
        made.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return made

    @property
    def has_rsample(self) -> bool:
        return self.base_dist.has_rsample

    @property
    def support(self) -> Constraint:
        if not self.transforms:
            return self.base_dist.support
        found = self.transforms[-1].codomain
        more = len(self.event_shape) - found.event_dim
        return constraints.independent(found, more) if more > 0 else found

    def sample(self, sample_shape: Any = ()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def _forward(self, x: Tensor) -> Tensor:
        for transform in self.transforms:
            x = transform(x)
        return x

    def log_prob(self, value: Tensor) -> Tensor:
        y = self._checked(value)
        rank = len(self.event_shape)
        found: Any = 0.0
        for transform in reversed(self.transforms):
            x = transform.inv(y)
            rank += transform.domain.event_dim - transform.codomain.event_dim
            slope = transform.log_abs_det_jacobian(x, y)
            found = found - sum_rightmost(slope, rank - transform.domain.event_dim)
            y = x
        return found + sum_rightmost(self.base_dist.log_prob(y), rank - len(self.base_dist.event_shape))

    def _turned(self, probability: Tensor) -> Tensor:
        """The probability of the other side, where the transforms fall."""
        sign: Any = 1
        for transform in self.transforms:
            sign = sign * transform.sign
        if isinstance(sign, (int, float)) and sign == 1:
            return probability
        return sign * (probability - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        x = self._checked(value)
        for transform in reversed(self.transforms):
            x = transform.inv(x)
        return self._turned(self.base_dist.cdf(self.base_dist._checked(x)))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))


class Shown(TransformedDistribution):
    """One whose parameters are those of its base."""

    def __getattr__(self, name: str) -> Any:
        if name in type(self).arg_constraints and "base_dist" in vars(self):
            return getattr(self.base_dist, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
