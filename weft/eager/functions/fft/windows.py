"""Rows: windows by which parts of a signal are weighed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base.dtype import DType, is_complex, is_float
from ....base.errors import InvalidType, RunError, Unsupported
from ...tensor.convert import convert
from ...tensor.memory import Array
from ...tensor.tensor import Tensor
from ...tensor.types import OF_NUMPY
from ..create.create import kind_of, made
from ..table import row


def _places(name: str, window_length: Any, periodic: bool, dtype: Any) -> tuple[Array, DType]:
    """The places of a window's elements, as parts of its length from 0 to 1; a window that repeats
    itself leaves the last one out."""
    if isinstance(window_length, float) or not hasattr(window_length, "__index__"):
        raise InvalidType(
            f"{name}(): argument 'window_length' (position 1) must be int, not {type(window_length).__name__}"
        )
    kind, length = kind_of(dtype), int(window_length)
    if is_complex(kind):
        raise Unsupported(f'"{name}" not implemented for {OF_NUMPY[kind].title!r}')
    if not is_float(kind):
        raise RunError(f"{name} expects floating point dtypes, got: {OF_NUMPY[kind].name}")
    if length < 0:
        raise RunError(f"{name} requires non-negative window_length, got window_length={length}")
    steps = length if periodic else length - 1
    return np.arange(length) / max(steps, 1), kind


def _window(values: Array, kind: DType, options: dict[str, Any]) -> Tensor:
    """The values as a tensor; a window of one element is 1."""
    return made(convert(np.ones(1) if values.size == 1 else values, kind), options)


@row(method=False)
def bartlett_window(window_length: int, periodic: bool = True, *, dtype: Any = None, **options: Any) -> Tensor:
    """A triangle: 1 - |2 t - 1| for t from 0 to 1"""
    t, kind = _places("bartlett_window", window_length, periodic, dtype)
    return _window(1 - np.abs(2 * t - 1), kind, options)


@row(method=False)
def hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, **options: Any) -> Tensor:
    """(1 - cos 2 pi t) / 2 for t from 0 to 1"""
    t, kind = _places("hann_window", window_length, periodic, dtype)
    return _window(np.sin(np.pi * np.minimum(t, 1 - t)) ** 2, kind, options)


@row(method=False)
def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: Any = None,
    **options: Any,
) -> Tensor:
    """alpha - beta cos 2 pi t for t from 0 to 1"""
    t, kind = _places("hamming_window", window_length, periodic, dtype)
    return _window(alpha - beta * np.cos(2 * np.pi * t), kind, options)


@row(method=False)
def blackman_window(window_length: int, periodic: bool = True, *, dtype: Any = None, **options: Any) -> Tensor:
    """0.42 - 0.5 cos 2 pi t + 0.08 cos 4 pi t for t from 0 to 1"""
    t, kind = _places("blackman_window", window_length, periodic, dtype)
    return _window(0.42 - 0.5 * np.cos(2 * np.pi * t) + 0.08 * np.cos(4 * np.pi * t), kind, options)


@row(method=False)
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, **options: Any
) -> Tensor:
    """i0(beta sqrt(1 - (2 t - 1)**2)) / i0(beta) for t from 0 to 1"""
    t, kind = _places("kaiser_window", window_length, periodic, dtype)
    inside = np.clip(1 - (2 * t - 1) ** 2, 0, None)
    return _window(np.i0(beta * np.sqrt(inside)) / np.i0(beta), kind, options)
