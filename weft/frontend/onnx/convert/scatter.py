"""Converters of scatters. Where places are known, every element knows what is written to it."""

from __future__ import annotations

import numpy as np

from ....base.dtype import INT64
from ....base.errors import FormatError, Unsupported
from ....base.shape import StaticShape, normalize_axis, numel
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter

_MOST_PLACES = 1 << 24


@converter("ScatterND", since=11, decides=(1,))
def scatter_nd(call: OnnxCall) -> Value:
    """Each index names a row of the data, of one or more axes; the update is the new row."""
    _check_reduction(call)
    if call[1].constant is None and call.rank(call[1]) > 1:
        rank = call.rank(call[1])
        first = call.op("transpose", call[1], axes=(rank - 1, *range(rank - 1)))
        return call.op("scatter_nd", call[0], first, call[2])
    shape, indices = call.shape(call[0]), call.constant(1, "the indices")
    if not indices.ndim or not 0 < indices.shape[-1] <= len(shape):
        raise FormatError(f"indices of shape {indices.shape} for data of shape {shape}")
    named = shape[: indices.shape[-1]]
    coordinates = indices.reshape(-1, len(named)).T
    return _written(call, _flat(coordinates, named), named, numel(shape[len(named) :]))


@converter("ScatterElements", since=11, decides=(1,))
def scatter_elements(call: OnnxCall) -> Value:
    """Each index replaces one coordinate, along the axis, of its own place."""
    _check_reduction(call)
    shape, indices = call.shape(call[0]), call.constant(1, "the indices")
    if indices.ndim != len(shape):
        raise FormatError(f"indices of shape {indices.shape} for data of shape {shape}")
    coordinates: list[np.ndarray] = list(np.indices(indices.shape))
    coordinates[normalize_axis(call.attr("axis"), len(shape))] = indices
    places = _flat(np.stack([part.ravel() for part in coordinates]), shape)
    return _written(call, places, shape, 1)


def _check_reduction(call: OnnxCall) -> None:
    if call.attr("reduction", "none") != "none":
        raise Unsupported(f"{call.op_type} that adds or multiplies is not supported")


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
