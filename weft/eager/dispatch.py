"""The one path from a call to its result: kernel, then autograd record.

Comes in: an operator of the registry, its params, tensors whose dtypes already fit it. Goes out:
tensors. Promotion happens before, in the rows of the function table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from ..base.dtype import DType
from ..base.errors import Error, RunError, ShapeError, Unsupported
from ..base.quiet import quietly
from ..core.op import Op, subscribe
from ..ops._families import holomorphic
from ..ops.math.elemwise import CastAttrs
from ..ops.shape import views  # noqa: F401  operators named here
from . import devices, native
from .autograd.anomaly import anomaly, remember_forward
from .autograd.derivative import (
    KEPT_PROGRAMS,
    UNKNOWN,
    Complexity,
    GradientProgram,
    Wanted,
    gradient_program,
    split_arguments,
)
from .autograd.modes import modes
from .autograd.node import FREED, NO_EDGE, Grad, Meta, Node, NotDifferentiable, Saved, saved_class, sequence
from .functions.around import ALWAYS
from .native.calls import Declined, NativeCall, count_declined, smallest
from .native.thresholds import FROM
from .tensor.memory import array_of
from .tensor.tensor import Tensor, bind, tensor_of, untraced, wrap

Array = np.ndarray[Any, Any]
_new = object.__new__

# f(params, tensors) -> tensors: a step of gradients that has no gradient itself, by functions that do.
COMPOSED = Op.get_attr("FComposed")


class OpKernel:
    """What dispatch knows of an operator."""

    __slots__ = (
        "composed",
        "crosses",
        "differentiable",
        "mutates",
        "native",
        "native_from",
        "node_class",
        "op",
        "reference",
        "same_if_alike",
        "takes_complex",
        "takes_params",
        "ufunc",
        "views",
        "wanted",
    )

    def __init__(self, op: Op) -> None:
        self.op = op
        reference = Op.reference.get(op)
        if reference is None:
            raise RunError(
                f"operator {op.name} cannot be applied to tensors",
                why="it has no reference",
                hint=f'Op.get("{op.name}").reference = f(*arrays), or f(params, *arrays) if it has attributes',
            )
        self.reference: Callable[..., Any] = reference
        self.ufunc: Any = getattr(reference, "ufunc", None)
        self.takes_params = op.parser is not None or getattr(reference, "takes_params", False)
        self.differentiable = Op.gradient.contains(op)
        self.native: NativeCall = self._first_native
        self.native_from = smallest(op)
        self.views = Op.views.get(op) or (partial(_reshaped, op) if Op.alias.get(op) == {0: 0} else None)
        self.same_if_alike = op.same_if_alike
        self.composed = COMPOSED.get(op)
        self.mutates = Op.mutates.contains(op)
        complex_rule = Op.complex_gradient.get(op)
        self.takes_complex = complex_rule is not None
        self.crosses = complex_rule not in (None, holomorphic)  # from real to complex, or back
        self.wanted: dict[Any, Wanted] = {}
        self.node_class = type(_node_name(op), (OpNode,), {"op": op})

    def run(self, params: Any, arrays: Sequence[Array]) -> Any:
        if not self.takes_complex:
            for array in arrays:
                if array.dtype.kind == "c":
                    why = f"an input is {array.dtype}"
                    raise Unsupported(f"{self.op.name} is not defined for complex numbers", why=why)
        try:
            for array in arrays:
                if array.size >= self.native_from:
                    try:
                        outputs = self.native(params, arrays)
                        if outputs is not None:
                            return outputs
                    except Declined as declined:
                        count_declined(self.op.name, declined.reason)
                    break
            if self.takes_params:
                return self.reference(params, *arrays)
            return self.reference(*arrays)
        except ShapeError as error:
            raise RunError(error.what, where=error.where, why=error.why, hint=error.hint) from None
        except Error:
            raise
        except (ValueError, IndexError, TypeError) as error:
            shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
            raise RunError(f"{self.op.name} cannot be applied to {shapes}", why=str(error)) from error

    def _first_native(self, params: Any, arrays: Sequence[Array]) -> Any:
        """The first call that is large enough loads native code, which says how it runs the operator."""
        self.native = native.native_call(self.op)
        return self.native(params, arrays)

    def program(self, params: Any, inputs: int, outputs: int, complexity: Complexity | None) -> GradientProgram:
        return gradient_program(self.op, params, inputs, outputs, complexity)


def _reshaped(op: Op, params: Any, *arrays: Array) -> Sequence[Array]:
    shapes = [array.shape for array in arrays]
    return [arrays[0].reshape(Op.shape[op](params, shapes, [None])[1][0])]


def _node_name(op: Op) -> str:
    """As PyTorch users know it: AddBackward0."""
    plain = op.name.strip("_").removeprefix("broadcast_").removeprefix("elemwise_")
    return "".join(part.capitalize() for part in plain.split("_")) + "Backward0"


_kernels: dict[Op, OpKernel] = {}


def _forget(op: Op, name: str) -> None:
    _kernels.pop(op, None)


subscribe(_forget)


def kernel_of(op: Op) -> OpKernel:
    kernel = _kernels.get(op)
    if kernel is None:
        kernel = _kernels[op] = OpKernel(op)
    return kernel


def apply(op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of an operator, as fresh tensors that know how they were made."""
    kernel = kernel_of(op)
    outputs: list[Tensor]
    if modes.trace is not None:
        outputs = modes.trace.add(op, params, inputs)
        if modes.trace.records:
            return outputs
    else:
        outputs = computed(kernel, params, inputs)
    if modes.grad:
        for tensor in inputs:
            if tensor._requires_grad or (tensor._base is not None and tensor.requires_grad):
                (record if kernel.differentiable else end)(kernel, params, inputs, outputs)
                break
    return outputs


