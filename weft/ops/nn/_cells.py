"""Boxes cut in cells, each a weighted sum of elements of an image: what pools of this kind share,
forward and backward, in numpy and as loops. A pool says which elements a cell takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import FLOAT32
from ...base.shape import unify_dim
from .._families import OGRAD, F, Inferred, Shapes, attributes, define, ranked
from .._kernels import Body, variable, wide_dtype

FARTHEST = 1e6  # sides of boxes beyond it count as that far away

BOXES = {
    "data": "(n, c, height, width)",
    "rois": "(boxes, 5): the number of the image, left, top, right, bottom; a box of no image gives 0",
}


class Taps(NamedTuple):
    """The elements that a cell takes, one an item, and how much each counts."""

    rows: Any
    columns: Any
    weights: Any


Visit = Callable[[te.Expr, te.Expr, te.Expr], None]  # of a row, a column and a weight


class Cell(NamedTuple):
    """A cell while loops are written: row `box` of the boxes, cut at (i, j), of some class."""

    boxes: te.Buffer
    box: te.Expr
    i: te.Expr
    j: te.Expr
    height: int
    width: int
    kind: te.Expr
    moves: te.Buffer | None = None


class Pool(NamedTuple):
    """What tells one pool from another.

    cells(params): rows and columns of the output. channels(params, c): of the output, for c of the
    data. source(params, c, i, j): the channel of the data that a cell reads. classes(shapes): how
    many classes the channels of the output are in, all of one taking the same elements.
    taps(params, sides, cell, extents, moves): of one box, in numpy; emit(b, params, cell, visit):
    the same as loops, in which `visit` is called for each element.
    """

    name: str
    cells: Callable[[Any], tuple[int, int]]
    channels: Callable[[Any, Any], Any]
    source: Callable[..., Any]
    taps: Callable[..., Taps]
    emit: Callable[..., None]
    classes: Callable[[Sequence[Any]], int] = lambda shapes: 1


# float32 as MXNet has it: products are rounded before they are added to anything.


def times(a: te.ExprLike, b: te.ExprLike) -> te.Expr:
    """The product of two float32 numbers, rounded: nothing is contracted with it."""
    wide = [te.cast(te.as_expr(side), "float64") for side in (a, b)]
    return te.cast(wide[0] * wide[1], FLOAT32)


def single(value: float) -> te.Expr:
    return te.const(float(np.float32(value)), FLOAT32)


def sides_of(boxes: Any, box: int) -> Any:
    """(left, top, right, bottom) of a box as finite float32."""
    with np.errstate(over="ignore"):
        sides = boxes[box, 1:].astype(FLOAT32)
    return np.clip(np.nan_to_num(sides, nan=0.0), -FARTHEST, FARTHEST).astype(FLOAT32)


def side(boxes: te.Buffer, box: te.Expr, number: int) -> te.Expr:
    """The same, one of the four, as an expression."""
    place = te.cast(boxes[box, number + 1], FLOAT32)
    known = te.select(te.isnan(place), 0.0, place)
    return te.min(te.max(known, -FARTHEST), FARTHEST)


# Rules


def shape_rule(pool: Pool) -> Any:
    def rule(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
        n, c, height, width = ranked(ins[0], 4, "the data")
        count, five = ranked(ins[1], 2, "the boxes")
        unify_dim(five, 5)
        data = None if ins[0] is None else (n, c, height, width)
        out = (count, pool.channels(params, c), *pool.cells(params))
        return [data, (count, 5)], [out]

    return rule


def _each(pool: Pool, params: Any, x: Any, boxes: Any, moves: Any) -> Iterator[Any]:
    """(box, i, j) with its image, channels of the output and of the data, and the taps."""
    rows, columns = pool.cells(params)
    outs = pool.channels(params, x.shape[1])
    classes = pool.classes([None if moves is None else moves.shape])
    groups = np.array_split(np.arange(outs), classes)
    for box, number in enumerate(boxes[:, 0].astype(FLOAT32)):
        if not 0 <= number < len(x):
            continue
        for i, j, kind in np.ndindex(rows, columns, classes):
            move = None if moves is None else moves[box, 2 * kind : 2 * kind + 2]
            taps = pool.taps(params, sides_of(boxes, box), (i, j), x.shape[2:], move)
            group = groups[kind]
            yield (box, group, i, j), (int(number), pool.source(params, group, i, j)), taps


def reference_rule(pool: Pool) -> Any:
    def rule(params: Any, x: Any, boxes: Any, moves: Any = None) -> Any:
        wide = wide_dtype(x.dtype)
        shape = (len(boxes), pool.channels(params, x.shape[1]), *pool.cells(params))
        out = np.zeros(shape, wide)
        with np.errstate(all="ignore"):
            for at, (image, source), taps in _each(pool, params, x, boxes, moves):
                taken = x[image][source[:, None], taps.rows, taps.columns].astype(wide)
                out[at] = np.where(taps.weights != 0, taken * taps.weights, 0).sum(1)
        return out.astype(x.dtype)

    return rule


def grad_reference_rule(pool: Pool) -> Any:
    def rule(params: Any, g: Any, x: Any, boxes: Any, moves: Any = None) -> Any:
        wide = wide_dtype(x.dtype)
        out = np.zeros(x.shape, wide)
        with np.errstate(all="ignore"):
            for at, (image, source), taps in _each(pool, params, x, boxes, moves):
                shares = g[at].astype(wide)[:, None] * taps.weights
                shares = np.where(taps.weights != 0, shares, 0)
                np.add.at(out[image], (source[:, None], taps.rows, taps.columns), shares)
        return out.astype(x.dtype)

    return rule


# Loops


def _image(b: te.KernelBuilder, boxes: te.Buffer, box: te.Expr, count: int) -> Any:
    """Whether there is such an image, and its number."""
    number = b.let("number", te.cast(boxes[box, 0], FLOAT32))
    there = (number >= 0.0) & (number < float(count))
    return there, te.cast(te.select(there, number, 0.0), "int64")


def _kind(c: te.Expr, channels: int, classes: int) -> te.Expr:
    return c // max(channels // max(classes, 1), 1)


def kernels_rule(pool: Pool) -> Any:
    """A channel of a box a thread."""

    def rule(params: Any, inputs: Any, outputs: Any) -> Any:
        ((n, channels, height, width), dtype), ((count, _), _), *moves = inputs
        rows, columns = pool.cells(params)
        outs, wide = pool.channels(params, channels), wide_dtype(dtype)
        classes = pool.classes([shape for shape, _ in moves])
        body = Body(pool.name, inputs, outputs)
        views = {0: (n, channels, height, width), 1: (count, 5)}
        views |= {2 + i: shape for i, (shape, _) in enumerate(moves)}
        views |= {len(inputs): (count, outs, rows, columns)}
        kernel = body.kernel(views, 64 * count * outs * rows * columns)
        with kernel as (b, x, boxes, *more, out), b.parallel("p", count * outs) as p:
            box, c = b.let("box", p // max(outs, 1)), b.let("c", p % max(outs, 1))
            there, image = _image(b, boxes, box, n)
            total = variable(b, "total", 0, wide)
            with b.loop("i", rows) as i, b.loop("j", columns) as j:
                b.store(total, (), 0)
                source = b.let("source", pool.source(params, c, i, j))
                kind = _kind(c, outs, classes)
                cell = Cell(boxes, box, i, j, height, width, kind, *more)

                def add(row: te.Expr, column: te.Expr, weight: te.Expr) -> None:
                    value = te.cast(x[image, source, row, column], wide)
                    b.store(total, (), total[()] + _share(value, weight))

                with b.when(there):
                    pool.emit(b, params, cell, add)
                b.store(out, (box, c, i, j), te.cast(total[()], dtype))
        return body.kernels

    return rule


def _share(value: te.Expr, weight: te.Expr) -> te.Expr:
    return te.select(weight.equal(0), 0.0, value * te.cast(weight, value.dtype))


def grad_kernels_rule(pool: Pool) -> Any:
    """A channel of the output a thread: those of the data that it reads are read by no other, but
    for plain pools, where it reads one only."""

    def rule(params: Any, inputs: Any, outputs: Any) -> Any:
        (_, dtype), ((n, channels, height, width), _), ((count, _), _), *moves = inputs
        rows, columns = pool.cells(params)
        outs, wide = pool.channels(params, channels), wide_dtype(dtype)
        classes = pool.classes([shape for shape, _ in moves])
        own = channels // max(outs, 1)  # channels of the data that one of the output reads
        body = Body(f"{pool.name}_grad", inputs, outputs)
        end = len(inputs)
        total = end if wide == dtype else body.temporary((n, channels, height, width), wide)
        views = {0: (count, outs, rows, columns), 2: (count, 5)}
        views |= {3 + i: shape for i, (shape, _) in enumerate(moves)}
        views |= dict.fromkeys((total, end), (n, outs, own, height, width))
        work = 64 * count * outs * rows * columns + n * channels * height * width
        kernel = body.kernel(views, work)
        with kernel as (b, g, boxes, *more), b.parallel("c", outs) as c:
            out = more.pop()
            sums = more.pop() if total != end else out
            with each_place(b, n, own, height, width) as at:
                b.store(sums, _of(c, at), 0)
            with b.loop("box", count) as box:
                there, image = _image(b, boxes, box, n)
                with b.when(there), b.loop("i", rows) as i, b.loop("j", columns) as j:
                    given = b.let("given", te.cast(g[box, c, i, j], wide))
                    source = b.let("source", pool.source(params, c, i, j) - c * own)
                    kind = _kind(c, outs, classes)
                    cell = Cell(boxes, box, i, j, height, width, kind, *more)

                    def add(row: te.Expr, column: te.Expr, weight: te.Expr) -> None:
                        at = (image, c, source, row, column)
                        b.store(sums, at, sums[at] + _share(given, weight))

                    pool.emit(b, params, cell, add)
            if total != end:
                with each_place(b, n, own, height, width) as at:
                    b.store(out, _of(c, at), te.cast(sums[_of(c, at)], dtype))
        return body.kernels

    return rule


def _of(c: te.Expr, at: Sequence[te.Expr]) -> tuple[te.Expr, ...]:
    return (at[0], c, *at[1:])


@contextmanager
def each_place(b: te.KernelBuilder, *extents: int) -> Iterator[tuple[te.Var, ...]]:
    """Loops, one in the other."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(b.loop(f"a{i}", n)) for i, n in enumerate(extents))


