"""How parameters begin: fills of a tensor in place, which give the tensor and record no gradient.

The random ones draw PyTorch's numbers from the same seed.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar, cast

from ..base.errors import InvalidValue
from ..eager.autograd.modes import no_grad
from ..eager.functions.linalg.qr import qr
from ..eager.functions.math.compare import choose
from ..eager.functions.random.fill import randperm
from ..eager.random.generator import Generator
from ..eager.tensor.tensor import Tensor

__all__ = [
    "calculate_gain",
    "constant",
    "constant_",
    "dirac",
    "dirac_",
    "eye",
    "eye_",
    "kaiming_normal",
    "kaiming_normal_",
    "kaiming_uniform",
    "kaiming_uniform_",
    "normal",
    "normal_",
    "ones_",
    "orthogonal",
    "orthogonal_",
    "sparse",
    "sparse_",
    "trunc_normal_",
    "uniform",
    "uniform_",
    "xavier_normal",
    "xavier_normal_",
    "xavier_uniform",
    "xavier_uniform_",
    "zeros_",
]


def __dir__() -> list[str]:
    return list(__all__)


_LINEAR = ("linear", *(f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)))
_GAINS = {**dict.fromkeys((*_LINEAR, "sigmoid"), 1.0), "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """What an activation wants the standard deviation of the layer before it multiplied by.
    `param` is the slope of a leaky_relu below zero: its gain is sqrt(2 / (1 + slope^2)).

    >>> calculate_gain("leaky_relu", 1.0)
    1.0
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        if isinstance(slope, bool) or not isinstance(slope, (int, float)):
            raise InvalidValue(f"negative_slope {slope} not a valid number")
        return math.sqrt(2 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise InvalidValue(f"Unsupported nonlinearity {nonlinearity}", hint=f"one of {', '.join(_GAINS)}, leaky_relu")
    return _GAINS[nonlinearity]


_filling = ContextVar("filling", default=True)


@contextmanager
def unfilled() -> Iterator[None]:
    """Inside, the functions of this module leave tensors as they are."""
    before = _filling.set(False)
    try:
        yield
    finally:
        _filling.reset(before)


Fill = TypeVar("Fill", bound=Callable[..., Tensor])


def _fill(function: Fill) -> Fill:
    """Records nothing, whatever the tensor requires."""

    @functools.wraps(function)
    def call(tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if not _filling.get():
            return tensor
        with no_grad():
            return function(tensor, *args, **kwargs)

    return cast(Fill, call)


# Numbers that do not depend on the shape.


@_fill
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Numbers evenly spread over [a, b).

    >>> import weft
    >>> bool((uniform_(weft.empty(9), 2, 3) >= 2).all())
    True
    """
    tensor.uniform_(a, b, generator=generator)
    return tensor


@_fill
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers of a mean and a standard deviation."""
    tensor.normal_(mean, std, generator=generator)
    return tensor


@_fill
def trunc_normal_(
    tensor: Tensor,
    mean: float = 0.0,
    std: float = 1.0,
    a: float = -2.0,
    b: float = 2.0,
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers, of which those outside [a, b] are drawn again. (The bounds are no multiples of `std`.)

    >>> import weft
    >>> bool((trunc_normal_(weft.empty(99)).abs() <= 2).all())
    True
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_: few numbers are there to choose from",
            stacklevel=3,
        )
    share = (math.erf((b - mean) / std / math.sqrt(2)) - math.erf((a - mean) / std / math.sqrt(2))) / 2
    draw = _normal_within(a, b, mean, std) if share > 0.3 else _even_by_density(a, b, mean, std)
    values, refused = draw(tensor, generator)
    while refused.any():
        fresh, wrong = draw(tensor, generator)
        values = choose(refused, fresh, values)
        refused = refused & wrong
    tensor.copy_(values)
    return tensor


Draw = Callable[[Tensor, Generator | None], tuple[Tensor, Tensor]]  # numbers like a tensor's, and which to draw again


def _normal_within(a: float, b: float, mean: float, std: float) -> Draw:
    """Normal numbers, refused outside of the bounds."""

    def draw(like: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        low, high = (like.new_tensor(bound) for bound in (a, b))  # bounds that the dtype has
        values = like.new_empty_strided(like.shape, like.stride()).normal_(mean, std, generator=generator)
        return values, (values < low) | (values > high)

    return draw


def _even_by_density(a: float, b: float, mean: float, std: float) -> Draw:
    """Even numbers within the bounds, kept with the probability density(x) / max density: log u <= (z0^2 - z^2) / 2."""
    top = ((max(a, min(mean, b)) - mean) / std) ** 2 / 2

    def draw(like: Tensor, generator: Generator | None) -> tuple[Tensor, Tensor]:
        values = like.new_empty_strided(like.shape, like.stride()).uniform_(a, b, generator=generator)
        chance = ((values - mean) / std) ** 2 * -0.5 + top
        return values, values.clone().uniform_(generator=generator).log_() > chance

    return draw


@_fill
def constant_(tensor: Tensor, val: float) -> Tensor:
    """One number everywhere."""
    tensor.fill_(val)
    return tensor


@_fill
def ones_(tensor: Tensor) -> Tensor:
    """Ones."""
    tensor.fill_(1.0)
    return tensor


@_fill
def zeros_(tensor: Tensor) -> Tensor:
    """Zeros."""
    tensor.zero_()
    return tensor


# Maps that keep what they are given.


@_fill
def eye_(tensor: Tensor) -> Tensor:
    """The identity of a linear layer, as far as its matrix is square.

    >>> import weft
    >>> eye_(weft.empty(2, 3))
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    _must_be_matrix(tensor)
    tensor.zero_().diagonal().fill_(1)
    return tensor


@_fill
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """The identity of a convolution: a one in the middle of the kernel from each channel to the same channel."""
    if tensor.ndim not in (3, 4, 5):
        raise InvalidValue("Only tensors with 3, 4, or 5 dimensions are supported")
    if groups < 1 or tensor.shape[0] % groups:
        raise InvalidValue("dim 0 must be divisible by groups", why=f"{tensor.shape[0]} channels, {groups} groups")
    middle = tuple(extent // 2 for extent in tensor.shape[2:])
    part = tensor.shape[0] // groups
    tensor.zero_()
    for group in range(groups):
        for channel in range(min(part, tensor.shape[1])):
            tensor[(group * part + channel, channel, *middle)] = 1
    return tensor


# Numbers of a scale that follows from the shape.


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output of a layer has, and how many outputs an input."""
    if tensor.ndim < 2:
        raise InvalidValue("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    field = math.prod(tensor.shape[2:])
    return tensor.shape[1] * field, tensor.shape[0] * field


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    modes = ["fan_in", "fan_out"]
    if mode.lower() not in modes:
        raise InvalidValue(f"Mode {mode} not supported, please use one of {modes}")
    return _calculate_fan_in_and_fan_out(tensor)[modes.index(mode.lower())]


def _xavier_std(tensor: Tensor, gain: float) -> float:
    """gain sqrt(2 / (fan_in + fan_out))"""
    return gain * math.sqrt(2 / sum(_calculate_fan_in_and_fan_out(tensor)))


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float | None:
    """gain / sqrt(fan); None where there is nothing to fill"""
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=4)
        return None
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Even numbers that keep the variance forwards and backwards alike: +- gain sqrt(6 / (fan_in + fan_out)).

    >>> import weft
    >>> bool((xavier_uniform_(weft.empty(3, 3)).abs() <= 1).all())
    True
    """
    bound = math.sqrt(3) * _xavier_std(tensor, gain)
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal numbers of the standard deviation gain sqrt(2 / (fan_in + fan_out))."""
    return normal_(tensor, 0.0, _xavier_std(tensor, gain), generator)


@_fill
def kaiming_uniform_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Even numbers that keep the variance before an activation: +- gain sqrt(3 / fan). `a` is a leaky_relu's slope.

    >>> import weft
    >>> bool((kaiming_uniform_(weft.empty(4, 6), nonlinearity="relu").abs() <= 1).all())
    True
    """
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else uniform_(tensor, -math.sqrt(3) * std, math.sqrt(3) * std, generator)


@_fill
def kaiming_normal_(
    tensor: Tensor,
    a: float = 0,
    mode: str = "fan_in",
    nonlinearity: str = "leaky_relu",
    generator: Generator | None = None,
) -> Tensor:
    """Normal numbers of the standard deviation gain / sqrt(fan). `a` is a leaky_relu's slope."""
    std = _kaiming_std(tensor, a, mode, nonlinearity)
    return tensor if std is None else normal_(tensor, 0.0, std, generator)


# Matrices of a kind.


@_fill
def orthogonal_(tensor: Tensor, gain: float = 1, generator: Generator | None = None) -> Tensor:
    """An even draw of the matrices with orthogonal rows or columns, times a gain.

    >>> import weft
    >>> q = orthogonal_(weft.empty(3, 5))
    >>> weft.allclose(q @ q.t(), weft.eye(3), atol=1e-6)
    True
    """
    if tensor.ndim < 2:
        raise InvalidValue("Only tensors with 2 or more dimensions are supported")
    if not tensor.numel():
        return tensor
    rows = tensor.shape[0]
    flat = tensor.new_empty((rows, tensor.numel() // rows)).normal_(0, 1, generator=generator)
    wide = flat.shape[1] > rows
    q, r = qr(flat.t() if wide else flat)
    q = q * r.diagonal().sgn()  # of the factors of a matrix, those with a positive diagonal are unique
    tensor.copy_((q.t() if wide else q).reshape(tensor.shape)).mul_(gain)
    return tensor


@_fill
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal numbers, and a share of zeros in each column."""
    _must_be_matrix(tensor)
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)
    tensor.normal_(0, std, generator=generator)
    for column in range(columns):
        tensor[randperm(rows)[:zeros], column] = 0
    return tensor


def _must_be_matrix(tensor: Tensor) -> None:
    if tensor.ndim != 2:
        raise InvalidValue("Only tensors with 2 dimensions are supported")


# Old names.


def _old_name(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    new = function.__name__
    old = new.rstrip("_")

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"`nn.init.{old}` is now deprecated in favor of `nn.init.{new}`.", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = old
    call.__doc__ = f"The old name of `{new}`."
    return call


uniform = _old_name(uniform_)
normal = _old_name(normal_)
constant = _old_name(constant_)
eye = _old_name(eye_)
dirac = _old_name(dirac_)
xavier_uniform = _old_name(xavier_uniform_)
xavier_normal = _old_name(xavier_normal_)
kaiming_uniform = _old_name(kaiming_uniform_)
kaiming_normal = _old_name(kaiming_normal_)
orthogonal = _old_name(orthogonal_)
sparse = _old_name(sparse_)
