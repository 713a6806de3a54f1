"""Gradients kept within bounds, in place: by the norm of all of them, or each by its value."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator

from ...base.errors import RunError
from ...eager.autograd.modes import no_grad
from ...eager.functions.create.data import tensor
from ...eager.functions.reduce.reduce import vector_norm
from ...eager.functions.shape.join import stack
from ...eager.tensor.tensor import Tensor

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm"]

Tensors = Tensor | Iterable[Tensor]  # `foreach` of the functions below asks for a faster way; there is one alone


def _listed(tensors: Tensors) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else list(tensors)


def _gradients(parameters: list[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


def get_total_norm(
    tensors: Tensors, norm_type: float = 2.0, error_if_nonfinite: bool = False, foreach: bool | None = None
) -> Tensor:
    """The norm of all elements of some tensors, as if they were one vector.

    >>> import weft
    >>> get_total_norm([weft.tensor([3.0]), weft.tensor([[4.0]])])
    tensor(5.)
    """
    order = float(norm_type)
    with no_grad():
        norms = [vector_norm(found, order) for found in _listed(tensors)]
        total = vector_norm(stack(norms), order) if norms else tensor(0.0)
    if error_if_nonfinite and not total.isfinite():
        raise RunError(
            f"The total norm of order {order} for gradients from `parameters` is non-finite, so it cannot be clipped",
            hint="leave out error_if_nonfinite to scale them by that norm anyway",
        )
    return total


def clip_grads_with_norm_(
    parameters: Tensors, max_norm: float, total_norm: Tensor, foreach: bool | None = None
) -> None:
    """Scales the gradients of parameters by max_norm / total_norm where that is below 1."""
    with no_grad():
        scale = (total_norm + 1e-6).reciprocal().mul(float(max_norm)).clamp(max=1.0)
        for gradient in _gradients(_listed(parameters)):
            gradient.mul_(scale)


def clip_grad_norm_(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """Scales the gradients of parameters so that their norm, as one vector, is at most `max_norm`. Gives the norm
    that they had.

    >>> import weft
    >>> w = weft.nn.Parameter(weft.zeros(2))
    >>> w.grad = weft.tensor([3.0, 4.0])
    >>> clip_grad_norm_(w, max_norm=1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    found = _listed(parameters)
    if not found and isinstance(parameters, Iterator):
        warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=2)
    total = get_total_norm(_gradients(found), norm_type, error_if_nonfinite)
    clip_grads_with_norm_(found, max_norm, total)
    return total


def clip_grad_norm(
    parameters: Tensors,
    max_norm: float,
    norm_type: float = 2.0,
    error_if_nonfinite: bool = False,
    foreach: bool | None = None,
) -> Tensor:
    """The old name of `clip_grad_norm_`."""
    message = "`nn.utils.clip_grad_norm` is now deprecated in favor of `nn.utils.clip_grad_norm_`."
    warnings.warn(message, FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite)


def clip_grad_value_(parameters: Tensors, clip_value: float, foreach: bool | None = None) -> None:
    """Limits each element of the gradients of parameters to [-clip_value, clip_value].

    >>> import weft
    >>> w = weft.nn.Parameter(weft.zeros(3))
    >>> w.grad = weft.tensor([-9.0, 0.5, 2.0])
    >>> clip_grad_value_([w], 1.0)
    >>> w.grad
    tensor([-1.0000,  0.5000,  1.0000])
    """
    bound = float(clip_value)
    with no_grad():
        for gradient in _gradients(_listed(parameters)):
            gradient.clamp_(min=-bound, max=bound)
