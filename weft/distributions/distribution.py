"""Distribution: what all distributions have. Samples have the shape sample_shape + batch_shape + event_shape: draws,
independent distributions of other parameters, and the axes of one event."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NoReturn

from ..base.errors import InvalidType, InvalidValue
from ..eager.autograd.backward import grad
from ..eager.autograd.modes import enable_grad, no_grad
from ..eager.tensor.size import Size
from ..eager.tensor.tensor import Tensor
from . import constraints
from .functions import broadcast_all


class lazy_property:
    """A parameter that follows from others: computed when it is first asked for, with gradients, and kept."""

    def __init__(self, wrapped: Callable[[Any], Any]) -> None:
        self.wrapped = wrapped
        self.__doc__ = wrapped.__doc__
        self.name = wrapped.__name__

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if instance is None:
            return self
        with enable_grad():
            value = self.wrapped(instance)
        vars(instance)[self.name] = value
        return value


class Distribution:
    """Base of all distributions.

    A class says what its parameters are by `arg_constraints` and what it draws by `support`. All tensors and
    distributions that an instance holds begin with its batch shape, except those that `_fixed` names: so one `expand`
    serves all classes.
    """

    has_rsample: Any = False
    has_enumerate_support: Any = False
    arg_constraints: Any = {}
    support: Any = None
    _validate_args: bool = __debug__
    _fixed: ClassVar[Sequence[str]] = ()

    @staticmethod
    def set_default_validate_args(value: bool) -> None:
        """Says whether parameters and samples are checked where nothing else is said."""
        if value not in (True, False):
            raise InvalidValue(f"validation is switched by True and False, not {value!r:.60}")
        Distribution._validate_args = value

    def __init__(self, batch_shape: Any = (), event_shape: Any = (), validate_args: bool | None = None) -> None:
        self._batch_shape, self._event_shape = Size(batch_shape), Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args
        if self._validate_args:
            self._check_parameters()
        super().__init__()

    def _set(self, validate_args: bool | None, **parameters: Any) -> None:
        """Takes parameters of single events, broadcast with each other."""
        for name, value in zip(parameters, broadcast_all(*parameters.values())):
            setattr(self, name, value)
        given = [value for value in parameters.values() if isinstance(value, Tensor)]
        shape = getattr(self, next(iter(parameters))).shape if given else ()
        Distribution.__init__(self, shape, validate_args=validate_args)

    def _check_parameters(self) -> None:
        if not isinstance(self.arg_constraints, dict):
            warnings.warn(f"{type(self)} does not define `arg_constraints`: nothing is checked", stacklevel=3)
            return
        for name, constraint in self.arg_constraints.items():
            if constraints.is_dependent(constraint):
                continue
            if name not in vars(self) and isinstance(getattr(type(self), name, None), lazy_property):
                continue
            value = getattr(self, name)
            if not bool(constraint.check(value).all()):
                raise InvalidValue(
                    f"Expected parameter {name} ({type(value).__name__} of shape {tuple(value.shape)}) of distribution "
                    f"{self!r} to satisfy the constraint {constraint!r}, but found invalid values:\n{_shown(value)}"
                )

    @property
    def batch_shape(self) -> Size:
        """The shape of independent distributions."""
        return self._batch_shape

    @property
    def event_shape(self) -> Size:
        """The shape of one event."""
        return self._event_shape

    def expand(self, batch_shape: Any, _instance: Any = None) -> Any:
        """The same with another batch shape, to which its own can be broadcast; no memory is copied."""
        shape, own = Size(batch_shape), len(self._batch_shape)
        made = _instance if _instance is not None else object.__new__(type(self))
        vars(made).update(vars(self))
        for name, value in vars(self).items():
            if name in self._fixed:
                continue
            if isinstance(value, Tensor):
                vars(made)[name] = value.expand(shape + value.shape[own:])
            elif isinstance(value, Distribution):
                vars(made)[name] = value.expand(shape + value.batch_shape[own:])
        made._batch_shape = shape
        return made

    def _missing(self, what: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no {what}")

    @property
    def mean(self) -> Tensor:
        """The mean."""
        self._missing("mean")

    @property
    def mode(self) -> Tensor:
        """The most likely value."""
        raise NotImplementedError(f"{type(self)} does not implement mode")

    @property
    def variance(self) -> Tensor:
        """The variance."""
        self._missing("variance")

    @property
    def stddev(self) -> Tensor:
        """The standard deviation."""
        return self.variance.sqrt()

    def sample(self, sample_shape: Any = ()) -> Tensor:
        """Draws without gradients."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        """Draws that are differentiable functions of the parameters."""
        self._missing("rsample: its draws have no gradients")

    def sample_n(self, n: int) -> Tensor:
        """`sample((n,))`, by an old name."""
        warnings.warn("sample_n(n) is deprecated: use sample((n,))", UserWarning, 2)
        return self.sample((n,))

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the density, or of the probability, at values."""
        self._missing("log_prob")

    def cdf(self, value: Tensor) -> Tensor:
        """The probability of at most a value."""
        self._missing("cdf")

    def icdf(self, value: Tensor) -> Tensor:
        """The value up to which there is a probability."""
        self._missing("icdf")

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All values, along a first axis; in the batch shape if they are expanded."""
        self._missing("enumerate_support")

    def _enumerated(self, values: Tensor, expand: bool) -> Tensor:
        """Values along a first axis before the batch shape, or before as many axes of one."""
        rank = len(self._batch_shape)
        values = values.reshape((-1, *[1] * rank, *values.shape[1:]))
        tail = tuple(values.shape[1 + rank :])
        return values.expand((-1, *self._batch_shape, *tail)) if expand else values

    def entropy(self) -> Tensor:
        """The entropy, in nats."""
        self._missing("entropy")

    def perplexity(self) -> Tensor:
        """exp of the entropy"""
        return self.entropy().exp()

    def _extended_shape(self, sample_shape: Any = ()) -> Size:
        return Size(sample_shape) + self._batch_shape + self._event_shape

    def _validate_sample(self, value: Any) -> None:
        """Checks that values are in the support, and broadcast with the distribution's own shape."""
        if not isinstance(value, Tensor):
            raise InvalidValue("The value argument to log_prob must be a Tensor", why=f"it is {value!r:.60}")
        rank = len(self._event_shape)
        if value.shape[value.ndim - rank :] != self._event_shape:
            shapes = f"{value.shape} vs {self._event_shape}"
            raise InvalidValue(f"The right-most size of value must match event_shape: {shapes}.")
        own = self._batch_shape + self._event_shape
        for i, j in zip(reversed(value.shape), reversed(own)):
            if i != 1 and j != 1 and i != j:
                shapes = f"{value.shape} vs {own}"
                raise InvalidValue(f"Value is not broadcastable with batch_shape+event_shape: {shapes}.")
        try:
            support = self.support
        except NotImplementedError:
            support = None
        if support is None:
            warnings.warn(f"{type(self)} does not define `support`: samples are not checked", stacklevel=3)
            return
        if not bool(support.check(value).all()):
            raise InvalidValue(
                f"Expected value argument ({type(value).__name__} of shape {tuple(value.shape)}) to be within the "
                f"support ({support!r}) of the distribution {self!r}, but found invalid values:\n{_shown(value)}"
            )

    def _checked(self, value: Tensor) -> Tensor:
        """Values that `log_prob` or `cdf` is asked for."""
        if self._validate_args:
            self._validate_sample(value)
        return value

    def __repr__(self) -> str:
        told = []
        for name in self.arg_constraints:
            if name in vars(self):
                value = vars(self)[name]
                told.append(f"{name}: {value.item() if value.numel() == 1 else value.shape}")
        return f"{type(self).__name__}({', '.join(told)})"


