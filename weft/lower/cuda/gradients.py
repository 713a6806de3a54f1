"""Gradients of convolutions on a GPU, as AlterOpLayout is told: convolutions and products of tensor cores, on pictures
whose channels are next to each other.

That of the data is a convolution of the gradient by filters that are turned around. Where windows stand further apart,
places of the data are told apart by what is left of them when they are divided by the stride: those alike read by
filters of their own, with fewer taps; all of these filters are the channels of one convolution, whose results are put
between each other.

That of the filters is one product over all pixels of all pictures. What windows stand on is laid out in memory first:
so all taps are columns of a single product, which reads the gradient once and fills a GPU where a product for each tap
would not. Long sums are cut into parts, whose results are added in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.dtype import DType, dtype_name
from ...base.shape import is_static
from ...core.ir import Fact
from ...core.op import Op
from ...core.symbol import Symbol
from ...ops.channels_last import patches  # noqa: F401  the operators used here
from ...ops.nn import conv  # noqa: F401  the operators used here
from ...ops.nn._convolution import convolution_of
from ...ops.nn._windows import Window
from .pictures import NHWC, RESULT_CHANNELS, as_stored, nameless, sliced, stored_last, with_zeros
from .product import COPY_BYTES, KINDS

# What fills a GPU, the same for all of them: how sums are cut decides their bits.
TILE = 128  # rows and columns of a result that one block has
BLOCKS = 128
LEAST_PIXELS = 512  # of a part
UNIT = 8  # what the pixels of a part are a multiple of, for tensor maps


def gradient_of_data(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CudaTarget) -> Symbol | None:
    """_conv2d_grad_data as a convolution of the gradient; None where it is none of NCHW, or has groups."""
    if not _is_plain(params, facts):
        return None
    g, _, weight = inputs
    (count, channels, *outs), (_, given, *extents) = _shapes(facts)[:2]
    windows = convolution_of(params).windows
    down, across = (_Back.of(window, *pair) for window, pair in zip(windows, zip(extents, outs)))
    dtype = facts[0].dtype
    assert dtype is not None
    unit = -channels % (COPY_BYTES // dtype.itemsize)
    ograd = with_zeros(_cut(as_stored(g, (count, *outs, channels)), (down, across), (count, *outs, channels)), 3, unit)
    filters = _turned(weight, _shapes(facts)[2], (down, across))
    made = down.kept * across.kept * given
    filters = with_zeros(with_zeros(filters, 3, unit), 0, -made % RESULT_CHANNELS)
    attrs = {
        "channels": made + -made % RESULT_CHANNELS,
        "kernel_size": (down.taps, across.taps),
        "padding": [max(side, 0) for side in (down.before, across.before, down.after, across.after)],
        "dilation": (down.dilation, across.dilation),
        "use_bias": False,
    }
    result = Op.get("conv2d")(ograd, filters, **attrs, **NHWC)
    if made % RESULT_CHANNELS:
        result = sliced(result, (0, 0, 0, 0), (count, down.places, across.places, made))
    if down.stride == across.stride == 1:
        return stored_last(result)
    return stored_last(_between(result, (count, given), (down, across), extents))


def gradient_of_filters(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CudaTarget) -> Symbol | None:
    """_conv2d_grad_weight as a product over all pixels; None where it is none of NCHW, or has groups."""
    if not _is_plain(params, facts):
        return None
    g, x = inputs
    (count, channels, *outs), (_, given, *extents) = _shapes(facts)[:2]
    dtype, sizes = facts[0].dtype, params.kernel_size
    assert dtype is not None
    pixels, columns = count * prod(outs), prod(sizes) * given
    data = as_stored(x, (count, *extents, given))
    windows = convolution_of(params).windows
    if any(w != Window(1) for w in windows):
        names = ("kernel_size", "strides", "padding", "dilation")
        data = Op.get("_patches")(data, **{name: getattr(params, name) for name in names})
    parts, length = _parts(pixels, channels, columns)
    sides = []
    for side, width in ((as_stored(g, (count, *outs, channels)), channels), (data, columns)):
        more = -width % (COPY_BYTES // dtype.itemsize)
        matrix = Op.get("reshape")(side, shape=(pixels, width))
        matrix = with_zeros(with_zeros(matrix, 1, more, 2), 0, parts * length - pixels, 2)
        sides.append(Op.get("reshape")(matrix, shape=(parts, length, width + more)))
    products = Op.get("_pixel_products")(*sides)
    return _filters(products, parts, (channels, given, *sizes), dtype)


def _is_plain(params: Any, facts: Sequence[Fact]) -> bool:
    written = params.layout == "NCHW" and params.kernel_layout == "OIHW" and params.out_layout in ("NCHW", "__undef__")
    known = all(is_static(fact.shape) and prod(fact.shape) for fact in facts)
    return written and known and params.groups == 1 and facts[0].dtype in KINDS


def _shapes(facts: Sequence[Fact]) -> Any:
    """Shapes that are known to be numbers."""
    return [fact.shape for fact in facts]


# The gradient of the data


class _Back(NamedTuple):
    """One direction of the gradient of the data. A place y of it stands at stride * q + r of the padded data, and is
    the sum over taps k with k * dilation = r + stride * m of w[k] g[q - m]: for each r a filter that goes over m, of
    which `kept` have taps at all. `taps`: of those filters; `spread`: how far apart a filter's taps are in the m of
    all r; `before`, `after`: zeros around g, or less than all of it; `places`: how many q there are; `first`: where
    the data begins among the results."""

    stride: int
    taps: int
    dilation: int
    spread: int
    kept: int
    before: int
    after: int
    places: int
    first: int

    @classmethod
    def of(cls, window: Window, extent: int, out: int) -> _Back:
        stride, pads = window.stride, window.before
        if stride == 1:  # taps stay as they are
            taps, dilation, spread, kept = window.size, window.dilation, 1, 1
        else:
            taps, dilation, spread, kept = -(-window.reach // stride), 1, window.dilation, min(window.reach, stride)
        reach = (taps - 1) * dilation
        lowest, highest = pads // stride, (pads + extent - 1) // stride
        count = highest - lowest + 1
        return cls(
            stride, taps, dilation, spread, kept, reach - lowest, highest - (out - 1), count, pads - lowest * stride
        )


def _cut(g: Symbol, sides: Sequence[_Back], shape: Sequence[int]) -> Symbol:
    """The gradient without what nothing reads of it, because it stands on padding alone."""
    begin, end = [0, 0, 0, 0], list(shape)
    for axis, side in enumerate(sides, 1):
        begin[axis], end[axis] = max(-side.before, 0), shape[axis] + min(side.after, 0)
    return g if (begin, end) == ([0, 0, 0, 0], list(shape)) else sliced(g, begin, end)


def _turned(weight: Symbol, shape: Sequence[int], sides: Sequence[_Back]) -> Symbol:
    """Filters from what were results to what were channels, with their taps in the other order, for each place between
    strides one after the other: (places and channels, taps down, taps across, results)."""
    results, channels, *sizes = shape
    value = nameless(weight, shape)
    if any(side.spread > 1 for side in sides):
        (height, width), (first, second) = sizes, (side.spread for side in sides)
        apart = Op.get("reshape")(value, shape=(results, channels, height, 1, width, 1))
        zeros = ((0, 0), (0, 0), (0, 0), (0, first - 1), (0, 0), (0, second - 1))
        sizes = [height * first, width * second]
        value = Op.get("reshape")(Op.get("pad")(apart, pad_width=zeros), shape=(results, channels, *sizes))
    wanted = [side.taps * side.kept for side in sides]
    kept = [min(pair) for pair in zip(sizes, wanted)]
    if kept != list(sizes):
        value = sliced(value, (0, 0, 0, 0), (results, channels, *kept))
    for axis in (0, 1):
        value = with_zeros(value, 2 + axis, wanted[axis] - kept[axis])
    down, across = sides
    split = Op.get("reshape")(value, shape=(results, channels, down.taps, down.kept, across.taps, across.kept))
    for axis, side in zip((2, 4), sides):
        split = Op.get("flip")(split, axis=axis) if side.taps > 1 else split
    joined = Op.get("transpose")(split, axes=(3, 5, 1, 2, 4, 0))
    return Op.get("reshape")(joined, shape=(down.kept * across.kept * channels, down.taps, across.taps, results))


def _between(result: Symbol, shape: Sequence[int], sides: Sequence[_Back], extents: Sequence[int]) -> Symbol:
    """The results of all places between strides where they belong; zeros where no tap stands."""
    (count, channels), (down, across) = shape, sides
    counts = down.places, across.places
    split = Op.get("reshape")(result, shape=(count, *counts, down.kept, across.kept, channels))
    missing = [side.stride - side.kept for side in sides]
    if any(missing):
        zeros = ((0, 0), (0, 0), (0, 0), *((0, more) for more in missing), (0, 0))
        split = Op.get("pad")(split, pad_width=zeros)
    rows, columns = (side.places * side.stride for side in sides)
    joined = Op.get("transpose")(split, axes=(0, 1, 3, 2, 4, 5))
    whole = Op.get("reshape")(joined, shape=(count, rows, columns, channels))
    end = [side.first + extent for side, extent in zip(sides, extents)]
    if (down.first, across.first, *end) == (0, 0, rows, columns):
        return whole
    return sliced(whole, (0, down.first, across.first, 0), (count, *end, channels))


# The gradient of the filters


def _parts(pixels: int, rows: int, columns: int) -> tuple[int, int]:
    """Into how many parts a sum is cut, and of how many pixels: as many as fill a GPU, without or with zeros behind."""
    tiles = -(-rows // TILE) * -(-columns // TILE)
    wanted = max(min(BLOCKS // tiles, pixels // LEAST_PIXELS), 1)
    for parts in range(wanted, wanted // 2, -1):
        if pixels % (parts * UNIT) == 0:
            return parts, pixels // parts
    return wanted, -(-pixels // (wanted * UNIT)) * UNIT


def _filters(products: Symbol, parts: int, shape: Sequence[int], dtype: DType) -> Symbol:
    """The sum of parts as filters in OIHW, without zeros beside them."""
    results, channels, down, across = shape
    if parts > 1:
        attrs = {"channels": results, "depth": channels, "kernel_size": (down, across)}
        return Op.get("cast")(Op.get("_filter_sums")(products, **attrs), dtype=dtype_name(dtype))
    short = Op.get("cast")(products, dtype=dtype_name(dtype))
    taps = nameless(sliced(short, (0, 0, 0), (1, results, down * across * channels)), (results, down, across, channels))
    return nameless(Op.get("transpose")(taps, axes=(0, 3, 1, 2)), shape)
