"""What layers are made with: functions, numbers for each dimension, parameters to be filled, a text of attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Protocol, cast

from ...eager.functions.all import FUNCTIONS
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from .. import functional
from .module import Module


class Functions(Protocol):
    """Functions that give tensors, by name."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]: ...


# The stubs of these functions speak of the class that users see, layers of the one that is behind it.
F = cast(Functions, functional)

Numbers = int | tuple[int, ...]  # for all dimensions, or for each of them

empty: Callable[..., Tensor] = FUNCTIONS["weft"]["empty"]
zeros: Callable[..., Tensor] = FUNCTIONS["weft"]["zeros"]
ones: Callable[..., Tensor] = FUNCTIONS["weft"]["ones"]
tensor: Callable[..., Tensor] = FUNCTIONS["weft"]["tensor"]


def for_each(value: Any, rank: int) -> tuple[Any, ...]:
    """As many values as there are dimensions, from these or from one that stands for all.

    >>> for_each(2, 3), for_each([1, 2], 2)
    ((2, 2, 2), (1, 2))
    """
    return tuple(value) if isinstance(value, Iterable) else (value,) * rank


def parameter(shape: Iterable[int], device: Any = None, dtype: Any = None) -> Parameter:
    """A parameter whose elements `reset_parameters` will write."""
    made: Parameter = Parameter(empty(tuple(shape), device=device, dtype=dtype))
    return made


class Described(Module):
    """A module whose text tells the attributes that its class names."""

    _told: ClassVar[tuple[str, ...]] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in self._told)
