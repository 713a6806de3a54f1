"""Tables from keys to values, which natively are searches in sorted keys."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....base.dtype import FLOAT32, INT64, is_float
from .....base.errors import FormatError
from ....emitter import Value
from ...call import OnnxCall
from ...registry import converter

ML = "ai.onnx.ml"


def looked_up(call: OnnxCall, x: Value, keys: np.ndarray, values: np.ndarray, default: Any) -> Value:
    """The value of each element that is a key, else the default. Of equal keys the first one counts."""
    missing = np.flatnonzero(keys != keys)
    known, first = np.unique(keys[keys == keys], return_index=True)
    result = call.make(default, values.dtype)
    if len(known):
        ordered = values[keys == keys][first]
        place = _last_not_above(call, x, known)
        found = call.op("broadcast_equal", _element(call, known, place), x)
        result = call.op("broadcast_where", found, _element(call, ordered, place), result)
    if len(missing):
        is_nan = call.op("broadcast_not_equal", x, x)
        result = call.op("broadcast_where", is_nan, call.make(values[missing[0]]), result)
    return result


def _element(call: OnnxCall, table: np.ndarray, place: Value) -> Value:
    return call.op("take", call.make(table), place, axis=0)


def _last_not_above(call: OnnxCall, x: Value, known: np.ndarray) -> Value:
    """The place of the greatest known number that is not above each element, the first one if all are: by halves."""
    size = 1 << (len(known) - 1).bit_length()
    filled = np.concatenate([known, np.repeat(known[-1:], size - len(known))])
    place = call.op("zeros_like", call.cast(x, INT64))
    step = size // 2
    while step:
        ahead = call.shifted(place, step)
        reached = call.op("broadcast_less_equal", _element(call, filled, ahead), x)
        place = call.where(reached, ahead, place)
        step //= 2
    return call.op("broadcast_min", place, call.make(len(known) - 1, INT64))


@converter("LabelEncoder", since=2, domain=ML)
def label_encoder(call: OnnxCall) -> Value:
    keys, values = (_table(call, part) for part in ("keys", "values"))
    if len(keys) != len(values):
        raise FormatError(f"{len(keys)} keys and {len(values)} values")
    default = call.attr("default_tensor")
    name = "default_float" if is_float(values.dtype) else "default_int64"
    default = call.attr(name) if default is None else default.reshape(-1)[0]
    return looked_up(call, call.cast(call[0], keys.dtype), keys, values, default)


def _table(call: OnnxCall, part: str) -> np.ndarray:
    """The keys, or the values, of whichever type they are."""
    tensor = call.attr(f"{part}_tensor")
    if tensor is not None:
        return np.ravel(tensor)
    kinds = {"int64s": INT64, "floats": FLOAT32}
    given = [
        np.array(call.attr(f"{part}_{kind}"), dtype) for kind, dtype in kinds.items() if call.attr(f"{part}_{kind}")
    ]
    if len(given) != 1:
        raise FormatError(f"{len(given)} lists of {part}")
    return given[0]
