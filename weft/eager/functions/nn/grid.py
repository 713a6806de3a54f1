"""Rows: images read at the points of a grid, in nn.functional and as the core has it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.errors import InvalidValue, RunError
from ....core.op import Op
from ....ops.vision.grid_sample import GridSampleAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor, wrap
from ..linalg.matmul import batched
from ..operands import by_number
from ..shape.shape import reshape, transpose
from ..table import NN, row

_GRID_SAMPLE = Op.get("grid_sample")
_READINGS, _OUTSIDES = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


@row(space=NN, method=False)
def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """Images or volumes between their elements, at points from (-1, -1) to (1, 1)"""
    if mode not in _READINGS:
        raise InvalidValue(f"expected mode to be 'bilinear', 'nearest' or 'bicubic', got {mode!r}")
    if padding_mode not in _OUTSIDES:
        raise InvalidValue(f"expected padding_mode to be 'zeros', 'border' or 'reflection', got {padding_mode!r}")
    a, b = input._shape, grid._shape
    if len(a) != len(b) or len(a) not in (4, 5) or a[0] != b[0] or b[-1] != len(a) - 2:
        raise RunError(
            "grid_sampler(): expected grid to have as many points as input has dimensions, and the "
            f"same batch, but got input with sizes {list(a)} and grid with sizes {list(b)}"
        )
    if len(a) == 5 and mode == "bicubic":
        raise RunError("grid_sampler(): bicubic interpolation only supports 4D input")
    params = GridSampleAttrs(mode=mode, padding=padding_mode, align_corners=bool(align_corners))
    return apply(_GRID_SAMPLE, params, [input, grid])[0]


def _points(count: int, corners: bool, kind: Any) -> Any:
    """Places from -1 to 1: the centres of elements, or of the first and the last."""
    if corners:
        return np.linspace(-1, 1, count).astype(kind) if count > 1 else np.zeros(1, kind)
    return ((np.arange(count) * 2 + 1) / count - 1).astype(kind)


@row(space=NN, method=False)
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """The points that affine maps send those of an image, or of a volume, to"""
    shape, sizes = theta._shape, [int(n) for n in size]
    rank = len(sizes) - 2
    if rank not in (2, 3) or shape != (sizes[0], rank, rank + 1):
        raise InvalidValue(
            f"Expected a batch of {rank}D affine matrices of shape Nx{rank}x{rank + 1} for size "
            f"{sizes}. Got {list(shape)}."
        )
    axes = [_points(n, bool(align_corners), theta._dtype) for n in sizes[2:]]
    mesh = np.meshgrid(*axes, indexing="ij")[::-1]  # x comes first
    points = np.stack([*mesh, np.ones_like(mesh[0])], -1).reshape(-1, rank + 1)
    result = batched(wrap(np.broadcast_to(points, (sizes[0], *points.shape))), transpose(theta, 1, 2))
    return reshape(result, (sizes[0], *sizes[2:], rank))


# As the core has them, with modes that are numbers.


@row(method=False)
def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """The points that affine maps send those of an image, or of a volume, to"""
    return affine_grid(theta, size, align_corners)


@row(name="grid_sampler_3d", method=False)
@row(name="grid_sampler_2d", method=False)
@row(name="grid_sampler", method=False)
def _sampled(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    """Images or volumes between their elements, at points from (-1, -1) to (1, 1)"""
    mode = by_number("interpolation_mode", _READINGS, interpolation_mode)
    outside = by_number("padding_mode", _OUTSIDES, padding_mode)
    return grid_sample(input, grid, mode, outside, align_corners)
