"""What operators prefer on a GPU: the rules that AlterOpLayout asks.

Convolutions work on pictures whose channels are next to each other, which tensor maps read by windows; channels are
rounded up to what such maps take. A first layer of few channels and strides of two takes each square of four pixels for
one pixel of four times as many channels; windows that do not overlap are taken for pixels as a whole. With constant
filters all that is done to them is done once. Pools stay between convolutions without a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any, TypeGuard

from ...base.cuda_target import CudaTarget
from ...base.dtype import FLOAT32
from ...base.shape import Shape, is_static
from ...core.ir import Fact
from ...core.op import Op
from ...core.schema import canonical
from ...core.symbol import Symbol
from ...ops.nn import conv  # noqa: F401  the operators used here
from ...ops.nn._convolution import convolution_of
from ...ops.shape import pad, slicing  # noqa: F401  the operators used here
from .batch_norm import gradient_of_norm, norm_of_batch
from .gradients import gradient_of_data, gradient_of_filters
from .masters import MAX_STRIDE
from .pictures import NHWC, RESULT_CHANNELS, with_zeros
from .product import COPY_BYTES, KINDS

NHWC_GROUPED = {"layout": "NHWC", "kernel_layout": "HWIO", "out_layout": "NHWC"}
STEM_CHANNELS = 4  # up to which squares of pixels are taken together
PATCH_CHANNELS = 16  # from which on windows that do not overlap are copied as others are


def channels_last_conv2d(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CudaTarget) -> Symbol | None:
    """conv2d on channels that are next to each other; None where it is written so, or of a dtype of its own."""
    written = params.layout == "NCHW" and params.kernel_layout == "OIHW" and params.out_layout in ("NCHW", "__undef__")
    shape, dtype = facts[0].shape, facts[0].dtype
    if not written or dtype not in KINDS or not _are_pictures_known(shape) or params.out_dtype != "same":
        return None
    data, weight, *bias = inputs
    if params.groups > 1:
        return Op.get("conv2d")(data, weight, *bias, **{**canonical(params), **NHWC_GROUPED})
    channels, axis, unit = shape[1], 1, COPY_BYTES // dtype.itemsize
    if _is_apart(params, channels):
        channels, axis = channels * prod(params.kernel_size), 3
        data, weight, params = _of_patches(params, data, weight, shape)
    elif _is_stem(params, channels):
        data, weight, params = _of_squares(params, data, weight, shape)
        channels, axis = 4 * channels, 3
    data, weight = (with_zeros(side, axis, -channels % unit) for side in (data, weight))
    more = -params.channels % RESULT_CHANNELS
    weight, bias = with_zeros(weight, 0, more), [with_zeros(b, 0, more, 1) for b in bias]
    attrs = {**canonical(replace(params, channels=params.channels + more)), **NHWC}
    made = Op.get("conv2d")(data, weight, *bias, **attrs)
    if not more:
        return made
    plain = Op.get("__layout_transform__")(made, src_layout="NHWC", dst_layout="NCHW")
    return Op.get("strided_slice")(plain, begin=(0, 0), end=(shape[0], params.channels))


def _are_pictures_known(shape: Shape) -> TypeGuard[tuple[Any, int, int, int]]:
    """Whether all but the number of pictures are numbers."""
    return shape is not None and shape[0] is not None and is_static(shape[1:])


def _is_stem(params: Any, channels: int) -> bool:
    down, across = convolution_of(params).windows
    plain = (down.stride, across.stride, down.dilation, across.dilation) == (2, 2, 1, 1)
    return plain and channels <= STEM_CHANNELS and min(down.size, across.size) > 2


def _of_squares(params: Any, data: Symbol, weight: Symbol, shape: Sequence[Any]) -> tuple[Symbol, Symbol, Any]:
    """A convolution with strides of two as one with strides of one over squares of pixels, channels last: taps are
    rounded up to an even number, and zeros around the picture to what those reach."""
    windows = convolution_of(params).windows
    count, channels, *extents = shape
    taps = [window.size + window.size % 2 for window in windows]
    results = [window.out_extent(extent) for window, extent in zip(windows, extents)]
    needed = [2 * (int(results[n] or 0) - 1) + taps[n] for n in (0, 1)]
    around = tuple(
        (window.before, max(need - extent - window.before, 0)) for window, need, extent in zip(windows, needed, extents)
    )
    cut = _cut(data, around, (count, channels, *needed))
    filters = Op.get("pad")(
        weight, pad_width=((0, 0), (0, 0), *((0, tap - window.size) for tap, window in zip(taps, windows)))
    )
    squares = [_squares(cut, (count, channels, *needed)), _squares(filters, (params.channels, channels, *taps))]
    size = (taps[0] // 2, taps[1] // 2)
    changed = replace(params, kernel_size=size, strides=(1, 1), padding=(0, 0))
    return squares[0], squares[1], changed


def _cut(data: Symbol, around: Sequence[tuple[int, int]], shape: Sequence[Any]) -> Symbol:
    """Pictures with zeros around them, and no more than is read of them."""
    padded = Op.get("pad")(data, pad_width=((0, 0), (0, 0), *around))
    return Op.get("strided_slice")(padded, begin=(0, 0, 0, 0), end=tuple(shape))


def _is_apart(params: Any, channels: int) -> bool:
    """Whether windows do not overlap, and copies by windows would be mostly empty or reach too far."""
    windows = convolution_of(params).windows
    apart = all(w.size <= w.stride and (w.dilation == 1 or w.size == 1) for w in windows)
    far = max(w.stride for w in windows) > MAX_STRIDE
    return apart and (far or channels < PATCH_CHANNELS) and prod(w.size for w in windows) > 1


def _of_patches(params: Any, data: Symbol, weight: Symbol, shape: Sequence[Any]) -> tuple[Symbol, Symbol, Any]:
    """A convolution whose windows do not overlap as one of 1 x 1: a window is a pixel, its channels in the order of
    the filter, which stays as it is."""
    windows = convolution_of(params).windows
    (count, channels, *extents), strides = shape, [window.stride for window in windows]
    results = [int(window.out_extent(extent) or 0) for window, extent in zip(windows, extents)]
    needed = [result * stride for result, stride in zip(results, strides)]
    around = [(w.before, max(need - extent - w.before, 0)) for w, need, extent in zip(windows, needed, extents)]
    cut = _cut(data, around, (count, channels, *needed))
    split = Op.get("reshape")(cut, shape=(count, channels, results[0], strides[0], results[1], strides[1]))
    patches = Op.get("transpose")(split, axes=(0, 2, 4, 1, 3, 5))
    sizes = params.kernel_size
    if tuple(sizes) != tuple(strides):
        patches = Op.get("strided_slice")(patches, begin=(0,) * 6, end=(count, *results, channels, *sizes))
    depth = channels * prod(sizes)
    pixels = Op.get("reshape")(patches, shape=(count, *results, depth))
    filters = Op.get("reshape")(weight, shape=(params.channels, 1, 1, depth))
    return pixels, filters, replace(params, kernel_size=(1, 1), strides=(1, 1), padding=(0, 0), dilation=(1, 1))


def channels_last_pool(
    params: Any, inputs: Symbol, facts: Sequence[Fact], target: CudaTarget, name: str
) -> Symbol | None:
    """A pool of what other operators give, or its gradient: convolutions have channels last, and so has it."""
    shape, dtype = facts[0].shape, facts[0].dtype
    known = dtype in KINDS and _are_pictures_known(shape)
    given = all(entry.node.op is None for entry in inputs.outputs)
    if params.layout != "NCHW" or not known or given:
        return None
    return Op.get(name)(*inputs, **{**canonical(params), "layout": "NHWC"})


def _squares(x: Symbol, shape: Sequence[Any]) -> Symbol:
    """(n, c, 2h, 2w) as (n, h, w, 4c)."""
    count, channels, height, width = shape
    split = Op.get("reshape")(x, shape=(count, channels, height // 2, 2, width // 2, 2))
    turned = Op.get("transpose")(split, axes=(0, 2, 4, 3, 5, 1))
    return Op.get("reshape")(turned, shape=(count, height // 2, width // 2, 4 * channels))


def turned_matmul(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CudaTarget) -> Symbol | None:
    """float32 is read along the sums only: a matrix of weights that lies across them is turned once."""
    data, weight = inputs
    plain = facts[0].dtype == facts[1].dtype == FLOAT32 and not params.transpose_a and not params.transpose_b
    matrix = facts[1].shape is not None and len(facts[1].shape) == 2 and facts[1].layout.defined is False
    if not plain or not matrix or weight.outputs[0].node.op is not None:
        return None
    turned = Op.get("transpose")(weight, axes=(1, 0))
    return Op.get("matmul")(data, turned, transpose_b=True)


POOLS = (
    "max_pool2d avg_pool2d global_max_pool2d global_avg_pool2d adaptive_avg_pool2d _max_pool2d_grad _avg_pool2d_grad "
    "_global_max_pool2d_grad _global_avg_pool2d_grad _adaptive_avg_pool2d_grad"
)
LAYOUT_RULES: dict[str, Callable[[Any, Symbol, Sequence[Fact], CudaTarget], Symbol | None]] = {
    "conv2d": channels_last_conv2d,
    "_conv2d_grad_data": gradient_of_data,
    "_conv2d_grad_weight": gradient_of_filters,
    "_batch_norm_moments": norm_of_batch,
    "_batch_norm_grad": gradient_of_norm,
    "matmul": turned_matmul,
    **{name: partial(channels_last_pool, name=name) for name in POOLS.split()},
}
