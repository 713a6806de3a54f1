"""The correlation of two images: how alike patches of one are to patches of the other near by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.errors import ShapeError
from ...base.shape import add_dims, ceil_div_dims, unify
from ...core.schema import BOOL, INT, attr, schema
from .._families import OGRAD, F, Inferred, Shapes, attributes, define, floating, ranked
from .._kernels import wide_dtype


@schema
class CorrelationAttrs:
    kernel_size: int = attr(INT, "height and width of a patch", default=1, low=1)
    max_displacement: int = attr(INT, "how far patches of the second may be", default=1, low=0)
    stride1: int = attr(INT, "from one patch of the first to the next", default=1, low=1)
    stride2: int = attr(INT, "from one patch of the second to the next", default=1, low=1)
    pad_size: int = attr(INT, "zeros around the images", default=0, low=0)
    is_multiply: bool = attr(BOOL, "products of elements, or else how far they are apart", default=True)


class Moves(NamedTuple):
    """All moves of patches of the second image: `turns` along each axis, from -reach on."""

    turns: int
    reach: int
    step: int

    def of(self, channel: Any) -> tuple[Any, Any]:
        """(down, across) of a channel of the output."""
        down, across = channel // self.turns, channel % self.turns
        return (down - self.reach) * self.step, (across - self.reach) * self.step


def _moves(params: CorrelationAttrs) -> Moves:
    reach = params.max_displacement // params.stride2
    return Moves(2 * reach + 1, reach, params.stride2)


def _extent(params: CorrelationAttrs, extent: Any) -> Any:
    border = params.max_displacement + (params.kernel_size - 1) // 2
    inner = add_dims(extent, 2 * params.pad_size - 2 * border)
    if isinstance(inner, int) and inner < 1:
        raise ShapeError(f"an image of {extent} elements is too small", why=f"{params}")
    return ceil_div_dims(inner, params.stride1)


def _shape(params: CorrelationAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data = unify(ins[0], ins[1])
    n, _, height, width = ranked(data, 4, "the data")
    count = _moves(params).turns ** 2
    return [data, data], [(n, count, _extent(params, height), _extent(params, width))]


def _grad_shape(params: CorrelationAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    (data, _), (out,) = _shape(params, ins[1:], [None])
    return [out, data, data], [data, data]


# numpy


def _pairs(params: CorrelationAttrs, a: Any, b: Any) -> Any:
    """For every move and element of a patch: the channel, and where it is in both padded images."""
    rows, columns = (_extent(params, extent) for extent in a.shape[2:])
    moves, start, step = _moves(params), params.max_displacement, params.stride1
    for channel in range(moves.turns**2):
        for i, j in np.ndindex(params.kernel_size, params.kernel_size):
            first = (start + i, start + j)
            other = [at + move for at, move in zip(first, moves.of(channel))]
            yield (
                channel,
                *(
                    (..., slice(y, y + rows * step, step), slice(x, x + columns * step, step))
                    for y, x in (first, other)
                ),
            )


def _framed(params: CorrelationAttrs, x: Any, wide: Any) -> Any:
    """The image with zeros around, and more where the last patch reaches further."""
    more = params.kernel_size + params.stride1 + params.max_displacement
    edges = (params.pad_size, params.pad_size + more)
    return np.pad(x.astype(wide), ((0, 0), (0, 0), edges, edges))


def _reference(params: CorrelationAttrs, a: Any, b: Any) -> Any:
    (out,) = _shape(params, [a.shape, b.shape], [None])[1]
    wide = wide_dtype(a.dtype)
    total, one, two = np.zeros(out, wide), _framed(params, a, wide), _framed(params, b, wide)
    with np.errstate(all="ignore"):
        for channel, first, other in _pairs(params, a, b):
            x, y = _cut(one[first], out), _cut(two[other], out)
            total[:, channel] += (x * y if params.is_multiply else np.abs(x - y)).sum(1)
        total /= wide.type(max(params.kernel_size**2 * a.shape[1], 1))
    return total.astype(a.dtype)


def _cut(part: Any, out: Sequence[int]) -> Any:
    return part[:, :, : out[2], : out[3]]


def _grad_reference(params: CorrelationAttrs, g: Any, a: Any, b: Any) -> Any:
    wide = wide_dtype(a.dtype)
    one, two = _framed(params, a, wide), _framed(params, b, wide)
    grads = np.zeros_like(one), np.zeros_like(two)
    scale = wide.type(max(params.kernel_size**2 * a.shape[1], 1))
    with np.errstate(all="ignore"):
        for channel, first, other in _pairs(params, a, b):
            share = g[:, channel, None].astype(wide) / scale
            x, y = one[first], two[other]
            if params.is_multiply:
                grads[0][first] += share * y
                grads[1][other] += share * x
            else:
                grads[0][first] += share * np.sign(x - y)
                grads[1][other] -= share * np.sign(x - y)
    edge, (height, width) = params.pad_size, a.shape[2:]
    inner = (..., slice(edge, edge + height), slice(edge, edge + width))
    return tuple(grad[inner].astype(a.dtype) for grad in grads)


# te


def _element(x: te.Tensor, n: Any, c: Any, y: Any, z: Any, wide: Any) -> te.Expr:
    """An element, or 0 outside."""
    height, width = x.shape[2:]
    inside = (y >= 0) & (y < height) & (z >= 0) & (z < width)
    at = (te.min(te.max(y, 0), height - 1), te.min(te.max(z, 0), width - 1))
    return te.select(inside, te.cast(x[(n, c, *at)], wide), 0.0)


def _sign(value: te.Expr) -> te.Expr:
    sign = te.select(value > 0.0, 1.0, te.select(value < 0.0, -1.0, 0.0))
    return te.select(te.isnan(value), value, te.cast(sign, value.dtype))


def _compute(params: CorrelationAttrs, a: te.Tensor, b: te.Tensor) -> te.Tensor:
    (shape,) = _shape(params, [a.shape, b.shape], [None])[1]
    wide, moves, size = wide_dtype(a.dtype), _moves(params), params.kernel_size
    c, p, q = (te.reduce_axis(extent, name) for extent, name in ((a.shape[1], "c"), (size, "p"), (size, "q")))

    def total(n: Any, channel: Any, i: Any, j: Any) -> Any:
        start = params.max_displacement - params.pad_size
        y, z = i * params.stride1 + start + p.var, j * params.stride1 + start + q.var
        down, across = moves.of(channel)
        x = _element(a, n, c.var, y, z, wide)
        other = _element(b, n, c.var, y + down, z + across, wide)
        return te.sum(x * other if params.is_multiply else te.abs(x - other), [c, p, q])

    sums = te.compute(shape, total, name="correlation_sum")
    scale = float(max(size * size * a.shape[1], 1))
    return te.compute(shape, lambda *i: te.cast(sums[i] / scale, a.dtype), name="correlation")


def _grad_compute(params: CorrelationAttrs, g: te.Tensor, a: te.Tensor, b: te.Tensor) -> Any:
    """Every element gathers from the patches that it is part of."""
    wide, moves, size = wide_dtype(a.dtype), _moves(params), params.kernel_size
    rows, columns = g.shape[2:]
    scale = float(max(size * size * a.shape[1], 1))

    def patch(place: Any, offset: Any, count: int) -> tuple[Any, Any]:
        """The patch whose element at an offset is at a place, and whether there is one."""
        first = place + params.pad_size - params.max_displacement - offset
        index = first // params.stride1
        return te.min(te.max(index, 0), max(count - 1, 0)), (
            (first >= 0) & (first % params.stride1).equal(0) & (index < count)
        )

    def gradient(second: bool) -> te.Tensor:
        d = te.reduce_axis(moves.turns**2, "d")
        p, q = te.reduce_axis(size, "p"), te.reduce_axis(size, "q")

        def total(n: Any, c: Any, y: Any, z: Any) -> Any:
            down, across = moves.of(d.var)
            top, left = (y - down, z - across) if second else (y, z)  # in the first image
            i, has_row = patch(top, p.var, rows)
            j, has_column = patch(left, q.var, columns)
            other = (top, left) if second else (y + down, z + across)
            factor = _element(a if second else b, n, c, *other, wide)
            if not params.is_multiply:
                mine = te.cast((b if second else a)[n, c, y, z], wide)
                factor = _sign(mine - factor)
            share = te.cast(g[n, d.var, i, j], wide) / scale
            return te.sum(te.select(has_row & has_column, share * factor, 0.0), [d, p, q])

        sums = te.compute(a.shape, total, name="correlation_grad_sum")
        return te.compute(a.shape, lambda *i: te.cast(sums[i], a.dtype), name="correlation_grad")

    return gradient(False), gradient(True)


_DATA = {"data1": "(n, c, height, width)", "data2": "of the same shape"}


correlation = define(
    "correlation",
    "For every patch of the first image and every move of it, the mean over its elements and "
    "channels of the products with the moved patch of the second image, or of the distances.",
    inputs=_DATA,
    attrs=CorrelationAttrs,
    shape=_shape,
    dtype=floating,
    reference=_reference,
    compute=_compute,
    gradient=lambda ctx, g: list(F._correlation_grad(g, *ctx.inputs, **attributes(ctx.params))),
)

correlation_grad = define(
    "_correlation_grad",
    "The gradients of both images of correlation.",
    inputs={**OGRAD, **_DATA},
    attrs=CorrelationAttrs,
    shape=_grad_shape,
    dtype=floating,
    reference=_grad_reference,
    compute=_grad_compute,
).set_num_outputs(2)
