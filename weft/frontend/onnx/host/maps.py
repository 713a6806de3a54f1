"""Steps on the host for maps, which are dicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ....base.dtype import FLOAT32, INT64
from ....base.errors import FormatError, InvalidValue, ShapeError
from ....core.interpret import Array
from ..node import OnnxNode
from ..registry import host_step
from ..restated import ML


@host_step("ZipMap", domain=ML)
def zip_map(call: OnnxNode, x: Array) -> list[list[dict[Any, float]]]:
    """For each row a dict from labels to its numbers."""
    labels = call.attr("classlabels_strings") or call.attr("classlabels_int64s") or []
    rows = np.atleast_2d(x)
    if rows.ndim != 2 or rows.shape[1] != len(labels):
        raise ShapeError(f"scores of shape {x.shape} for {len(labels)} labels")
    return [[dict(zip(labels, row)) for row in rows.tolist()]]


@host_step("DictVectorizer", domain=ML)
def dict_vectorizer(call: OnnxNode, x: Mapping[Any, Any] | Sequence[Mapping[Any, Any]]) -> list[Array]:
    """The values of known keys in their order, 0 for those that a map does not have; a row a map."""
    keys = call.attr("string_vocabulary") or call.attr("int64_vocabulary")
    if not keys:
        raise FormatError("the DictVectorizer has no vocabulary")
    maps = [x] if isinstance(x, Mapping) else x
    some = next((value for one in maps for value in one.values()), 0.0)
    if isinstance(some, str):
        texts = np.array([[one.get(key, "") for key in keys] for one in maps], object)
        return [texts.reshape(len(maps), len(keys))]
    dtype = some.dtype if isinstance(some, np.generic) else INT64 if isinstance(some, int) else FLOAT32
    return [np.array([[one.get(key, 0) for key in keys] for one in maps], dtype).reshape(len(maps), len(keys))]


@host_step("CastMap", domain=ML)
def cast_map(call: OnnxNode, x: Mapping[int, Any]) -> list[Array]:
    """The values of a map in the order of its keys; in the sparse form at their keys, the others being 0 or empty."""
    cast, absent, dtype = _CASTS.get(call.attr("cast_to"), (None, None, None))
    if cast is None:
        raise FormatError(f"cast_to is {call.attr('cast_to')!r:.40}")
    keys = sorted(x)
    if call.attr("map_form") == "SPARSE":
        width = call.attr("max_map")
        if keys and not (keys[0] >= 0 and keys[-1] < width):
            raise InvalidValue(f"keys from {keys[0]} to {keys[-1]}", why=f"max_map is {width}")
        keys = list(range(width))
    made = np.empty((1, len(keys)), dtype)
    made[0] = [cast(x[key]) if key in x else absent for key in keys]
    return [made]


_CASTS: dict[str, tuple[Any, Any, Any]] = {
    "TO_FLOAT": (float, 0.0, FLOAT32),
    "TO_INT64": (lambda value: int(float(value)), 0, INT64),
    "TO_STRING": (str, "", object),
}
