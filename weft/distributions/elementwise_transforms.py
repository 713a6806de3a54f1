"""Transforms of numbers and how they compose: functions with inverses and the logarithm of the determinant of their
Jacobian, by which the density of a transformed sample follows from that of the sample."""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from typing import Any

from ..base.errors import InvalidValue
from ..eager.tensor.size import Size
from ..eager.tensor.tensor import Tensor
from . import constraints
from .constraints import Constraint
from .distribution import Distribution
from .functions import broadcast_shapes, epsilon, ones_like, smallest, softmax, softplus, sum_rightmost, zeros_like
from .functions import stack as stacked


class Transform:
    """A function with an inverse. A subclass gives `_call`, `_inverse` and `log_abs_det_jacobian`, and says where it
    goes from and to by `domain` and `codomain`; one that is not `bijective` has an inverse that gives one of several.

    With `cache_size=1` the last pair of values is kept, so that the inverse of a result is exactly what it came from.

    >>> import weft
    >>> ExpTransform().inv(weft.tensor([1.0]))
    tensor([0.])
    """

    bijective: Any = False
    domain: Any
    codomain: Any

    def __init__(self, cache_size: int = 0) -> None:
        if cache_size not in (0, 1):
            raise InvalidValue("cache_size must be 0 or 1", why=f"it is {cache_size!r}")
        self._cache_size = cache_size
        self._inv: weakref.ref[Transform] | None = None
        self._last: tuple[Any, Any] = (None, None)
        super().__init__()

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_inv": None}

    @property
    def event_dim(self) -> int:
        """How many axes of an event it looks at together; those of both ends have to be the same."""
        if self.domain.event_dim != self.codomain.event_dim:
            raise InvalidValue("Please use either .domain.event_dim or .codomain.event_dim")
        return self.domain.event_dim

    @property
    def inv(self) -> Transform:
        """The transform back."""
        found = self._inv() if self._inv is not None else None
        if found is None:
            found = _InverseTransform(self)
            self._inv = weakref.ref(found)
        return found

    @property
    def sign(self) -> Any:
        """1 where it grows, -1 where it falls; only functions of single numbers have one."""
        raise NotImplementedError(f"{type(self).__name__} has no sign")

    def with_cache(self, cache_size: int = 1) -> Any:
        """The same with another cache."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        made = object.__new__(type(self))
        vars(made).update(vars(self), _cache_size=cache_size, _inv=None, _last=(None, None))
        return made

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        if not self._cache_size:
            return self._call(x)
        if self._last[0] is not x:
            self._last = (x, self._call(x))
        return self._last[1]

    def _inv_call(self, y: Tensor) -> Tensor:
        if not self._cache_size:
            return self._inverse(y)
        if self._last[1] is not y:
            self._last = (self._inverse(y), y)
        return self._last[0]

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |dy/dx| for an input and its output."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape: Any) -> Size:
        """The shape of outputs of inputs of a shape."""
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        """The shape of inputs of outputs of a shape."""
        return Size(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """A transform the other way."""

    def __init__(self, transform: Transform) -> None:
        super().__init__(cache_size=transform._cache_size)
        self._forward = transform

    @property
    def domain(self) -> Constraint:
        return self._forward.codomain

    @property
    def codomain(self) -> Constraint:
        return self._forward.domain

    @property
    def bijective(self) -> bool:
        return self._forward.bijective

    @property
    def sign(self) -> Any:
        return self._forward.sign

    @property
    def inv(self) -> Transform:
        return self._forward

    def with_cache(self, cache_size: int = 1) -> Any:
        return self._forward.with_cache(cache_size).inv

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _InverseTransform) and self._forward == other._forward

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        return self._forward._inv_call(x)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -self._forward.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape: Any) -> Size:
        return self._forward.inverse_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self._forward.forward_shape(shape)

    def __repr__(self) -> str:
        return f"_InverseTransform({self._forward!r})"


class ComposeTransform(Transform):
    """Several transforms, the first one first."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    @property
    def domain(self) -> Constraint:
        if not self.parts:
            return constraints.real
        found = self.parts[0].domain
        rank = self.parts[-1].codomain.event_dim
        for part in reversed(self.parts):
            rank = max(rank + part.domain.event_dim - part.codomain.event_dim, part.domain.event_dim)
        return _with_rank(found, rank)

    @property
    def codomain(self) -> Constraint:
        if not self.parts:
            return constraints.real
        found = self.parts[-1].codomain
        rank = self.parts[0].domain.event_dim
        for part in self.parts:
            rank = max(rank + part.codomain.event_dim - part.domain.event_dim, part.codomain.event_dim)
        return _with_rank(found, rank)

    @property
    def bijective(self) -> bool:
        return all(part.bijective for part in self.parts)

    @property
    def sign(self) -> Any:
        found: Any = 1
        for part in self.parts:
            found = found * part.sign
        return found

    @property
    def inv(self) -> Transform:
        found = self._inv() if self._inv is not None else None
        if found is None:
            found = ComposeTransform([part.inv for part in reversed(self.parts)])
            self._inv = weakref.ref(found)
            found._inv = weakref.ref(self)
        return found

    def with_cache(self, cache_size: int = 1) -> ComposeTransform:
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size)

    def __call__(self, x: Tensor) -> Tensor:
        for part in self.parts:
            x = part(x)
        return x

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if not self.parts:
            return zeros_like(x)
        values = [x]
        for part in self.parts[:-1]:
            values.append(part(values[-1]))
        values.append(y)
        terms, rank = [], self.domain.event_dim
        for part, before, after in zip(self.parts, values, values[1:]):
            terms.append(sum_rightmost(part.log_abs_det_jacobian(before, after), rank - part.domain.event_dim))
            rank += part.codomain.event_dim - part.domain.event_dim
        return added(terms)

    def forward_shape(self, shape: Any) -> Size:
        for part in self.parts:
            shape = part.forward_shape(shape)
        return Size(shape)

    def inverse_shape(self, shape: Any) -> Size:
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return Size(shape)

    def __repr__(self) -> str:
        told = ",\n    ".join(repr(part) for part in self.parts)
        return f"ComposeTransform(\n    {told}\n)"


