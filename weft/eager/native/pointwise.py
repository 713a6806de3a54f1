"""Large element-wise calls of eager tensors, by programs of one kernel."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...base.cpu_facts import COSTS
from ...compiler.disk_cache import is_own
from ...compiler.open.programs import kernel_program
from ...core.op import Op
from ...lower.cpu.nest import BLOCK_ELEMENTS
from ...lower.cpu.nests.element import Element, Walk, element_kernel, element_of
from ...ops.math import broadcast  # noqa: F401  operators named here
from ...runtime.cpu.open_program import Call
from .calls import Array, Declined, attempted
from .copy import dense, walked
from .strides import Axis, is_dense_inside, is_writable, joined, memory_order, steps_of
from .thresholds import FROM

Dtypes = tuple[np.dtype[Any], ...]
T = TypeVar("T")

MOVED, COMPUTED = COSTS.moved, COSTS.computed
KEPT = 1024

_ADD = Op.get("broadcast_add")

_elements: dict[Any, Element | None] = {}


def element(op: Op, params: Any, dtypes: Dtypes) -> Element | None:
    """What the operator does to an element; None where it is not element-wise, or its values are
    of a kind that generated code does not have."""
    key = (op, params, dtypes)
    try:
        return _elements[key]
    except KeyError:
        pass
    except TypeError:  # params without a hash
        return None
    body = None
    if are_native(dtypes):
        body = element_of(lambda *x: op.call_with(Op.compute[op], params, *x), dtypes)
    if body is not None and not are_native((body.value.dtype,)):
        body = None
    if len(_elements) >= KEPT:
        _elements.clear()
    _elements[key] = body
    return body


def are_native(dtypes: Dtypes) -> bool:
    return all([dtype.kind in "fiub" and dtype.itemsize <= 8 for dtype in dtypes])


def run_pointwise(key: Hashable, body: Element, arrays: Sequence[Array], out: Array | None = None) -> Array:
    """The result of an element-wise computation that a key names, laid out in memory as its
    operands are; or written to an array of the shape of the result that `is_writable`."""
    used = [arrays[place] for place in body.places]
    shape = used[0].shape if out is None else out.shape
    along = _in_one_go(used, shape, out)
    if along is not None:
        result = np.empty(shape, body.value.dtype) if out is None else out
        flat = (along, result.size)
        call = body.plans.get(flat)
        if call is None:
            size, turns = (result.size,), -(-result.size // BLOCK_ELEMENTS)
            call = _kept(body, flat, _call(key, body, used, Walk(1, along), size, size, turns))
        call.run([*used, result])
        return result
    spot = (*[(array.shape, array.strides) for array in used], out is None or out.strides, shape)
    plan = body.plans.get(spot)
    if plan is None:
        plan = _kept(body, spot, _planned(key, body, used, out))
    if plan.copied:
        used = [
            dense(np.broadcast_to(array, plan.shape).transpose(plan.order)) if number in plan.copied else array
            for number, array in enumerate(used)
        ]
    result = np.empty([plan.shape[axis] for axis in plan.order], body.value.dtype) if out is None else out
    plan.call.run([*used, result])
    return result if out is not None or plan.back is None else result.transpose(plan.back)


def add_into(target: Array, addend: Array) -> None:
    """Adds to an array where it lies."""
    if target.size < FROM.written or not _add_native(target, addend):
        np.add(target, addend, out=target)


def _added(target: Array, addend: Array) -> None:
    if addend is not target and np.may_share_memory(target, addend):
        raise Declined("overlap")
    if not is_writable(target):
        raise Declined("strides")
    body = element(_ADD, None, (target.dtype, addend.dtype))
    if body is None or body.value.dtype != target.dtype:
        raise Declined("dtype")
    run_pointwise(op_key(_ADD, None), body, (target, addend), target)


_add_native = attempted("add_into", _added)


def _in_one_go(arrays: Sequence[Array], shape: tuple[int, ...], out: Array | None) -> tuple[int, ...] | None:
    """How far each array goes with a step of the result: 1, or 0 where it has one element for all of it.
    None where some array is neither, or elements are not in order of memory."""
    if out is not None and not out.flags.c_contiguous:
        return None
    along = []
    for array in arrays:
        if array.shape == shape and array.flags.c_contiguous:
            along.append(1)
        elif array.size == 1 and array.ndim <= len(shape):
            along.append(0)
        else:
            return None
    return tuple(along)


class PointwisePlan(NamedTuple):
    """All that a call on arrays of certain shapes and strides needs: which of them are copied
    first, the axes as they lie in memory, and the way back from there."""

    call: Call
    shape: tuple[int, ...]
    copied: frozenset[int]
    order: tuple[int, ...]
    back: tuple[int, ...] | None


def _planned(key: Hashable, body: Element, used: Sequence[Array], out: Array | None) -> PointwisePlan:
    shape = np.broadcast_shapes(*[a.shape for a in used]) if out is None else out.shape
    order = _memory_order(shape, used if out is None else [out])
    turned = [np.broadcast_to(array, shape).transpose(order) for array in used]
    operands = [a if is_dense_inside(a) else dense(a) for a in turned]
    placed = out is not None and not out.flags.c_contiguous
    arrays = [*operands, out.transpose(order)] if placed else operands  # type: ignore[union-attr]
    axes = joined(turned[0].shape, list(map(steps_of, arrays))) or [Axis(1, (1,) * len(arrays))]
    walk = Walk(len(axes), axes[-1].steps[: len(used)], placed)
    return PointwisePlan(
        _call(key, body, used, walk, shape, *walked(axes, walk)),
        shape,
        frozenset(n for n, (a, b) in enumerate(zip(turned, operands)) if a is not b),
        order,
        None if order == tuple(range(len(order))) else tuple(np.argsort(order).tolist()),
    )


def _call(
    key: Hashable,
    body: Element,
    arrays: Sequence[Array],
    walk: Walk,
    shape: tuple[int, ...],
    scalars: tuple[int, ...],
    turns: int,
) -> Call:
    whole = (key, tuple([array.dtype for array in arrays]), walk)
    program = kernel_program(whole, lambda target: element_kernel(body, walk, target))
    return program.given(scalars, turns, prod(shape) * (MOVED + COMPUTED * body.calls))


def _kept(body: Element, spot: Hashable, plan: T) -> T:
    if len(body.plans) >= KEPT:
        body.plans.clear()
    body.plans[spot] = plan
    return plan


@lru_cache(KEPT)
def op_key(op: Op, params: Any) -> Hashable:
    """An operator with its attributes: as text where its bodies are weft's own, and so the same in
    every process."""
    if not all([is_own(rule) for rule in (Op.compute.get(op), Op.kernels.get(op)) if rule is not None]):
        return op, params
    return op.name, tuple(sorted(op.attributes(params).items()))


def _memory_order(shape: tuple[int, ...], arrays: Sequence[Array]) -> tuple[int, ...]:
    """The axes as the largest operand has them in memory."""
    whole = [array for array in arrays if array.shape == shape and 0 not in array.strides]
    if not whole or any([array.flags.c_contiguous for array in whole]):
        return tuple(range(len(shape)))
    return memory_order(whole[0])
