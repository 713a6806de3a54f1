"""pad, and the transpose of it that its gradient is."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.errors import InvalidValue, ShapeError
from ...base.shape import Dim, Shape, add_dims, all_numbers, sub_dims, unify_dim
from ...core.schema import EXTENT_PAIRS, FLOAT, attr, choice, schema
from .. import _layouts as layouts
from .._families import (
    INJECTIVE,
    OGRAD,
    OUT_FUSABLE,
    Array,
    F,
    Inferred,
    Shapes,
    attributes,
    clamped,
    define,
    holomorphic,
)
from ..nn._windows import read


@schema
class PadAttrs:
    pad_width: tuple[tuple[int, int], ...] = attr(EXTENT_PAIRS, "(before, after) for every axis")
    pad_value: float = attr(FLOAT, "what to fill with, in mode constant", default=0.0)
    mode: str = attr(choice("constant", "edge", "reflect"), "what is outside", default="constant")


def _widths(params: PadAttrs, rank: int) -> tuple[tuple[int, int], ...]:
    widths = params.pad_width
    if any(len(pair) != 2 or any(isinstance(width, int) and width < 0 for width in pair) for pair in widths):
        raise InvalidValue(f"pad_width cannot be {widths}", why="it has two numbers, not negative, for every axis")
    if len(widths) != rank:
        raise ShapeError(f"pad_width has {len(widths)} pairs for a tensor of {rank} dimensions")
    return widths


def _check_source(params: PadAttrs, extent: Dim, pair: tuple[int, int]) -> None:
    if not isinstance(extent, int) or not all_numbers(pair):
        return
    needed = {"constant": 0, "edge": int(any(pair)), "reflect": max(pair) + any(pair)}[params.mode]
    if extent < needed:
        raise ShapeError(
            f"cannot pad an axis of {extent} by {pair} in mode {params.mode}",
            why=f"it needs at least {needed} elements",
        )


def _meet(params: PadAttrs, data: Shape, out: Shape) -> tuple[Shape, Shape]:
    """What the shapes before and after say about each other."""
    known = data if data is not None else out
    if known is None:
        return None, None
    widths = _widths(params, len(known))
    inner: list[Dim] = list(data) if data is not None else [None] * len(widths)
    if out is not None:
        _widths(params, len(out))
        inner = [unify_dim(d, _less(o, add_dims(*pair))) for d, o, pair in zip(inner, out, widths)]
    for extent, pair in zip(inner, widths):
        _check_source(params, extent, pair)
    outer = [add_dims(extent, *pair) for extent, pair in zip(inner, widths)]
    return tuple(inner), tuple(outer)


def _less(extent: Dim, width: Dim) -> Dim:
    inner = sub_dims(extent, width)
    if isinstance(inner, int) and inner < 0:
        raise ShapeError(f"an extent of {extent} cannot come from padding by {width}")
    return inner


def _pad_shape(params: PadAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, out = _meet(params, ins[0], outs[0])
    return [data], [out]


def _grad_shape(params: PadAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    data, out = _meet(params, outs[0], ins[0])
    return [out], [data]


def _pad_reference(params: PadAttrs, x: Array) -> Array:
    widths = _widths(params, x.ndim)
    if params.mode == "constant":
        value = np.asarray(clamped(params.pad_value, x.dtype)).astype(x.dtype)
        shape = [extent + sum(pair) for extent, pair in zip(x.shape, widths)]
        padded = np.full(shape, value) if value.tobytes().strip(b"\0") else np.zeros(shape, x.dtype)
        inner_view(params, padded)[...] = x
        return padded
    mode: Any = params.mode
    return np.pad(x, widths, mode=mode) if x.ndim else x.copy()


def _pad_compute(params: PadAttrs, x: te.Tensor) -> te.Tensor:
    widths = _widths(params, x.rank)
    shape = tuple(extent + sum(pair) for extent, pair in zip(x.shape, widths))
    fill = clamped(params.pad_value, x.dtype)

    def element(*index: Any) -> Any:
        places, conditions = [], []
        for i, extent, (before, after) in zip(index, x.shape, widths):
            place = i - before if before else i
            if params.mode == "constant":
                conditions += [place >= 0] if before else []
                conditions += [place < extent] if after else []
            elif before or after:
                place = _inward(params.mode, place, extent)
            places.append(place)
        return read(x, places, conditions, fill)

    return te.compute(shape, element, name="pad")


def _inward(mode: str, place: te.Expr, extent: int) -> te.Expr:
    """The element that stands for a place at most one extent outside."""
    if mode == "edge":
        return te.min(te.max(place, 0), extent - 1)
    place = te.max(place, -place)
    return te.min(place, 2 * (extent - 1) - place)


def inner_view(params: PadAttrs, g: Array) -> Array:
    """What the elements of the data have become, without those around them."""
    widths = zip(_widths(params, g.ndim), g.shape)
    return g[tuple(slice(before, extent - after) for (before, after), extent in widths)]


def _grad_reference(params: PadAttrs, g: Array) -> Array:
    """Axis by axis, adds what was copied outside to where it came from."""
    if params.mode == "constant":
        return inner_view(params, g).copy()
    for axis, (before, after) in enumerate(_widths(params, g.ndim)):
        moved = np.moveaxis(g, axis, 0)
        extent = moved.shape[0] - before - after
        inner = moved[before : before + extent].copy()
        if params.mode == "edge" and (before or after):
            inner[0] += moved[:before].sum(axis=0, dtype=g.dtype)
            inner[-1] += moved[before + extent :].sum(axis=0, dtype=g.dtype)
        elif params.mode == "reflect":
            inner[1 : before + 1] += moved[:before][::-1]
            inner[extent - 1 - after : extent - 1] += moved[before + extent :][::-1]
        g = np.moveaxis(inner, 0, axis)
    return np.array(g, order="C")


def _grad_compute(params: PadAttrs, g: te.Tensor) -> te.Tensor:
    widths = _widths(params, g.rank)
    if params.mode == "constant":
        shape = tuple(extent - sum(pair) for extent, pair in zip(g.shape, widths))
        starts = [before for before, _ in widths]
        return te.compute(shape, lambda *i: g[tuple(v + s for v, s in zip(i, starts))])
    for axis, (before, after) in enumerate(widths):
        if before or after:
            g = _gather_axis(params.mode, g, axis, before, after)
    return te.compute(g.shape, lambda *i: g[i], name="pad_grad")


def _gather_axis(mode: str, g: te.Tensor, axis: int, before: int, after: int) -> te.Tensor:
    """Sums over k: the element's own place (k = 0), then copies before it, then copies after."""
    extent = g.shape[axis] - before - after
    shape = (*g.shape[:axis], extent, *g.shape[axis + 1 :])
    k = te.reduce_axis(1 + before + after if mode == "edge" else 3)

    def element(*index: Any) -> Any:
        i, step = index[axis], k.var
        if mode == "edge":
            itself, left = step.equal(0), (step <= before) & i.equal(0)
            right = (step > before) & i.equal(extent - 1)
            place = te.select(step <= before, before + i - step, i + step)
            wanted = itself | left | right
        else:
            left, right = before - i, before + 2 * (extent - 1) - i
            place = te.select(step.equal(0), before + i, te.select(step.equal(1), left, right))
            wanted = (
                step.equal(0)
                | (step.equal(1) & (i >= 1) & (left >= 0))
                | (step.equal(2) & (i < extent - 1) & (right < g.shape[axis]))
            )
        source = (*index[:axis], place, *index[axis + 1 :])
        return te.sum(te.read_or(g, source, wanted, 0), k)

    return te.compute(shape, element, name="pad_grad_axis")


pad = define(
    "pad",
    "The data with elements put around it: a value, the edge, or a mirror image.",
    level=1,
    attrs=PadAttrs,
    pattern=INJECTIVE,
    shape=_pad_shape,
    layout=layouts.fixed_copy,
    reference=_pad_reference,
    compute=_pad_compute,
    gradient=lambda ctx, g: [F._pad_grad(g, **attributes(ctx.params))],
    complex_gradient=holomorphic,
)
pad_grad = define(
    "_pad_grad",
    "The transpose of pad: what is outside is added to where it was copied from.",
    inputs=OGRAD,
    attrs=PadAttrs,
    pattern=OUT_FUSABLE,
    shape=_grad_shape,
    layout=layouts.fixed_copy,
    reference=_grad_reference,
    views=lambda params, g: [inner_view(params, g)] if params.mode == "constant" else None,
    compute=_grad_compute,
    gradient=lambda ctx, gg: [F.pad(gg, **{**attributes(ctx.params), "pad_value": 0.0})],
    complex_gradient=holomorphic,
)