def _with_rank(constraint: Constraint, rank: int) -> Constraint:
    more = rank - constraint.event_dim
    return constraints.independent(constraint, more) if more else constraint


def added(terms: Sequence[Tensor]) -> Tensor:
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


identity_transform = ComposeTransform([])


class IndependentTransform(Transform):
    """Another transform with more axes in an event, over which its Jacobian is summed."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    @property
    def domain(self) -> Constraint:
        return constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims)

    @property
    def codomain(self) -> Constraint:
        return constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims)

    @property
    def bijective(self) -> bool:
        return self.base_transform.bijective

    @property
    def sign(self) -> Any:
        return self.base_transform.sign

    def _call(self, x: Tensor) -> Tensor:
        _need_rank(x, self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y: Tensor) -> Tensor:
        _need_rank(y, self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape: Any) -> Size:
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape: Any) -> Size:
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"IndependentTransform({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


def _need_rank(value: Tensor, rank: int) -> None:
    if value.ndim < rank:
        raise InvalidValue("Too few dimensions on input", why=f"{value.ndim}, where an event has {rank}")


class ReshapeTransform(Transform):
    """Another shape of the axes of an event."""

    bijective = True

    def __init__(self, in_shape: Any, out_shape: Any, cache_size: int = 0) -> None:
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise InvalidValue("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size)

    @property
    def domain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.in_shape))

    @property
    def codomain(self) -> Constraint:
        return constraints.independent(constraints.real, len(self.out_shape))

    def _call(self, x: Tensor) -> Tensor:
        return x.reshape(self.forward_shape(x.shape))

    def _inverse(self, y: Tensor) -> Tensor:
        return y.reshape(self.inverse_shape(y.shape))

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x.new_zeros(x.shape[: x.ndim - len(self.in_shape)])

    def forward_shape(self, shape: Any) -> Size:
        return _reshaped(Size(shape), self.in_shape, self.out_shape)

    def inverse_shape(self, shape: Any) -> Size:
        return _reshaped(Size(shape), self.out_shape, self.in_shape)


def _reshaped(shape: Size, old: Size, new: Size) -> Size:
    cut = len(shape) - len(old)
    if cut < 0 or tuple(shape[cut:]) != tuple(old):
        raise InvalidValue(f"Shape mismatch: expected {old} at the end of {shape}")
    return Size(shape[:cut] + new)


class _Elementwise(Transform):
    """A growing function of single numbers."""

    bijective = True
    domain: Any = constraints.real
    codomain: Any = constraints.real
    sign: Any = +1

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Elementwise):
    """y = exp(x)"""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return x.exp()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return x


class PowerTransform(_Elementwise):
    """y = x ** exponent, of positive numbers"""

    domain = constraints.positive
    codomain = constraints.positive

    def __init__(self, exponent: Any, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.exponent = exponent

    @property
    def sign(self) -> Any:
        return self.exponent.sign() if isinstance(self.exponent, Tensor) else math.copysign(1, self.exponent)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PowerTransform) and _same(self.exponent, other.exponent)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x**self.exponent

    def _inverse(self, y: Tensor) -> Tensor:
        return y ** (1 / self.exponent)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape: Any) -> Size:
        return _joint(shape, self.exponent)

    inverse_shape = forward_shape


def _joint(shape: Any, *values: Any) -> Size:
    """A shape broadcast with those of parameters."""
    return broadcast_shapes(tuple(shape), *[tuple(value.shape) for value in values if isinstance(value, Tensor)])


def _same(a: Any, b: Any) -> bool:
    """Whether two parameters are equal, be they numbers or tensors."""
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        equal = a.eq(b) if isinstance(a, Tensor) else b.eq(a)
        return bool(equal.all())
    return bool(a == b)


class SigmoidTransform(_Elementwise):
    """y = 1 / (1 + exp(-x))"""

    codomain = constraints.unit_interval

    def _call(self, x: Tensor) -> Tensor:
        return x.sigmoid().clamp(smallest(x), 1.0 - epsilon(x))

    def _inverse(self, y: Tensor) -> Tensor:
        y = y.clamp(smallest(y), 1.0 - epsilon(y))
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x) - softplus(x)


class SoftplusTransform(_Elementwise):
    """y = log(1 + exp(x))"""

    codomain = constraints.positive

    def _call(self, x: Tensor) -> Tensor:
        return softplus(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return (-(-y).expm1()).log() + y

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return -softplus(-x)


class TanhTransform(_Elementwise):
    """y = tanh(x)"""

    codomain = constraints.interval(-1.0, 1.0)

    def _call(self, x: Tensor) -> Tensor:
        return x.tanh()

    def _inverse(self, y: Tensor) -> Tensor:
        return y.atanh()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return 2.0 * (math.log(2.0) - x - softplus(-2.0 * x))  # log(1 - tanh(x)^2) without cancellation


class AbsTransform(Transform):
    """y = |x|, whose inverse gives the positive one"""

    domain = constraints.real
    codomain = constraints.positive

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbsTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return x.abs()

    def _inverse(self, y: Tensor) -> Tensor:
        return y


class AffineTransform(Transform):
    """y = loc + scale * x, of numbers or of events with `event_dim` axes"""

    bijective = True

    def __init__(self, loc: Any, scale: Any, event_dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    @property
    def event_dim(self) -> int:
        return self._event_dim

    @property
    def domain(self) -> Constraint:
        return _with_rank(constraints.real, self._event_dim)

    codomain = domain

    @property
    def sign(self) -> Any:
        if isinstance(self.scale, Tensor):
            return self.scale.sign()
        return (self.scale > 0) - (self.scale < 0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return self.loc + self.scale * x

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        if isinstance(self.scale, Tensor):
            each = (ones_like(x) * self.scale).abs().log()
        else:
            each = ones_like(x) * math.log(abs(self.scale))
        return sum_rightmost(each, self._event_dim)

    def forward_shape(self, shape: Any) -> Size:
        return _joint(shape, self.loc, self.scale)

    inverse_shape = forward_shape


class SoftmaxTransform(Transform):
    """Any numbers to shares of one along the last axis; the inverse is the logarithm."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SoftmaxTransform)

    __hash__ = object.__hash__

    def _call(self, x: Tensor) -> Tensor:
        return softmax(x, -1)

    def _inverse(self, y: Tensor) -> Tensor:
        return y.log()

    def forward_shape(self, shape: Any) -> Size:
        if len(shape) < 1:
            raise InvalidValue("Too few dimensions on input")
        return Size(shape)

    inverse_shape = forward_shape


