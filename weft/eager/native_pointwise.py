"""Large element-wise calls of eager tensors, by open kernels."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from ..compiler.disk_cache import is_own
from ..compiler.open_kernels import open_kernel
from ..core.op import Op
from ..lower.open.pointwise import BLOCK, Element, Walk, element_of, pointwise_kernel

Array = np.ndarray[Any, Any]
Dtypes = tuple[np.dtype[Any], ...]

MOVED, COMPUTED = 0.25, 0.5  # nanoseconds for moving an element, and for a function of it
KEPT = 1024

_elements: dict[Any, Element | None] = {}


def element(op: Op, params: Any, dtypes: Dtypes) -> Element | None:
    """What the operator does to an element; None where it is not element-wise, or its values are
    of a kind that generated code does not have."""
    key = (op, params, dtypes)
    try:
        return _elements[key]
    except (KeyError, TypeError):
        pass
    found = None
    if are_native(dtypes):
        found = element_of(lambda *x: op.call_with(Op.compute[op], params, *x), dtypes)
    if found is not None and not are_native((found.value.dtype,)):
        found = None
    try:
        if len(_elements) >= KEPT:
            _elements.clear()
        _elements[key] = found
    except TypeError:  # params without a hash
        return None
    return found


def are_native(dtypes: Dtypes) -> bool:
    return all([dtype.kind in "fiub" and dtype.itemsize <= 8 for dtype in dtypes])


def run_pointwise(
    key: Hashable, body: Element, arrays: Sequence[Array], out: Array | None = None
) -> Array:
    """The result of an element-wise computation that a key names, laid out in memory as its
    operands are; or written to an array in order of memory, of the shape of the result."""
    used = [arrays[place] for place in body.places]
    shape = used[0].shape if out is None else out.shape
    if all([array.shape == shape and array.flags.c_contiguous for array in used]):
        made = np.empty(shape, body.value.dtype) if out is None else out
        walk = Walk(1, (True,) * len(used))
        _run(key, body, used, made, walk, [made.size], ())
        return made
    if out is None:
        shape = np.broadcast_shapes(*[array.shape for array in used])
    order = list(range(len(shape))) if out is not None else _memory_order(shape, used)
    operands = [_inner_dense(np.broadcast_to(array, shape).transpose(order)) for array in used]
    made = np.empty(operands[0].shape, body.value.dtype) if out is None else out
    extents, strides = _collapsed(made.shape, operands)
    walk = Walk(len(extents), tuple([steps[-1] != 0 for steps in strides]))
    scalars = [step for steps in strides for step in steps[:-1]]
    _run(key, body, operands, made, walk, extents, scalars)
    return made.transpose(np.argsort(order)) if out is None else made


def _run(
    key: Hashable,
    body: Element,
    arrays: Sequence[Array],
    out: Array,
    walk: Walk,
    extents: Sequence[int],
    scalars: Sequence[int],
) -> None:
    turns = -(-extents[0] // BLOCK) if walk.rank == 1 else prod(extents[:-1])
    work = out.size * (MOVED + COMPUTED * body.calls)
    whole = (key, tuple([array.dtype for array in arrays]), walk)
    kernel = open_kernel(whole, lambda target: pointwise_kernel("pointwise", body, walk, target))
    kernel.run([*arrays, out], [*extents, *scalars], turns, work)


@lru_cache(KEPT)
def op_key(op: Op, params: Any) -> Hashable:
    """An operator with its attributes: as text where it is weft's own, and so the same in every
    process."""
    if not is_own(Op.compute[op]):
        return op, params
    return op.name, tuple(sorted(op.attributes(params).items()))


def _memory_order(shape: tuple[int, ...], arrays: Sequence[Array]) -> list[int]:
    """The axes as the largest operand has them in memory, longest strides first."""
    axes = list(range(len(shape)))
    whole = [array for array in arrays if array.shape == shape and 0 not in array.strides]
    if not whole or any([array.flags.c_contiguous for array in whole]):
        return axes
    return sorted(axes, key=lambda axis: -abs(whole[0].strides[axis]))


def _inner_dense(array: Array) -> Array:
    """An array whose neighbours along its last long axis are side by side, or one and the same."""
    size = array.itemsize
    steps = [stride for stride, extent in zip(array.strides, array.shape) if extent > 1]
    if steps and (steps[-1] not in (0, size) or any([step % size for step in steps])):
        return np.ascontiguousarray(array)
    return array


def _collapsed(
    shape: tuple[int, ...], arrays: Sequence[Array]
) -> tuple[list[int], list[list[int]]]:
    """The axes that are left when neighbours that all arrays walk in one go are joined, and each
    array's strides along them, in elements."""
    extents: list[int] = []
    strides: list[list[int]] = [[] for _ in arrays]
    for axis, extent in enumerate(shape):
        if extent == 1:
            continue
        steps = [array.strides[axis] // array.itemsize for array in arrays]
        if extents and all([own[-1] == step * extent for own, step in zip(strides, steps)]):
            extents[-1] *= extent
            for own, step in zip(strides, steps):
                own[-1] = step
            continue
        extents.append(extent)
        for own, step in zip(strides, steps):
            own.append(step)
    if not extents:
        return [1], [[1] for _ in arrays]
    return extents, strides
