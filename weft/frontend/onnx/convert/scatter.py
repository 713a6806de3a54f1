"""Converters of scatters. Where places are known and nothing is reduced, every element knows what is written to it."""

from __future__ import annotations

import numpy as np

from ....base.dtype import BOOL, DTYPES, INT64
from ....base.errors import FormatError, Unsupported
from ....base.shape import StaticShape, normalize_axis, numel
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter

_MOST_PLACES = 1 << 24
_UINT8 = DTYPES["uint8"]


@converter("ScatterND", since=11)
def scatter_nd(call: OnnxCall) -> Value:
    """Each index names a row of the data, of one or more axes; the update is the new row, or comes to it."""
    indices = call[1].constant
    if indices is None or _reduction(call) is not None:
        coordinates_first = call.transposed(call[1], (-1, *range(call.rank(call[1]) - 1)))
        return _scattered(call, call[0], coordinates_first, call[2])
    shape = call.shape(call[0])
    if not indices.ndim or not 0 < indices.shape[-1] <= len(shape):
        raise FormatError(f"indices of shape {indices.shape} for data of shape {shape}")
    named = shape[: indices.shape[-1]]
    coordinates = indices.reshape(-1, len(named)).T
    return _written(call, _flat(coordinates, named), named, numel(shape[len(named) :]))


@converter("ScatterElements", since=11)
@converter("Scatter", since=9)
def scatter_elements(call: OnnxCall) -> Value:
    """Each index replaces one coordinate, along the axis, of its own place."""
    shape, indices = call.shape(call[0]), call.shape(call[1])
    if len(indices) != len(shape) or not shape:
        raise FormatError(f"indices of shape {indices} for data of shape {shape}")
    axis = normalize_axis(call.attr("axis"), len(shape))
    if call[1].constant is not None and _reduction(call) is None:
        coordinates: list[np.ndarray] = list(np.indices(indices))
        coordinates[axis] = call[1].constant
        return _written(call, _flat(np.stack([part.ravel() for part in coordinates]), shape), shape, 1)
    if not numel(indices):
        return call[0]
    places = call.reshape(_places(call, shape, indices, axis), (1, numel(indices)))
    return call.reshape(_scattered(call, call.flat(call[0]), places, call.flat(call[2])), shape)


def _places(call: OnnxCall, shape: StaticShape, indices: StaticShape, axis: int) -> Value:
    """Where elements stand in row-major order, with an index for the coordinate along the axis."""
    chosen = call.cast(call[1], INT64)
    below = call.op("broadcast_less", chosen, call.make(0, INT64))
    place = call.op("broadcast_where", below, call.shifted(chosen, shape[axis]), chosen)
    place = call.scaled(place, numel(shape[axis + 1 :]))
    for other, extent in enumerate(indices):
        if other != axis and extent > 1:
            line = call.positions(extent, other, len(shape), INT64)
            place = call.op("broadcast_add", place, call.scaled(line, numel(shape[other + 1 :])))
    return place


def _reduction(call: OnnxCall) -> str | None:
    name = call.attr("reduction", "none")
    return None if name == "none" else name


def _scattered(call: OnnxCall, data: Value, indices: Value, updates: Value) -> Value:
    """The data with rows replaced, or reduced with updates; of bools, a sum is `or` and a product `and`."""
    reduction, dtype = _reduction(call), call.dtype(data)
    if reduction is None:
        return call.op("scatter_nd", data, indices, updates)
    if dtype == BOOL:
        reduction = {"add": "max", "mul": "min"}.get(reduction, reduction)
        data, updates = call.cast(data, _UINT8), call.cast(updates, _UINT8)
    data, updates = call.widened(data), call.widened(updates)
    return call.cast(call.op("scatter_nd_reduce", data, indices, updates, reduction=reduction), dtype)


def _flat(coordinates: np.ndarray, shape: StaticShape) -> np.ndarray:
    """Places counted in row-major order; negative coordinates count from the end."""
    if numel(shape) > _MOST_PLACES:
        raise Unsupported(f"a scatter into {numel(shape)} places is not supported")
    extents = np.asarray(shape)[:, None]
    coordinates = np.where(coordinates < 0, coordinates + extents, coordinates)
    if ((coordinates < 0) | (coordinates >= extents)).any():
        raise FormatError(f"an index is outside the shape {shape}")
    return np.asarray(np.ravel_multi_index(tuple(coordinates), shape))


def _written(call: OnnxCall, places: np.ndarray, named: StaticShape, width: int) -> Value:
    """The data with rows of `width` elements replaced; of two in one place the last stays."""
    data, updates, shape = call[0], call[2], call.shape(call[0])
    if numel(call.shape(updates)) != places.size * width:
        raise FormatError(f"updates of shape {updates.shape} for {places.size} places")
    if not places.size or not width:
        return data
    writer = np.full(numel(named), -1, np.int64)
    writer[places] = np.arange(places.size)
    rows = call.reshape(data, (numel(named), width))
    news = call.reshape(updates, (places.size, width))
    news = call.op("take", news, call.make(np.maximum(writer, 0), INT64), axis=0)
    return call.reshape(call.op("where", call.make(writer >= 0), news, rows), shape)
