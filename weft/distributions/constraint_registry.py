"""From a constraint to a transform that maps all numbers to what it allows: `biject_to` gives one with an inverse,
`transform_to` one that may have more inputs than it needs, for optimisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.errors import InvalidType
from . import constraints
from .constraints import Constraint
from .transforms import (
    AffineTransform,
    CatTransform,
    ComposeTransform,
    CorrCholeskyTransform,
    ExpTransform,
    IndependentTransform,
    LowerCholeskyTransform,
    PositiveDefiniteTransform,
    SigmoidTransform,
    SoftmaxTransform,
    StackTransform,
    StickBreakingTransform,
    Transform,
    identity_transform,
)

Factory = Callable[[Any], Transform]


class ConstraintRegistry:
    """Factories of transforms by the class of a constraint; calling it with a constraint makes one.

    >>> biject_to(constraints.positive)
    ExpTransform()
    """

    def __init__(self) -> None:
        self._registry: dict[type[Constraint], Factory] = {}

    def register(self, constraint: Any, factory: Factory | None = None) -> Any:
        """Adds the factory of a constraint, or of all of a class; without a factory, a decorator that does."""
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, Constraint) else constraint
        if not isinstance(kind, type) or not issubclass(kind, Constraint):
            raise InvalidType(
                f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}"
            )
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint: Constraint) -> Transform:
        factory = self._registry.get(type(constraint))
        if factory is None:
            raise NotImplementedError(f"Cannot transform {type(constraint).__name__} constraints")
        return factory(constraint)


biject_to = ConstraintRegistry()
transform_to = ConstraintRegistry()
_BOTH = (biject_to, transform_to)


def _for_both(*of: Any) -> Callable[[Factory], Factory]:
    def add(factory: Factory) -> Factory:
        for registry in _BOTH:
            for constraint in of:
                registry.register(constraint, factory)
        return factory

    return add


@_for_both(constraints.real)
def _anything(constraint: Any) -> Transform:
    return identity_transform


@_for_both(constraints.greater_than, constraints.greater_than_eq)
def _above(constraint: Any) -> Transform:
    if isinstance(constraint.lower_bound, (int, float)) and constraint.lower_bound == 0:
        return ExpTransform()
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.lower_bound, 1)])


@_for_both(constraints.less_than)
def _below(constraint: Any) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(constraint.upper_bound, -1)])


@_for_both(constraints.interval, constraints.half_open_interval)
def _between(constraint: Any) -> Transform:
    low, high = constraint.lower_bound, constraint.upper_bound
    numbers = all(isinstance(bound, (int, float)) for bound in (low, high))
    if numbers and (low, high) == (0, 1):
        return SigmoidTransform()
    return ComposeTransform([SigmoidTransform(), AffineTransform(low, high - low)])


@_for_both(constraints.corr_cholesky)
def _corr_cholesky(constraint: Any) -> Transform:
    return CorrCholeskyTransform()


biject_to.register(constraints.simplex, lambda constraint: StickBreakingTransform())
transform_to.register(constraints.simplex, lambda constraint: SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda constraint: LowerCholeskyTransform())
for _constraint in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_constraint, lambda constraint: PositiveDefiniteTransform())


def _of_parts(registry: ConstraintRegistry) -> None:
    def independent(constraint: Any) -> Transform:
        return IndependentTransform(registry(constraint.base_constraint), constraint.reinterpreted_batch_ndims)

    def cat(constraint: Any) -> Transform:
        return CatTransform([registry(each) for each in constraint.cseq], constraint.dim, constraint.lengths)

    def stack(constraint: Any) -> Transform:
        return StackTransform([registry(each) for each in constraint.cseq], constraint.dim)

    registry.register(constraints.independent, independent)
    registry.register(constraints.cat, cat)
    registry.register(constraints.stack, stack)


for _registry in _BOTH:
    _of_parts(_registry)
