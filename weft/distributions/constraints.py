"""Constraints: what values a parameter or a sample may have. `check` tells for every element, or for every event of
`event_dim` axes, whether it is one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..base.errors import InvalidValue
from ..eager.tensor.tensor import Tensor
from .functions import cat as _joined
from .functions import cholesky_ex, eigvalsh, epsilon, full
from .functions import stack as _stacked

__all__ = [
    "Constraint",
    "MixtureSameFamilyConstraint",
    "boolean",
    "cat",
    "corr_cholesky",
    "dependent",
    "dependent_property",
    "greater_than",
    "greater_than_eq",
    "half_open_interval",
    "independent",
    "integer_interval",
    "interval",
    "is_dependent",
    "less_than",
    "lower_cholesky",
    "lower_triangular",
    "multinomial",
    "nonnegative",
    "nonnegative_integer",
    "one_hot",
    "positive",
    "positive_definite",
    "positive_integer",
    "positive_semidefinite",
    "real",
    "real_vector",
    "simplex",
    "square",
    "stack",
    "symmetric",
    "unit_interval",
]


class Constraint:
    """What values are allowed; `is_discrete` says whether they are countable.

    >>> import weft
    >>> interval(0, 1).check(weft.tensor([0.5, 2.0]))
    tensor([ True, False])
    """

    is_discrete: Any = False
    event_dim: Any = 0
    bounds: Sequence[str] = ()  # attributes that the text shows

    def check(self, value: Tensor) -> Tensor:
        """Whether values are allowed."""
        raise NotImplementedError

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={getattr(self, name)}" for name in self.bounds)
        return f"{type(self).__name__.lstrip('_')}({told})"


class _Dependent(Constraint):
    """That of a parameter or a support which other parameters decide."""

    def __init__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> None:
        self._is_discrete, self._event_dim = is_discrete, event_dim

    @property
    def is_discrete(self) -> bool:
        return self._known("is_discrete", self._is_discrete)

    @property
    def event_dim(self) -> int:
        return self._known("event_dim", self._event_dim)

    @staticmethod
    def _known(name: str, value: Any) -> Any:
        if value is NotImplemented:
            raise NotImplementedError(f".{name} cannot be determined statically")
        return value

    def __call__(self, *, is_discrete: Any = NotImplemented, event_dim: Any = NotImplemented) -> _Dependent:
        """The same with more that is known."""
        return type(self)(
            is_discrete=self._is_discrete if is_discrete is NotImplemented else is_discrete,
            event_dim=self._event_dim if event_dim is NotImplemented else event_dim,
        )

    def check(self, value: Tensor) -> Tensor:
        raise InvalidValue("Cannot determine validity of dependent constraint")


class _DependentProperty(property, _Dependent):
    """A property of a distribution's class that is a dependent constraint, and of an instance the constraint itself."""

    def __init__(
        self,
        fn: Callable[[Any], Constraint] | None = None,
        *,
        is_discrete: Any = NotImplemented,
        event_dim: Any = NotImplemented,
    ) -> None:
        property.__init__(self, fn)
        _Dependent.__init__(self, is_discrete=is_discrete, event_dim=event_dim)

    def __call__(self, fn: Any = None, **known: Any) -> Any:
        return type(self)(fn, is_discrete=self._is_discrete, event_dim=self._event_dim)


def is_dependent(constraint: object) -> bool:
    """Whether other parameters decide a constraint."""
    return isinstance(constraint, _Dependent)


class _IndependentConstraint(Constraint):
    """Holds for an event if another holds for each of its parts, which lie along the last axes."""

    def __init__(self, base_constraint: Constraint, reinterpreted_batch_ndims: int) -> None:
        self.base_constraint = base_constraint
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim + self.reinterpreted_batch_ndims

    def check(self, value: Tensor) -> Tensor:
        found, count = self.base_constraint.check(value), self.reinterpreted_batch_ndims
        if found.ndim < count:
            raise InvalidValue(f"Expected value.dim() >= {self.base_constraint.event_dim + count} but got {value.ndim}")
        return found.reshape(*found.shape[: found.ndim - count], -1).all(-1)

    def __repr__(self) -> str:
        return f"IndependentConstraint({self.base_constraint!r}, {self.reinterpreted_batch_ndims})"


