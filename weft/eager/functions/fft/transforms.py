"""Rows of fft: Fourier transforms of one or more dimensions, and the frequencies they are of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....base.dtype import DType, is_complex, is_float
from ....base.errors import RunError
from ....core.op import Op
from ....ops.math.complex import WHOLES
from ....ops.math.fft import FourierAttrs, HalfFourierAttrs
from ...dispatch import apply
from ...tensor.tensor import Tensor, axis_of
from ..create.create import kind_of, made
from ..math.arithmetic import mul
from ..math.complex import conj
from ..nn.padding import constant_pad_nd
from ..operands import floating
from ..shape.join import roll
from ..shape.parts import narrow
from ..shape.shape import movedim
from ..table import named, row

FFT = "weft.fft"
_FFT, _RFFT, _IRFFT = (Op.get(name) for name in ("fft", "rfft", "irfft"))
_LAST_TWO = (-2, -1)


def _points(name: str, n: int) -> int:
    if n < 1:
        raise RunError(f"{name}: Invalid number of data points ({n}) specified")
    return n


def _factor(norm: str | None, n: int, inverse: bool) -> float:
    """What a transform of n points is multiplied with; the inverse has what the other has not."""
    if norm not in (None, "backward", "forward", "ortho"):
        raise RunError(f"Invalid normalization mode: {norm!r}")
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "forward") != inverse else 1.0


def _scaled(x: Tensor, factor: float) -> Tensor:
    return x if factor == 1 else mul(x, factor)


def _real(name: str, input: Tensor) -> Tensor:
    if is_complex(input._dtype):
        raise RunError(f"{name} expects a real input tensor, but got {input.dtype.title}")
    return of_known_kind(floating(input))


def as_complex(input: Tensor) -> Tensor:
    """A complex tensor."""
    values = of_known_kind(floating(input))
    kind = values._dtype
    return values if is_complex(kind) else values._cast(WHOLES[kind])


def of_known_kind(values: Tensor) -> Tensor:
    """A tensor of a dtype that there are complex numbers for."""
    kind = values._dtype
    if is_float(kind) and kind not in WHOLES:
        raise RunError(f"Unsupported dtype {values.dtype.title}")
    return values


def _resized(x: Tensor, axis: int, n: int) -> Tensor:
    """As many elements along an axis: some less, or zeros more."""
    have = x._shape[axis]
    if n < have:
        return narrow(x, axis, 0, n)
    if n == have:
        return x
    after = len(x._shape) - 1 - axis
    return constant_pad_nd(x, (*[0, 0] * after, 0, n - have))


def _along(x: Tensor, axis: int, run: Callable[[Tensor], Tensor]) -> Tensor:
    """A transform of the last axis, of another one."""
    last = x.ndim - 1
    if axis == last:
        return run(x)
    return movedim(run(movedim(x, axis, last)), last, axis)


def _turned(x: Tensor, axis: int, n: int, norm: str | None, inverse: bool) -> Tensor:
    run = lambda y: apply(_FFT, FourierAttrs(inverse=inverse), [y])[0]
    return _scaled(_along(_resized(x, axis, n), axis, run), _factor(norm, n, inverse))


def _halved(x: Tensor, axis: int, n: int, norm: str | None, inverse: bool = False) -> Tensor:
    """Half the spectrum of real numbers."""
    run = lambda y: apply(_RFFT, HalfFourierAttrs(n=n), [y])[0]
    return _scaled(_along(_resized(x, axis, n), axis, run), _factor(norm, n, inverse))


def _doubled(x: Tensor, axis: int, n: int, norm: str | None, inverse: bool = True) -> Tensor:
    """The real numbers of half a spectrum."""
    run = lambda y: apply(_IRFFT, HalfFourierAttrs(n=n, doubled=True), [y])[0]
    return _scaled(_along(_resized(x, axis, n // 2 + 1), axis, run), _factor(norm, n, inverse))


# One dimension.


def _complex_row(name: str, doc: str, inverse: bool) -> None:
    def transform(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
        axis = axis_of(dim, input.ndim)
        count = _points(name, input._shape[axis] if n is None else n)
        return _turned(as_complex(input), axis, count, norm, inverse)

    row(named(transform, name, doc), space=FFT, method=False, out=True)


_complex_row("fft", "y[k] = sum over m of x[m] exp(-2 pi i k m / n)", False)
_complex_row("ifft", "The inverse of `fft`", True)


@row(space=FFT, method=False, out=True)
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The first half of `fft` of real numbers; the rest mirrors it"""
    values = _real("rfft", input)
    axis = axis_of(dim, values.ndim)
    count = _points("rfft", values._shape[axis] if n is None else n)
    return _halved(values, axis, count, norm)


