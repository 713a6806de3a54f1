"""Tensors with a height and a width somewhere among their axes, as pools and resizing see them.

Only the places of H and W in the layout matter: all other axes, blocks of channels included, are
carried along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base.dtype import DType
from ...base.errors import LayoutError, ShapeError
from ...base.layout import Layout
from ...base.shape import Dim, Shape
from ...core.schema import Params
from .._families import Array, Joined


def spatial_axes(params: Params) -> tuple[int, int]:
    """The places of H and W."""
    layout = Layout(params.layout)
    if "H" not in layout or "W" not in layout or "h" in layout or "w" in layout:
        raise LayoutError(f"layout {layout} does not do", why="it needs H and W, whole")
    return layout.index_of("H"), layout.index_of("W")


def spatial_extents(params: Params, shape: Shape) -> tuple[Dim, Dim]:
    """Height and width of a shape."""
    assert shape is not None
    down, across = spatial_axes(params)
    if len(shape) < len(Layout(params.layout).axes):
        raise ShapeError(f"a tensor of {len(shape)} dimensions is not in layout {params.layout}")
    return shape[down], shape[across]


def static_extents(params: Params, shape: Shape) -> tuple[int, int]:
    """Height and width of a shape, where they are numbers."""
    height, width = spatial_extents(params, shape)
    assert height is not None
    assert width is not None
    assert not isinstance(height, str)
    assert not isinstance(width, str)
    return height, width


def with_extents(params: Params, shape: Sequence[Any], extents: Sequence[Any]) -> tuple[Any, ...]:
    """The shape with other height and width."""
    dims = list(shape)
    for axis, extent in zip(spatial_axes(params), extents):
        dims[axis] = extent
    return tuple(dims)


def spatial_last(params: Params, x: Array) -> Array:
    """Height and width moved to the end."""
    return np.moveaxis(x, spatial_axes(params), (-2, -1))


def spatial_back(params: Params, x: Array, dtype: DType) -> Array:
    """Height and width moved from the end to their places, in a dtype."""
    back = np.moveaxis(x, (-2, -1), spatial_axes(params))
    return np.ascontiguousarray(back.astype(dtype, copy=False))


def at_places(params: Params, index: Sequence[Any], places: Sequence[Any]) -> tuple[Any, ...]:
    """An index with other places in height and width."""
    return with_extents(params, index, places)


def joined_images(params: Params, *shapes: Sequence[int]) -> Joined:
    """(images, 1, height, width), where those come last."""
    if params.layout != "NCHW":
        return params, list(map(tuple, shapes))
    return params, [(shape[0] * shape[1], 1, *shape[2:]) for shape in shapes]


def places_of(params: Params, index: Sequence[Any]) -> list[Any]:
    """Where an index stands in height and width."""
    return [index[axis] for axis in spatial_axes(params)]
