"""Rows: views that a tensor becomes itself, and elements that a Python function changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.errors import InvalidType, RunError
from ...autograd.modes import modes
from ...autograd.node_names import entitle, title_of
from ...tensor.inplace import check_writable
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor
from ..table import named, row
from .parts import as_strided, split_with_sizes
from .shape import expand, squeeze, t, transpose, unsqueeze


def _check_own(self: Tensor) -> None:
    """Refuses a leaf whose gradient is asked for, as every in-place function does."""
    if self._inference and not modes.inference:
        raise RunError("Inplace update to inference tensor outside InferenceMode is not allowed.")
    if modes.grad and self.requires_grad:
        check_writable(self)


def _become(self: Tensor, seen: Tensor) -> Tensor:
    """Gives a tensor the geometry of a view of it, and the view's place in the graph. Views of it
    find theirs by the memory they look at."""
    self._look_as(seen)
    self._counter[0] += 1
    if seen._grad_fn is not None:
        self._grad_fn, self._output_nr, self._requires_grad = seen._grad_fn, seen._output_nr, True
        self._history += self._base is None
    self._accumulator = None
    return self


def _in_place(function: Callable[..., Tensor], name: str, space: str | None = None) -> None:
    title = title_of(function.__name__)

    def call(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        _check_own(input)
        seen = function(input, *args, **kwargs)
        entitle(seen, title, input)
        return _become(input, seen)

    row(named(call, name, f"In-place `{name[:-1]}`: the tensor itself becomes the view"), space=space)


for _function in (squeeze, t, transpose, unsqueeze):
    _in_place(_function, f"{_function.__name__}_")
_in_place(transpose, "swapaxes_")
_in_place(transpose, "swapdims_")
_in_place(as_strided, "as_strided_", "weft")


@row
def unsafe_split_with_sizes(input: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """`split_with_sizes`"""
    return split_with_sizes(input, split_sizes, dim)


# The diagonal.


@row(space=None)
def fill_diagonal_(input: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Writes one value where all indices are the same; with `wrap`, again below a square"""
    shape = input._shape
    if len(shape) < 2:
        raise RunError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RunError("all dimensions of input must be of equal length")
    step = sum(input.stride())
    count = min(shape)
    line = as_strided(input, (count,), (step,), input.storage_offset())
    line.fill_(fill_value)
    width = shape[1]
    if wrap and len(shape) == 2 and shape[0] > width + 1:
        for first in range(width + 1, shape[0], width + 1):
            length = min(width, shape[0] - first)
            start = input.storage_offset() + first * input.stride(0)
            as_strided(input, (length,), (step,), start).fill_(fill_value)
    return input


# Elements changed by a function of Python numbers.


def _check_plain(name: str, *tensors: Tensor) -> None:
    for tensor in tensors:
        if tensor.requires_grad:
            raise RunError(
                f"Can't call {name}() on Variable that requires grad.", hint=f"use var.detach().{name}() instead"
            )
    check_writable(tensors[0])


def _alike(name: str, input: Tensor, other: Any, called: str) -> list[Any]:
    """The elements of another tensor, as many as those that are changed."""
    if not isinstance(other, Tensor) or other._dtype != input._dtype:
        shown = other.type() if isinstance(other, Tensor) else type(other).__name__
        raise InvalidType(f"{name}: expected {input.type()} for {called!r} (got {shown})")
    values: list[Any] = array_of(expand(other, input._shape)).ravel().tolist()
    return values


def _mapped(input: Tensor, function: Callable[..., Any], *columns: list[Any]) -> Tensor:
    array = array_of(input)
    kind = {"b": bool, "c": complex}.get(array.dtype.kind, float)
    whole = array.dtype.kind in "iu"
    made = [function(*values) for values in zip(array.ravel().tolist(), *columns)]
    try:
        numbers = [int(value) if whole else kind(value) for value in made]
    except ValueError as error:  # such as float("x")
        raise InvalidType(str(error)) from None
    array[...] = np.array(numbers).astype(array.dtype).reshape(array.shape)
    input._counter[0] += 1
    return input


@row(space=None)
def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Replaces each element by what a function gives for it"""
    _check_plain("apply_", input)
    return _mapped(input, callable)


@row(space=None)
def map_(input: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Replaces each element by what a function gives for it and that of another tensor"""
    others = _alike("map_", input, tensor, "other")
    _check_plain("map_", input, tensor)
    return _mapped(input, callable, others)


@row(space=None)
def map2_(input: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """Replaces each element by what a function gives for it and those of two tensors"""
    columns = [_alike("map2_", input, x, "x"), _alike("map2_", input, y, "y")]
    _check_plain("map2_", input, x, y)
    return _mapped(input, callable, *columns)
