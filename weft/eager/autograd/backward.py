"""Backward passes as users start them: `backward`, `grad`, and what tensors have for autograd."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.dtype import is_float
from ...base.errors import InvalidType, RunError
from ..functions.table import row
from ..tensor.memory import is_foreign
from ..tensor.size import Size
from ..tensor.tensor import Tensor, bind, wrap
from ..tensor.types import OF_NUMPY
from .gradient_graph import GradientEdge
from .hooks import Hooks, RemovableHandle
from .node import Meta
from .python_engine import get_default_engine, set_default_engine


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    *,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Adds the gradients of `tensors` to the `grad` of the leaves they were made from.

    >>> import weft
    >>> x = weft.tensor([1.0, 3.0], requires_grad=True)
    >>> weft.autograd.backward(x * x, weft.tensor([1.0, 10.0]))
    >>> x.grad
    tensor([ 2., 60.])
    """
    outputs = _as_tuple(tensors)
    if any([is_foreign(output) for output in outputs if isinstance(output, Tensor)]):
        raise RunError(
            "backward() called inside a functorch transform. This is not supported",
            why="gradients of a batched tensor belong to each element of the batch",
            hint="use weft.func.grad or weft.func.vjp, or call backward() outside of vmap",
        )
    if inputs is not None and not _as_tuple(inputs):
        raise RunError("'inputs' argument to backward cannot be empty.")
    grads = _output_grads(outputs, grad_tensors, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    wanted = () if inputs is None else _as_tuple(inputs)
    extra = {"accumulate_grad": True} if wanted else {}
    get_default_engine().run_backward(outputs, grads, keep, create_graph, wanted, True, **extra)


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the sum of `outputs` with respect to `inputs`.

    >>> import weft
    >>> x = weft.tensor(3.0, requires_grad=True)
    >>> (dx,) = weft.autograd.grad(x * x * x, x, create_graph=True)
    >>> dx.item(), weft.autograd.grad(dx, x)
    (27.0, (tensor(18.),))
    """
    if is_grads_batched:
        raise RunError("is_grads_batched is not supported", hint="call grad for each of the rows")
    if materialize_grads and allow_unused is False:
        raise RunError("Expected allow_unused to be True or not passed when materialize_grads=True")
    ys, xs = _as_tuple(outputs), _as_tuple(inputs)
    if not xs:
        raise RunError("grad requires non-empty inputs.")
    grads = _output_grads(ys, grad_outputs, create_graph)
    keep = create_graph if retain_graph is None else retain_graph
    unused = materialize_grads if allow_unused is None else allow_unused
    results: tuple[Any, ...] = get_default_engine().run_backward(ys, grads, keep, create_graph, xs, unused)
    if not materialize_grads:
        return results
    return tuple(wrap(np.zeros(*_meta(x))) if g is None else g for g, x in zip(results, xs))


def _meta(value: Any) -> Meta:
    """The shape and dtype of a tensor, or of what arrives at an edge."""
    if isinstance(value, GradientEdge):
        return value.meta
    return value._array.shape, value._array.dtype


def _as_tuple(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (Tensor, GradientEdge)):
        return (value,)
    try:
        items = tuple(value)
    except TypeError:
        raise InvalidType(f"expected a Tensor or several, not {value!r:.60}") from None
    for item in items:
        if not isinstance(item, (Tensor, GradientEdge)):
            raise InvalidType(f"expected a Tensor, but got {type(item).__name__}")
    return items


def _output_grads(outputs: Sequence[Tensor], grads: Any, create_graph: bool) -> tuple[Any, ...]:
    """The gradients to start from: ones for scalars that have none given."""
    if grads is None or isinstance(grads, Tensor):
        grads = (grads,) if grads is not None else (None,) * len(outputs)
    if not isinstance(grads, Sequence):
        raise InvalidType(f"gradients are a Tensor or several, not {grads!r:.60}")
    output_grads = tuple(grads)
    if len(output_grads) != len(outputs):
        raise RunError(f"got {len(outputs)} tensors and {len(output_grads)} gradients")
    return tuple(_output_grad(y, g) for y, g in zip(outputs, output_grads))


def _output_grad(output: Tensor | GradientEdge, grad: Any) -> Any:
    shape, kind = _meta(output)
    if grad is not None:
        if not isinstance(grad, Tensor):
            raise InvalidType(f"gradients can be either Tensors or None, but got {type(grad).__name__}")
        if grad._array.shape != shape:
            raise RunError(
                f"Mismatch in shape: grad_output has a shape of {grad.shape} and output has a "
                f"shape of {Size.of(shape)}."
            )
        return grad
    if isinstance(output, Tensor) and not output.requires_grad:
        return None
    if math.prod(shape) != 1:
        raise RunError("grad can be implicitly created only for scalar outputs")
    if not is_float(kind):
        raise RunError(f"grad can be implicitly created only for real scalar outputs but got {OF_NUMPY[kind]}")
    return wrap(np.ones(shape, kind))


# What tensors have.


@row(name="backward", space=None)
def _backward(
    self: Tensor, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
) -> None:
    """Adds the gradients of this tensor to the `grad` of the leaves it was made from.

    >>> import weft
    >>> x = weft.tensor([1.0, 2.0], requires_grad=True)
    >>> (x * x).sum().backward()
    >>> x.grad
    tensor([2., 4.])
    """
    backward(self, gradient, retain_graph, create_graph, inputs=inputs)


@row(space=None)
def register_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> RemovableHandle:
    """`hook(grad)` runs when the gradient of this tensor is known, and may replace it."""
    if not self.requires_grad:
        raise RunError("cannot register a hook on a tensor that doesn't require gradient")
    node, index = self._edge()
    assert node is not None
    return node.hooks_of(index).add(hook)


@row(space=None)
def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], Any]) -> Any:
    """`hook(tensor)` runs after this leaf's `grad` was added to."""
    if not self.requires_grad:
        raise RunError("cannot register a hook on a tensor that doesn't require gradient")
    if not self.is_leaf:
        raise RunError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    if self._after_hooks is None:
        self._after_hooks = Hooks()
    return self._after_hooks.add(hook)


@row(space=None)
def retain_grad(self: Tensor) -> None:
    """Has a tensor that is no leaf keep its gradient in `grad`."""
    if not self.requires_grad:
        raise RunError("can't retain_grad on Tensor that has requires_grad=False")
    node, index = self._edge()
    if self.is_leaf or self._retains or node is None:
        return
    self._retains = True
    node._retained = node._retained or {}
    node._retained[index] = weakref.ref(self)


@row
def detach_(self: Tensor) -> Tensor:
    """Takes this tensor out of the graph, in place."""
    if self._base is not None:
        raise RunError("Can't detach views in-place.", hint="use detach() instead, or clone() the view first")
    self._grad_fn, self._output_nr, self._requires_grad = None, 0, False
    return self


def retains_grad(self: Tensor) -> bool:
    return self._retains


bind(retains_grad=property(retains_grad))


class _VariableMeta(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, Tensor)

    @property
    def _execution_engine(cls) -> Any:
        return get_default_engine()

    @_execution_engine.setter
    def _execution_engine(cls, engine: Any) -> None:
        set_default_engine(engine)


class Variable(metaclass=_VariableMeta):
    """The old name of a tensor that autograd follows; making one gives a Tensor."""

    def __new__(cls, data: Tensor, requires_grad: bool = False) -> Any:
        if not isinstance(data, Tensor):
            raise InvalidType(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


__all__ = ["Variable", "backward", "grad"]
