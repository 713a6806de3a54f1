"""Rows of nn.functional: scores turned into probabilities along an axis."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ....base.dtype import is_float
from ....base.errors import RunError
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, axis_of, wrap
from ...tensor.types import as_dtype
from ..create.create import laid_out_as
from ..math.arithmetic import add, div, sub
from ..math.special import log_softmax, softmax
from ..math.unary import neg
from ..random.fill import exponential_
from ..reduce.extreme import argmax
from ..table import NN, row


def _implied_axis(name: str, dim: int | None, rank: int) -> int:
    if dim is not None:
        return dim
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as an argument.",
        stacklevel=3,
    )
    return 0 if rank in (0, 1, 3) else 1


def _in_kind(input: Tensor, dtype: Any, name: str) -> Tensor:
    result = input if dtype is None else input._cast(as_dtype(dtype).numpy)
    if not is_float(result._dtype):
        raise RunError(f'"{name}_kernel_impl" not implemented for {result.dtype.title!r}')
    return result


@row(name="softmax", space=NN, method=False)
def _nn_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """exp(x) divided by its sum along an axis

    >>> import weft
    >>> weft.nn.functional.softmax(weft.tensor([[0.0, 0.0], [1.0, 3.0]]), dim=1)
    tensor([[0.5000, 0.5000],
            [0.1192, 0.8808]])
    """
    return softmax(input, _implied_axis("softmax", dim, input.ndim), dtype)


@row(name="log_softmax", space=NN, method=False)
def _nn_log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along an axis

    >>> import weft
    >>> weft.nn.functional.log_softmax(weft.tensor([1.0, 3.0]), dim=0)
    tensor([-2.1269, -0.1269])
    """
    return log_softmax(input, _implied_axis("log_softmax", dim, input.ndim), dtype)


@row(space=NN, method=False)
def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Tensor:
    """softmax(-x) along an axis"""
    axis = _implied_axis("softmin", dim, input.ndim)
    return softmax(neg(_in_kind(input, dtype, "softmin")), axis)


@row(space=NN, method=False)
def gumbel_softmax(logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """softmax((logits + noise of Gumbel's distribution) / tau); with `hard`, a 1 at the greatest
    whose gradient is that of the softmax"""
    if eps != 1e-10:
        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    drawn = exponential_(wrap(laid_out_as(logits, logits._dtype)))
    with np.errstate(divide="ignore"):
        noise = wrap(-np.log(array_of(drawn)))
    soft = softmax(div(add(logits, noise), tau), dim)
    if not hard:
        return soft
    axis = axis_of(dim, soft.ndim)
    chosen = np.zeros_like(array_of(soft))
    np.put_along_axis(chosen, array_of(argmax(soft, axis, True)), 1, axis)
    return add(sub(wrap(chosen), soft.detach()), soft)
