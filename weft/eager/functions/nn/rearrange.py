"""Rows: elements of images moved between channels and places, and blocks of images as columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base.errors import RunError
from ....core.op import Op
from ....ops.shape.index import TakeAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor, wrap
from ..math.cast import clone
from ..shape.join import taken
from ..shape.shape import permute, reshape, unsqueeze
from ..table import NN, row
from .by_rank import several
from .padding import constant_pad

_TAKE_GRAD = Op.get("_take_grad")


def _image_shape(name: str, input: Tensor, **factors: int) -> tuple[int, ...]:
    if input.ndim < 3:
        raise RunError(
            f"{name} expects input to have at least 3 dimensions, but got input with {input.ndim} dimension(s)"
        )
    for what, factor in factors.items():
        if factor <= 0:
            raise RunError(f"{name} expects a positive {what}, but got {factor}")
    return input._shape


@row(method=False)
@row(space=NN, method=False)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(C r r, H, W) becomes (C, H r, W r)

    >>> import weft
    >>> weft.nn.functional.pixel_shuffle(weft.zeros(1, 8, 2, 2), 2).shape
    weft.Size([1, 2, 4, 4])
    """
    r = upscale_factor
    *lead, channels, height, width = _image_shape("pixel_shuffle", input, upscale_factor=r)
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


@row(method=False)
@row(space=NN, method=False)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(C, H r, W r) becomes (C r r, H, W)"""
    r = downscale_factor
    *lead, channels, height, width = _image_shape("pixel_unshuffle", input, downscale_factor=r)
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


@row(method=False)
@row(space=NN, method=False)
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels of groups, taken in turn"""
    shape = input._shape
    if len(shape) < 3:
        raise RunError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(shape)}")
    if groups <= 0 or shape[1] % groups:
        raise RunError(f"Number of channels must be divisible by groups. Got {shape[1]} channels and {groups} groups.")
    split = reshape(input, (shape[0], groups, shape[1] // groups, *shape[2:]))
    return reshape(permute(split, (0, 2, 1, *range(3, len(shape) + 1))), shape)


row(channel_shuffle, name="native_channel_shuffle", method=False)
row(channel_shuffle, name="native_channel_shuffle", space=NN, method=False)


# Blocks as columns.


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
    shape = input._shape
    if len(shape) not in (rank - 1, rank) or 0 in shape[len(shape) - rank + 1 :]:
        raise RunError(
            f"{name}: Expected {rank - 1}D or {rank}D (batch mode) tensor with possibly 0 batch "
            f"size and other non-zero dimensions for input, but got: {list(shape)}"
        )
    return (input, True) if len(shape) == rank else (unsqueeze(input, 0), False)


@row(space=NN, method=False)
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The sliding blocks of images as columns: (N, C k k, blocks)

    >>> import weft
    >>> weft.nn.functional.unfold(weft.zeros(1, 3, 4, 4), kernel_size=2).shape
    weft.Size([1, 12, 9])
    """
    data, batched = _batched(input, 4, "unfold")
    items, channels, *sizes = data._shape
    blocks = Blocks(sizes, kernel_size, dilation, padding, stride)
    data = constant_pad(data, [(0, 0), (0, 0), *((p, p) for p in blocks.padding)], 0)
    flat = reshape(data, (items, channels, math.prod(blocks.sizes)))
    result = taken(flat, 2, blocks.places)
    result = reshape(result, (items, channels * len(blocks.places), blocks.places.shape[1]))
    return result if batched else reshape(result, result._shape[1:])


@row(space=NN, method=False)
def fold(
    input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Tensor:
    """Images that are the sums of blocks given as columns"""
    data, batched = _batched(input, 3, "fold")
    outs = several(output_size, 2, "output_size")
    blocks = Blocks(outs, kernel_size, dilation, padding, stride)
    items, rows, count = data._shape
    each = len(blocks.places)
    if rows % each or count != blocks.places.shape[1]:
        raise RunError(
            f"Given output_size={outs} and kernel_size={blocks.kernel}, expected input of "
            f"(N, C * {each}, {blocks.places.shape[1]}), but got {list(input.shape)}"
        )
    columns = reshape(data, (items, rows // each, each, count))
    shape = (items, rows // each, math.prod(blocks.sizes))
    like = wrap(np.broadcast_to(np.zeros((), data._dtype), shape))
    flat = apply(_TAKE_GRAD, TakeAttrs(axis=2), [columns, like, wrap(blocks.places)])[0]
    result = reshape(flat, (items, rows // each, *blocks.sizes))
    result = constant_pad(result, [(0, 0), (0, 0), *((-p, -p) for p in blocks.padding)], 0)
    return result if batched else reshape(result, result._shape[1:])
