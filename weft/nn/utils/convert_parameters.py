"""Parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ...base.errors import InvalidType
from ...eager.functions.shape.join import cat
from ...eager.tensor.tensor import Tensor

__all__ = ["parameters_to_vector", "vector_to_parameters"]


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements of some parameters, one after another.

    >>> import weft
    >>> parameters_to_vector([weft.ones(1, 2), weft.zeros(1)])
    tensor([1., 1., 0.])
    """
    return cat([parameter.reshape(-1) for parameter in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes parameters parts of a vector, in order: they share its memory."""
    if not isinstance(vec, Tensor):
        raise InvalidType(f"expected a Tensor, but got a {type(vec).__name__}")
    start = 0
    for parameter in parameters:
        end = start + parameter.numel()
        parameter.data = vec[start:end].view(parameter.shape).detach()
        start = end
