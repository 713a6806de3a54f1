"""Parameter: a tensor that a module trains."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base.errors import InvalidType
from .copying import copied
from .tensor import Tensor, sharing, wrap
from .types import get_default_dtype


class Parameter(Tensor):
    """A tensor that belongs to a module and, if not told otherwise, has a gradient.

    It shares the memory of the tensor it is made from.
    """

    __module__ = "weft.nn"

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Any:
        if data is not None and not isinstance(data, Tensor):
            raise InvalidType(f"a Parameter is made from a Tensor, not a {type(data).__name__}")
        if data is None:
            data = wrap(np.empty(0, get_default_dtype().numpy))
        return sharing(data, object.__new__(cls)).requires_grad_(requires_grad)

    def __init__(self, data: Tensor | None = None, requires_grad: bool = True) -> None:
        pass

    def __repr__(self) -> str:
        return "Parameter containing:\n" + Tensor.__repr__(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        if id(self) not in memo:
            made = type(self)(copied(self, memo).detach(), self.requires_grad)
            made._grad = None if self.grad is None else copied(self.grad, memo)
            memo[id(self)] = made
        found: Parameter = memo[id(self)]
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.detach(), self.requires_grad)


def _rebuild(data: Tensor, requires_grad: bool) -> Parameter:
    made: Parameter = Parameter(data, requires_grad)
    return made
