"""Bodies written as loop IR, for the FKernels column: kernels are collected with the positions of
what they read and write, and what many bodies do to rows is written here once.

    def _body(params, inputs, outputs):
        body = Body("flip_pairs", inputs, outputs)
        with body.kernel({0: (n, 2), 1: (n, 2)}, work=2 * n) as (b, x, out):
            with b.parallel("i", n) as i, b.loop("j", 2) as j:
                b.store(out, (i, j), x[i, 1 - j])
        return body.kernels
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

from .. import te
from ..base.dtype import FLOAT32, INT32, INT64, DType, is_float
from ..base.shape import normalize_axis

Spec = tuple[tuple[int, ...], DType]
Written = tuple["te.Kernel", tuple[int, ...], int]
VECTOR = 16  # elements that a loop over rows takes at once, where they divide the rows
CHUNK = 4096  # elements that a thread clears at a time
PART = 512  # elements of rows that it adds
MOST = 256  # elements that it takes otherwise


class Body:
    """The kernels of a body, in the order in which they run."""

    def __init__(self, name: str, inputs: Sequence[Spec], outputs: Sequence[Spec]) -> None:
        self.name = name
        self.specs = [*inputs, *outputs]
        self.kernels: list[Written] = []

    def temporary(self, shape: Sequence[int], dtype: DType) -> int:
        """The position of memory that only these kernels use."""
        self.specs.append((tuple(shape), dtype))
        return len(self.specs) - 1

    @contextmanager
    def kernel(self, views: Mapping[int, Sequence[int]], work: int) -> Iterator[list[Any]]:
        """A kernel over the memory at these positions, each seen in a shape: the builder, then a
        buffer for each of them."""
        b = te.KernelBuilder(self.name)
        buffers = [b.arg(f"b{p}", self.specs[p][1], shape) for p, shape in views.items()]
        yield [b, *buffers]
        self.kernels.append((b.finish(), tuple(views), max(work, 1)))


class Rows(NamedTuple):
    """A shape seen along one axis: `outer` blocks of `extent` rows of `inner` elements."""

    outer: int
    extent: int
    inner: int

    @property
    def block(self) -> int:
        """The elements of a row that one thread takes at a time; one where their number is to stay open."""
        if te.stays_open(self.inner):
            return 1
        if self.inner % VECTOR == 0:
            return VECTOR
        return next(n for n in range(min(self.inner, MOST), 0, -1) if self.inner % n == 0)

    @property
    def tasks(self) -> int:
        return self.outer * (self.inner // self.block) if self.inner else 0


def rows_of(shape: Sequence[int], axis: int) -> Rows:
    """
    >>> rows_of((2, 3, 4, 5), -3)
    Rows(outer=2, extent=3, inner=20)
    """
    axis = normalize_axis(axis, len(shape))
    return Rows(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def unravelled(flat: te.Expr, shape: Sequence[int]) -> list[te.Expr]:
    """The indices of an element that is given by its row-major number."""
    places = []
    for extent in reversed(shape):
        places.append(flat % max(extent, 1))
        flat = flat // max(extent, 1)
    return places[::-1]


def read_stretched(buffer: te.Buffer, at: Sequence[te.Expr]) -> te.Expr:
    """Reads memory that broadcasts, where an output of larger or equal rank has these indices."""
    inner = at[len(at) - len(buffer.shape) :]
    is_one = [isinstance(n, te.Const) and n.value == 1 for n in buffer.shape]
    return buffer[tuple(0 if one else i for i, one in zip(inner, is_one))]


def wide_dtype(dtype: DType) -> DType:
    """What a dtype is computed in: 16-bit floats in float32."""
    return FLOAT32 if is_float(dtype) and dtype.itemsize == 2 else dtype


def variable(b: te.KernelBuilder, name: str, value: te.ExprLike, dtype: DType = INT64) -> te.Buffer:
    """A number that changes: read it as `v[()]`, write it by `b.store(v, (), ...)`."""
    cell = b.alloc(name, dtype, ())
    b.store(cell, (), value)
    return cell


def along(b: te.KernelBuilder, rows: Rows) -> AbstractContextManager[te.Var]:
    """The elements of a block, at once where that is possible."""
    return b.vector("lane", VECTOR) if rows.block == VECTOR else b.loop("lane", rows.block)


@contextmanager
def each_block(b: te.KernelBuilder, rows: Rows) -> Iterator[tuple[te.Var, te.Expr]]:
    """For each block of elements, in parallel: its outer index and its first element."""
    blocks = rows.inner // rows.block if rows.inner else 1
    with b.parallel("p", rows.tasks) as p:
        outer = b.let("outer", p // blocks)
        yield outer, b.let("first", p % blocks * rows.block)


Places = Callable[..., Sequence[tuple["te.Expr", "te.Expr | None"]]]


def add_rows(
    body: Body,
    source: int,
    target: int,
    count: int,
    rows: Rows,
    places: Places,
    read: Mapping[int, Sequence[int]] | None = None,
) -> None:
    """target[o, r, i] = the sum of weight * source[o, k, i] over all k < count and over the
    (r, weight) that `places(b, k, *buffers)` gives, of the buffers that it reads."""
    dtype = body.specs[target][1]
    wide = wide_dtype(dtype)
    total = target if wide == dtype else body.temporary(rows, wide)
    views = {source: (rows.outer, count, rows.inner), **(read or {})}
    views |= {total: rows, target: rows}
    _clear(body, total, rows)
    work = rows.outer * rows.inner * (count + rows.extent)
    parts = (rows.inner + (PART - 1)) // PART
    with body.kernel(views, work) as (b, x, *others), b.parallel("p", rows.outer * parts) as p:
        out = others.pop()
        sums = others.pop() if total != target else out
        o, first = b.let("outer", p // parts), b.let("first", p % parts * PART)

        def each(write: Callable[[te.Expr], None]) -> None:
            _each(b, first, rows.inner, PART, write)

        with b.loop("k", count) as k:
            for place, weight in places(b, k, *others):

                def add(i: te.Expr, place: te.Expr = place, weight: te.Expr | None = weight) -> None:
                    value = _weighted(te.cast(x[o, k, i], wide), weight)
                    b.store(sums, (o, place, i), sums[o, place, i] + value)

                each(add)
        if total != target:
            with b.loop("row", rows.extent) as row:
                each(lambda i: b.store(out, (o, row, i), te.cast(sums[o, row, i], dtype)))


def _each(b: te.KernelBuilder, first: te.Expr, end: int, most: int, write: Callable[[te.Expr], None]) -> None:
    """What is written for elements from the first on: in vectors, of which the last may not be full."""
    if end == 1:
        write(first)
        return
    count = b.let("count", te.min(te.as_expr(end) - first, most))
    full = b.let("full", count // VECTOR)
    with b.loop("turn", full) as turn, b.vector("lane", VECTOR) as lane:
        write(first + turn * VECTOR + lane)
    with b.when(full * VECTOR < count), b.vector("lane", VECTOR) as lane, b.when(full * VECTOR + lane < count):
        write(first + full * VECTOR + lane)


def _clear(body: Body, target: int, rows: Rows) -> None:
    size = math.prod(rows)
    with body.kernel({target: (size,)}, size) as (b, out), b.parallel("p", (size + (CHUNK - 1)) // CHUNK) as p:
        _each(b, b.let("first", p * CHUNK), size, CHUNK, lambda i: b.store(out, i, 0))


def _weighted(value: te.Expr, weight: te.Expr | None) -> te.Expr:
    """A value that does not count may be infinite."""
    if weight is None:
        return value
    return te.select(weight.equal(0), 0.0, value * te.cast(weight, value.dtype))


def before(dtype: DType, descending: bool) -> Callable[[te.Expr, te.Expr], te.Expr]:
    """Whether one value must come before another; NaN counts as the greatest."""

    def smaller(a: te.Expr, b: te.Expr) -> te.Expr:
        if is_float(dtype):
            return (a < b) | (te.isnan(b) & te.logical_not(te.isnan(a)))
        return te.cast(a, "uint8") < te.cast(b, "uint8") if dtype.kind == "b" else a < b

    return (lambda a, b: smaller(b, a)) if descending else smaller


def sort_row(
    b: te.KernelBuilder,
    order: te.Buffer,
    row: te.Expr,
    count: te.ExprLike,
    precedes: Callable[[te.Expr, te.Expr], te.Expr],
) -> Callable[[te.Expr], te.Expr]:
    """Sorts the numbers 0 .. count - 1 by merging, equal ones staying in order.

    `order` has the shape (rows, 2, capacity); the result is a function from places to numbers.
    """
    capacity = int(order.shape[2].value)  # type: ignore[attr-defined]
    passes = max(capacity - 1, 0).bit_length()
    left, right = variable(b, "left", 0), variable(b, "right", 0)
    n = te.as_expr(count)
    with b.loop("i", n) as i:
        b.store(order, (row, 0, i), te.cast(i, INT32))
    with b.loop("step", passes) as step:
        width = b.let("width", te.as_expr(1) << step)
        source = b.let("source", step % 2)
        with b.loop("run", (n + width * 2 - 1) // (width * 2)) as run:
            low = b.let("low", run * width * 2)
            middle = b.let("middle", te.min(low + width, n))
            high = b.let("high", te.min(low + width * 2, n))
            b.store(left, (), low)
            b.store(right, (), middle)
            with b.loop("at", high - low) as at:
                i, j = b.let("i", left[()]), b.let("j", right[()])
                x = b.let("x", te.cast(order[row, source, te.min(i, n - 1)], INT64))
                y = b.let("y", te.cast(order[row, source, te.min(j, n - 1)], INT64))
                turn = b.let("turn", (j < high) & ((i >= middle) | precedes(y, x)))
                b.store(order, (row, 1 - source, low + at), te.cast(te.select(turn, y, x), INT32))
                b.store(left, (), te.select(turn, i, i + 1))
                b.store(right, (), te.select(turn, j + 1, j))
    return lambda place: te.cast(order[row, passes % 2, place], INT64)
