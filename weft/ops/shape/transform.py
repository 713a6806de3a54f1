"""Operators that give the same elements another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.errors import InvalidValue, LayoutError, ShapeError
from ...base.layout import UNDEFINED, Layout
from ...base.shape import normalize_axis, unify
from ...core.op import set_role
from ...core.schema import INT, INTS, LAYOUT, attr, schema
from .. import _layouts as layouts
from .._families import INJECTIVE, Array, F, Inferred, Shapes, axis_shape, define, holomorphic


@schema
class TransposeAttrs:
    axes: tuple[int, ...] = attr(
        INTS, "axis i of the output is axis axes[i] of the input; () reverses them", default=()
    )


def _permutation(params: TransposeAttrs, rank: int) -> list[int]:
    if not params.axes:
        return list(range(rank))[::-1]
    if len(params.axes) != rank:
        raise ShapeError(f"transpose by {params.axes} of {rank} dimensions", why="each must be named once")
    axes = [normalize_axis(axis, rank) for axis in params.axes]
    if len(set(axes)) != rank:
        raise InvalidValue(f"transpose by {params.axes}", why="an axis is named twice")
    return axes


def _transpose_shape(params: TransposeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    rank = next((len(shape) for shape in (*ins, *outs) if shape is not None), None)
    if rank is None:
        return [None], [None]
    axes = _permutation(params, rank)
    data, out = (unify(shape, (None,) * rank) for shape in (ins[0], outs[0]))
    data = unify(data, tuple(out[axis] for axis in np.argsort(axes)))
    return [data], [tuple(data[axis] for axis in axes)]


def _inverse(params: TransposeAttrs) -> tuple[int, ...]:
    return tuple(int(axis) for axis in np.argsort(_permutation(params, len(params.axes))))


transpose = define(
    "transpose",
    "Axes in another order.",
    level=4,
    attrs=TransposeAttrs,
    pattern=INJECTIVE,
    shape=_transpose_shape,
    layout=layouts.permuted,
)


def transpose_view(params: TransposeAttrs, x: Any) -> Any:
    return x.transpose(_permutation(params, x.ndim))


transpose.reference = lambda p, x: transpose_view(p, x).copy()
transpose.views = lambda p, x: [transpose_view(p, x)]
transpose.complex_gradient = holomorphic
transpose.gradient = lambda ctx, g: [  # the inverse permutation
    F.transpose(g, axes=_inverse(ctx.params)) if ctx.params.axes else F.transpose(g)
]


def _transpose_compute(params: TransposeAttrs, x: te.Tensor) -> te.Tensor:
    axes = _permutation(params, x.rank)
    back = np.argsort(axes)
    shape = [x.shape[axis] for axis in axes]
    return te.compute(shape, lambda *i: x[tuple(i[axis] for axis in back)])


transpose.compute = _transpose_compute


@schema
class FlipAttrs:
    axis: int = attr(INT, "along which axis", default=0)


def _flip_compute(params: FlipAttrs, x: te.Tensor) -> te.Tensor:
    axis = normalize_axis(params.axis, x.rank)

    def value(*i: te.Expr) -> te.Expr:
        return x[(*i[:axis], x.shape[axis] - 1 - i[axis], *i[axis + 1 :])]

    return te.compute(x.shape, value)


flip = define(
    "flip",
    "The elements along an axis, last first.",
    level=4,
    attrs=FlipAttrs,
    pattern=INJECTIVE,
    shape=axis_shape,
    layout=layouts.fixed_copy,
    native_from=8192,
)
flip.reference = lambda p, x: np.flip(x, p.axis).copy()
flip.compute = _flip_compute
flip.complex_gradient = holomorphic
flip.gradient = lambda ctx, g: [F.flip(g, axis=ctx.params.axis)]


@schema
class LayoutTransformAttrs:
    src_layout: str = attr(LAYOUT, "the layout of the input", default=UNDEFINED)
    dst_layout: str = attr(LAYOUT, "the layout of the output", default=UNDEFINED)


def _layout_pair(params: LayoutTransformAttrs) -> tuple[Layout, Layout]:
    source, target = Layout(params.src_layout), Layout(params.dst_layout)
    if not source.convertible(target):
        raise LayoutError(
            f"layout {source} does not convert to {target}",
            why="both must be given, and have the same upper-case letters",
        )
    return source, target


def _layout_transform_shape(params: LayoutTransformAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    source, target = _layout_pair(params)
    out = source.convert_shape(ins[0], target)
    return [target.convert_shape(outs[0], source)], [out]


def _layout_transform_reference(params: LayoutTransformAttrs, x: Array) -> Array:
    return layouts.rearrange(x, *_layout_pair(params))


def _layout_transform_compute(params: LayoutTransformAttrs, x: te.Tensor) -> te.Tensor:
    source, target = _layout_pair(params)
    shape = _layout_transform_shape(params, [x.shape], [None])[1][0]

    def value(*i: te.Expr) -> te.Expr:
        whole = {}
        for letter, _ in target.axes:
            if letter.isupper():
                at, block = i[target.index_of(letter)], target.subsizeof(letter)
                inner = target.index_of(letter.lower())
                whole[letter] = at if block < 0 else at * block + i[inner]
        return x[tuple(_layout_index(letter, whole, source) for letter, _ in source.axes)]

    return te.compute(shape, value)


def _layout_index(letter: str, whole: dict[str, Any], layout: Layout) -> Any:
    at, block = whole[letter.upper()], layout.subsizeof(letter)
    if block < 0:
        return at
    return at // block if letter.isupper() else at % block


layout_transform = define(
    "__layout_transform__",
    "The same tensor in another layout, such as NCHW as NCHW16c.",
    level=1,
    attrs=LayoutTransformAttrs,
    pattern=INJECTIVE,
    shape=_layout_transform_shape,
    layout=lambda params, ins, last, outs: tuple([layout] for layout in _layout_pair(params)),
)
layout_transform.reference = _layout_transform_reference
layout_transform.compute = _layout_transform_compute
layout_transform.gradient = lambda ctx, g: [
    F.__layout_transform__(g, src_layout=ctx.params.dst_layout, dst_layout=ctx.params.src_layout)
]

set_role("layout_transform", "__layout_transform__")