def computed(kernel: OpKernel, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of an operator, outside of all graphs; on the device of its inputs, if they are on one."""
    if ALWAYS and (there := devices.applied(kernel.op, params, inputs)) is not None:
        return there
    arrays: list[Any] = [tensor._array for tensor in inputs]  # array_of's, which every call cannot afford
    results = kernel.run(params, arrays)
    if not isinstance(results, (tuple, list)):
        return [wrap(_fresh(results, arrays))]
    if kernel.mutates:
        results = _written(kernel, params, inputs, results)
    return [wrap(_fresh(result, arrays)) for result in results]


def apply_pair(op: Op, a: Tensor, b: Tensor) -> Tensor | None:
    """The same for an operator that is a ufunc of numpy, where both tensors are of one floating dtype, else None: the
    calls whose cost is that of Python."""
    x: Any = a._array
    y: Any = b._array
    dtype = x.dtype
    if dtype is not y.dtype or dtype.kind != "f":
        return None
    kernel = _kernels.get(op) or kernel_of(op)
    if modes.trace is not None:
        return apply(op, None, (a, b))[0]
    if x.size >= kernel.native_from or y.size >= kernel.native_from:
        result = kernel.run(None, (x, y))
    else:
        result = quietly(kernel.ufunc, x, y)
    output = untraced(result)
    if modes.grad and (
        a._requires_grad
        or b._requires_grad
        or (a._base is not None and a.requires_grad)
        or (b._base is not None and b.requires_grad)
    ):
        record(kernel, None, (a, b), (output,))
    return output


def _written(kernel: OpKernel, params: Any, inputs: Sequence[Tensor], results: Sequence[Array]) -> Sequence[Array]:
    """The outputs of an operator that mutates inputs: the new values come after them, and are
    written where they belong."""
    count = kernel.op.outputs_of(params)
    for position, value in zip(kernel.op.mutates_of(params), results[count:]):
        np.copyto(array_of(inputs[position]), value)
        inputs[position]._counter[0] += 1
    return results[:count]


def _fresh(result: Any, arrays: Sequence[Array]) -> Array:
    """A result in memory of its own: a reference may give back an input, or a view of one."""
    if type(result) is not np.ndarray:
        return np.asarray(result)
    if result.base is None:
        for array in arrays:
            if result is array:
                return result.copy()
        return result
    if any(np.may_share_memory(result, array) for array in arrays):
        return result.copy()
    return result


def record(kernel: OpKernel, params: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Makes the node of a call, and the outputs' place in the graph. Every recorded call pays for this: what is here
    in line would be clearer in functions, and cost a third more."""
    output = outputs[0]
    dtype = output._array.dtype
    kind, alone = dtype.kind, len(outputs) == 1
    if alone and kind not in "fcV":
        return
    edges: tuple[tuple[Node | None, int], ...]
    needs: tuple[bool, ...]
    if len(inputs) == 2:
        one, two = inputs[0]._edge(), inputs[1]._edge()
        edges, needs = (one, two), (one is not NO_EDGE, two is not NO_EDGE)
    else:
        edges = tuple([tensor._edge() for tensor in inputs])
        needs = tuple([edge is not NO_EDGE for edge in edges])
    if kind == "c" or (kernel.crosses and inputs[0]._array.dtype.kind == "c"):
        wanted = _wanted(kernel, params, needs, len(outputs), _complexity(inputs, outputs))
    else:
        try:
            wanted = kernel.wanted[needs if params is None else (params, needs)]
        except (KeyError, TypeError):
            wanted = _wanted(kernel, params, needs, len(outputs), None)
    node: OpNode = _new(kernel.node_class)
    node.next_functions = edges
    node.sequence_nr = next(sequence)
    node.wanted = wanted
    if params is not None:
        node.params = params
    if wanted.unconnected:
        node.shapes = [(inputs[number]._array.shape, inputs[number]._array.dtype) for number in wanted.unconnected]
    if alone:
        node.outputs = ((output._array.shape, dtype),)
        output._requires_grad, output._grad_fn = True, node
    else:
        node.outputs = tuple([(output._array.shape, output._array.dtype) for output in outputs])
        _place(node, outputs)
    if wanted.values:
        node.save(inputs, outputs)
    if anomaly.enabled:
        remember_forward(node)


def end(kernel: OpKernel, params: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
    """Makes the node of an operator without a gradient, which a backward pass may not reach."""
    _place(NotDifferentiable(kernel.op, tuple([tensor._edge() for tensor in inputs]), outputs), outputs)


def _place(node: Node, outputs: Sequence[Tensor]) -> None:
    """Gives the outputs of a call their place in the graph: those that have gradients."""
    for index, output in enumerate(outputs):
        if output._array.dtype.kind in "fcV":
            output._requires_grad, output._grad_fn, output._output_nr = True, node, index


def _complexity(inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Complexity | None:
    """Which inputs and outputs of a call are complex, if any is."""
    ins, outs = (tuple([tensor._array.dtype.kind == "c" for tensor in tensors]) for tensors in (inputs, outputs))
    return (ins, outs) if True in ins or True in outs else None


def _wanted(
    kernel: OpKernel, params: Any, needs: tuple[bool, ...], outputs: int, complexity: Complexity | None
) -> Wanted:
    """What the gradients of some inputs take, by the operator's gradient program."""
    key: Any = needs if params is None else (params, needs)
    if complexity is not None:
        key = (*key, complexity)
    try:
        return kernel.wanted[key]
    except (KeyError, TypeError):
        wanted = Wanted(kernel.program(params, len(needs), outputs, complexity), needs)
    try:
        if len(kernel.wanted) >= KEPT_PROGRAMS:
            kernel.wanted.clear()
        kernel.wanted[key] = wanted
    except TypeError:  # params without a hash
        pass
    return wanted


class OpNode(Node):
    """The backward call of an operator of the registry, by the program of its gradient rule."""

    op: Op  # of the subclass that an operator has
    params: Any = None
    wanted: Wanted
    shapes: Sequence[Meta] = ()  # of inputs that no edge leads to, where the gradient asks for them
    saved: Sequence[Saved] | None = ()

    def save(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Keeps the values that the gradient will read."""
        kept = saved_class()
        self.saved = [
            kept((outputs if is_output else inputs)[number], is_output) for is_output, number in self.wanted.values
        ]

    def before_overwriting(self) -> None:
        if self.op.keeps_output:
            for saved in self.saved or ():
                saved.keep_output()

    def release(self) -> None:
        if self.wanted.values:
            self.saved = None

    def apply(self, grads: list[Grad]) -> Sequence[Grad]:
        if self.saved is None:
            raise RunError(FREED, hint="specify retain_graph=True when calling backward the first time")
        steps, results = self.wanted.plan
        values = [saved.unpack(self, tensor_of) for saved in self.saved]
        if self.wanted.shapes:
            values += [tensor_of(_shaped(*meta), [0], None, 0) for meta in self._asked_shapes()]
        for number in self.wanted.grads:
            grad = grads[number]
            values.append(tensor_of(np.zeros(*self.outputs[number]), [0], None, 0) if grad is None else grad)
        if len(steps) > 1:
            fused = self._fused(values)
            if fused is not None:
                return fused
        for op, params, places, count in steps:
            values += backward_step(op, params, [values[place] for place in places])[:count]
        return [None if place is None else values[place] for place in results]

    def _asked_shapes(self) -> Iterator[Meta]:
        """Shapes and dtypes of the call that the gradient asks for: an edge tells what its gradient looks like."""
        unconnected = iter(self.shapes)
        for is_output, number in self.wanted.shapes:
            if is_output:
                yield self.outputs[number]
            else:
                target, index = self.next_functions[number]
                yield next(unconnected) if target is None else target.outputs[index]

    def _fused(self, values: Sequence[Tensor]) -> list[Tensor | None] | None:
        """All steps by one native computation of the leaves; None where they are not for it: small, or
        to be differentiated again."""
        wanted = self.wanted
        if modes.trace is not None and hasattr(modes.trace, "fused") and not modes.grad:
            return self._fused_elsewhere(values)
        if modes.grad or modes.trace is not None or wanted.fused is None:
            return None
        first, end = len(wanted.values), len(wanted.values) + len(wanted.shapes)  # shapes are no work
        for tensor in (*values[:first], *values[end:]):
            if tensor._array.size >= FROM.fused:
                break
        else:
            return None
        if wanted.fused is UNKNOWN:
            wanted.fused = native.fused_gradient(wanted)
            return self._fused(values)
        results = wanted.plan.results
        edges = [edge for edge, place in zip(self.next_functions, results) if place is not None]
        shapes = [target.outputs[number][0] for target, number in edges]  # type: ignore[union-attr]
        computed = wanted.fused.run([array_of(tensor) for tensor in values], shapes)
        if computed is None:
            return None
        rest = iter(computed)
        return [None if place is None else wrap(next(rest)) for place in results]

    def _fused_elsewhere(self, values: Sequence[Tensor]) -> list[Tensor | None] | None:
        """All steps by one program of a device; what is a leaf already is given as it is."""
        places, leaves = self.wanted.plan.results, len(values)
        computed = tuple([place for place in places if place is not None and place >= leaves])
        plan = self.wanted.plan._replace(results=computed)
        try:
            made = modes.trace.fused(plan, values) if computed else None
        except TypeError:  # params without a hash
            return None
        if made is None:
            return None
        known = {**dict(enumerate(values)), **dict(zip(computed, made))}
        return [None if place is None else known[place] for place in places]


@lru_cache(1024)
def _shaped(shape: tuple[int, ...], dtype: DType) -> Array:
    """An array whose values nobody reads."""
    return np.broadcast_to(_unread(dtype), shape)


@cache
def _unread(dtype: DType) -> Array:
    return np.zeros((), dtype)


def is_shape_alone(array: Array) -> bool:
    """Whether nobody reads the values of an array: it stands for a shape in a gradient."""
    base = array.base
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return base is _unread(array.dtype)


def backward_step(op: Op, params: Any, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """A step of a gradient; one that would only copy its first input gives that, and one that only
    shows its elements in other places a view: nobody writes to a gradient on its way."""
    kernel = _kernels.get(op) or kernel_of(op)
    if kernel.same_if_alike and inputs[0]._array.shape == inputs[-1]._array.shape:
        return inputs
    if modes.grad:
        return apply(op, params, inputs) if kernel.composed is None else kernel.composed(params, inputs)
    if kernel.views is not None and modes.trace is None:
        views = kernel.views(params, *[array_of(tensor) for tensor in inputs])
        if views is not None:
            return [wrap(view) for view in views]
    return apply(op, params, inputs)


def _called(op: Op, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """An operator called with tensors and attributes."""
    inputs, params = split_arguments(op, args, kwargs, Tensor)
    outputs = apply(op, params, inputs)
    return outputs[0] if len(outputs) == 1 else outputs


def _cast(tensor: Tensor, dtype: DType) -> Tensor:
    """In another dtype; itself if it has that one."""
    return tensor if tensor._array.dtype == dtype else apply(_CAST, _cast_attrs(dtype), [tensor])[0]


@cache
def _cast_attrs(dtype: DType) -> CastAttrs:
    return CastAttrs(dtype=dtype)


_CAST = Op.get("cast")
bind(__weft_op__=staticmethod(_called), _cast=_cast)
