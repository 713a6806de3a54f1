"""Writing into tensors that exist: what in-place operators and `out=` share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import BOOL, is_complex, is_float, is_integer
from ...base.errors import RunError
from .. import native
from ..autograd.modes import modes
from ..autograd.view_writes import CopySlices, Overwritten
from .memory import array_of, memory_of
from .tensor import Tensor


def check_writable(target: Tensor, source_requires_grad: bool = False) -> None:
    """Refuses what would lose a history: writing to a leaf whose gradient is asked for, or to a
    view that autograd cannot follow."""
    if target._inference and not modes.inference:
        raise RunError(
            "Inplace update to inference tensor outside InferenceMode is not allowed.",
            hint="make a clone before the update",
        )
    memory = memory_of(target)
    if not memory.flags.writeable:
        raise RunError(
            "this tensor's memory is read-only", why="it was made from a read-only array", hint="write to a clone()"
        )
    if 0 in memory.strides and _overlaps(target):
        raise RunError(
            "unsupported operation: more than one element of the written-to tensor refers to a single memory location.",
            hint="clone() the tensor before performing the operation",
        )
    base = target._base
    maker = (target if base is None else base)._grad_fn
    if maker is not None:
        maker.before_overwriting()
    followed = target.requires_grad or (base is not None and base.requires_grad)
    if not modes.grad or not (followed or source_requires_grad):
        return
    if base is None:
        if target._requires_grad and target.is_leaf:
            raise RunError(
                "a leaf Variable that requires grad is being used in an in-place operation.",
                hint="do it inside no_grad(), or on a clone()",
            )
        return
    if base.is_leaf and (base._requires_grad or target._requires_grad):
        raise RunError(
            "a view of a leaf Variable that requires grad is being used in an in-place operation.",
            hint="do it inside no_grad(), or on a clone()",
        )
    if target._creation is not None:
        raise RunError(
            "a view is being modified inplace, and autograd cannot follow that",
            why=f"it {target._creation}",
            hint="clone it before the change, or change it inside no_grad()",
        )


def _overlaps(target: Tensor) -> bool:
    array = memory_of(target)
    return array.size > 0 and any(n > 1 and not s for n, s in zip(array.shape, array.strides))


def write(target: Tensor, result: Tensor) -> Tensor:
    """Gives a tensor the values and the history of a result; its base and views see them, too."""
    if result._shape != target._shape:
        raise RunError(f"output with shape {list(target.shape)} doesn't match the broadcast shape {list(result.shape)}")
    if modes.grad and result._requires_grad:
        check_writable(target, True)
    result = _cast_back(result, target)
    if modes.trace is not None:
        modes.trace.put(target, result)
    elif array_of(result) is not array_of(target):
        native.copy_into(array_of(target), array_of(result))
    target._counter[0] += 1
    if modes.grad:
        place_in_graph(target, result)
    return target


def place_in_graph(target: Tensor, result: Tensor) -> None:
    """The place in the graph that a tensor has after a result was written to it."""
    if not (result._requires_grad or target.requires_grad):
        return
    base = target._base
    if base is not None:
        node = CopySlices(base, memory_of(target), result._edge())
        base._grad_fn, base._output_nr, base._requires_grad = node, 0, True
        base._history += 1
        return
    if result._requires_grad:
        edge = result._edge()
        target._grad_fn, target._output_nr = edge
    else:
        target._grad_fn, target._output_nr = Overwritten(target), 0
    target._requires_grad = True
    target._history += 1


def _cast_back(result: Tensor, target: Tensor) -> Tensor:
    """A result in the dtype of what it is written to, if its kind fits."""
    have, want = result._dtype, target._dtype
    if have == want:
        return result
    lost = (is_complex(have) and not is_complex(want)) or (
        (is_float(have) and (is_integer(want) or want == BOOL)) or (is_integer(have) and want == BOOL)
    )
    if lost:
        raise RunError(
            f"result type {result.dtype.title} can't be cast to the desired output type {target.dtype.title}"
        )
    return result._cast(want)


def may_write_out(out: Any, args: Sequence[Any]) -> bool:
    """Whether results may be written to what is given as `out=`; what is wrong with it, writing
    will tell."""
    if type(out) is not Tensor or modes.trace is not None:
        return False
    if modes.grad and any([isinstance(x, Tensor) and x.requires_grad for x in (out, *args)]):
        return False
    try:
        check_writable(out)
    except RunError:
        return False
    return True


def write_out(out: Any, result: Any) -> Any:
    """Writes results to the tensors given as `out=`, resizing them."""
    if isinstance(result, (tuple, list)):
        for target, value in zip(out, result):
            write_out(target, value)
        return out
    if modes.grad and (out.requires_grad or result._requires_grad):
        raise RunError(
            "functions with out=... arguments don't support automatic differentiation, but one of "
            "the arguments requires grad."
        )
    check_writable(out)
    value = _cast_back(result, out)
    if out._shape != value._shape:
        out.resize_(value._shape)
    if modes.trace is not None:
        modes.trace.put(out, value)
    else:
        np.copyto(array_of(out), array_of(value))
    out._counter[0] += 1
    return out