class MixtureSameFamilyConstraint(Constraint):
    """The support of a mixture: that of its components, asked without their axis."""

    def __init__(self, base_constraint: Constraint) -> None:
        self.base_constraint = base_constraint

    @property
    def is_discrete(self) -> bool:
        return self.base_constraint.is_discrete

    @property
    def event_dim(self) -> int:
        return self.base_constraint.event_dim

    def check(self, value: Tensor) -> Tensor:
        found = self.base_constraint.check(value.unsqueeze(-1 - self.event_dim))
        return found.reshape(*value.shape[: value.ndim - self.event_dim], -1).all(-1)

    def __repr__(self) -> str:
        return f"MixtureSameFamilyConstraint({self.base_constraint!r})"


class _Boolean(Constraint):
    is_discrete = True

    def check(self, value: Tensor) -> Tensor:
        return value.eq(0) | value.eq(1)


class _OneHot(Constraint):
    is_discrete = True
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return _boolean.check(value).all(-1) & value.sum(-1).eq(1)


class _Bounded(Constraint):
    """One or two bounds, in the order in which `bounds` names them."""

    lower_bound: Any
    upper_bound: Any

    def __init__(self, *given: Any, **named: Any) -> None:
        values = dict(zip(self.bounds, given)) | named
        if sorted(values) != sorted(self.bounds):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.bounds)}, got {sorted(values)}")
        vars(self).update(values)


class _IntegerInterval(_Bounded):
    is_discrete = True
    bounds = ("lower_bound", "upper_bound")

    def check(self, value: Tensor) -> Tensor:
        return value.remainder(1).eq(0) & (value >= self.lower_bound) & (value <= self.upper_bound)


class _IntegerLessThan(_Bounded):
    is_discrete = True
    bounds = ("upper_bound",)

    def check(self, value: Tensor) -> Tensor:
        return value.remainder(1).eq(0) & (value <= self.upper_bound)


class _IntegerGreaterThan(_Bounded):
    is_discrete = True
    bounds = ("lower_bound",)

    def check(self, value: Tensor) -> Tensor:
        return value.remainder(1).eq(0) & (value >= self.lower_bound)


class _Real(Constraint):
    def check(self, value: Tensor) -> Tensor:
        return value.eq(value)  # all but NaN


class _GreaterThan(_Bounded):
    bounds = ("lower_bound",)

    def check(self, value: Tensor) -> Tensor:
        return value > self.lower_bound


class _GreaterThanEq(_Bounded):
    bounds = ("lower_bound",)

    def check(self, value: Tensor) -> Tensor:
        return value >= self.lower_bound


class _LessThan(_Bounded):
    bounds = ("upper_bound",)

    def check(self, value: Tensor) -> Tensor:
        return value < self.upper_bound


class _Interval(_Bounded):
    bounds = ("lower_bound", "upper_bound")

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value <= self.upper_bound)


class _HalfOpenInterval(_Bounded):
    bounds = ("lower_bound", "upper_bound")

    def check(self, value: Tensor) -> Tensor:
        return (value >= self.lower_bound) & (value < self.upper_bound)


class _Simplex(Constraint):
    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & ((value.sum(-1) - 1).abs() < 1e-6)


class _Multinomial(Constraint):
    is_discrete = True
    event_dim = 1

    def __init__(self, upper_bound: Any) -> None:
        self.upper_bound = upper_bound

    def check(self, value: Tensor) -> Tensor:
        return (value >= 0).all(-1) & (value.sum(-1) <= self.upper_bound)


class _Matrix(Constraint):
    event_dim = 2