def whole(low: te.Expr, extent: int) -> te.Expr:
    """A float as a place between 0 and the extent."""
    return te.cast(te.min(te.max(low, 0.0), float(extent)), "int64")


def define_pool(pool: Pool, doc: str, attrs: type, shape: Any, dtype: Any, **columns: Any) -> None:
    """Registers the pool and its gradient with respect to the data, which is linear in the gradient
    of the output; so the pool is the gradient of that one."""
    grad_name = f"_{pool.name}_grad"

    def grad_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
        (data, boxes), (out,) = shape(params, ins[1:], [None])
        return [out, data, boxes], [data]

    define(
        pool.name,
        doc,
        level=4,
        inputs=BOXES,
        attrs=attrs,
        shape=shape,
        dtype=dtype,
        reference=reference_rule(pool),
        kernels=kernels_rule(pool),
        gradient=lambda ctx, g: [F.__getattr__(grad_name)(g, *ctx.inputs, **attributes(ctx.params)), None],
        **columns,
    )
    define(
        grad_name,
        f"ograd, shared by the elements that the cells of {pool.name} take.",
        inputs={**OGRAD, **BOXES},
        attrs=attrs,
        shape=grad_shape,
        dtype=dtype,
        reference=grad_reference_rule(pool),
        kernels=grad_kernels_rule(pool),
        ignored_inputs=[1],
        gradient=lambda ctx, g: [F.__getattr__(pool.name)(g, ctx.inputs[2], **attributes(ctx.params)), None, None],
        **columns,
    )