class CumulativeDistributionTransform(Transform):
    """Values to their probabilities under a distribution."""

    bijective = True
    codomain = constraints.unit_interval
    sign = +1

    def __init__(self, distribution: Distribution, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.distribution = distribution

    @property
    def domain(self) -> Constraint:
        return self.distribution.support

    def _call(self, x: Tensor) -> Tensor:
        return self.distribution.cdf(x)

    def _inverse(self, y: Tensor) -> Tensor:
        return self.distribution.icdf(y)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.distribution.log_prob(x)


class StackTransform(Transform):
    """A transform for each slice along an axis."""

    def __init__(self, tseq: Sequence[Transform], dim: int = 0, cache_size: int = 0) -> None:
        super().__init__(cache_size)
        self.transforms = [each.with_cache(cache_size) for each in tseq] if cache_size else list(tseq)
        self.dim = dim

    @property
    def bijective(self) -> bool:
        return all(each.bijective for each in self.transforms)

    @property
    def domain(self) -> Constraint:
        return constraints.stack([each.domain for each in self.transforms], self.dim)

    @property
    def codomain(self) -> Constraint:
        return constraints.stack([each.codomain for each in self.transforms], self.dim)

    def _slices(self, value: Tensor) -> list[Tensor]:
        if value.shape[self.dim] != len(self.transforms):
            raise InvalidValue(f"an axis of {value.shape[self.dim]} for {len(self.transforms)} transforms")
        return list(value.unbind(self.dim))

    def _call(self, x: Tensor) -> Tensor:
        return stacked([each(part) for each, part in zip(self.transforms, self._slices(x))], self.dim)

    def _inverse(self, y: Tensor) -> Tensor:
        return stacked([each.inv(part) for each, part in zip(self.transforms, self._slices(y))], self.dim)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        parts = zip(self.transforms, self._slices(x), self._slices(y))
        return stacked([each.log_abs_det_jacobian(a, b) for each, a, b in parts], self.dim)
