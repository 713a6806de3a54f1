"""Rows: windows as `signal.windows` has them, which are symmetric unless they repeat themselves."""

from __future__ import annotations

from collections.abc import Iterable
from math import pi
from typing import Any

import numpy as np

from ....base.dtype import FLOAT32, FLOAT64, DType
from ....base.errors import InvalidType, InvalidValue
from ...tensor.convert import convert
from ...tensor.memory import Array
from ...tensor.tensor import Tensor
from ...tensor.types import strided
from ..create.create import kind_of, made
from ..table import row

WINDOWS = "weft.signal.windows"


def _places(name: str, M: Any, sym: bool, dtype: Any, options: dict[str, Any]) -> tuple[Array, int, DType]:
    """The numbers of elements, how far it is from the first to the last (of a window that repeats itself, to the next
    first), and their dtype."""
    if isinstance(M, float) or not hasattr(M, "__index__"):
        raise InvalidType(f"{name}(): argument 'M' must be int, not {type(M).__name__}")
    if M < 0:
        raise InvalidValue(f"{name} requires non-negative window length, got M={M}")
    if options.get("layout") not in (None, strided):
        raise InvalidValue(f"{name} is implemented for strided tensors only, got: {options['layout']}")
    kind = kind_of(dtype)
    if kind not in (FLOAT32, FLOAT64):
        raise InvalidValue(f"{name} expects float32 or float64 dtypes, got: {kind}")
    count = int(M)
    return np.arange(count), count if not sym and count > 1 else count - 1, kind


def _window(values: Array, kind: DType, options: dict[str, Any]) -> Tensor:
    return made(convert(values, kind), options)


@row(space=WINDOWS, method=False)
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: Any = None, **options: Any
) -> Tensor:
    """exp(-|n - center| / tau) for n from 0 to M - 1; the center is in the middle unless it is given"""
    n, width, kind = _places("exponential", M, sym, dtype, options)
    if tau <= 0:
        raise InvalidValue(f"Tau must be positive, got: {tau} instead.")
    if sym and center is not None:
        raise InvalidValue("Center must be None for symmetric windows")
    return _window(np.exp(-np.abs(n - (width / 2 if center is None else center)) / tau), kind, options)


@row(space=WINDOWS, method=False)
def cosine(M: int, *, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """sin(pi (n + 1/2) / M) for n from 0 to M - 1"""
    n, width, kind = _places("cosine", M, sym, dtype, options)
    return _window(np.sin(pi * (n + 0.5) / (width + 1)), kind, options)


@row(space=WINDOWS, method=False)
def gaussian(M: int, *, std: float = 1.0, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """exp(-(n - middle)**2 / (2 std**2)) for n from 0 to M - 1"""
    n, width, kind = _places("gaussian", M, sym, dtype, options)
    if std <= 0:
        raise InvalidValue(f"Standard deviation must be positive, got: {std} instead.")
    return _window(np.exp(-(((n - width / 2) / std) ** 2) / 2), kind, options)


@row(space=WINDOWS, method=False)
def kaiser(M: int, *, beta: float = 12.0, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """i0(beta sqrt(1 - t**2)) / i0(beta) for t from -1 to 1"""
    n, width, kind = _places("kaiser", M, sym, dtype, options)
    if beta < 0:
        raise InvalidValue(f"beta must be non-negative, got: {beta} instead.")
    t = 2 * n / width - 1 if width > 0 else np.zeros(n.shape)
    return _window(np.i0(beta * np.sqrt(np.clip(1 - t**2, 0, None))) / np.i0(beta), kind, options)


@row(space=WINDOWS, method=False)
def bartlett(M: int, *, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """A triangle: 1 - |t| for t from -1 to 1

    >>> import weft
    >>> weft.signal.windows.bartlett(5)
    tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    n, width, kind = _places("bartlett", M, sym, dtype, options)
    return _window(1 - np.abs(2 * n / width - 1) if width > 0 else np.ones(n.shape), kind, options)


@row(space=WINDOWS, method=False)
def general_cosine(M: int, *, a: Iterable[float], sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """The sum of (-1)**i a[i] cos(i t) for t from 0 to 2 pi"""
    n, width, kind = _places("general_cosine", M, sym, dtype, options)
    if width <= 0:
        return _window(np.ones(n.shape), kind, options)
    if not isinstance(a, Iterable):
        raise InvalidType("Coefficients must be a list/tuple")
    factors = list(a)
    if not factors:
        raise InvalidValue("Coefficients cannot be empty")
    terms = [(-1) ** i * factor * np.cos(i * 2 * pi * n / width) for i, factor in enumerate(factors)]
    return _window(np.sum(terms, axis=0), kind, options)


@row(space=WINDOWS, method=False)
def general_hamming(M: int, *, alpha: float = 0.54, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """alpha - (1 - alpha) cos t for t from 0 to 2 pi"""
    return general_cosine(M, a=[alpha, 1 - alpha], sym=sym, dtype=dtype, **options)


@row(space=WINDOWS, method=False)
def hamming(M: int, *, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """0.54 - 0.46 cos t for t from 0 to 2 pi"""
    return general_hamming(M, sym=sym, dtype=dtype, **options)


@row(space=WINDOWS, method=False)
def hann(M: int, *, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """(1 - cos t) / 2 for t from 0 to 2 pi"""
    return general_hamming(M, alpha=0.5, sym=sym, dtype=dtype, **options)


@row(space=WINDOWS, method=False)
def blackman(M: int, *, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """0.42 - 0.5 cos t + 0.08 cos 2 t for t from 0 to 2 pi"""
    return general_cosine(M, a=[0.42, 0.5, 0.08], sym=sym, dtype=dtype, **options)


@row(space=WINDOWS, method=False)
def nuttall(M: int, *, sym: bool = True, dtype: Any = None, **options: Any) -> Tensor:
    """0.3635819 - 0.4891775 cos t + 0.1365995 cos 2 t - 0.0106411 cos 3 t for t from 0 to 2 pi"""
    return general_cosine(M, a=[0.3635819, 0.4891775, 0.1365995, 0.0106411], sym=sym, dtype=dtype, **options)