@row(space=FFT, method=False, out=True)
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`, of n elements"""
    values = as_complex(input)
    axis = axis_of(dim, values.ndim)
    count = _points("irfft", 2 * (values._shape[axis] - 1) if n is None else n)
    return _doubled(values, axis, count, norm)


@row(space=FFT, method=False, out=True)
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real `fft` of numbers whose second half mirrors the first, which is given"""
    values = as_complex(input)
    axis = axis_of(dim, values.ndim)
    count = _points("hfft", 2 * (values._shape[axis] - 1) if n is None else n)
    return _doubled(conj(values), axis, count, norm, False)


@row(space=FFT, method=False, out=True)
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`"""
    values = _real("ihfft", input)
    axis = axis_of(dim, values.ndim)
    count = _points("ihfft", values._shape[axis] if n is None else n)
    return conj(_halved(values, axis, count, norm, True))


# More dimensions.


def _axes_and_sizes(name: str, input: Tensor, s: Any, dim: Any, half: bool = False) -> tuple[list[int], list[int]]:
    """The axes that are transformed, and how many points along each; for half a spectrum as input,
    twice as many along the last."""
    shape = input._shape
    given = None if s is None else [s] if isinstance(s, int) else list(s)
    if dim is not None:
        dims = [dim] if isinstance(dim, int) else list(dim)
        axes = [axis_of(d, len(shape)) for d in dims]
        if len(set(axes)) != len(axes):
            raise RunError("FFT dims must be unique")
        if given is not None and len(given) != len(axes):
            raise RunError(
                f"When given, dim and shape arguments must have the same length. Got dim={dims} and shape={given}"
            )
    else:
        count = len(shape) if given is None else len(given)
        if count > len(shape):
            raise RunError(f"Got shape with {count} values but input tensor only has {len(shape)} dimensions.")
        axes = list(range(len(shape) - count, len(shape)))
    sizes = [shape[axis] for axis in axes]
    if half and sizes:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if given is not None:
        sizes = [have if want == -1 else want for have, want in zip(sizes, given)]
    return axes, [_points(name, size) for size in sizes]


def _each(x: Tensor, axes: Sequence[int], sizes: Sequence[int], norm: str | None, inverse: bool) -> Tensor:
    for axis, size in zip(axes, sizes):
        x = _turned(x, axis, size, norm, inverse)
    return x


def _must_transform(name: str, axes: Sequence[int]) -> None:
    if not axes:
        raise RunError(f"{name} must transform at least one axis")


def _fftn(name: str, input: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
    inverse = name.startswith("i")
    axes, sizes = _axes_and_sizes(name, input, s, dim)
    return _each(as_complex(input), axes, sizes, norm, inverse)


def _rfftn(name: str, input: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
    """Of real numbers; also the inverse of `hfftn`."""
    values, inverse = _real(name, input), name.startswith("ih")
    axes, sizes = _axes_and_sizes(name, values, s, dim)
    _must_transform(name, axes)
    half = _halved(values, axes[-1], sizes[-1], norm, inverse)
    half = conj(half) if inverse else half
    return _each(half, axes[:-1], sizes[:-1], norm, inverse)


def _irfftn(name: str, input: Tensor, s: Any, dim: Any, norm: str | None) -> Tensor:
    """To real numbers; `hfftn` as well, which is no inverse."""
    values, inverse = as_complex(input), name.startswith("i")
    axes, sizes = _axes_and_sizes(name, values, s, dim, half=True)
    _must_transform(name, axes)
    values = _each(values, axes[:-1], sizes[:-1], norm, inverse)
    last = values if inverse else conj(values)
    return _doubled(last, axes[-1], sizes[-1], norm, inverse)


def _row_of_more(name: str, run: Callable[..., Tensor], of: str) -> None:
    def any_dims(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
        return run(f"{name}n", input, s, dim, norm)

    def two_dims(input: Tensor, s: Any = None, dim: Any = _LAST_TWO, norm: str | None = None) -> Tensor:
        return run(f"{name}2", input, s, dim, norm)

    row(named(any_dims, f"{name}n", f"{of} along dimensions"), space=FFT, method=False, out=True)
    row(named(two_dims, f"{name}2", f"`{name}n` of two dimensions"), space=FFT, method=False, out=True)


for _name, _run in {
    "fft": _fftn,
    "ifft": _fftn,
    "rfft": _rfftn,
    "ihfft": _rfftn,
    "irfft": _irfftn,
    "hfft": _irfftn,
}.items():
    _row_of_more(_name, _run, f"`{_name}`")


# Frequencies.


def _shift(input: Tensor, dim: Any, by: Callable[[int], int]) -> Tensor:
    rank = input.ndim
    dims = range(rank) if dim is None else [dim] if isinstance(dim, int) else list(dim)
    axes = [axis_of(d, rank) for d in dims]
    if not axes:
        return input
    return roll(input, [by(input._shape[axis]) for axis in axes], axes)


@row(space=FFT, method=False)
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """Rolls frequency 0 to the middle"""
    return _shift(input, dim, lambda n: n // 2)


@row(space=FFT, method=False)
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`"""
    return _shift(input, dim, lambda n: (n + 1) // 2)


def _frequencies(values: Any, n: int, d: float, dtype: Any, options: dict[str, Any]) -> Tensor:
    kind: DType = kind_of(dtype)
    return made((values / (n * d)).astype(kind), options)


@row(space=FFT, method=False, out=True)
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, **options: Any) -> Tensor:
    """The frequencies of `fft` of n samples that are d apart"""
    places = np.arange(n)
    return _frequencies(np.where(places < (n + 1) // 2, places, places - n), n, d, dtype, options)


@row(space=FFT, method=False, out=True)
def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, **options: Any) -> Tensor:
    """The frequencies of `rfft` of n samples that are d apart"""
    return _frequencies(np.arange(n // 2 + 1), n, d, dtype, options)
