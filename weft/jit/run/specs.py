"""What a plan of execution depends on: facts of the arguments of a call, as keys of a table of plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...eager.tensor.device import device as Device
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.types import dtype
from ..types import TensorType, Type, scalar_of


class TensorFacts(NamedTuple):
    """What a plan may know of a tensor."""

    dtype: dtype
    device: Device
    requires_grad: bool
    rank: int

    def __str__(self) -> str:
        parts = [*"*" * self.rank, str(self.device), *["requires_grad"] * self.requires_grad]
        return f"{scalar_of(self.dtype)}({', '.join(parts)})"


class ArgumentSpec:
    """Facts of the arguments of a call that do not change with their sizes. Other values than tensors count by their
    kind alone. Equal ones share a plan.

    >>> from weft import ones
    >>> ArgumentSpec(True, [ones(2, 3), 1]) == ArgumentSpec(True, [ones(4, 5), 2])
    True
    >>> ArgumentSpec(True, [ones(2, 3)])
    ArgumentSpec(grad, Float(*, *, cpu))
    """

    def __init__(self, with_grad: bool, values: Sequence[Any]) -> None:
        self.with_grad = with_grad
        self.facts = tuple([self._facts_of(value) for value in tensors_of(values)])

    def _facts_of(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return type(value).__name__
        wanted = self.with_grad and bool(value.requires_grad)
        return TensorFacts(value.dtype, value.device, wanted, value.ndim)

    def needs_grad(self) -> bool:
        """Whether a tensor among the arguments needs a gradient."""
        return any(isinstance(each, TensorFacts) and each.requires_grad for each in self.facts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArgumentSpec):
            return NotImplemented
        return type(self) is type(other) and (self.with_grad, self.facts) == (other.with_grad, other.facts)

    def __hash__(self) -> int:
        return hash((type(self), self.with_grad, self.facts))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(['grad' if self.with_grad else 'no grad', *map(str, self.facts)])})"


class CompleteFacts(NamedTuple):
    """All that a tensor has but its elements."""

    tensor: TensorFacts
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def __str__(self) -> str:
        parts = [*map(str, self.sizes), f"strides={list(self.strides)}", str(self.tensor.device)]
        parts += ["requires_grad"] * self.tensor.requires_grad
        return f"{scalar_of(self.tensor.dtype)}({', '.join(parts)})"


class CompleteArgumentSpec(ArgumentSpec):
    """The same with sizes and strides.

    >>> from weft import ones
    >>> CompleteArgumentSpec(False, [ones(2, 3)])
    CompleteArgumentSpec(no grad, Float(2, 3, strides=[3, 1], cpu))
    """

    def _facts_of(self, value: Any) -> Any:
        facts = super()._facts_of(value)
        if not isinstance(facts, TensorFacts):
            return facts
        return CompleteFacts(facts, tuple(value.shape), tuple(value.stride()))

    def needs_grad(self) -> bool:
        return any(isinstance(each, CompleteFacts) and each.tensor.requires_grad for each in self.facts)


def tensors_of(values: Sequence[Any]) -> list[Any]:
    """Values in order, with what is in tuples in place of the tuples."""
    found: list[Any] = []
    waiting = list(values)[::-1]
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting += reversed(value)
        else:
            found.append(value)
    return found


def refined(kind: Type, value: Any, with_grad: bool) -> Type:
    """The type of an input with what a spec knows of its value."""
    if not isinstance(kind, TensorType) or not isinstance(value, Tensor):
        return kind
    wanted = with_grad and bool(value.requires_grad)
    return TensorType(scalar_of(value.dtype), (None,) * value.ndim, None, wanted, value.device)
