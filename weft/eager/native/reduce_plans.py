"""How arrays are reduced by open kernels: terms of several strided arrays of one shape, along axes.

Axes are walked as they lie in memory, neighbours of one kind joined. Long reductions are cut into
chunks of a fixed size, so results are the same bits for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...base.cpu_facts import COSTS
from ...base.dtype import DType
from ...base.kept import Kept
from ...base.quiet import quietly
from ...compiler.open.kernels import open_kernel
from ...lower.cpu.open.reduction import (
    BLOCK,
    CHUNK,
    CHUNK_ROWS,
    Form,
    Reduction,
    Widths,
    reduction_kernel,
    term_and_total,
)
from ...runtime.cpu.open_kernel import OpenKernel
from .calls import Array
from .strides import Axis, is_dense_inside, joined, memory_order, steps_of

BYTE, CALLED = COSTS.read_byte, COSTS.computed
FEW = 1 << 13  # partial results that are few for numpy
KEPT = 4096  # plans
SHORT, WIDE = 64, 256  # elements of a row, or rows, that are few, and columns that are enough
WHOLE, WHOLE_ROWS = 1 << 21, 2048  # bytes, and elements below one another, that are no work for two

COMBINE: dict[str, Callable[..., Any]] = {
    "sum": np.add.reduce,
    "prod": np.multiply.reduce,
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
}


class ReductionPlan(NamedTuple):
    """A call on arrays of certain dtypes, shapes and strides. `copied` arrays do not lie as kernels
    read: they come in the order of axes. Of what the kernel makes some axes may be left to combine;
    then come the kept axes in order of memory, how they are put back in order, and the shape of the
    result."""

    reduction: Reduction
    order: tuple[int, ...]
    copied: tuple[int, ...]
    kernel: OpenKernel
    scalars: tuple[int, ...]
    turns: int
    work: float
    parts: tuple[int, ...]
    dtype: DType
    rest: tuple[int, ...]
    kept: tuple[int, ...]
    back: tuple[int, ...] | None
    shape: tuple[int, ...]
    result: DType
    divisor: int  # of the sum

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Each term of the arrays, reduced."""
        if self.copied:
            arrays = list(arrays)
            for number in self.copied:
                arrays[number] = np.ascontiguousarray(arrays[number].transpose(self.order))
        totals = [np.empty(self.parts, self.dtype) for _ in range(self.reduction.number)]
        self.kernel.run([*arrays, *totals], self.scalars, self.turns, self.work)
        if self.rest or self.back is not None:
            return [quietly(self._finished, parts) for parts in totals]
        return totals

    def _finished(self, parts: Any) -> Array:
        """Partial results combined, in order."""
        if self.rest:
            parts = _combined(self.reduction.combiner, parts, self.rest)
            if self.divisor != 1:
                parts = parts / self.divisor
        total = np.asarray(parts, self.result)
        if self.back is not None:
            total = total.reshape(self.kept).transpose(self.back)
        return total if total.shape == self.shape else total.reshape(self.shape)


_combinations: Kept[ReductionPlan] = Kept(KEPT)


def _combined(combiner: str, parts: Array, axes: tuple[int, ...]) -> Any:
    if parts.size <= FEW:
        return COMBINE[combiner](parts, axes)
    plain = Reduction(f"{combiner} of parts", combiner)
    key = (combiner, parts.dtype, parts.shape, axes)
    return _combinations.find(key, lambda: make_plan(plain, [parts], axes)).run([parts])[0]


