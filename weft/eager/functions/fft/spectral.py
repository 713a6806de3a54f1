"""Rows: the frequencies of a signal at different times, and the signal that has them."""

from __future__ import annotations

import math
import warnings

import numpy as np

from ....base.dtype import is_complex, is_float
from ....base.errors import RunError
from ....core.op import Op
from ....ops.math.complex import part_dtype
from ....ops.math.fft import FourierAttrs, HalfFourierAttrs
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ..math.arithmetic import div, mul
from ..math.complex import view_as_real
from ..nn.padding import constant_pad_nd
from ..nn.padding import pad as padded
from ..operands import promoted
from ..shape.parts import narrow, unfold, zeros_but
from ..shape.shape import reshape, squeeze, transpose, unsqueeze
from ..table import row
from .transforms import as_complex, of_known_kind

_FFT, _RFFT, _IRFFT = (Op.get(name) for name in ("fft", "rfft", "irfft"))
_LEAST = 1e-11  # of the sum of squared windows that may be divided by


def _window(name: str, window: Tensor | None, length: int, n_fft: int, like: Tensor) -> Tensor:
    """A window in the middle of n_fft places; ones where none is given."""
    if window is None:
        window = wrap(np.ones(length, part_dtype(like._dtype)))
    elif window._shape != (length,):
        raise RunError(
            f"{name}: expected a 1D window tensor of size equal to win_length={length}, but got "
            f"window with size {list(window.shape)}"
        )
    if length == n_fft:
        return window
    left = (n_fft - length) // 2
    return constant_pad_nd(window, (left, n_fft - length - left))


def _lengths(n_fft: int, hop: int | None, length: int | None) -> tuple[int, int]:
    return n_fft // 4 if hop is None else hop, n_fft if length is None else length


@row
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Fourier transforms of parts of a signal, each multiplied with a window: (frequency, time)"""
    hop, length = _lengths(n_fft, hop_length, win_length)
    has_complex = any(x is not None and is_complex(x._dtype) for x in (input, window))
    if return_complex is None and not has_complex:
        raise RunError(
            "stft requires the return_complex parameter be given for real inputs",
            hint="return_complex=True, and view_as_real where pairs of numbers are wanted",
        )
    kind = input._dtype
    if not (is_float(kind) or is_complex(kind)):
        raise RunError("stft: expected a tensor of floating point or complex values")
    if input.ndim not in (1, 2):
        raise RunError(f"stft: expected a 1D or 2D tensor, got {input.ndim}D")
    if center and align_to_window is not None:
        raise RunError("stft align_to_window should only be set when center = false")
    one_sided = not has_complex if onesided is None else onesided
    if one_sided and has_complex:
        raise RunError("Cannot have onesided output if window or input is complex")
    signal = _centred(input, n_fft, pad_mode) if center else input
    if align_to_window and 0 < length < n_fft:
        left = (n_fft - length) // 2
        signal = constant_pad_nd(signal, (left, n_fft - length - left))
    _check_lengths("stft", signal._shape[-1], n_fft, hop, length)
    shape = _window("stft", window, length, n_fft, input)
    frames = mul(*promoted(unfold(signal, -1, n_fft, hop), shape))
    made = _spectrum(frames, n_fft, one_sided)
    if normalized:
        made = mul(made, 1 / math.sqrt(n_fft))
    made = transpose(made, -2, -1)
    return view_as_real(made) if return_complex is False else made


def _centred(input: Tensor, n_fft: int, mode: str) -> Tensor:
    """Half a frame more at both ends."""
    rank, half = input.ndim, n_fft // 2
    signal = input
    for _ in np.arange(3 - rank):
        signal = unsqueeze(signal, 0)
    signal = padded(signal, (half, half), mode)
    for _ in np.arange(3 - rank):
        signal = squeeze(signal, 0)
    return signal


def _check_lengths(name: str, size: int, n_fft: int, hop: int, length: int) -> None:
    if not 0 < n_fft <= size:
        raise RunError(f"{name}: expected 0 < n_fft < {size}, but got n_fft={n_fft}")
    if hop <= 0:
        raise RunError(f"{name}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise RunError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={length}")


def _spectrum(frames: Tensor, n_fft: int, one_sided: bool) -> Tensor:
    if not one_sided:
        return apply(_FFT, FourierAttrs(), [as_complex(frames)])[0]
    return apply(_RFFT, HalfFourierAttrs(n=n_fft), [of_known_kind(frames)])[0]


@row
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal whose `stft` is given: of windows that overlap, the mean by their squares"""
    hop, width = _lengths(n_fft, hop_length, win_length)
    _check_spectrum(input, n_fft, hop, width)
    one_sided = input._shape[-2] != n_fft if onesided is None else onesided
    complex_window = window is not None and is_complex(window._dtype)
    if complex_window and not return_complex:
        raise RunError("Complex windows are incompatible with return_complex=False")
    if return_complex and one_sided:
        raise RunError("Cannot have onesided output if window or input is complex")
    rows = n_fft // 2 + 1 if one_sided else n_fft
    if input._shape[-2] != rows:
        raise RunError(
            "istft: expected the frequency dimension of the input tensor to match n_fft / 2 + 1 "
            f"when onesided=True or n_fft otherwise, which is {rows}, got {input._shape[-2]}"
        )
    shape = _window("istft", window, width, n_fft, input)
    frames = _frames(transpose(input, -2, -1), n_fft, one_sided, return_complex)
    scale = 1 / math.sqrt(n_fft) if normalized else 1 / n_fft
    frames = mul(*promoted(mul(frames, scale), shape))
    batched = input.ndim == 3
    signal = _overlapped(frames if batched else unsqueeze(frames, 0), hop)
    count = input._shape[-1]
    squares = mul(shape, shape)
    whole = mul(squares, wrap(np.ones((1, count, 1), squares._dtype)))
    made = _cut(signal, _overlapped(whole, hop), n_fft, center, length)
    return made if batched else squeeze(made, 0)


