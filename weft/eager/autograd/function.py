"""Functions that users differentiate themselves: forward and backward as static methods."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...base.errors import InvalidType, RunError
from ..tensor.memory import is_foreign
from ..tensor.tensor import Tensor, tensor_of, wrap
from .anomaly import anomaly, remember_forward
from .modes import modes, no_grad
from .node import FREED, Node, saved_class


class FunctionCtx(Node):
    """What forward leaves for backward; it is the node of the call as well."""

    function: type[Function]  # of the subclass that a Function has

    def __init__(self) -> None:
        super().__init__((), ())
        self._to_save: tuple[Any, ...] = ()
        self._saved: list[Any] | None = None
        self._dirty: tuple[Tensor, ...] = ()
        self._constant: tuple[Tensor, ...] = ()
        self._materialize = True
        self.needs_input_grad: tuple[bool, ...] = ()
        self._tensor_positions: list[int] = []

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keeps inputs or outputs; `saved_tensors` gives them back in backward."""
        for tensor in tensors:
            if tensor is not None and not isinstance(tensor, Tensor):
                raise InvalidType(f"save_for_backward can only save variables, but got {type(tensor).__name__}")
        self._to_save = tensors

    save_for_forward = save_for_backward

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        if self._saved is None:
            raise RunError(FREED, hint="specify retain_graph=True when calling backward the first time")
        return tuple(s and s.unpack(self, tensor_of) for s in self._saved)

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Says which inputs forward changed in place."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Says which outputs have no gradient."""
        self._constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether gradients that do not exist come as zeros (the default) or as None."""
        self._materialize = value

    # The node

    def _finish(self, outputs: Sequence[Any]) -> None:
        of_outputs = {id(output) for output in outputs}
        kept = saved_class()
        self._saved = [t if t is None else kept(t, id(t) in of_outputs) for t in self._to_save]
        self._to_save = ()

    def release(self) -> None:
        if self._saved:
            self._saved = None

    def apply(self, grads: list[Any]) -> Sequence[Any]:
        if self._materialize:
            grads = [wrap(np.zeros(*meta)) if grad is None else grad for grad, meta in zip(grads, self.outputs)]
        returned = self.function.backward(self, *grads)
        results = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        count = len(self.needs_input_grad)
        if len(results) > count and all(extra is None for extra in results[count:]):
            results = results[:count]
        if len(results) != count:
            raise RunError(
                f"function {self.name()} returned an incorrect number of gradients "
                f"(expected {count}, got {len(results)})"
            )
        for result in results:
            if result is not None and not isinstance(result, Tensor):
                raise RunError(
                    f"function {self.name()} returned a gradient different than expected: "
                    f"expected Variable or None (got {type(result).__name__})"
                )
        return [results[position] for position in self._tensor_positions]


class Function:
    """A differentiable function of one's own.

    >>> class Double(Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         return x * 2
    ...     @staticmethod
    ...     def backward(ctx, grad):
    ...         return grad * 2
    >>> Double.apply(wrap(np.ones(2, "float32"))).tolist()
    [2.0, 2.0]
    """

    _node_class: type[FunctionCtx]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._node_class = type(f"{cls.__name__}Backward", (FunctionCtx,), {"function": cls})

    @staticmethod
    def forward(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError("You must implement the forward function for custom Function.")

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom Function to use "
            "it with backward mode AD."
        )

    setup_context: Callable[..., Any] | None = None

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Runs forward, unrecorded, and gives its results this function's place in the graph."""
        if any([isinstance(arg, Tensor) and is_foreign(arg) for arg in args]):
            return modes.trace.each(cls.__name__, cls.apply, args)
        ctx = cls._node_class()
        ctx.needs_input_grad = tuple(isinstance(a, Tensor) and a.requires_grad for a in args)
        recorded = modes.grad and any(ctx.needs_input_grad)
        with no_grad():
            if cls.setup_context is None:
                returned = cls.forward(ctx, *args)
            else:
                returned = cls.forward(*args)
                cls.setup_context(ctx, args, returned)
        outputs = list(returned) if isinstance(returned, (tuple, list)) else [returned]
        if recorded:
            outputs = _record(ctx, args, outputs)
        for tensor in ctx._dirty:
            tensor._counter[0] += 1
        return type(returned)(outputs) if isinstance(returned, (tuple, list)) else outputs[0]


def _record(ctx: FunctionCtx, args: Sequence[Any], outputs: list[Any]) -> list[Any]:
    """Makes the call a part of the graph; outputs that are inputs become tensors of their own."""
    ctx._tensor_positions = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
    ctx.next_functions = tuple(args[i]._edge() for i in ctx._tensor_positions)
    dirty = {id(tensor) for tensor in ctx._dirty}
    constant = {id(tensor) for tensor in ctx._constant}
    inputs = {id(a) for a in args}
    results = []
    for output in outputs:
        if isinstance(output, Tensor) and id(output) in inputs and id(output) not in dirty:
            output = output.detach()
        results.append(output)
    tensors = [output for output in results if isinstance(output, Tensor)]
    ctx.outputs = tuple((t._array.shape, t._array.dtype) for t in tensors)
    for index, tensor in enumerate(tensors):
        if id(tensor) in dirty and tensor.requires_grad and tensor.is_leaf:
            raise RunError("a leaf Variable that requires grad is being used in an in-place operation.")
        if id(tensor) not in constant and tensor._array.dtype.kind in "fcV":
            tensor._grad_fn, tensor._output_nr, tensor._requires_grad = ctx, index, True
            tensor._history += 1
    ctx._finish(results)
    if anomaly.enabled:
        remember_forward(ctx)
    return results


def once_differentiable(function: Callable[..., Any]) -> Callable[..., Any]:
    """Marks a backward whose own gradient cannot be taken: asking for it is an error."""

    @functools.wraps(function)
    def inside(ctx: Any, *grads: Any) -> Any:
        with no_grad():
            returned = function(ctx, *grads)
        if not (modes.grad and any(isinstance(g, Tensor) and g.requires_grad for g in grads)):
            return returned
        results = returned if isinstance(returned, tuple) else (returned,)
        marked = tuple(_once(r, grads) if isinstance(r, Tensor) else r for r in results)
        return marked if isinstance(returned, tuple) else marked[0]

    return inside


class _Once(Node):
    def apply(self, grads: list[Any]) -> Sequence[Any]:
        raise RunError("trying to differentiate twice a function that was marked with @once_differentiable")


def _once(result: Tensor, grads: Sequence[Any]) -> Tensor:
    edges = tuple(g._edge() for g in grads if isinstance(g, Tensor))
    once = result.detach()
    once._grad_fn = _Once(edges, ((result._array.shape, result._array.dtype),))
    once._requires_grad = True
    return once
