"""Inputs as they are given become arrays; what does not fit is an error that names the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..base.dtype import DType, dtype_name
from ..base.errors import DTypeError, InvalidType, InvalidValue, NotFound
from .program import Array
from .shared import REFUSALS, refused, shared_array

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}  # numbers become their kind or a later one


class Spec(Protocol):
    """What an input must be: TensorSpec, or the InputSpec of a model with open shapes."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType | None: ...


def check_names(inputs: Mapping[str, Any], expected: Mapping[str, Spec]) -> None:
    """Raises unless there is a value for each expected input, and no other."""
    if isinstance(inputs, dict) and inputs.keys() == expected.keys():
        return
    check_known(inputs, expected)
    for name in expected:
        if name not in inputs:
            why = f"expected {expected[name]}; given: " + (", ".join(inputs) or "nothing")
            raise NotFound(f"input {name!r} is missing", why=why)


def check_known(inputs: Mapping[str, Any], expected: Mapping[str, Spec]) -> None:
    """Raises unless every value is for an input that is expected."""
    if not isinstance(inputs, Mapping):
        raise InvalidType(f"inputs are given as a dict from name to array, not as a {type(inputs).__name__}")
    for name in inputs:
        if name not in expected:
            raise NotFound(
                f"the model has no input {name!r}",
                why="its inputs: " + (", ".join(map(str, expected.values())) or "none"),
            )


def by_name(specs: Sequence[Spec], args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Values given in the order of the inputs, and by name, all by name."""
    if len(args) > len(specs):
        raise InvalidValue(
            f"{len(args)} arrays for {len(specs)} inputs", why="inputs: " + (", ".join(map(str, specs)) or "none")
        )
    named = {spec.name: value for spec, value in zip(specs, args)}
    twice = named.keys() & kwargs.keys()
    if twice:
        raise InvalidValue(f"input {min(twice)!r} is given twice")
    return {**named, **kwargs}


def as_text(value: Any, spec: Spec) -> Array:
    """Text: one, a list of them or an array, as an array of str."""
    array = np.asarray(value, object)
    made = np.empty(array.shape, object)
    made.reshape(-1)[:] = [_one_text(item, spec) for item in array.flat]
    return made


def _one_text(item: Any, spec: Spec) -> str:
    try:
        if isinstance(item, bytes):
            return item.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidValue(f"input {spec.name!r} has {item!r:.40}, which is not UTF-8") from None
    if not isinstance(item, str):
        raise DTypeError(f"input {spec.name!r} has {item!r:.40}", why="it is text", hint="give an array of str")
    return item


def as_sequence(value: Any, spec: Spec, is_text: bool) -> Any:
    """A list of arrays, an array where a value may be absent, or None if it is; a map is a dict as it is given."""
    if isinstance(value, (list, tuple)):
        return [as_sequence(item, spec, is_text) for item in value]
    if value is None or isinstance(value, dict):
        return value
    if is_text:
        return as_text(value, spec)
    return _array(value, spec)


def as_input(value: Any, spec: Spec) -> Array:
    """A value as an array of the dtype that is expected, over the same memory if it is an array in the machine's byte
    order; its shape is not looked at."""
    assert spec.dtype is not None
    array = value if isinstance(value, np.ndarray) else _array(value, spec)
    if array.dtype != spec.dtype:
        if array.dtype.newbyteorder("=") == spec.dtype:
            return array.astype(spec.dtype)
        numbers = array.dtype.kind in _RANK and array.dtype.names is None
        raise DTypeError(
            f"input {spec.name!r} is of {array.dtype}",
            why=f"expected {spec}",
            hint=_conversion(value, dtype_name(spec.dtype)) if numbers else "give an array of numbers",
        )
    return array


def on_host(value: Any) -> Any:
    """A value, copied to the memory of the host if it is an array of a device."""
    return value if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__") else value.numpy()


def _conversion(value: Any, dtype: str) -> str:
    """How an array of its library becomes one of another dtype."""
    library = type(value).__module__.partition(".")[0]
    return f"x.to({library}.{dtype})" if hasattr(value, "to") else f'x.astype("{dtype}")'


def _array(value: Any, spec: Spec) -> Array:
    """An array of any library as it is in memory; a list or a number as a new one."""
    try:
        shared: Array | None = shared_array(value)
        if shared is not None:
            return shared
        plain = np.asarray(value)
        if hasattr(value, "__array__") or spec.dtype is None or not _fits(plain, spec.dtype):
            return plain
        return np.asarray(value, spec.dtype)
    except REFUSALS as error:
        raise refused(value, f"input {spec.name!r}", spec, error) from None


def _fits(plain: Array, dtype: DType) -> bool:
    """Whether Python numbers of one kind become another without loss of kind."""
    if not plain.size:
        return True
    have = _RANK.get(plain.dtype.kind)
    return have is not None and have <= _RANK[dtype.kind]
