"""Rows of nn.functional: another number of elements along the dimensions of images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....base.dtype import is_float
from ....base.errors import InvalidValue, RunError, Unsupported
from ....core.op import Op
from ....ops.vision.image import ResizeAttrs
from ...dispatch import apply
from ...tensor.memory import Array
from ...tensor.tensor import Tensor, wrap
from ..linalg.matmul import product
from ..operands import must_be_real
from ..shape.shape import movedim, reshape, unsqueeze
from ..table import NN, row
from .adaptive import avg_pools
from .padding import NotImplementedRun

_RESIZE = Op.get("resize")


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
    """Another number of places along the dimensions after batch and channel

    >>> import weft
    >>> x = weft.tensor([[[1.0, 3.0]]])
    >>> weft.nn.functional.interpolate(x, scale_factor=2)
    tensor([[[1., 1., 3., 3.]]])
    >>> weft.nn.functional.interpolate(x, size=3, mode="linear", align_corners=True)
    tensor([[[1., 2., 3.]]])
    """
    must_be_real("interpolate", input)
    rank = input.ndim - 2
    if mode in ("nearest", "area", "nearest-exact") and align_corners is not None:
        raise InvalidValue(
            "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear"
        )
    if antialias and (mode not in _FILTERS or rank != 2):
        raise InvalidValue(
            "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
        )
    if mode == "lanczos" and (not antialias or align_corners):
        raise InvalidValue("Lanczos mode requires antialias=True, and does not support align_corners=True")
    outs, scales = _target(input, rank, size, scale_factor, bool(recompute_scale_factor))
    _check_mode(mode, rank, input)
    if antialias:
        return _filtered(input, outs, scales, mode, bool(align_corners))
    if mode == "area":
        return avg_pools[rank - 1](input, outs)
    if mode == "bicubic":
        return _cubic(input, outs, scales, bool(align_corners))
    return _resized(input, outs, scales, mode, bool(align_corners))


def _check_mode(mode: str, rank: int, input: Tensor) -> None:
    ranks = {"linear": (1,), "bilinear": (2,), "bicubic": (2,), "lanczos": (2,), "trilinear": (3,)}
    if mode not in (*ranks, "nearest", "area", "nearest-exact"):
        raise NotImplementedRun(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {rank + 2}D) for the "
            f"modes: nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact (got "
            f"{mode})"
        )
    if rank not in ranks.get(mode, (1, 2, 3)):
        raise NotImplementedRun(f"Got {rank + 2}D input, but {mode} mode needs another")
    if 0 in input._shape[1:]:
        raise RunError(f"Non-empty 4D data tensor expected but got a tensor with sizes {list(input.shape)}")


def _target(
    input: Tensor, rank: int, size: Any, factor: Any, recompute: bool
) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """The new sizes, and the factors that coordinates follow: none if they follow the sizes."""
    sizes, scales = input._shape[2:], tuple[float, ...]()
    if size is not None and factor is not None:
        raise InvalidValue("only one of size or scale_factor should be defined")
    if size is not None:
        wanted = tuple(size) if isinstance(size, (tuple, list)) else (size,) * rank
        if len(wanted) != rank:
            raise InvalidValue(
                "Input and output must have the same number of spatial dimensions, but got input "
                f"with spatial dimensions of {list(sizes)} and output size of {list(wanted)}."
            )
        if recompute:
            raise InvalidValue("recompute_scale_factor is not meaningful with an explicit size.")
        outs = tuple(int(n) for n in wanted)
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
    shape = input._shape
    if len(outs) == 1:
        result = _resize2(unsqueeze(input, 2), (1, *outs), (1.0, *scales) if scales else (), mode, corners)
        return reshape(result, (*shape[:2], *outs))
    if len(outs) == 2:
        return _resize2(input, outs, scales, mode, corners)
    items, channels, depth = shape[:3]
    flat = reshape(input, (items * channels, depth, *shape[3:]))
    flat = _resize2(flat, outs[1:], scales[1:], mode, corners)
    rest = outs[1] * outs[2]
    flat = reshape(flat, (items, channels, depth, rest))
    first = (scales[0], 1.0) if scales else ()
    result = _resize2(flat, (outs[0], rest), first, mode, corners)
    return reshape(result, (items, channels, *outs))


def _resize2(input: Tensor, outs: Sequence[int], scales: Sequence[float], mode: str, corners: bool) -> Tensor:
    places = "align_corners" if corners else "asymmetric" if mode == "nearest" else "half_pixel"
    params = ResizeAttrs(
        size=tuple(outs),
        scales=() if corners else tuple(scales),
        coordinate_mode=places,
        method="NEAREST_NEIGHBOR" if mode.startswith("nearest") else "BILINEAR",
        nearest_mode="round_prefer_ceil" if mode == "nearest-exact" else "floor",
    )
    return apply(_RESIZE, params, [input])[0]


def _mixed(input: Tensor, weights: Sequence[Array]) -> Tensor:
    """Images whose elements along each dimension are sums of others, by weights (size, out)."""
    for axis, weight in enumerate(weights, 2):
        matrix = wrap(weight.astype(input._dtype))
        input = movedim(product(movedim(input, axis, -1), matrix), -1, axis)
    return input


def _cubic(input: Tensor, outs: Sequence[int], scales: Sequence[float], corners: bool) -> Tensor:
    factors = scales or (0.0,) * len(outs)
    return _mixed(input, [_cubic_weights(*axis, corners) for axis in zip(input._shape[2:], outs, factors)])


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
    near, far = (
        [((bend + 2) * x - (bend + 3)) * x * x + 1 for x in (gap, 1 - gap)],
        [((bend * x - 5 * bend) * x + 8 * bend) * x - 4 * bend for x in (gap + 1, 2 - gap)],
    )
    weights = np.zeros((size, out))
    for step, value in zip((-1, 0, 1, 2), (far[0], *near, far[1])):
        np.add.at(weights, (np.clip(low + step, 0, size - 1).astype(int), np.arange(out)), value)
    return weights


# Filters that are as wide as a step of the result, which has no aliases then.


def _hat(x: Array) -> Array:
    return 1 - x


def _bent(x: Array) -> Array:
    near: Array = (1.5 * x - 2.5) * x * x + 1
    return np.where(x < 1, near, ((-0.5 * x + 2.5) * x - 4) * x + 2)


def _lanczos(x: Array) -> Array:
    """sin(pi x) sin(pi x / 3) / (pi x pi x / 3)"""
    return np.sinc(x) * np.sinc(x / 3)


# How far a filter reaches, and what it is at distances up to there.
_FILTERS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "bilinear": (1, _hat),
    "bicubic": (2, _bent),
    "lanczos": (3, _lanczos),
}


def _filtered(input: Tensor, outs: Sequence[int], scales: Sequence[float], mode: str, corners: bool) -> Tensor:
    if not is_float(input._dtype):
        raise Unsupported(f"interpolate has no antialias for {input.dtype.title!r}", hint="convert to float first")
    kind = np.float64 if input._dtype.itemsize == 8 else np.float32
    factors = scales or (0.0,) * len(outs)
    sizes = zip(input._shape[2:], outs, factors)
    return _mixed(input, [_filter_weights(*axis, mode, corners, kind) for axis in sizes])


def _filter_weights(size: int, out: int, scale: float, mode: str, corners: bool, kind: Any) -> Array:
    """How much of each element is in each place: (size, out), the filter around the place, in sum 1."""
    if size == out:
        return np.eye(size, dtype=kind)
    reach, shape = _FILTERS[mode]
    step = (size - 1) / max(out - 1, 1) if corners else 1 / scale if scale else size / out
    wide, step = kind(max(step, 1)), kind(step)
    centre = step * (np.arange(out, dtype=kind) + kind(0.5))
    first, last = (np.trunc(centre + side * reach * wide + kind(0.5)) for side in (-1, 1))
    at = np.arange(size, dtype=kind)[:, None]
    away = np.abs(at - centre + kind(0.5)) / wide
    weights: Array = np.where((at >= first) & (at < last) & (away < reach), shape(away), 0)
    weights /= weights.sum(0)
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
