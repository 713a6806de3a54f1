"""Derivatives of functions: comes in a function of tensors and a point, go out matrices of
derivatives or their products with vectors. All are made of backward passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.dtype import is_complex
from ...base.errors import InvalidType, InvalidValue, RunError, Unsupported
from ..functions.misuse import typed_errors
from ..functions.shape.join import stack
from ..functions.shape.shape import reshape, view_as
from ..tensor.tensor import Tensor, wrap
from .backward import grad
from .modes import enable_grad

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
Tensors = tuple[Tensor, ...]
Function = Callable[..., Any]
STRICT = "This is not allowed in strict mode."
OUTPUTS = "outputs of the user-provided function"


def _as_tuple(value: Any, what: str, name: str) -> tuple[bool, Tensors]:
    """Tensors as a tuple, and whether they were one."""
    items = value if isinstance(value, tuple) else (value,)
    for number, item in enumerate(items):
        if not isinstance(item, Tensor):
            kind = type(item).__name__
            raise InvalidType(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the "
                f"value at index {number} has type {kind}."
            )
    return isinstance(value, tuple), items


def _entered(tensors: Tensors, create_graph: bool, tracked: bool = True) -> Tensors:
    """Tensors that a function is called with: in the graph they come from, or in one of its own."""
    if create_graph:
        return tuple(view_as(x, x) if x.requires_grad else x.detach().requires_grad_(tracked) for x in tensors)
    return tuple(x.detach().requires_grad_(tracked) for x in tensors)


def _left(tensors: Sequence[Tensor], create_graph: bool, was_tuple: bool) -> Any:
    outside = tuple(tensors) if create_graph else tuple(x.detach() for x in tensors)
    return outside if was_tuple else outside[0]


def _called(name: str, func: Function, inputs: Tensors, strict: bool) -> tuple[bool, Tensors]:
    was_tuple, outputs = _as_tuple(func(*inputs), OUTPUTS, name)
    for number, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RunError(
                f"Output {number} of the user-provided function does not require gradients. The "
                "outputs must be computed in a differentiable manner from the input when running "
                "in strict mode."
            )
    return was_tuple, outputs


def _gradients(
    outputs: Sequence[Any], inputs: Tensors, grads: Sequence[Any] | None, create_graph: bool
) -> tuple[Any, ...]:
    """Gradients, None where there is no way from an output to an input."""
    weights = [None] * len(outputs) if grads is None else grads
    pairs = [(y, g) for y, g in zip(outputs, weights) if y is not None and y.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    ys, gs = zip(*pairs)
    return grad(ys, inputs, gs, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _filled(grads: Sequence[Any], like: Tensors, strict: bool, create_graph: bool, what: str) -> list[Tensor]:
    """Gradients with zeros for those that are none; errors in strict mode."""
    filled = []
    for number, (one, x) in enumerate(zip(grads, like)):
        if one is None and strict:
            raise RunError(f"The {what} is independent of input {number}. {STRICT}")
        if one is not None and strict and create_graph and not one.requires_grad:
            raise RunError(
                f"The derivative of the {what} is independent of input {number}. This is not "
                "allowed in strict mode when create_graph=True."
            )
        filled.append(wrap(np.zeros(x._shape, x._dtype)) if one is None else one)
    return filled


def _vectors(name: str, v: Any, like: Tensors, create_graph: bool, of: str) -> Any:
    """The vector of a product, one part for each tensor; ones where a single number is asked."""
    if v is None:
        if len(like) != 1 or like[0]._array.size != 1:
            raise RunError(
                f"The vector v can only be None if the {of} the user-provided function is a single "
                "Tensor with a single element."
            )
        return (wrap(np.ones(like[0]._shape, like[0]._dtype)),)
    parts = _entered(_as_tuple(v, "v", name)[1], create_graph, False)
    if len(parts) != len(like):
        raise RunError(f"v is a tuple of invalid length: should be {len(like)} but got {len(parts)}")
    for number, (part, x) in enumerate(zip(parts, like)):
        if part._array.shape != x._array.shape:
            raise RunError(f"Entry {number} in v has invalid size: should be {x.shape} but got {part.shape}.")
    return parts


# Products with vectors.


@typed_errors
def vjp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """What a function gives, and a vector times the matrix of its derivatives."""
    with enable_grad():
        was_tuple, tensors = _as_tuple(inputs, "inputs", "vjp")
        xs = _entered(tensors, create_graph)
        many, ys = _called("vjp", func, xs, strict)
        parts = _vectors("vjp", v, ys, create_graph, "output of")
        grads = _gradients(ys, xs, parts, create_graph)
        product = _filled(grads, xs, strict, create_graph, "output of the user-provided function")
    return _left(ys, create_graph, many), _left(product, create_graph, was_tuple)


@typed_errors
def jvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """What a function gives, and the matrix of its derivatives times a vector: gradients are linear
    in those of outputs, so that their gradient by those is this product."""
    with enable_grad():
        _, tensors = _as_tuple(inputs, "inputs", "jvp")
        xs = _entered(tensors, create_graph)
        parts = _vectors("jvp", v, xs, create_graph, "input to")
        many, ys = _called("jvp", func, xs, strict)
        any_grads = tuple(wrap(np.zeros(y._shape, y._dtype)).requires_grad_() for y in ys)
        back = _gradients(ys, xs, any_grads, True)
        if strict:
            _filled(back, xs, True, False, "output of the user-provided function")
        grads = _gradients(back, any_grads, parts, create_graph)
        product = _filled(grads, ys, strict, create_graph, "gradient")
    return _left(ys, create_graph, many), _left(product, create_graph, many)


def _one_number(name: str, many: bool, ys: Tensors) -> None:
    if many:
        raise RunError(f"The function given to {name} should return a single Tensor")
    if ys[0]._array.size != 1:
        raise RunError(f"The Tensor returned by the function given to {name} should contain a single element")


@typed_errors
def vhp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """What a function of one number as result gives, and a vector times the matrix of its second
    derivatives."""
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


@typed_errors
def hvp(
    func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False
) -> tuple[Any, Any]:
    """The same as `vhp`: the matrix is symmetric."""
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


def _hessian_product(
    name: str, func: Function, inputs: Any, v: Any, create_graph: bool, strict: bool
) -> tuple[Any, Any]:
    with enable_grad():
        was_tuple, tensors = _as_tuple(inputs, "inputs", name)
        xs = _entered(tensors, create_graph)
        parts = _vectors(name, v, xs, create_graph, "input to")
        many, ys = _called(name, func, xs, strict)
        _one_number(name, many, ys)
        first = _gradients(ys, xs, None, True)
        if strict:
            _filled(first, xs, True, True, "output of the user-provided function")
        second = _gradients(first, xs, parts, create_graph)
        what = "jacobian of the user-provided function"
        product = _filled(second, xs, strict, create_graph, what)
    return _left(ys, create_graph, many), _left(product, create_graph, was_tuple)


# Matrices.


@typed_errors
def jacobian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivatives of every element that a function gives by every element of its inputs. Those
    of one output element are one backward pass, whatever `vectorize` and `strategy` ask for.

    >>> jacobian(lambda x: x * x, wrap(np.array([1.0, 2.0]))).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    _check_strategy(create_graph, strict, vectorize, strategy)
    with enable_grad():
        was_tuple, tensors = _as_tuple(inputs, "inputs", "jacobian")
        xs = _entered(tensors, create_graph)
        many, ys = _called("jacobian", func, xs, strict)
        rows = tuple(_derivatives(y, xs, create_graph, strict) for y in ys)
    matrices = tuple(_left(row, create_graph, was_tuple) for row in rows)
    return matrices if many else matrices[0]


def _check_strategy(create_graph: bool, strict: bool, vectorize: bool, strategy: str) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise InvalidValue(f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}')
    if strict and vectorize:
        raise RunError("jacobian: `strict=True` and `vectorized=True` are not supported together.")
    if strategy == "forward-mode" and create_graph:
        raise Unsupported('jacobian: `create_graph=True` and `strategy="forward-mode"` together')
    if strategy == "forward-mode" and not vectorize:
        raise Unsupported('jacobian: `strategy="forward-mode"` without `vectorize=True`')


def _derivatives(output: Tensor, inputs: Tensors, create_graph: bool, strict: bool) -> list[Tensor]:
    """The derivatives of one output, in the shape (output, input) for each input."""
    array, what = output._array, "output of the user-provided function"
    if is_complex(array.dtype):
        raise RunError(
            f"grad can be implicitly created only for real scalar outputs but got {output.dtype}",
            hint="take the jacobian of the real and of the imaginary part",
        )
    columns: list[list[Tensor]] = [[] for _ in inputs]
    for number in np.arange(array.size):
        one = np.zeros(array.shape, array.dtype)
        one.reshape(-1)[number] = 1
        grads = _gradients((output,), inputs, (wrap(one),), create_graph)
        for column, row in zip(columns, _filled(grads, inputs, strict, create_graph, what)):
            column.append(row)
    return [_together(column, array.shape, x) for column, x in zip(columns, inputs)]


def _together(rows: list[Tensor], shape: tuple[int, ...], x: Tensor) -> Tensor:
    whole = (*shape, *x._array.shape)
    if not rows:
        return wrap(np.zeros(whole, x._array.dtype))
    together: Tensor = reshape(stack(rows), whole)
    return together


@typed_errors
def hessian(
    func: Function,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function that gives one number: the jacobian of its jacobian.

    >>> hessian(lambda x: (x * x * x).sum(), wrap(np.array([1.0, 2.0]))).tolist()
    [[6.0, 0.0], [0.0, 12.0]]
    """
    was_tuple, tensors = _as_tuple(inputs, "inputs", "hessian")
    if outer_jacobian_strategy not in ("forward-mode", "reverse-mode"):
        raise InvalidValue("outer_jacobian_strategy must be 'forward-mode' or 'reverse-mode'")

    def first(*xs: Tensor) -> Tensors:
        many, ys = _called("hessian", func, xs, strict)
        _one_number("hessian", many, ys)
        grads = _gradients(ys, xs, None, True)
        filled = _filled(grads, xs, strict, strict, "output of the user-provided function")
        return tuple(filled)

    matrices = jacobian(first, tensors, create_graph, strict, vectorize, outer_jacobian_strategy)
    return matrices if was_tuple else matrices[0][0]