def _shown(value: Tensor) -> str:
    return str(value.item()) if value.ndim == 0 else str(value)


class ExponentialFamily(Distribution):
    """Densities of the form exp(<t(x), theta> - F(theta) + k(x)).

    A class that says its natural parameters theta, the log normaliser F and the mean of the carrier measure k gets its
    entropy, F - <theta, F'> - k, and divergences from its own kind.
    """

    @property
    def _mean_carrier_measure(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not say the mean of its carrier measure")

    @property
    def _natural_params(self) -> tuple[Tensor, ...]:
        raise NotImplementedError

    def _log_normalizer(self, *natural_params: Tensor) -> Tensor:
        raise NotImplementedError

    def entropy(self) -> Tensor:
        parameters, normaliser, slopes = self._bregman()
        found: Tensor = normaliser - self._mean_carrier_measure
        for parameter, slope in zip(parameters, slopes):
            product = parameter * slope
            found = found - product.reshape(*self._batch_shape, -1).sum(-1)
        return found

    def _bregman(self) -> tuple[list[Tensor], Tensor, Sequence[Tensor]]:
        """The natural parameters, the log normaliser and its gradient."""
        with enable_grad():
            given = self._natural_params
            parameters = [each if each.requires_grad else each.detach().requires_grad_() for each in given]
            normaliser = self._log_normalizer(*parameters)
            slopes = grad(normaliser.sum(), parameters, create_graph=True)
        return parameters, normaliser, slopes


def one_of(**given: Any) -> tuple[str, Any]:
    """The one argument that is not None, and its name; an error if there are none or several."""
    named = [(name, value) for name, value in given.items() if value is not None]
    if len(named) != 1:
        names = [f"`{name}`" for name in given]
        if len(names) == 2:
            raise InvalidValue(f"Either {names[0]} or {names[1]} must be specified, but not both.")
        raise InvalidValue(f"Exactly one of {' or '.join(given)} may be specified.")
    return named[0]


def need_tensor(name: str, value: Any) -> None:
    """An error if a parameter that has to be a tensor is none."""
    if not isinstance(value, Tensor):
        raise InvalidType(f"{name} is a tensor, not {type(value).__name__}")
