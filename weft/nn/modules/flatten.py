"""Axes joined into one, and one parted into several."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.errors import InvalidType
from ...eager.tensor.tensor import Tensor
from .module import Module

__all__ = ["Flatten", "Unflatten"]


class Flatten(Module):
    """The axes from one to another as one axis; those of an item if nothing else is said.

    >>> import weft
    >>> weft.nn.Flatten()(weft.zeros(2, 3, 4)).shape
    weft.Size([2, 12])
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim = start_dim
        self.end_dim = end_dim

    def forward(self, input: Tensor) -> Tensor:
        made: Tensor = input.flatten(self.start_dim, self.end_dim)
        return made

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """An axis as several, of sizes of which one may be -1.

    >>> import weft
    >>> weft.nn.Unflatten(1, (3, -1))(weft.zeros(2, 12)).shape
    weft.Size([2, 3, 4])
    """

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        if not isinstance(unflattened_size, (tuple, list)):
            found = type(unflattened_size).__name__
            raise InvalidType(f"unflattened_size must be a tuple of ints, but found type {found}")
        for place, size in enumerate(unflattened_size):
            if not isinstance(size, int):
                found = type(size).__name__
                message = f"unflattened_size must be tuple of ints, but found element of type {found} at pos {place}"
                raise InvalidType(message, hint="dimensions have no names here: give sizes alone")
        self.dim = dim
        self.unflattened_size = unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        made: Tensor = input.unflatten(self.dim, self.unflattened_size)
        return made

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
