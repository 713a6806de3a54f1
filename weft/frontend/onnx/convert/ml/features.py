"""Converters of what is done to features before a model sees them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....base.dtype import FLOAT32, INT64, is_float
from .....base.errors import FormatError
from ....emitter import Value
from ...call import OnnxCall
from ...registry import converter
from .lookup import ML


def _by_column(name: str, values: list[Any] | None, columns: int) -> np.ndarray:
    """An attribute that has a number for each column, or one for all of them."""
    array = np.array(values or [])
    if array.size not in (1, columns):
        raise FormatError(f"{name} has {array.size} elements for {columns} columns")
    return array


@converter("Scaler", domain=ML)
def scaler(call: OnnxCall) -> Value:
    """(x - offset) * scale, along the last axis."""
    x = call.cast(call[0], FLOAT32)
    offset, scale = (_by_column(name, call.attr(name), call.extent(x, -1)) for name in ("offset", "scale"))
    centred = call.op("broadcast_sub", x, call.make(offset, FLOAT32))
    return call.op("broadcast_mul", centred, call.make(scale, FLOAT32))


@converter("Normalizer", domain=ML)
def normalizer(call: OnnxCall) -> Value:
    """x over its largest element, its sum of magnitudes or its length, along the last axis; 0 stays 0."""
    x, norm = call.cast(call[0], FLOAT32), call.attr("norm")
    match norm:
        case "MAX":
            size = call.op("max", x, axis=-1, keepdims=True)
        case "L1":
            size = call.op("sum", call.op("abs", x), axis=-1, keepdims=True)
        case "L2":
            size = call.op("sqrt", call.op("sum", call.square(x), axis=-1, keepdims=True))
        case _:
            raise FormatError(f"norm {norm!r:.40}", why="it is MAX, L1 or L2")
    is_zero = call.op("broadcast_equal", size, call.make(0, FLOAT32))
    return call.op("broadcast_div", x, call.op("broadcast_add", size, call.cast(is_zero, FLOAT32)))


@converter("Imputer", domain=ML)
def imputer(call: OnnxCall) -> Value:
    """What equals a value, which may be NaN, is replaced by the value of its column."""
    x = call[0]
    floating = is_float(call.dtype(x))
    values, replaced = call.attrs("imputed_value_floats=of replaced_value_float=by").values()
    whole, which = call.attrs("imputed_value_int64s=of replaced_value_int64=by").values()
    values, replaced = (values, replaced) if floating else (whole, which)
    filling = call.make(_by_column("the list of imputed values", values, call.extent(x, -1)), call.dtype(x))
    if floating and (replaced is None or np.isnan(replaced)):
        missing = call.op("broadcast_not_equal", x, x)
    else:
        missing = call.op("broadcast_equal", x, call.make(replaced or 0, call.dtype(x)))
    return call.op("broadcast_where", missing, filling, x)


@converter("Binarizer", domain=ML)
def binarizer(call: OnnxCall) -> Value:
    """1 above the threshold, else 0."""
    x = call[0]
    threshold = call.make(call.attr("threshold"), FLOAT32)
    above = call.op("broadcast_greater", call.cast(x, FLOAT32), threshold)
    return call.cast(above, call.dtype(x))


@converter("ArrayFeatureExtractor", domain=ML)
def extractor(call: OnnxCall) -> Value:
    """Some elements along the last axis; a vector counts as one row."""
    x = call[0] if call.rank(call[0]) > 1 else call.op("expand_dims", call[0], axis=0)
    which, columns = call[1], call.extent(x, -1)
    which = which if call.rank(which) == 1 else call.reshape(which, (-1,))
    known = which.constant
    if known is not None and ((known < 0) | (known >= columns)).any():
        raise FormatError(f"elements {known[:8]} of {columns}")
    return call.op("take", x, which, axis=call.rank(x) - 1)


@converter("OneHotEncoder", domain=ML)
def one_hot(call: OnnxCall) -> Value:
    """1 where a number is that category, along a new last axis; a number that is none has zeros."""
    categories = call.attr("cats_int64s")
    x = call.cast(call[0], INT64)
    unequal = call.op("expand_dims", x, axis=call.rank(x))
    equal = call.op("broadcast_equal", unequal, call.make(np.array(categories, np.int64)))
    return call.cast(equal, FLOAT32)


@converter("FeatureVectorizer", domain=ML)
def vectorizer(call: OnnxCall) -> Value:
    """Matrices side by side, each cut or filled with zeros to its number of columns."""
    widths = call.attr("inputdimensions") or []
    parts = call.all()
    if len(widths) != len(parts) or any(width < 1 for width in widths):
        raise FormatError(f"inputdimensions {widths[:8]} for {len(parts)} inputs")
    return call.joined([_of_width(call, part, width) for part, width in zip(parts, widths)], 1)


def _of_width(call: OnnxCall, part: Value, width: int) -> Value:
    part = call.cast(part, FLOAT32)
    part = part if call.rank(part) == 2 else call.op("expand_dims", part, axis=1)
    columns = call.extent(part, 1)
    if width <= columns:
        return call.sliced(part, {1: (0, width, 1)})
    return call.op("pad", part, pad_width=((0, 0), (0, width - columns)))
