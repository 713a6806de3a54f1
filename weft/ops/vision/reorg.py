"""The reorganisation of YOLO networks: blocks of an image become channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...base.errors import ShapeError
from ...base.shape import Shape, floor_div_dims, mul_dims, show, unify
from ...core.schema import INT, attr, schema
from .._families import INJECTIVE, F, Inferred, Shapes, define, ranked


@schema
class ReorgAttrs:
    stride: int = attr(INT, "how many times smaller height and width become", default=1, low=1)


def _reorg_shape(params: ReorgAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    s = params.stride
    n, c, h, w = ranked(ins[0], 4, "the data")
    for dim, factor in ((c, s * s), (h, s), (w, s)):
        if isinstance(dim, int) and dim % factor:
            raise ShapeError(f"{show(ins[0])} cannot be reorganised by {s}")
    smaller = [floor_div_dims(dim, s) for dim in (h, w)]
    data = unify(ins[0], _unreorganised(s, outs[0]))
    return [data], [(n, mul_dims(c, s * s), *smaller)]


def _unreorganised(s: int, shape: Shape) -> Shape:
    """The shape that a reorganised one comes from."""
    n, c, h, w = ranked(shape, 4, "the output")
    return (n, floor_div_dims(c, s * s), mul_dims(h, s), mul_dims(w, s))


def _reorg_grad_shape(params: ReorgAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data = unify(_unreorganised(params.stride, ins[0]), outs[0])
    (data,), (ograd,) = _reorg_shape(params, [data], [None])
    return [unify(ins[0], ograd)], [data]


def _reorg_reference(params: ReorgAttrs, x: Any) -> Any:
    """Memory is read as (c / s^2, h s, w s); blocks of s x s there become channels."""
    s, (n, c, h, w) = params.stride, x.shape
    blocks = x.reshape(n, c // (s * s), h, s, w, s).transpose(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * s * s, h // s, w // s).copy()


def _reorg_grad_reference(params: ReorgAttrs, g: Any) -> Any:
    s = params.stride
    shape: Any = _unreorganised(s, g.shape)
    n, c, h, w = shape
    blocks = g.reshape(n, s, s, c // (s * s), h, w).transpose(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, c, h, w).copy()


def _moved(x: te.Tensor, shape: Sequence[int], source: Any) -> te.Tensor:
    """Every element of a batch from the place in memory that `source` gives for its own."""
    extents = x.shape[1:]

    def element(n: te.Expr, c: te.Expr, h: te.Expr, w: te.Expr) -> te.Expr:
        flat = source((c * shape[2] + h) * shape[3] + w)
        inner, outer = extents[1] * extents[2], extents[2]
        return x[n, flat // inner, flat % inner // outer, flat % outer]

    return te.compute(shape, element, name="reorg")


def _reorg_compute(params: ReorgAttrs, x: te.Tensor) -> te.Tensor:
    s, (_, c, h, w) = params.stride, x.shape
    (shape,) = _reorg_shape(params, [x.shape], [None])[1]
    parts = c // (s * s)

    def source(flat: te.Expr) -> te.Expr:  # memory as (s, s, parts, h, w)
        column, row = flat % w, flat // w % h
        part, block = flat // (h * w) % parts, flat // (h * w * parts)
        return ((part * h + row) * s + block // s) * (w * s) + column * s + block % s

    return _moved(x, shape, source)


def _reorg_grad_compute(params: ReorgAttrs, g: te.Tensor) -> te.Tensor:
    s = params.stride
    shape: Any = _unreorganised(s, g.shape)
    _, c, h, w = shape
    parts = c // (s * s)

    def source(flat: te.Expr) -> te.Expr:  # memory as (parts, h, s, w, s)
        across, column = flat % s, flat // s % w
        down, row = flat // (s * w) % s, flat // (s * w * s) % h
        part = flat // (s * w * s * h)
        return (((down * s + across) * parts + part) * h + row) * w + column

    return _moved(g, shape, source)


yolo_reorg = define(
    "yolo_reorg",
    "Height and width s times smaller, s^2 times the channels, as the reorg layer of Darknet does: "
    "out[n, (i s + j) c / s^2 + k, ...] takes what is at (i, j) of every s x s block of the data, "
    "whose memory is read as c / s^2 images of (h s, w s).",
    level=5,
    attrs=ReorgAttrs,
    pattern=INJECTIVE,
    shape=_reorg_shape,
    reference=_reorg_reference,
    compute=_reorg_compute,
    gradient=lambda ctx, g: [F._yolo_reorg_grad(g, stride=ctx.params.stride)],
)
yolo_reorg_grad = define(
    "_yolo_reorg_grad",
    "The transpose of yolo_reorg.",
    inputs={"ograd": "the gradient"},
    attrs=ReorgAttrs,
    pattern=INJECTIVE,
    shape=_reorg_grad_shape,
    reference=_reorg_grad_reference,
    compute=_reorg_grad_compute,
    gradient=lambda ctx, gg: [F.yolo_reorg(gg, stride=ctx.params.stride)],
)
