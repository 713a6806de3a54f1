"""Rows: activations, dropout and pools as the core has them, and forms that write into their
argument or give indices."""

from __future__ import annotations

from typing import Any

from ....base.errors import InvalidValue, RunError
from ...tensor.tensor import Tensor
from ..table import row
from .activation import NN, celu, elu, hardtanh, leaky_relu, relu, selu
from .activation import threshold as above_threshold
from .adaptive import adaptive_avg_pool1d, adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d
from .attention import alpha_dropout, dropout, dropout2d, feature_alpha_dropout, rrelu
from .conv import bilinear
from .image import channel_shuffle
from .pool import avg_pool1d, max_pool1d, max_pool2d, max_pool3d

for _function in (adaptive_avg_pool1d, avg_pool1d, bilinear):
    row(_function, method=False)
row(channel_shuffle, name="native_channel_shuffle", method=False)
row(channel_shuffle, name="native_channel_shuffle", space=NN, method=False)


# Activations.


def _celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    """x where x > 0, else alpha (exp(x / alpha) - 1)"""
    return celu(input, alpha)


def _selu(input: Tensor) -> Tensor:
    """Scaled elu that keeps mean 0 and variance 1"""
    return selu(input)


def _rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """x where x > 0, else x times a random number between two bounds, or their mean"""
    return rrelu(input, lower, upper, training)


row(_celu, name="celu", method=False)
row(_selu, name="selu", method=False)
row(_rrelu, name="rrelu", method=False)


@row(method=False)
@row(space=NN, method=False)
def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `celu`"""
    return celu(input, alpha, True)


@row(method=False)
@row(space=NN, method=False)
def selu_(input: Tensor) -> Tensor:
    """In-place `selu`"""
    return selu(input, True)


@row(method=False)
@row(space=NN, method=False)
def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """In-place `rrelu`"""
    return rrelu(input, lower, upper, training, True)


@row(method=False)
@row(space=NN, method=False)
def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """In-place `threshold`"""
    return above_threshold(input, threshold, value, True)


@row(space=NN, method=False)
def relu_(input: Tensor) -> Tensor:
    """In-place `relu`"""
    return relu(input, True)


@row(space=NN, method=False)
def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """In-place `elu`"""
    return elu(input, alpha, True)


@row(space=NN, method=False)
def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """In-place `hardtanh`"""
    return hardtanh(input, min_val, max_val, True)


@row(space=NN, method=False)
def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """In-place `leaky_relu`"""
    return leaky_relu(input, negative_slope, True)


# Elements left out at random.


def _dropping(name: str, function: Any, doc: str, features: bool) -> None:
    """`name(input, p, train)` and its in-place form."""

    def dropped(input: Tensor, p: float, train: bool, inplace: bool = False) -> Tensor:
        if features and train and p and input._array.size and input._array.ndim < 2:
            raise RunError("Feature dropout requires at least 2 dimensions in the input")
        try:
            made: Tensor = function(input, p, train, inplace)
        except InvalidValue as error:
            raise RunError(error.what) from None
        return made

    def fresh(input: Tensor, p: float, train: bool) -> Tensor:
        return dropped(input, p, train)

    def written(input: Tensor, p: float, train: bool) -> Tensor:
        return dropped(input, p, train, True)

    fresh.__doc__, written.__doc__ = doc, f"In-place `{name}`"
    for call, called in ((fresh, name), (written, f"{name}_")):
        call.__name__ = call.__qualname__ = called
        row(call, method=False)


_dropping("dropout", dropout, dropout.__doc__, False)
_dropping("feature_dropout", dropout2d, dropout2d.__doc__, True)
_dropping("alpha_dropout", alpha_dropout, alpha_dropout.__doc__, False)
_dropping("feature_alpha_dropout", feature_alpha_dropout, feature_alpha_dropout.__doc__, True)


# Pools.


def _max_pools(rank: int, function: Any) -> None:
    """`max_pool` of the core, and the forms that give indices as well."""

    def greatest(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        made: Tensor = function(input, kernel_size, stride or None, padding, dilation, ceil_mode)
        return made

    def with_indices(
        input: Tensor,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> tuple[Tensor, Tensor]:
        given = (kernel_size, stride or None, padding, dilation, ceil_mode, True)
        made: tuple[Tensor, Tensor] = function(input, *given)
        return made

    greatest.__name__ = greatest.__qualname__ = function.__name__
    greatest.__doc__ = function.__doc__
    with_indices.__name__ = with_indices.__qualname__ = f"{function.__name__}_with_indices"
    with_indices.__doc__ = f"{function.__doc__}, and where it is"
    row(greatest, method=False)
    row(with_indices, space=NN, method=False)
    if rank == 1:
        row(with_indices, method=False)


for _rank, _pool in enumerate((max_pool1d, max_pool2d, max_pool3d), 1):
    _max_pools(_rank, _pool)


def _adaptive_with_indices(function: Any) -> Any:
    def with_indices(input: Tensor, output_size: Any, return_indices: bool = False) -> tuple[Tensor, Tensor]:
        made: tuple[Tensor, Tensor] = function(input, output_size, True)
        return made

    with_indices.__name__ = with_indices.__qualname__ = f"{function.__name__}_with_indices"
    with_indices.__doc__ = f"{function.__doc__}, and where it is"
    row(with_indices, space=NN, method=False)


for _pool in (adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d):
    _adaptive_with_indices(_pool)


@row(name="adaptive_max_pool1d", method=False)
def _adaptive_max_pool1d(input: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    """The greatest of each of so many windows along one dimension, and where it is"""
    made: tuple[Tensor, Tensor] = adaptive_max_pool1d(input, output_size, True)
    return made
