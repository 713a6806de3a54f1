"""Large in-place arithmetic without a result beside it: one native pass over the memory written to,
where no graph is recorded. Optimisers live on these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from numbers import Real
from typing import Any

import numpy as np

from ..base.dtype import FLOAT32, FLOAT64
from ..core.op import Op
from ..lower.open.pointwise import Element, element_of
from ..ops import broadcast  # noqa: F401  operators named here
from .modes import modes
from .native_pointwise import run_pointwise
from .tensor import Tensor

Array = np.ndarray[Any, Any]

INPLACE_FROM = 1 << 14  # elements


def _op(name: str) -> Callable[..., Any]:
    op = Op.get(name)
    return partial(op.call_with, Op.compute[op], None)


_add, _sub, _mul, _div = map(
    _op, ("broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div")
)
# What a call computes, by its name and how many operands there are beside the tensor itself.
COMPUTED: dict[tuple[str, int], Callable[..., Any]] = {
    ("add", 1): _add,
    ("add", 2): lambda x, other, alpha: _add(x, _mul(other, alpha)),
    ("sub", 1): _sub,
    ("sub", 2): lambda x, other, alpha: _sub(x, _mul(other, alpha)),
    ("mul", 1): _mul,
    ("div", 1): _div,
    ("addcmul", 2): lambda x, a, b: _add(x, _mul(a, b)),
    ("addcmul", 3): lambda x, a, b, value: _add(x, _mul(value, _mul(a, b))),
    ("addcdiv", 2): lambda x, a, b: _add(x, _div(a, b)),
    ("addcdiv", 3): lambda x, a, b, value: _add(x, _mul(value, _div(a, b))),
    ("lerp", 2): lambda x, end, weight: _add(x, _mul(weight, _sub(end, x))),
}
NAMES = {name for name, _ in COMPUTED}
FACTORS = {"alpha", "value"}  # keywords that are operands, unless they are 1

_elements: dict[Any, Element | None] = {}


def write_native(name: str, target: Tensor, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether the in-place call was done here. It is not if a graph has to know of it, or if the
    operands are not numbers and tensors of the target's floating dtype."""
    array = target._array
    if array.size < INPLACE_FROM or array.dtype not in (FLOAT32, FLOAT64):
        return False
    if not array.flags.c_contiguous or not set(kwargs) <= FACTORS:
        return False
    given = [*args, *[value for value in kwargs.values() if value != 1]]
    compute = COMPUTED.get((name, len(given)))
    operands = None if compute is None else _operands(target, given)
    if operands is None:
        return False
    key = (name, len(given), array.dtype)
    if key not in _elements:
        _elements[key] = element_of(compute, [array.dtype] * (len(given) + 1))  # type: ignore[arg-type]
    body = _elements[key]
    if body is None:
        return False
    run_pointwise(("in place", *key), body, [array, *operands], array)
    target._counter[0] += 1
    return True


def _operands(target: Tensor, given: Sequence[Any]) -> list[Array] | None:
    array = target._array
    if modes.grad and target.requires_grad:
        return None
    found = []
    for value in given:
        if isinstance(value, Tensor):
            own = value._array
            if own.dtype != array.dtype or (modes.grad and value.requires_grad):
                return None
            if own.shape != array.shape and not _stretches(own.shape, array.shape):
                return None
            if np.may_share_memory(own, array) and not _same_place(own, array):
                return None
            found.append(own)
        elif isinstance(value, Real) and not isinstance(value, bool):
            found.append(np.asarray(value, array.dtype))
        else:
            return None
    return found


def _stretches(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    return len(shape) <= len(to) and all([a in (1, b) for a, b in zip(shape[::-1], to[::-1])])


def _same_place(a: Array, b: Array) -> bool:
    here, there = (x.__array_interface__["data"][0] for x in (a, b))
    return here == there and a.strides == b.strides and a.shape == b.shape