def _check_spectrum(input: Tensor, n_fft: int, hop: int, width: int) -> None:
    if not is_complex(input._dtype):
        raise RunError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    if not input.numel():
        raise RunError("istft: input tensor cannot be empty.")
    if input.ndim not in (2, 3):
        raise RunError(f"istft: expected a tensor with 2 or 3 dimensions, got {input.ndim}")
    if not 0 < width <= n_fft:
        raise RunError("istft: expected 0 < win_length <= n_fft")
    if not 0 < hop <= width:
        raise RunError("istft: expected 0 < hop_length <= win_length")


def _frames(spectrum: Tensor, n_fft: int, one_sided: bool, keep_complex: bool) -> Tensor:
    """Where real numbers are asked for, the second half of a whole spectrum does not count."""
    if keep_complex:
        return apply(_FFT, FourierAttrs(inverse=True), [spectrum])[0]
    half = spectrum if one_sided else narrow(spectrum, -1, 0, n_fft // 2 + 1)
    return apply(_IRFFT, HalfFourierAttrs(n=n_fft, doubled=True), [half])[0]


def _overlapped(frames: Tensor, hop: int) -> Tensor:
    """The sum of frames that start a hop after each other: (item, frame, place) as (item, place)"""
    items, count, width = frames._shape
    size = width + hop * (count - 1)
    places = np.arange(count)[:, None] * hop + np.arange(width)
    places = np.arange(items)[:, None, None] * size + places
    return reshape(zeros_but((items * size,), places, frames), (items, size))


def _cut(signal: Tensor, squares: Tensor, n_fft: int, center: bool, length: int | None) -> Tensor:
    """The part that is asked for, divided by the sum of squared windows."""
    size = signal._shape[1]
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else size - start
    have = min(end, size) - start
    if have <= 0:
        raise RunError(f"istft: no element is left of {size}", why=f"they start at {start}")
    signal, squares = narrow(signal, 1, start, have), narrow(squares, 1, start, have)
    if np.abs(array_of(squares)).min() <= _LEAST:
        raise RunError(
            "istft: window overlap add min: 1", why="windows are zero at an element, of which nothing is known"
        )
    made = div(*promoted(signal, squares))
    if have == end - start:
        return made
    warnings.warn(
        "The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail.",
        stacklevel=4,
    )
    return constant_pad_nd(made, (0, end - start - have))
