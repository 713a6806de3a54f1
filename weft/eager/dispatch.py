"""The one path from a call to its result: kernel, then autograd record.

Comes in: an operator of the registry, its params, tensors whose dtypes already fit it. Goes out:
tensors. Promotion happens before, in the rows of the function table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base.errors import Error, RunError, ShapeError
from ..base.quiet import quietly
from ..core.op import Op, subscribe
from ..ops import broadcast, elemwise, views  # noqa: F401  operators named here
from .anomaly import anomaly, remember_forward
from .derivative import KEPT_PROGRAMS, GradientProgram, Wanted
from .modes import modes
from .native import NATIVE_FROM, run_native, wants_native
from .node import NO_EDGE, OpNode
from .tensor import Tensor, _apply, as_view, tensor_of, wrap

Array = np.ndarray[Any, Any]


class Kernel:
    """What dispatch knows of an operator."""

    __slots__ = (
        "differentiable", "mutates", "native", "node_class", "op", "reference", "takes_params",
        "ufunc", "wanted",
    )  # fmt: skip

    def __init__(self, op: Op) -> None:
        self.op = op
        reference = Op.reference.get(op)
        if reference is None:
            raise RunError(f"operator {op.name} has no reference to run eagerly")
        self.reference: Callable[..., Any] = reference
        self.ufunc = getattr(reference, "ufunc", None)
        self.takes_params = op.parser is not None or getattr(reference, "takes_params", False)
        self.differentiable = Op.gradient.contains(op)
        self.native = op.name in NATIVE_FROM
        self.mutates = Op.mutates.contains(op)
        self.wanted: dict[Any, Wanted] = {}
        self.node_class = type(_node_name(op), (OpNode,), {"op": op})

    def run(self, params: Any, arrays: Sequence[Array]) -> Any:
        try:
            if self.native and wants_native(self.op, params, arrays):
                return run_native(self.op, params, arrays)
            if self.takes_params:
                return self.reference(params, *arrays)
            return self.reference(*arrays)
        except ShapeError as error:
            raise RunError(error.what, where=error.where, why=error.why, hint=error.hint) from None
        except Error:
            raise
        except (ValueError, IndexError, TypeError) as error:
            shapes = ", ".join(f"{a.dtype}{list(a.shape)}" for a in arrays)
            raise RunError(
                f"{self.op.name} cannot be applied to {shapes}", why=str(error)
            ) from error


def _node_name(op: Op) -> str:
    """As PyTorch users know it: AddBackward0."""
    plain = op.name.strip("_").removeprefix("broadcast_").removeprefix("elemwise_")
    return "".join(part.capitalize() for part in plain.split("_")) + "Backward0"


_kernels: dict[Op, Kernel] = {}
subscribe(lambda op, name: _kernels.pop(op, None) and None)


def kernel_of(op: Op) -> Kernel:
    kernel = _kernels.get(op)
    if kernel is None:
        kernel = _kernels[op] = Kernel(op)
    return kernel


def apply(op: Op, params: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of an operator, as fresh tensors that know how they were made."""
    kernel = kernel_of(op)
    arrays = [tensor._array for tensor in inputs]
    results = kernel.run(params, arrays)
    if isinstance(results, (tuple, list)):
        if kernel.mutates:
            results = _written(kernel, params, inputs, results)
        outputs = [wrap(_fresh(result, arrays)) for result in results]
    else:
        outputs = [wrap(_fresh(results, arrays))]
    if modes.grad and kernel.differentiable:
        for tensor in inputs:
            if tensor._requires_grad or (tensor._base is not None and tensor.requires_grad):
                record(kernel, params, inputs, outputs)
                break
    return outputs


def apply_pair(op: Op, a: Tensor, b: Tensor) -> Tensor:
    """The same for two tensors of one floating dtype and an operator that is a ufunc of numpy: the
    calls whose cost is that of Python."""
    kernel = _kernels.get(op) or kernel_of(op)
    result = quietly(kernel.ufunc, a._array, b._array)
    output = wrap(result if type(result) is np.ndarray else np.asarray(result))
    if modes.grad and (a.requires_grad or b.requires_grad):
        record(kernel, None, (a, b), (output,))
    return output


def _written(
    kernel: Kernel, params: Any, inputs: Sequence[Tensor], results: Sequence[Array]
) -> Sequence[Array]:
    """The outputs of an operator that mutates inputs: the new values come after them, and are
    written where they belong."""
    count = kernel.op.outputs_of(params)
    for position, value in zip(kernel.op.mutates_of(params), results[count:]):
        np.copyto(inputs[position]._array, value)
        inputs[position]._counter[0] += 1
    return results[:count]


def apply_view(op: Op, params: Any, source: Tensor) -> Tensor:
    """The output of an operator as a view of its only input's memory."""
    kernel = kernel_of(op)
    array = kernel.run(params, (source._array,))
    output = as_view(array, source)
    if modes.grad and source.requires_grad:
        record(kernel, params, (source,), (output,))
    return output


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


def record(
    kernel: Kernel, params: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> None:
    """Makes the node of a call, and the outputs' place in the graph."""
    floating = [output for output in outputs if output._array.dtype.kind in "fcV"]
    if not floating:
        return
    edges = tuple([tensor._edge() for tensor in inputs])
    needs = tuple([edge is not NO_EDGE for edge in edges])
    try:
        wanted = kernel.wanted[params, needs]
    except (KeyError, TypeError):
        wanted = _wanted(kernel, params, needs, len(outputs))
    node = kernel.node_class(params, wanted, edges, inputs, outputs)
    for output in floating:
        output._requires_grad = True
        output._grad_fn = node
    if len(outputs) > 1:
        for index, output in enumerate(outputs):
            output._output_nr = index
    if wanted.values:
        node.save(inputs, outputs)
    if anomaly.enabled:
        remember_forward(node)


def _wanted(kernel: Kernel, params: Any, needs: tuple[bool, ...], outputs: int) -> Wanted:
    """What the gradients of some inputs take, by the operator's gradient program."""
    wanted = GradientProgram(kernel.op, params, len(needs), outputs).wanted(needs)
    try:
        if len(kernel.wanted) >= KEPT_PROGRAMS:
            kernel.wanted.clear()
        kernel.wanted[params, needs] = wanted
    except TypeError:  # params without a hash
        pass
    return wanted


def backward_step(op: Op, params: Any, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
    """A step of a gradient; one that would only copy its first input gives that."""
    if op in UNCHANGED and inputs[0]._array.shape == inputs[-1]._array.shape:
        return inputs
    return apply(op, params, inputs)


UNCHANGED = {Op.get(name) for name in ("copy", "collapse_sum", "reshape_like", "broadcast_like")}
_apply.append(apply)
OpNode.run_step = staticmethod(backward_step)
OpNode.tensor_of = staticmethod(tensor_of)
