"""Images and filters for kernels that multiply and sum what lies in 32 bits at once, a word: four bytes, or two
bfloat16; and what convolutions by words share. A build puts these in place of others: they have no gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BFLOAT16, DTYPES, DType, dtype_name
from ...base.errors import DTypeError, ShapeError
from ...base.layout import Layout
from ...base.shape import Shape, add_dims, ceil_div_dims, mul_dims, show, unify_dim
from ...core.schema import INT, INTS, SIDES, attr, schema
from .._families import INJECTIVE, Array, Dtypes, Inferred, Shapes, define, known, ranked
from .._layouts import Answer, Layouts
from ._windows import Windows, windows_of

WORD_BYTES = 4
UINT8, INT8 = DTYPES["uint8"], DTYPES["int8"]
WORD_DTYPES = (INT8, BFLOAT16)
SHIFT = 128  # between a level of int8 and the same of uint8
NHWC = Layout("NHWC")


def per_word(dtype: DType) -> int:
    """How many numbers of a dtype lie in a word."""
    return WORD_BYTES // dtype.itemsize


def _check_word(dtype: DType, together: int) -> None:
    if per_word(dtype) != together:
        raise DTypeError(f"words of {together} numbers of {dtype_name(dtype)}", why="4 of bytes or 2 of bfloat16")


# Filters.


@schema
class PanelAttrs:
    lanes: int = attr(INT, "filters in a panel", low=1)
    together: int = attr(INT, "numbers in a word: 4 of int8, 2 of bfloat16", low=2, high=4)


def _panels_shape(params: PanelAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    filters, channels, rows, columns = ranked(ins[0], 4, "the weight")
    steps = mul_dims(rows, columns, ceil_div_dims(channels, params.together))
    return list(ins), [(ceil_div_dims(filters, params.lanes), steps, params.lanes, params.together)]


def _panels_dtype(params: PanelAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    dtype = ins[0] if ins[0] is not None else outs[0]
    if dtype is not None:
        if dtype not in WORD_DTYPES:
            raise DTypeError(f"panels of {dtype_name(dtype)}", why="of int8 or bfloat16")
        _check_word(dtype, params.together)
    return [dtype], [dtype]


def _panels_reference(params: PanelAttrs, w: Array) -> Array:
    filters, channels, rows, columns = w.shape
    (shape,) = _panels_shape(params, [w.shape], [None])[1]
    steps = -(-channels // params.together)
    wide = np.zeros((shape[0] * params.lanes, rows, columns, steps * params.together), w.dtype)
    wide[:filters, :, :, :channels] = w.transpose(0, 2, 3, 1)
    return wide.reshape(shape[0], params.lanes, shape[1], params.together).swapaxes(1, 2)


def _panels_compute(params: PanelAttrs, w: te.Tensor) -> te.Tensor:
    filters, channels, _, columns = w.shape
    (shape,) = _panels_shape(params, [w.shape], [None])[1]
    steps = max(-(-channels // params.together), 1)

    def element(panel: te.Expr, step: te.Expr, lane: te.Expr, number: te.Expr) -> te.Expr:
        column, channel = panel * params.lanes + lane, step % steps * params.together + number
        tap = step // steps
        inside = [column < filters] if filters % params.lanes else []
        inside += [channel < channels] if channels % params.together else []
        return te.read_or(w, (column, channel, tap // columns, tap % columns), te.all_of(inside), 0)

    return te.compute(shape, element, name="panels")


word_panels = define(
    "_word_panels",
    "Filters (o, i, h, w) in panels: out[p, (h, w, i // t), l, i % t] = weight[p * lanes + l, i, h, w], 0 beyond.",
    inputs={"weight": "the filters, of int8 or bfloat16"},
    named=False,
    attrs=PanelAttrs,
    pattern=INJECTIVE,
    shape=_panels_shape,
    dtype=_panels_dtype,
    reference=_panels_reference,
    compute=_panels_compute,
)


# Images.


@schema
class ImageAttrs:
    padding: tuple[int, ...] = attr(INTS, "elements around: (top, left, bottom, right)", low=0)
    together: int = attr(INT, "numbers in a word: 4 of bytes, 2 of bfloat16", low=2, high=4)


def _image_shape(params: ImageAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        return list(ins), [None]
    if known(ins[1]) and ins[1] not in ((), (1,)):
        raise ShapeError(f"a zero point of shape {show(ins[1])} for an image")
    n, height, width, channels = ranked(ins[0], 4, "an image")
    top, left, bottom, right = params.padding
    extents = [add_dims(height, top + bottom), add_dims(width, left + right)]
    return list(ins), [(n, *extents, mul_dims(ceil_div_dims(channels, params.together), params.together))]


def _image_dtype(params: ImageAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    dtype = ins[0] if ins[0] is not None else ins[1]
    if dtype is not None:
        if dtype not in (UINT8, INT8, BFLOAT16):
            raise DTypeError(f"an image of {dtype_name(dtype)}", why="it is of uint8, int8 or bfloat16")
        _check_word(dtype, params.together)
    return [dtype, dtype], [UINT8 if dtype == INT8 else dtype]


def _image_layout(params: ImageAttrs, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    return [NHWC, Layout()], [NHWC]


def _image_reference(params: ImageAttrs, x: Array, zero: Array) -> Array:
    top, left, bottom, right = params.padding
    image = np.pad(x, [(0, 0), (top, bottom), (left, right), (0, 0)], constant_values=zero.reshape(())[()])
    if x.dtype == INT8:
        image = (image.astype(np.int16) + SHIFT).astype(UINT8)
    return np.pad(image, [(0, 0)] * 3 + [(0, -x.shape[3] % params.together)])


def _image_compute(params: ImageAttrs, x: te.Tensor, zero: te.Tensor) -> te.Tensor:
    top, left, bottom, right = params.padding
    _, height, width, channels = x.shape
    (shape,) = _image_shape(params, [x.shape, zero.shape], [None])[1]

    def element(n: te.Expr, h: te.Expr, w: te.Expr, c: te.Expr) -> te.Expr:
        y, z = h - top, w - left
        inside = [y >= 0, y < height] if top or bottom else []
        inside += [z >= 0, z < width] if left or right else []
        there = [c < channels] if channels % params.together else []
        level = te.read_or(x, (n, y, z, c), te.all_of([*inside, *there]), 0)
        within = te.all_of(inside)
        if within is not None:
            level = te.select(within, level, zero[(0,) * zero.rank])
        if x.dtype == INT8:
            level = te.cast(level, UINT8) + SHIFT
        return te.select(there[0], level, 0) if there else level

    return te.compute(shape, element, name="word_image")


word_image = define(
    "_word_image",
    "An image in whole words, the zero point around it; levels of int8 plus 128 in uint8, zeros fill the last word.",
    inputs={"data": "(n, h, w, c), of uint8, int8 or bfloat16", "zero_point": "one number"},
    named=False,
    attrs=ImageAttrs,
    pattern=INJECTIVE,
    shape=_image_shape,
    dtype=_image_dtype,
    layout=_image_layout,
    reference=_image_reference,
    compute=_image_compute,
)


# Products.


@schema
class WindowAttrs:
    units: int = attr(INT, "columns of the result", low=1)
    kernel_size: tuple[int, ...] = attr(SIDES, "height and width of the filters", low=1)
    strides: tuple[int, ...] = attr(SIDES, "steps down and across", default=(1, 1), low=1)
    dilation: tuple[int, ...] = attr(SIDES, "distance of filter taps", default=(1, 1), low=1)


def word_windows(params: Any) -> Windows:
    return windows_of(params.kernel_size, params.strides, (0, 0), params.dilation)


def check_panels(units: int, panels: Shape, steps: Any, together: int) -> None:
    count, depth, lanes, numbers = ranked(panels, 4, "the panels")
    unify_dim(numbers, together)
    unify_dim(depth, steps)
    if lanes == 0:
        raise ShapeError(f"panels of shape {show(panels)} have no columns")
    if isinstance(lanes, int):
        unify_dim(count, -(-units // lanes))


def whole_words(count: Any, together: int) -> Any:
    if isinstance(count, int) and count % together:
        raise ShapeError(f"{count} numbers to multiply are no whole words of {together}")
    return count // together if isinstance(count, int) else None


def word_conv_shape(params: Any, image: Shape, panels: Shape, together: int) -> Shape:
    """Of the result of a convolution."""
    n, height, width, channels = ranked(image, 4, "an image")
    steps = whole_words(channels, together)
    down, across = word_windows(params)
    check_panels(params.units, panels, None if steps is None else down.size * across.size * steps, together)
    return (n, down.out_extent(height), across.out_extent(width), params.units)


def word_conv_layout(params: Any, ins: Layouts, last: Layouts, outs: Layouts) -> Answer:
    return [NHWC, *[Layout()] * (len(ins) - 1)], [NHWC]


def columns_of(panels: Array, units: int) -> Array:
    """Panels as a matrix: (products of a sum, units)."""
    count, steps, lanes, together = panels.shape
    return panels.transpose(1, 3, 0, 2).reshape(steps * together, count * lanes)[:, :units]


def window_rows(params: Any, x: Array) -> Array:
    """What each pixel of the result sums products of: (n, h, w, products of a sum)."""
    down, across = windows = word_windows(params)
    view = np.lib.stride_tricks.sliding_window_view(x, [window.reach for window in windows], (1, 2))
    view = view[:, :: down.stride, :: across.stride, :, :: down.dilation, :: across.dilation]
    return view.transpose(0, 1, 2, 4, 5, 3).reshape(*view.shape[:3], down.size * across.size * x.shape[3])


def number_of_window(params: Any, x: te.Tensor, together: int) -> Any:
    """f(index of the result, step, number) -> the number of the image that a sum reads there."""
    down, across = word_windows(params)
    steps = max(x.shape[3] // together, 1)

    def number_at(index: Sequence[te.Expr], step: te.Expr, number: te.Expr) -> te.Expr:
        n, h, w, _ = index
        tap = step // steps
        y, z = down.source(h, tap // across.size), across.source(w, tap % across.size)
        return x[n, y, z, step % steps * together + number]

    return number_at
