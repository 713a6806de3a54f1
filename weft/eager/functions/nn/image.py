"""Rows of nn.functional: padding, resizing, and elements moved between channels and places."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.dtype import is_complex
from ....base.errors import InvalidType, InvalidValue, RunError, Unsupported
from ....core.op import Op
from ....ops.shape.index import TakeAttrs
from ....ops.shape.pad import PadAttrs
from ....ops.vision.image import ResizeAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor, wrap
from ...tensor.viewing import Array
from ..linalg.matmul import product
from ..math.arithmetic import add, mul
from ..math.cast import clone
from ..operands import must_be_real
from ..shape.join import taken
from ..shape.parts import narrow
from ..shape.shape import movedim, permute, reshape, unsqueeze
from ..table import row
from .activation import NN
from .adaptive import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d
from .conv import several

_PAD, _RESIZE, _TAKE_GRAD, _COPY = (Op.get(name) for name in ("pad", "resize", "_take_grad", "copy"))


@row(space=NN, method=False)
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements around a tensor: pairs for the last axis, the one before it, ..."""
    widths, rank = [int(n) for n in pad], input._array.ndim
    if len(widths) % 2:
        raise RunError("Padding length must be divisible by 2")
    if len(widths) > 2 * rank:
        raise RunError(
            "Padding length should be less than or equal to two times the input dimension but got "
            f"padding length {len(widths)} and input of dimension {rank}"
        )
    pairs = [(0, 0)] * (rank - len(widths) // 2) + list(zip(widths[::2], widths[1::2]))[::-1]
    if mode == "constant":
        return _constant_pad(input, pairs, 0.0 if value is None else value)
    if mode not in ("reflect", "replicate", "circular"):
        raise RunError(f"Unrecognised padding mode {mode}")
    if value not in (None, 0):
        raise InvalidValue(f'Padding mode "{mode}" doesn\'t take in value argument')
    _check_pads(input, pairs, len(widths) // 2, mode)
    if mode == "circular":
        return _by_places(input, pairs, _wrapped)
    if any(min(pair) < 0 for pair in pairs):
        inward = _reflected if mode == "reflect" else _clamped
        return _by_places(input, pairs, inward)
    name = "edge" if mode == "replicate" else mode
    return apply(_PAD, PadAttrs(pad_width=tuple(pairs), mode=name), [input])[0]


def _reflected(size: int, before: int, after: int) -> Array:
    places = np.abs(np.arange(-before, size + after))
    return np.minimum(places, 2 * (size - 1) - places)


def _clamped(size: int, before: int, after: int) -> Array:
    return np.clip(np.arange(-before, size + after), 0, size - 1)


def _wrapped(size: int, before: int, after: int) -> Array:
    """Negative widths cut first."""
    first = max(-before, 0)
    kept = size - first - max(-after, 0)
    return first + np.arange(-max(before, 0), kept + max(after, 0)) % kept


def _by_places(input: Tensor, pairs: Sequence[tuple[int, int]], places: Any) -> Tensor:
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            input = taken(input, axis, places(input._array.shape[axis], before, after))
    return input


def _check_pads(input: Tensor, pairs: Sequence[tuple[int, int]], count: int, mode: str) -> None:
    rank = input._array.ndim
    if count not in (1, 2, 3) or rank not in (count + 1, count + 2):
        raise NotImplementedRun(
            f"Only 2D, 3D, 4D, 5D padding with non-constant padding are supported, got "
            f"{rank} dimensions and padding of {2 * count} numbers"
        )
    for size, pair in zip(input._array.shape[-count:], pairs[-count:]):
        if not size and any(pair):
            raise RunError(f"an empty dimension cannot be padded in mode {mode}")
        if mode == "reflect" and max(pair) >= size:
            raise RunError(
                "Argument #4: Padding size should be less than the corresponding input dimension, "
                f"but got: padding {pair} at dimension of input {list(input.shape)}"
            )
        if mode == "circular" and max(pair) > size:
            raise RunError("Padding value causes wrapping around more than once.")
        if size + sum(pair) < 0 or (mode == "circular" and size + min(pair) < 0):
            raise RunError("Negative padding value is resulting in an empty dimension.")


def _zeros_like(input: Tensor) -> Tensor:
    return wrap(np.zeros(input._array.shape, input._array.dtype))


class NotImplementedRun(RunError, NotImplementedError):
    """Something that PyTorch does not implement, either."""


def _constant_pad(input: Tensor, pairs: Sequence[tuple[int, int]], value: float) -> Tensor:
    shape = input._array.shape
    for axis, (before, after) in enumerate(pairs):
        if shape[axis] + before + after < 0:
            raise RunError(
                f"The input size {shape[axis]}, plus negative padding {before} and {after} "
                f"resulted in a negative output size, which is invalid. Check dimension {axis} of "
                "your input."
            )
    made = input
    for axis, (before, after) in enumerate(pairs):
        cut, size = max(-before, 0), made._array.shape[axis]
        if before < 0 or after < 0:
            made = narrow(made, axis, min(cut, size), max(size - cut - max(-after, 0), 0))
    widths = tuple((max(before, 0), max(after, 0)) for before, after in pairs)
    if not any(map(any, widths)):
        return apply(_COPY, None, [made])[0]
    if isinstance(value, complex) and not is_complex(input._array.dtype):
        raise InvalidType("pad(): argument 'value' (position 4) must be float, not complex")
    if isinstance(value, complex) and value.imag:
        outside = apply(_PAD, PadAttrs(pad_width=widths, pad_value=1.0), [_zeros_like(made)])[0]
        inside = apply(_PAD, PadAttrs(pad_width=widths), [made])[0]
        return add(inside, mul(outside, value))
    number = float(value.real if isinstance(value, complex) else value)
    return apply(_PAD, PadAttrs(pad_width=widths, pad_value=number), [made])[0]


@row(method=False)
def constant_pad_nd(input: Tensor, pad: Any, value: float = 0) -> Tensor:
    """`nn.functional.pad` with a value"""
    return _pad(input, pad, "constant", value)


_pad = pad

# Resizing.


@row(space=NN, method=False)
def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """Another number of places along the dimensions after batch and channel"""
    must_be_real("interpolate", input)
    rank = input._array.ndim - 2
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise InvalidValue(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if antialias:
        raise Unsupported("interpolate has no antialias")
    outs, scales = _target(input, rank, size, scale_factor, bool(recompute_scale_factor))
    _check_mode(mode, rank, input)
    if mode == "area":
        pools = {1: adaptive_avg_pool1d, 2: adaptive_avg_pool2d, 3: adaptive_avg_pool3d}
        return pools[rank](input, outs)
    if mode == "bicubic":
        return _cubic(input, outs, scales, bool(align_corners))
    return _resized(input, outs, scales, mode, bool(align_corners))


def _check_mode(mode: str, rank: int, input: Tensor) -> None:
    ranks = {"linear": (1,), "bilinear": (2,), "bicubic": (2,), "trilinear": (3,)}
    if mode not in (*ranks, "nearest", "area", "nearest-exact"):
        raise NotImplementedRun(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {rank + 2}D) for the "
            f"modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact (got "
            f"{mode})"
        )
    if rank not in ranks.get(mode, (1, 2, 3)):
        raise NotImplementedRun(f"Got {rank + 2}D input, but {mode} mode needs another")
    if 0 in input._array.shape[1:]:
        raise RunError(f"Non-empty 4D data tensor expected but got a tensor with sizes {list(input.shape)}")


def _target(
    input: Tensor, rank: int, size: Any, factor: Any, recompute: bool
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The new sizes, and the factors that coordinates follow: none if they follow the sizes."""
    sizes = input._array.shape[2:]
    if size is not None and factor is not None:
        raise InvalidValue("only one of size or scale_factor should be defined")
    if size is not None:
        given = tuple(size) if isinstance(size, (tuple, list)) else (size,) * rank
        if len(given) != rank:
            raise InvalidValue(
                "Input and output must have the same number of spatial dimensions, but got input "
                f"with spatial dimensions of {list(sizes)} and output size of {list(given)}."
            )
        if recompute:
            raise InvalidValue("recompute_scale_factor is not meaningful with an explicit size.")
        outs, scales = tuple(int(n) for n in given), ()
    elif factor is not None:
        factors = tuple(factor) if isinstance(factor, (tuple, list)) else (factor,) * rank
        if len(factors) != rank:
            raise InvalidValue(
                "Input and scale_factor must have the same number of spatial dimensions, but got "
                f"input with spatial dimensions of {list(sizes)} and scale_factor of shape "
                f"{list(factors)}."
            )
        outs = tuple(math.floor(float(n) * float(f)) for n, f in zip(sizes, factors))
        scales = () if recompute else tuple(float(f) for f in factors)
    else:
        raise InvalidValue("either size or scale_factor should be defined")
    if any(n <= 0 for n in outs):
        raise RunError(
            f"Input and output sizes should be greater than 0, but got input {list(sizes)} output {list(outs)}"
        )
    return outs, scales


def _resized(input: Tensor, outs: Sequence[int], scales: Sequence[float], mode: str, corners: bool) -> Tensor:
    """By the operator of two dimensions; of three, the last two first."""
    shape = input._array.shape
    if len(outs) == 1:
        made = _resize2(unsqueeze(input, 2), (1, *outs), (1.0, *scales) if scales else (), mode, corners)
        return reshape(made, (*shape[:2], *outs))
    if len(outs) == 2:
        return _resize2(input, outs, scales, mode, corners)
    items, channels, depth = shape[:3]
    flat = reshape(input, (items * channels, depth, *shape[3:]))
    flat = _resize2(flat, outs[1:], scales[1:], mode, corners)
    rest = outs[1] * outs[2]
    flat = reshape(flat, (items, channels, depth, rest))
    first = (scales[0], 1.0) if scales else ()
    made = _resize2(flat, (outs[0], rest), first, mode, corners)
    return reshape(made, (items, channels, *outs))


def _resize2(input: Tensor, outs: Sequence[int], scales: Sequence[float], mode: str, corners: bool) -> Tensor:
    if mode.startswith("nearest"):
        exact = mode == "nearest-exact"
        how = {
            "method": "NEAREST_NEIGHBOR",
            "coordinate_mode": "half_pixel" if exact else "asymmetric",
            "nearest_mode": "round_prefer_ceil" if exact else "floor",
        }
    else:
        how = {"coordinate_mode": "align_corners" if corners else "half_pixel"}
    params = ResizeAttrs(size=tuple(outs), scales=tuple(scales) if not corners else (), **how)
    return apply(_RESIZE, params, [input])[0]


def _cubic(input: Tensor, outs: Sequence[int], scales: Sequence[float], corners: bool) -> Tensor:
    made = input
    for axis, out in enumerate(outs):
        size = input._array.shape[2 + axis]
        weights = _cubic_weights(size, out, scales[axis] if scales else 0.0, corners)
        matrix = wrap(weights.astype(input._array.dtype))
        made = movedim(product(movedim(made, 2 + axis, -1), matrix), -1, 2 + axis)
    return made


def _cubic_weights(size: int, out: int, scale: float, corners: bool) -> Array:
    """How much of each element is in each place: (size, out)."""
    places = np.arange(out, dtype=np.float64)
    if corners:
        at = places * ((size - 1) / (out - 1) if out > 1 else 0.0)
    else:
        at = (places + 0.5) * (1 / scale if scale else size / out) - 0.5
    low = np.floor(at)
    gap = at - low
    bend = -0.75
    near = lambda x: ((bend + 2) * x - (bend + 3)) * x * x + 1
    far = lambda x: ((bend * x - 5 * bend) * x + 8 * bend) * x - 4 * bend
    weights = np.zeros((size, out))
    for step, value in zip((-1, 0, 1, 2), (far(gap + 1), near(gap), near(1 - gap), far(2 - gap))):
        np.add.at(weights, (np.clip(low + step, 0, size - 1).astype(int), np.arange(out)), value)
    return weights


@row(space=NN, method=False)
def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate`"""
    return interpolate(input, size, scale_factor, mode, align_corners)


@row(space=NN, method=False)
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` by the nearest element"""
    return interpolate(input, size, scale_factor, "nearest")


@row(space=NN, method=False)
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """`interpolate` between four elements, corners on corners"""
    return interpolate(input, size, scale_factor, "bilinear", True)


# Between channels and places.


@row(space=NN, method=False)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(C r r, H, W) becomes (C, H r, W r)"""
    shape, r = input._array.shape, upscale_factor
    if len(shape) < 3:
        raise RunError(
            f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {len(shape)} dimension(s)"
        )
    if r <= 0:
        raise RunError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *lead, channels, height, width = shape
    if channels % (r * r):
        raise RunError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square "
            f"of upscale_factor, but input.size(-3)={channels} is not divisible by {r * r}"
        )
    if r == 1:
        return clone(input)
    out, n = channels // (r * r), len(lead)
    split = reshape(input, (*lead, out, r, r, height, width))
    turned = permute(split, (*range(n), n, n + 3, n + 1, n + 4, n + 2))
    return reshape(turned, (*lead, out, height * r, width * r))


@row(space=NN, method=False)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(C, H r, W r) becomes (C r r, H, W)"""
    shape, r = input._array.shape, downscale_factor
    if len(shape) < 3:
        raise RunError(
            f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {len(shape)} dimension(s)"
        )
    if r <= 0:
        raise RunError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *lead, channels, height, width = shape
    if height % r or width % r:
        raise RunError(
            "pixel_unshuffle expects height and width to be divisible by downscale_factor, but "
            f"got {height} and {width} for {r}"
        )
    if r == 1:
        return clone(input)
    n = len(lead)
    split = reshape(input, (*lead, channels, height // r, r, width // r, r))
    turned = permute(split, (*range(n), n, n + 2, n + 4, n + 1, n + 3))
    return reshape(turned, (*lead, channels * r * r, height // r, width // r))


@row(space=NN, method=False)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of groups, taken in turn"""
    shape = input._array.shape
    if len(shape) < 3:
        raise RunError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}")
    if groups <= 0 or shape[1] % groups:
        raise RunError(f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups.")
    split = reshape(input, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return reshape(permute(split, (0, 2, 1, *range(3, len(shape) + 1))), shape)


for _function in (pixel_shuffle, pixel_unshuffle, channel_shuffle):
    row(_function, method=False)

# Windows as columns.


class Blocks:
    """The sliding blocks of images, as numbers of elements: (elements of a block, blocks)."""

    def __init__(self, sizes: Sequence[int], kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> None:
        self.kernel = several(kernel_size, 2, "kernel_size")
        self.padding = several(padding, 2, "padding")
        gaps, steps = several(dilation, 2, "dilation"), several(stride, 2, "stride")
        if min(*self.kernel, *gaps, *steps) <= 0 or min(self.padding) < 0:
            raise RunError("kernel_size, dilation and stride should be greater than zero, padding not below it")
        self.sizes = [n + 2 * p for n, p in zip(sizes, self.padding)]
        self.outs = [(n - d * (k - 1) - 1) // s + 1 for n, d, k, s in zip(self.sizes, gaps, self.kernel, steps)]
        if min(self.outs) < 1:
            raise RunError(
                f"Given input with spatial size {list(sizes)}, the array of sliding blocks is "
                f"{self.outs}, but its components must be at least one."
            )
        axes = [
            (np.arange(k)[:, None] * d + np.arange(o) * s) for k, d, o, s in zip(self.kernel, gaps, self.outs, steps)
        ]
        flat = axes[0][:, None, :, None] * self.sizes[1] + axes[1][None, :, None, :]
        self.places = flat.reshape(math.prod(self.kernel), math.prod(self.outs))


def _batched(input: Tensor, rank: int, name: str) -> tuple[Tensor, bool]:
    shape = input._array.shape
    if len(shape) not in (rank - 1, rank) or 0 in shape[len(shape) - rank + 1 :]:
        raise RunError(
            f"{name}: Expected {rank - 1}D or {rank}D (batch mode) tensor with possibly 0 batch "
            f"size and other non-zero dimensions for input, but got: {list(shape)}"
        )
    return (input, True) if len(shape) == rank else (unsqueeze(input, 0), False)


@row(space=NN, method=False)
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The sliding blocks of images as columns: (N, C k k, blocks)"""
    data, batched = _batched(input, 4, "unfold")
    items, channels, *sizes = data._array.shape
    blocks = Blocks(sizes, kernel_size, dilation, padding, stride)
    data = _constant_pad(data, [(0, 0), (0, 0), *((p, p) for p in blocks.padding)], 0)
    flat = reshape(data, (items, channels, math.prod(blocks.sizes)))
    made = taken(flat, 2, blocks.places)
    made = reshape(made, (items, channels * len(blocks.places), blocks.places.shape[1]))
    return made if batched else reshape(made, made._array.shape[1:])


@row(space=NN, method=False)
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Images that are the sums of blocks given as columns"""
    data, batched = _batched(input, 3, "fold")
    outs = several(output_size, 2, "output_size")
    blocks = Blocks(outs, kernel_size, dilation, padding, stride)
    items, rows, count = data._array.shape
    each = len(blocks.places)
    if rows % each or count != blocks.places.shape[1]:
        raise RunError(
            f"Given output_size={outs} and kernel_size={blocks.kernel}, expected input of "
            f"(N, C * {each}, {blocks.places.shape[1]}), but got {list(input.shape)}"
        )
    columns = reshape(data, (items, rows // each, each, count))
    shape = (items, rows // each, math.prod(blocks.sizes))
    like = wrap(np.broadcast_to(np.zeros((), data._array.dtype), shape))
    flat = apply(_TAKE_GRAD, TakeAttrs(axis=2), [columns, like, wrap(blocks.places)])[0]
    made = reshape(flat, (items, rows // each, *blocks.sizes))
    made = _constant_pad(made, [(0, 0), (0, 0), *((-p, -p) for p in blocks.padding)], 0)
    return made if batched else reshape(made, made._array.shape[1:])
