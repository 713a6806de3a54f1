"""Checks of gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.dtype import FLOAT64, is_complex
from ...base.errors import InvalidValue, RunError
from ..functions.misuse import typed_errors
from ..tensor.memory import array_of
from ..tensor.tensor import Tensor, wrap
from .backward import grad
from .modes import enable_grad

Array = np.ndarray[Any, Any]


class GradcheckError(RunError):
    """A gradient differs from the slope it should be."""


@typed_errors
def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Whether gradients of a function of float64 or complex128 tensors are its slopes, by central
    differences; of complex numbers, those of both parts by both parts.

    >>> gradcheck(lambda x: x * x, wrap(np.array([1.0, 2.0])).requires_grad_())
    True
    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [a for a in args if isinstance(a, Tensor) and a.requires_grad]
    if not checked:
        raise InvalidValue("gradcheck expects at least one input tensor to require gradient, but none of them do")
    try:
        outputs = _outputs(func, args)
        for number, output in enumerate(outputs):
            _check_output(func, args, checked, output, number, (eps, atol, rtol, nondet_tol))
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(func: Callable[..., Any], args: Sequence[Any]) -> list[Tensor]:
    with enable_grad():
        returned = func(*args)
    items = returned if isinstance(returned, (tuple, list)) else [returned]
    return [item for item in items if isinstance(item, Tensor) and item.requires_grad]


def _check_output(
    func: Callable[..., Any],
    args: Sequence[Any],
    checked: Sequence[Tensor],
    output: Tensor,
    number: int,
    tolerances: tuple[float, float, float, float],
) -> None:
    eps, atol, rtol, nondet_tol = tolerances
    analytical = _analytical(output, checked)
    again = _analytical(output, checked)
    for position, tensor in enumerate(checked):
        if np.abs(analytical[position] - again[position]).max(initial=0.0) > nondet_tol:
            raise GradcheckError(
                "Backward is not reentrant, i.e., running backward with same input and grad_output "
                "multiple times gives different values"
            )
        numerical = _numerical(func, args, tensor, number, eps)
        if not np.allclose(analytical[position], numerical, rtol, atol, equal_nan=True):
            raise GradcheckError(
                f"Jacobian mismatch for output {number} with respect to input {position}",
                why=f"numerical: {_short(numerical)} analytical: {_short(analytical[position])}",
            )


def _short(jacobian: Array) -> str:
    return np.array2string(jacobian, precision=4, threshold=40)


def _analytical(output: Tensor, inputs: Sequence[Tensor]) -> list[Array]:
    """d output / d input as (elements of input, elements of output), by backward passes. Complex
    numbers count as two elements: real parts come first, then imaginary ones."""
    size = output._array.size
    parts = (1, 1j) if is_complex(output._array.dtype) else (1,)
    jacobians = [np.zeros((_in_parts(array_of(x)).size, size * len(parts))) for x in inputs]
    for column in range(size * len(parts)):
        seed = np.zeros(size, output._array.dtype)
        seed[column % size] = parts[column // size]
        start = wrap(seed.reshape(output._array.shape))
        grads = grad(output, inputs, start, retain_graph=True, allow_unused=True)
        for jacobian, value in zip(jacobians, grads):
            if value is not None:
                jacobian[:, column] = _in_parts(value._array)
    return jacobians


def _in_parts(array: Array) -> Array:
    """The numbers in one row; of complex ones the real parts, then the imaginary ones."""
    flat = array.reshape(-1)
    return np.concatenate([flat.real, flat.imag]) if is_complex(array.dtype) else flat


def _numerical(func: Callable[..., Any], args: Sequence[Any], tensor: Tensor, number: int, eps: float) -> Array:
    """The same by central differences. The tensor's own memory is changed, and put back."""
    array = array_of(tensor)
    rows = []
    for part in (eps, eps * 1j) if is_complex(array.dtype) else (eps,):
        for index in np.ndindex(array.shape):
            kept = array[index]
            values = []
            for step in (part, -part):
                array[index] = kept + step
                values.append(_values(func, args, number))
            array[index] = kept
            rows.append((values[0] - values[1]) / (2 * eps))
    size = _values(func, args, number).size
    return np.array(rows).reshape(len(rows), size)


def _values(func: Callable[..., Any], args: Sequence[Any], number: int) -> Array:
    with enable_grad():  # which outputs there are may depend on it
        returned = func(*args)
    items = returned if isinstance(returned, (tuple, list)) else [returned]
    chosen = [item for item in items if isinstance(item, Tensor) and item.requires_grad]
    return _in_parts(array_of(chosen[number])).astype(FLOAT64)


def _random(rng: np.random.Generator, like: Array) -> Tensor:
    values = np.asarray(rng.standard_normal(like.shape))
    if is_complex(like.dtype):
        values = values + 1j * rng.standard_normal(like.shape)
    return wrap(np.asarray(values).astype(like.dtype)).requires_grad_()


@typed_errors
def gradgradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Any],
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Whether gradients of gradients are the slopes of gradients."""
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = _outputs(func, args)
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        grad_outputs = [_random(rng, array_of(y)) for y in outputs]
    seeds = (grad_outputs,) if isinstance(grad_outputs, Tensor) else tuple(grad_outputs)
    count = len(seeds)

    def gradients(*values: Any) -> tuple[Any, ...]:
        arguments, grad_outputs = values[: len(args)], values[len(args) :]
        wanted = [a for a in arguments if isinstance(a, Tensor) and a.requires_grad]
        grads = grad(_outputs(func, arguments), wanted, grad_outputs, create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    assert count == len(outputs)
    return gradcheck(
        gradients,
        (*args, *seeds),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
    )
