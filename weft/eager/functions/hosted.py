"""Results that numpy computes from the values of tensors, and not by operators: what is recorded calls the function
again in every run, on the values of then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..autograd.modes import modes
from ..tensor.memory import Array, array_of
from ..tensor.tensor import Tensor, wrap


def hosted(function: Callable[..., Array], *tensors: Tensor) -> Tensor:
    """A tensor of what a function gives for the arrays of tensors. Its shape and dtype follow from theirs."""
    return wrap(hosted_memory(function, *tensors))


def hosted_memory(function: Callable[..., Array], *tensors: Tensor) -> Any:
    """The same as memory that is no tensor yet."""
    if modes.trace is not None:
        return modes.trace.host(function, tensors)
    return function(*[array_of(tensor) for tensor in tensors])


def checked(check: Callable[[Array], None], tensor: Tensor) -> None:
    """Has a function look at the values of a tensor, which raises what is wrong with them."""
    if modes.trace is not None:
        modes.trace.check(check, tensor)
    else:
        check(array_of(tensor))