class _LowerTriangular(_Matrix):
    def check(self, value: Tensor) -> Tensor:
        return value.tril().eq(value).flatten(-2).all(-1)


class _LowerCholesky(_Matrix):
    def check(self, value: Tensor) -> Tensor:
        return _LowerTriangular().check(value) & (value.diagonal(dim1=-2, dim2=-1) > 0).all(-1)


class _CorrCholesky(_Matrix):
    def check(self, value: Tensor) -> Tensor:
        tolerance = 10 * value.shape[-1] * epsilon(value)
        unit = ((value * value).sum(-1).sqrt() - 1).abs() <= tolerance
        return _LowerCholesky().check(value) & unit.all(-1)


class _Square(_Matrix):
    def check(self, value: Tensor) -> Tensor:
        return full(value.shape[:-2], value.shape[-2] == value.shape[-1])


class _Symmetric(_Square):
    def check(self, value: Tensor) -> Tensor:
        square = super().check(value)
        if not bool(square.all()):
            return square
        return (value - value.mT).abs().le(1e-6 + 1e-5 * value.mT.abs()).flatten(-2).all(-1)


class _PositiveSemidefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return eigvalsh(value).ge(0).all(-1) if bool(symmetric.all()) else symmetric


class _PositiveDefinite(_Symmetric):
    def check(self, value: Tensor) -> Tensor:
        symmetric = super().check(value)
        return cholesky_ex(value)[1].eq(0) if bool(symmetric.all()) else symmetric


class _Parts(Constraint):
    """Several constraints, one for each part of a value along an axis."""

    join: Callable[..., Tensor]

    def __init__(self, cseq: Sequence[Constraint], dim: int = 0) -> None:
        if not all(isinstance(each, Constraint) for each in cseq):
            raise InvalidValue("constraints of parts are a sequence of constraints", why=f"got {cseq!r:.80}")
        self.cseq, self.dim = list(cseq), dim

    @property
    def is_discrete(self) -> bool:
        return any(each.is_discrete for each in self.cseq)


class _Cat(_Parts):
    def __init__(self, cseq: Sequence[Constraint], dim: int = 0, lengths: Sequence[int] | None = None) -> None:
        super().__init__(cseq, dim)
        self.lengths = [1] * len(self.cseq) if lengths is None else list(lengths)

    @property
    def event_dim(self) -> int:
        return max(each.event_dim for each in self.cseq)

    def check(self, value: Tensor) -> Tensor:
        parts = value.split(self.lengths, self.dim)
        return _joined([each.check(part) for each, part in zip(self.cseq, parts)], self.dim)


class _Stack(_Parts):
    @property
    def event_dim(self) -> int:
        dim = max(each.event_dim for each in self.cseq)
        return dim + 1 if self.dim + dim < 0 else dim

    def check(self, value: Tensor) -> Tensor:
        parts = value.unbind(self.dim)
        return _stacked([each.check(part) for each, part in zip(self.cseq, parts)], self.dim)


boolean = _boolean = _Boolean()
dependent = _Dependent()
dependent_property = _DependentProperty
independent = _IndependentConstraint
one_hot = _OneHot()
integer_interval = _IntegerInterval
nonnegative_integer = _IntegerGreaterThan(0)
positive_integer = _IntegerGreaterThan(1)
real = _Real()
real_vector = independent(real, 1)
positive = _GreaterThan(0.0)
nonnegative = _GreaterThanEq(0.0)
greater_than = _GreaterThan
greater_than_eq = _GreaterThanEq
less_than = _LessThan
interval = _Interval
unit_interval = _Interval(0.0, 1.0)
half_open_interval = _HalfOpenInterval
simplex = _Simplex()
multinomial = _Multinomial
lower_triangular = _LowerTriangular()
lower_cholesky = _LowerCholesky()
corr_cholesky = _CorrCholesky()
square = _Square()
symmetric = _Symmetric()
positive_semidefinite = _PositiveSemidefinite()
positive_definite = _PositiveDefinite()
cat = _Cat
stack = _Stack
