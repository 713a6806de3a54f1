"""Inputs as they are given become arrays; what does not fit is an error that names the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..base.dtype import DType, dtype_name
from ..base.errors import DTypeError, Error, InvalidType, InvalidValue, NotFound
from ..base.ndarray import NDArray, from_dlpack
from .program import Array

_RANK = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2, "c": 3}  # numbers become their kind or a later one


class Spec(Protocol):
    """What an input must be: TensorSpec, or the InputSpec of a model with open shapes."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType | None: ...


def check_names(inputs: Mapping[str, Any], expected: Mapping[str, Spec]) -> None:
    """Raises unless there is a value for each expected input, and no other."""
    if not isinstance(inputs, (dict, Mapping)):
        raise InvalidType(f"inputs are given as a dict from name to array, not as a {type(inputs).__name__}")
    if inputs.keys() == expected.keys():
        return
    for name in inputs:
        if name not in expected:
            raise NotFound(
                f"the model has no input {name!r}",
                why="its inputs: " + (", ".join(map(str, expected.values())) or "none"),
            )
    name = next(name for name in expected if name not in inputs)
    raise NotFound(
        f"input {name!r} is missing", why=f"expected {expected[name]}; given: " + (", ".join(inputs) or "nothing")
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
    array = value.numpy() if isinstance(value, NDArray) else value
    return array if isinstance(array, np.ndarray) else _from_other(array, spec)


def as_input(value: Any, spec: Spec) -> Array:
    """A value as an array of the dtype that is expected; its shape is not looked at."""
    assert spec.dtype is not None
    array = value.numpy() if isinstance(value, NDArray) else value
    if not isinstance(array, np.ndarray):
        array = _from_other(array, spec)
    if array.dtype != spec.dtype:
        if array.dtype.newbyteorder("=") == spec.dtype:
            return array.astype(spec.dtype)
        numbers = array.dtype.kind in _RANK and array.dtype.names is None
        raise DTypeError(
            f"input {spec.name!r} is of {array.dtype}",
            why=f"expected {spec}",
            hint=f'x.astype("{dtype_name(spec.dtype)}")' if numbers else "give an array of numbers",
        )
    return array


def _from_other(value: Any, spec: Spec) -> Array:
    """A list, a number or an array of another library."""
    try:
        if hasattr(value, "__dlpack__"):
            return from_dlpack(value).numpy()
        if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
            return np.asarray(value)
        plain = np.asarray(value)
        if spec.dtype is None or not _fits(plain, spec.dtype):
            return plain
        return np.asarray(value, spec.dtype)
    except (ValueError, TypeError, OverflowError, RuntimeError, BufferError) as error:
        told = error.what if isinstance(error, Error) else error
        needs_grad = getattr(value, "requires_grad", False)
        raise InvalidValue(
            f"input {spec.name!r} is a {type(value).__name__} that makes no array",
            why=f"expected {spec}; {told}",
            hint="x.detach()" if needs_grad else None,
        ) from None


def _fits(plain: Array, dtype: DType) -> bool:
    """Whether Python numbers of one kind become another without loss of kind."""
    if not plain.size:
        return True
    have = _RANK.get(plain.dtype.kind)
    return have is not None and have <= _RANK[dtype.kind]
