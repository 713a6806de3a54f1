"""Steps on the host for labels and categories that are text."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import FLOAT32, INT64
from ....base.errors import FormatError, InvalidValue
from ....core.interpret import Array
from ..node import OnnxNode
from ..registry import host_step
from ..restated import ML, OWN


def _looked_up(x: Array, keys: list[Any], values: list[Any], default: Any, dtype: Any) -> Array:
    """The value of each element that is a key, else the default; of equal keys the first one counts."""
    if len(keys) != len(values):
        raise FormatError(f"{len(keys)} keys and {len(values)} values")
    table = dict(zip(reversed(keys), reversed(values)))
    unknown = next((value for key, value in zip(keys, values) if key != key), default)  # the value of NaN
    found = [table.get(item, default) if item == item else unknown for item in x.ravel().tolist()]
    made = np.empty(x.size, dtype)
    made[:] = found
    return made.reshape(x.shape)


@host_step("LabelEncoder", domain=ML)
def label_encoder_1(call: OnnxNode, x: Array) -> list[Array]:
    """Version 1: names to their places in a list, or places to names."""
    return [_by_names(call, x, call.attr("classes_strings") or [])]


@host_step("CategoryMapper", domain=ML)
def category_mapper(call: OnnxNode, x: Array) -> list[Array]:
    names, numbers = call.attr("cats_strings") or [], call.attr("cats_int64s") or []
    if x.dtype == object:
        return [_looked_up(x, names, numbers, call.attr("default_int64"), INT64)]
    return [_looked_up(x, numbers, names, call.attr("default_string"), object)]


def _by_names(call: OnnxNode, x: Array, names: list[str]) -> Array:
    places = list(range(len(names)))
    if x.dtype == object:
        return _looked_up(x, names, places, call.attr("default_int64"), INT64)
    return _looked_up(x, places, names, call.attr("default_string"), object)


@host_step("LabelEncoder", domain=ML, numbers=False)
def label_encoder(call: OnnxNode, x: Array) -> list[Array]:
    """From version 2 on: a table of keys and values, of which some are text."""
    keys, _ = _column(call, "keys")
    values, kind = _column(call, "values")
    default = call.attr("default_tensor")
    if default is None:
        default = call.attr({"strings": "default_string", "int64s": "default_int64"}.get(kind, "default_float"))
    else:
        default = default.reshape(-1)[0]
    dtype = {"strings": np.dtype(object), "int64s": INT64, "floats": FLOAT32}.get(kind)
    return [_looked_up(x, keys, values, default, call.attr("values_tensor").dtype if dtype is None else dtype)]


def _column(call: OnnxNode, part: str) -> tuple[list[Any], str]:
    """The keys, or the values, and which attribute has them."""
    for kind in ("strings", "int64s", "floats", "tensor"):
        given = call.attr(f"{part}_{kind}")
        if given is not None and len(given):
            return (given.ravel().tolist() if kind == "tensor" else given), kind
    raise FormatError(f"the LabelEncoder has no {part}")


@host_step("StrictOneHotEncoder", domain=OWN)
def strict_one_hot(call: OnnxNode, x: Array) -> list[Array]:
    return [_one_hot(call, x, strict=True)]


@host_step("OneHotEncoder", domain=ML, numbers=False)
def one_hot(call: OnnxNode, x: Array) -> list[Array]:
    return [_one_hot(call, x, strict=False)]


def _one_hot(call: OnnxNode, x: Array, strict: bool) -> Array:
    """1 where an element is that category, along a new last axis."""
    is_text = x.dtype == object
    categories = call.attr("cats_strings" if is_text else "cats_int64s") or []
    if not categories:
        raise FormatError(f"the OneHotEncoder has no categories that are {'text' if is_text else 'numbers'}")
    place = {category: number for number, category in enumerate(categories)}
    flat = x.ravel() if is_text else x.ravel().astype(INT64)
    places = np.array([place.get(item, -1) for item in flat.tolist()], INT64)
    if strict and (places < 0).any():
        raise InvalidValue(
            f"{flat[int(np.argmin(places))]!r:.60} is none of {len(categories)} categories",
            why="the model asks for an error then: zeros = 0",
        )
    made: Array = (places[:, None] == np.arange(len(categories))).astype(FLOAT32)
    return made.reshape(*x.shape, len(categories))
