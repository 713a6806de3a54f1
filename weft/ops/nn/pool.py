"""Pools over height and width: by windows, over everything, and by adaptive bins.

Only the places of H and W in the layout matter: all other axes, blocks of channels included, are
carried along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import INT32, DType, is_float, is_integer
from ...base.errors import InvalidValue, ShapeError
from ...base.shape import Dim
from ...core.op import Op, Rule
from ...core.schema import BOOL, LAYOUT, PADS, SIDES, Params, attr, schema
from .._families import (
    OGRAD,
    OUT_FUSABLE,
    Array,
    F,
    Inferred,
    ShapeRule,
    Shapes,
    attributes,
    define,
    in_float32,
    numeric,
    widened,
)
from .._layouts import pool as pool_layout
from ..vision._spatial import (
    at_places,
    joined_images,
    places_of,
    spatial_axes,
    spatial_back,
    spatial_extents,
    spatial_last,
    static_extents,
    with_extents,
)
from ._windows import Window, Windows, fold, read, window_view, windows_of


@schema
class MaxPool2DAttrs:
    pool_size: tuple[int, ...] = attr(SIDES, "height and width of a window", low=1)
    strides: tuple[int, ...] = attr(SIDES, "steps down and across", default=(1, 1), low=1)
    padding: tuple[int, ...] = attr(
        PADS, "around: all, (height, width), or (top, left, bottom, right)", default=(0, 0), low=0
    )
    dilation: tuple[int, ...] = attr(SIDES, "distance of window elements", default=(1, 1), low=1)
    layout: str = attr(LAYOUT, "of the data", default="NCHW")
    ceil_mode: bool = attr(BOOL, "whether a last window may stick out", default=False)


@schema
class AvgPool2DAttrs(MaxPool2DAttrs):
    count_include_pad: bool = attr(BOOL, "whether padding counts as elements", default=False)


@schema
class GlobalPool2DAttrs:
    layout: str = attr(LAYOUT, "of the data", default="NCHW")


# The windows of a pool. A global one has a single window.


class Pool(NamedTuple):
    windows: Windows
    extents: tuple[int, int]
    outs: tuple[int, int]


def _windows(params: Params) -> Windows:
    windows = windows_of(params.pool_size, params.strides, params.padding, params.dilation, "pool_size")
    for win in windows:
        if max(win.before, win.after) >= win.reach:
            raise InvalidValue(
                f"padding {max(win.before, win.after)} is too large for a window of {win.reach}",
                why="a window would have nothing but padding",
            )
    return windows


def pool_of(params: Params, shape: tuple[int, ...]) -> Pool:
    """The windows over data of a shape."""
    height, width = static_extents(params, shape)
    if isinstance(params, GlobalPool2DAttrs):
        return Pool((Window(height), Window(width)), (height, width), (1, 1))
    windows = _windows(params)
    out = with_extents(params, shape, _out_extents(params, windows, (height, width)))
    return Pool(windows, (height, width), static_extents(params, out))


def _out_extents(params: Params, windows: Windows, extents: Sequence[Dim]) -> list[Dim]:
    return [win.out_extent(extent, params.ceil_mode, "pool") for win, extent in zip(windows, extents)]


def _pool_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    """The output of the data."""
    windows = _windows(params)
    if ins[0] is None:
        return [None], [None]
    extents = _out_extents(params, windows, spatial_extents(params, ins[0]))
    return [ins[0]], [with_extents(params, ins[0], extents)]


def _global_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    spatial_axes(params)
    if ins[0] is None:
        return [None], [None]
    if 0 in spatial_extents(params, ins[0]):
        raise ShapeError("a pool over no elements has no value")
    return [ins[0]], [with_extents(params, ins[0], (1, 1))]


def grad_shape(forward: Callable[..., Inferred], pooled: int) -> Callable[..., Inferred]:
    """(ograd, data, and the output, if `pooled` is 2) -> the gradient of the data."""

    def rule(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
        (data,), (out,) = forward(params, [ins[1] if ins[1] is not None else outs[0]], [None])
        return [out, data, out][: 1 + pooled], [data]

    return rule


# Largest elements.


def _lowest(dtype: DType) -> Any:
    return -np.inf if is_float(dtype) else np.iinfo(dtype).min


def _taps(params: Params, x: Array, pool: Pool, fill: Any) -> Array:
    """(..., rows, columns, elements of a window)"""
    view = window_view(spatial_last(params, x), pool.windows, pool.outs, fill)
    return view.reshape(*view.shape[:-2], view.shape[-2] * view.shape[-1])


def _max_reference(params: Params, x: Array) -> Array:
    pool = pool_of(params, x.shape)
    return spatial_back(params, _taps(params, x, pool, _lowest(x.dtype)).max(axis=-1), x.dtype)


def _max_grad_reference(params: Params, g: Array, x: Array, y: Array) -> Array:
    pool = pool_of(params, x.shape)
    taps = _taps(params, x, pool, _lowest(x.dtype))
    first = taps.argmax(axis=-1)[..., None] == np.arange(taps.shape[-1])
    rows, columns = (win.size for win in pool.windows)
    grads = np.where(first, spatial_last(params, g)[..., None], np.zeros((), g.dtype))
    grads = grads.reshape(*grads.shape[:-1], rows, columns)
    return spatial_back(params, fold(widened(grads), pool.windows, pool.extents), g.dtype)


def _max_pick_reference(params: Params, values: Array, x: Array, y: Array) -> Array:
    pool = pool_of(params, x.shape)
    first = _taps(params, x, pool, _lowest(x.dtype)).argmax(axis=-1)[..., None]
    taps = _taps(params, values, pool, 0)
    return spatial_back(params, np.take_along_axis(taps, first, axis=-1)[..., 0], values.dtype)


def _tap_axes(pool: Pool) -> list[te.ReduceAxis]:
    return [te.reduce_axis(win.size, name) for win, name in zip(pool.windows, ("kh", "kw"))]


def _element(params: Params, pool: Pool, x: te.Tensor, index: Sequence[Any], taps: Sequence[Any], fill: Any) -> Any:
    """The element of a window, or the fill where it is padding."""
    places, conditions = [], []
    for win, window, tap, extent, out in zip(pool.windows, places_of(params, index), taps, pool.extents, pool.outs):
        places.append(win.source(window, tap))
        conditions += win.inside(places[-1], extent, out)
    return read(x, at_places(params, index, places), conditions, fill)


def _max_compute(params: Params, x: te.Tensor) -> te.Tensor:
    pool = pool_of(params, x.shape)
    axes = _tap_axes(pool)
    taps, lowest = [axis.var for axis in axes], _number(_lowest(x.dtype))
    return te.compute(
        with_extents(params, x.shape, pool.outs),
        lambda *i: te.max_of(_element(params, pool, x, i, taps, lowest), axes),
        name="max_pool2d",
    )


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, float) else int(value)


def _first_max(params: Params, pool: Pool, x: te.Tensor, y: te.Tensor) -> tuple[te.Tensor, int]:
    """Where in its window the first largest element is; and a number that is nowhere."""
    axes = _tap_axes(pool)
    taps, lowest = [axis.var for axis in axes], _number(_lowest(x.dtype))
    nowhere = pool.windows[0].size * pool.windows[1].size

    def position(*index: Any) -> Any:
        value = _element(params, pool, x, index, taps, lowest)
        largest = value.equal(y[index])
        if is_float(x.dtype):
            largest = largest | te.isnan(value)
        return te.min_of(te.select(largest, _tap_number(pool, taps), nowhere), axes)

    return te.compute(y.shape, position, name="first_max"), nowhere


def _tap_number(pool: Pool, taps: Sequence[Any]) -> Any:
    return taps[0] * pool.windows[1].size + taps[1]


def _max_grad_compute(params: Params, g: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    pool = pool_of(params, x.shape)
    first, nowhere = _first_max(params, pool, x, y)

    def gradient(index: Sequence[Any], taps: Sequence[Any], conditions: list[te.Expr]) -> Any:
        chosen = read(first, index, conditions, nowhere).equal(_tap_number(pool, taps))
        return te.select(chosen, read(g, index, conditions, 0), 0)

    return _scatter(params, pool, x.shape, gradient, "max_pool2d_grad")


def _max_pick_compute(params: Params, values: te.Tensor, x: te.Tensor, y: te.Tensor) -> te.Tensor:
    pool = pool_of(params, x.shape)
    first, _ = _first_max(params, pool, x, y)
    axes = _tap_axes(pool)
    taps = [axis.var for axis in axes]

    def element(*index: Any) -> Any:
        value = _element(params, pool, values, index, taps, 0)
        return te.sum(te.select(first[index].equal(_tap_number(pool, taps)), value, 0), axes)

    return te.compute(y.shape, element, name="max_pool2d_pick")


def _scatter(params: Params, pool: Pool, shape: tuple[int, ...], gradient: Callable[..., Any], name: str) -> te.Tensor:
    """Sums, for every element, what the windows it stands in give it."""
    if isinstance(params, GlobalPool2DAttrs):  # the only window, of which its place is the tap
        alone = lambda *i: gradient(at_places(params, i, (0, 0)), places_of(params, i), [])
        return te.compute(shape, alone, name=name)
    if all(win.stride == win.size and win.dilation == 1 and win.before == 0 for win in pool.windows):

        def of_one(*index: Any) -> Any:
            """Windows stand side by side, and an element is in one of them."""
            places, sides = places_of(params, index), [win.size for win in pool.windows]
            windows = [place // side for place, side in zip(places, sides)]
            ends = zip(windows, pool.extents, sides, pool.outs)
            inside = [window < out for window, extent, side, out in ends if extent > out * side]
            return gradient(at_places(params, index, windows), [p % side for p, side in zip(places, sides)], inside)

        return te.compute(shape, of_one, name=name)
    axes = _tap_axes(pool)
    taps = [axis.var for axis in axes]

    def element(*index: Any) -> Any:
        windows, conditions = [], []
        for win, place, tap, out in zip(pool.windows, places_of(params, index), taps, pool.outs):
            window, needed = win.window_of(place, tap, out)
            windows.append(window)
            conditions += needed
        return te.sum(gradient(at_places(params, index, windows), taps, conditions), axes)

    return te.compute(shape, element, name=name)


# Averages.


def window_counts(params: Params, pool: Pool) -> Array:
    """How many elements each window has, as (rows, columns)."""
    per_axis = []
    for win, extent, out in zip(pool.windows, pool.extents, pool.outs):
        taps = np.arange(out)[:, None] * win.stride + np.arange(win.size) * win.dilation
        low, high = _counted(params, win, extent)
        per_axis.append(((taps >= low) & (taps < high)).sum(axis=1))
    return np.multiply.outer(*per_axis)


def _counted(params: Params, win: Window, extent: int) -> tuple[int, int]:
    """From where to where in the padded extent elements count."""
    low, high = win.before, win.before + extent
    return (0, high + win.after) if getattr(params, "count_include_pad", False) else (low, high)


def _sum_dtype(dtype: DType) -> DType:
    """Small integers are summed in int32."""
    return INT32 if is_integer(dtype) and dtype.itemsize < 4 else dtype


def _avg_reference(params: Params, x: Array) -> Array:
    pool = pool_of(params, x.shape)
    wide = widened(x.astype(_sum_dtype(x.dtype), copy=False))
    total = _taps(params, wide, pool, 0).sum(axis=-1)
    return spatial_back(params, total / window_counts(params, pool), x.dtype)


def _avg_grad_reference(params: Params, g: Array, x: Array) -> Array:
    pool = pool_of(params, x.shape)
    share = widened(spatial_last(params, g)) / window_counts(params, pool)
    rows, columns = (win.size for win in pool.windows)
    taps = np.broadcast_to(share[..., None, None], (*share.shape, rows, columns))
    return spatial_back(params, fold(taps, pool.windows, pool.extents), g.dtype)


def window_elements(params: Params, pool: Pool, windows: Sequence[Any], dtype: DType) -> Any:
    """The number of elements of a window, the same for all where they have as many."""
    sides = zip(pool.windows, windows, pool.extents, pool.outs)
    down, across = (_count_along(params, *side) for side in sides)
    return te.cast(te.as_expr(down * across), dtype)


def _count_along(params: Params, win: Window, window: Any, extent: int, out: int) -> Any:
    low, high = _counted(params, win, extent)
    if te.stays_open(extent) and win.before + win.after and not getattr(params, "count_include_pad", False):
        return _counted_inside(win, window, low, high)
    if low == 0 and (out - 1) * win.stride + win.reach <= high:
        return win.size
    if out == 1:
        return _taps_before(win, high) - _taps_before(win, low)
    return _counted_inside(win, window, low, high)


def _counted_inside(win: Window, window: Any, low: Any, high: Any) -> Any:
    """How many taps of a window stand between two places."""
    start = window * win.stride
    first = te.max((low - start + win.dilation - 1) // win.dilation, 0)
    last = te.min((high - start + win.dilation - 1) // win.dilation, win.size)
    return last - first


def _taps_before(win: Window, place: int) -> int:
    """How many taps of the first window stand before a place."""
    return min((place + win.dilation - 1) // win.dilation, win.size)


@in_float32
def _avg_compute(params: Params, x: te.Tensor) -> te.Tensor:
    pool, dtype = pool_of(params, x.shape), _sum_dtype(x.dtype)
    axes = _tap_axes(pool)
    taps = [axis.var for axis in axes]
    total = te.compute(
        with_extents(params, x.shape, pool.outs),
        lambda *i: te.sum(te.cast(_element(params, pool, x, i, taps, 0), dtype), axes),
        name="pool_sum",
    )
    return te.compute(
        total.shape,
        lambda *i: te.cast(total[i] / window_elements(params, pool, places_of(params, i), dtype), x.dtype),
        name="avg_pool2d",
    )


@in_float32
def _avg_grad_compute(params: Params, g: te.Tensor, x: te.Tensor) -> te.Tensor:
    pool = pool_of(params, x.shape)
    share = te.compute(
        g.shape, lambda *i: g[i] / window_elements(params, pool, places_of(params, i), g.dtype), name="share"
    )
    return _scatter(
        params, pool, x.shape, lambda index, taps, conditions: read(share, index, conditions, 0), "avg_pool2d_grad"
    )


# The operators.

GRAD_INPUTS = {**OGRAD, "data": "the data, of which only the shape is used"}
PICK_INPUTS = {
    "values": "what to pick from, of the shape of the data",
    "input": "the data",
    "output": "the pool of the data",
}
MAX_GRAD_INPUTS = {**OGRAD, "input": "the data", "output": "the pool of the data"}


Bodies = tuple[Rule, Rule]


def pool_op(name: str, doc: str, attrs: type, shape: ShapeRule, *, level: int = 2, **columns: Any) -> Op:
    """An operator over height and width, with what all pools share."""
    return define(
        name,
        doc,
        level=level,
        attrs=attrs,
        pattern=OUT_FUSABLE,
        shape=shape,
        layout=pool_layout,
        native_from=64,
        joined_axes=joined_images,
        **{"dtype": numeric, **columns},
    )


def _pick_shape(forward: Callable[..., Inferred]) -> Callable[..., Inferred]:
    """(values, data, output) -> what was picked."""

    def rule(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
        (data,), (out,) = forward(params, [ins[1] if ins[1] is not None else ins[0]], [None])
        return [data, data, out], [out]

    return rule


def _pick_dtype(params: Params, ins: Sequence[Any], outs: Sequence[Any]) -> Inferred:
    """The values have a dtype of their own."""
    (value,), (picked,) = numeric(params, ins[:1], outs)
    (data, output), _ = numeric(params, ins[1:], [None])
    return [value, data, output], [picked]


def _max_pools(name: str, doc: str, part: str, attrs: type, shape: ShapeRule) -> None:
    """The pool, its gradient, and the gradient of that, which goes back: from data to what was chosen of it."""
    grad, pick = f"_{name}_grad", f"_{name}_pick"
    back = lambda other: lambda ctx, g: [getattr(F, other)(g, *ctx.inputs[1:], **attributes(ctx.params)), None, None]
    pool_op(
        name,
        doc,
        attrs,
        shape,
        reference=_max_reference,
        compute=_max_compute,
        keeps_output=True,
        gradient=lambda ctx, g: [getattr(F, grad)(g, ctx.inputs[0], ctx.outputs[0], **attributes(ctx.params))],
    )
    pool_op(
        grad,
        f"ograd, given to the first largest element of every {part}.",
        attrs,
        grad_shape(shape, 2),
        level=10,
        inputs=MAX_GRAD_INPUTS,
        reference=_max_grad_reference,
        compute=_max_grad_compute,
        gradient=back(pick),
    )
    pool_op(
        pick,
        f"The value that stands on the first largest element of every {part}.",
        attrs,
        _pick_shape(shape),
        level=10,
        inputs=PICK_INPUTS,
        dtype=_pick_dtype,
        reference=_max_pick_reference,
        compute=_max_pick_compute,
        gradient=back(grad),
    )


def mean_pools(
    name: str, doc: str, part: str, attrs: type, shape: ShapeRule, forward: Bodies, backward: Bodies, level: int = 2
) -> None:
    """The pool and its gradient, the transpose of it; of each the reference and the compute."""
    grad = f"_{name}_grad"
    pool_op(
        name,
        doc,
        attrs,
        shape,
        level=level,
        reference=forward[0],
        compute=forward[1],
        gradient=lambda ctx, g: [getattr(F, grad)(g, ctx.inputs[0], **attributes(ctx.params))],
    )
    pool_op(
        grad,
        f"ograd, shared equally by the elements of every {part}.",
        attrs,
        grad_shape(shape, 1),
        level=10,
        inputs=GRAD_INPUTS,
        ignored_inputs=[1],
        reference=backward[0],
        compute=backward[1],
        gradient=lambda ctx, gg: [getattr(F, name)(gg, **attributes(ctx.params)), None],
    )


_MEAN, _MEAN_GRAD = (_avg_reference, _avg_compute), (_avg_grad_reference, _avg_grad_compute)
_WHOLE = "of every channel; height and width become 1."

_max_pools(
    "max_pool2d", "The largest element of every window; padding never wins.", "window", MaxPool2DAttrs, _pool_shape
)
mean_pools(
    "avg_pool2d",
    "The mean of every window; padding counts only with count_include_pad.",
    "window",
    AvgPool2DAttrs,
    _pool_shape,
    _MEAN,
    _MEAN_GRAD,
)
_max_pools("global_max_pool2d", f"The largest element {_WHOLE}", "channel", GlobalPool2DAttrs, _global_shape)
mean_pools("global_avg_pool2d", f"The mean {_WHOLE}", "channel", GlobalPool2DAttrs, _global_shape, _MEAN, _MEAN_GRAD)
