"""Rows: elements and channels left out at random, in nn.functional and as the core has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.draws import keep_scale
from ....base.dtype import is_float
from ....base.errors import InvalidValue, RunError
from ...autograd.node_names import title_of
from ...tensor.memory import Array, array_of, layout_of
from ...tensor.tensor import Tensor, wrap
from ..create.create import laid_out_as
from ..hosted import hosted
from ..math.arithmetic import add, mul, rsub
from ..math.compare import ne
from ..random.fill import bernoulli_
from ..table import NN, in_place, named, row
from .by_rank import by_rank

_SATURATED = -1.7580993408473766  # what selu approaches for large negative x
Shape = tuple[int, ...]


def _kept(input: Tensor, p: float, shape: Shape | None, scale: Any) -> Tensor:
    """A scale, and zeros with a probability: in a shape, or for each element as it lies in memory."""
    kind = input._dtype
    if not is_float(kind):
        raise RunError(f"result type Float can't be cast to the desired output type {input.dtype.title}")
    like = laid_out_as(input, kind) if shape is None else np.empty(shape, kind)

    def drawn() -> Array:
        kept = bernoulli_(wrap(np.empty_like(like)), 1 - p)
        factors = array_of(kept)
        factors *= scale
        return factors

    return hosted(drawn)


def _scaled(input: Tensor, kept: Tensor, p: float) -> Tensor:
    """What is left becomes larger, so that the mean stays."""
    return mul(input, kept)


def _levelled(input: Tensor, kept: Tensor, p: float) -> Tensor:
    """What is left out becomes selu's lowest value; mean and variance stay."""
    scale = ((1 - p) * (1 + p * _SATURATED**2)) ** -0.5
    filled = mul(rsub(kept, 1), _SATURATED)
    return add(mul(add(mul(input, kept), filled), scale), -scale * p * _SATURATED)


def _dropped(
    input: Tensor,
    p: float,
    training: bool,
    inplace: bool,
    shape: Shape | None = None,
    fill: Callable[[Tensor, Tensor, float], Tensor] = _scaled,
) -> Tensor:
    if not 0 <= p <= 1:
        raise InvalidValue(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or not input.numel():
        return input
    if p == 1:
        return in_place(mul, None, title_of("mul"), input, (0,), {}) if inplace else mul(input, 0)
    kept = _kept(input, p, shape, keep_scale(input._dtype, p) if fill is _scaled else 1)
    if inplace:
        return in_place(fill, None, title_of("mul" if fill is _scaled else "add"), input, (kept, p), {})
    return fill(input, kept, p)


def _by_channel(input: Tensor, lead: int = 2) -> Shape:
    """One decision for each channel of each item."""
    shape = input._shape
    return (*shape[:lead], *[1] * (len(shape) - lead))


@row(space=NN, method=False)
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """Elements left out with probability p, the others scaled by 1 / (1 - p)

    >>> import weft
    >>> generator = weft.manual_seed(0)
    >>> weft.nn.functional.dropout(weft.ones(4), p=0.5)
    tensor([0., 0., 2., 0.])
    >>> weft.nn.functional.dropout(weft.ones(4), p=0.5, training=False)
    tensor([1., 1., 1., 1.])
    """
    return _dropped(input, p, training, inplace)


def _dropout_of_channels(rank: int) -> Callable[..., Tensor]:
    def drop(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if rank == 1 and input.ndim not in (2, 3):
            raise RunError(f"dropout1d: Expected 2D or 3D input, but received a {input.ndim}D input.")
        shape = _by_channel(input, input.ndim - 1 if rank == 1 else 2)
        return _dropped(input, p, training, inplace, shape)

    return drop


_, dropout2d, _ = by_rank(_dropout_of_channels, "dropout{}d", "Whole channels left out with probability p")


@row(space=NN, method=False)
def alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """Dropout that keeps mean and variance after selu"""
    return _dropped(input, p, training, inplace, fill=_levelled)


@row(space=NN, method=False)
def feature_alpha_dropout(input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False) -> Tensor:
    """`alpha_dropout` of whole channels"""
    if training and p and input.ndim < 2:
        raise RunError("Feature dropout requires at least 2 dimensions in the input")
    return _dropped(input, p, training, inplace, _by_channel(input), _levelled)


# As the core has them.


def _core_forms(name: str, function: Callable[..., Tensor], channels: bool = False) -> None:
    """`name(input, p, train)` and its in-place form."""

    def dropped(input: Tensor, p: float, train: bool, inplace: bool) -> Tensor:
        if channels and train and p and input.numel() and input.ndim < 2:
            raise RunError("Feature dropout requires at least 2 dimensions in the input")
        try:
            return function(input, p, train, inplace)
        except InvalidValue as error:
            raise RunError(error.what) from None

    def fresh(input: Tensor, p: float, train: bool) -> Tensor:
        return dropped(input, p, train, False)

    def written(input: Tensor, p: float, train: bool) -> Tensor:
        return dropped(input, p, train, True)

    row(named(fresh, name, function.__doc__), method=False)
    row(named(written, f"{name}_", f"In-place `{name}`"), method=False)


_core_forms("dropout", dropout)
_core_forms("feature_dropout", dropout2d, channels=True)
_core_forms("alpha_dropout", alpha_dropout)
_core_forms("feature_alpha_dropout", feature_alpha_dropout, channels=True)


@row(method=False)
def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """`dropout`, and which elements it left"""
    if train is False or not p:
        return mul(input, 1), wrap(np.ones(input._shape, bool))
    scaled = dropout(wrap(np.ones_like(layout_of(input))), p, True)
    return mul(input, scaled), ne(scaled, 0)