def make_plan(
    reduction: Reduction,
    arrays: Sequence[Array],
    axes: Sequence[int],
    result: DType | None = None,
    shape: tuple[int, ...] | None = None,
    mean: bool = False,
) -> ReductionPlan:
    """How the terms of arrays of one shape, not empty, are reduced along axes: without those or in
    a shape, of a dtype or the wide one that totals have; the mean of them if that is asked for."""
    whole, order = arrays[0].shape, _memory_order(arrays)
    dtypes = tuple([array.dtype for array in arrays])
    turned = [array.transpose(order) for array in arrays]
    steps = [steps_of(array) if is_dense_inside(array) else None for array in turned]
    outer, along, inner = _taken_apart(_walked(whole, order, steps, axes))
    along, inner, abreast = _widened(along, inner)
    chunks = _chunks(along, inner, dtypes[0].itemsize)
    left = [*[axis.reduced for axis in outer], chunks > 1, abreast > 1, False]
    complete = True not in left
    term, total = term_and_total(reduction.combiner, dtypes[0])
    result = total if result is None else result
    widths = Widths(term, total, result if complete else total, mean and complete)
    innermost = along if inner is None else inner
    dense = tuple([step == 1 for step in innermost.steps])
    apart = any([step not in (0, 1) for step in innermost.steps])
    form = Form(len(outer), () if apart else dense, inner is not None, chunks > 1, apart)
    width = 1 if inner is None else inner.extent
    parts = (*[axis.extent for axis in outer], chunks, abreast, width // abreast)
    kept = [axis for axis in order if axis not in axes]
    in_order = kept == sorted(kept)
    kept_shape = tuple([whole[axis] for axis in kept])
    shape = tuple([whole[axis] for axis in sorted(kept)]) if shape is None else shape
    return ReductionPlan(
        reduction=reduction,
        order=order,
        copied=tuple([number for number, each in enumerate(steps) if each is None]),
        kernel=open_kernel(
            ("reduction", reduction.name, dtypes, form, widths),
            lambda target: reduction_kernel(reduction, dtypes, form, widths, target),
        ),
        scalars=tuple(_scalars(outer, along, inner, chunks, apart)),
        turns=prod([axis.extent for axis in outer]) * chunks * -(-width // BLOCK),
        work=prod(whole) * (BYTE * sum([dtype.itemsize for dtype in dtypes]) + CALLED * reduction.calls),
        parts=shape if complete and in_order else parts,
        dtype=widths.result,
        rest=tuple([number for number, more in enumerate(left) if more]),
        kept=kept_shape,
        back=None if in_order else tuple([int(place) for place in np.argsort(kept)]),
        shape=shape,
        result=result,
        divisor=prod([whole[axis] for axis in axes]) if mean else 1,
    )


def _widened(along: Axis, inner: Axis | None) -> tuple[Axis, Axis | None, int]:
    """Few columns as more: some rows one after the other are one, and their columns are left to
    combine. So many rows that is."""
    if inner is None or inner.extent >= SHORT or along.extent < SHORT * SHORT:
        return along, inner, 1
    if any([down != inner.extent * step for down, step in zip(along.steps, inner.steps)]):
        return along, inner, 1
    most = WIDE // inner.extent
    rows = next(count for count in range(most, 0, -1) if along.extent % count == 0)
    down = Axis(along.extent // rows, tuple([step * rows for step in along.steps]), True)
    return down, Axis(inner.extent * rows, inner.steps), rows


def _chunks(along: Axis, inner: Axis | None, size: int) -> int:
    """How many parts are reduced apart."""
    if inner is None:
        return 1 if along.extent * size <= WHOLE else -(-along.extent // CHUNK)
    whole = along.extent <= WHOLE_ROWS and along.extent * inner.extent * size <= WHOLE
    return 1 if whole else -(-along.extent // CHUNK_ROWS)


def _memory_order(arrays: Sequence[Array]) -> tuple[int, ...]:
    """The axes as the array with most of them in memory has them."""
    return memory_order(max(arrays, key=lambda array: len(array.strides) - array.strides.count(0)))


def _walked(
    shape: Sequence[int], order: Sequence[int], steps: Sequence[Sequence[int] | None], axes: Sequence[int]
) -> list[Axis]:
    """The axes in an order, those joined that are walked in one go; at least one is reduced. Arrays without steps are
    dense."""
    extents = [shape[axis] for axis in order]
    dense = [prod(extents[place + 1 :]) for place in range(len(extents))]
    reduced = [place for place, axis in enumerate(order) if axis in axes]
    walked = joined(extents, [dense if each is None else each for each in steps], reduced)
    if not any([axis.reduced for axis in walked]):
        walked.insert(0, Axis(1, (0,) * len(steps), True))
    return walked


def joined_axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The extents of an array in order of memory when neighbours that are reduced, or kept, are
    joined; and which of them are reduced."""
    walked = _walked(shape, range(len(shape)), [None], axes)
    reduced = [number for number, axis in enumerate(walked) if axis.reduced]
    return tuple([axis.extent for axis in walked]), tuple(reduced)


def _taken_apart(walked: Sequence[Axis]) -> tuple[list[Axis], Axis, Axis | None]:
    """The axes around, the innermost that is reduced, and the one inside of that: rows have none,
    columns the innermost that is kept; so have many short rows."""
    if walked[-1].reduced:
        *outer, along = walked
        if along.extent < SHORT and outer and not outer[-1].reduced and outer[-1].extent >= SHORT:
            return outer[:-1], along, outer[-1]
        return outer, along, None
    place = max([number for number, axis in enumerate(walked) if axis.reduced])
    return [*walked[:place], *walked[place + 1 : -1]], walked[place], walked[-1]


def _scalars(outer: Sequence[Axis], along: Axis, inner: Axis | None, chunks: int, apart: bool) -> Iterator[int]:
    """As the kernel takes them."""
    yield from [axis.extent for axis in outer]
    yield from (along.extent, chunks)
    if inner is not None:
        yield inner.extent
    for number in range(len(along.steps)):
        yield from [axis.steps[number] for axis in outer]
        if inner is not None:
            yield along.steps[number]
            if apart:
                yield inner.steps[number]
