"""Converters of signals: windows, Fourier transforms, and the matrix that sums frequencies by pitch.
Complex numbers are pairs along the last axis."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ....base.dtype import INT32
from ....base.errors import FormatError
from ....base.shape import normalize_axis
from ...building import in_float32
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of

# Windows.


def _count(call: OnnxCall, index: int, what: str, least: int = 1) -> int:
    """An input that says how many there are of something."""
    count = int(call.number(index, what))
    if count < least:
        raise FormatError(f"{what} is {count}", why=f"it must be {least} at least")
    return count


def _window(call: OnnxCall, weight: Callable[[np.ndarray], np.ndarray]) -> Value:
    """The weights at angles from 0 to 2 pi; a window that repeats itself leaves the last one out,
    and one that does not and has a single element is 1."""
    size = _count(call, 0, "the size of the window", least=0)
    call.check_table(size)
    dtype = dtype_of(call.attr("output_datatype"), "attribute 'output_datatype'")
    steps = size if call.attr("periodic") else size - 1
    angles = 2 * np.pi * (np.arange(size) / steps if steps else np.full(size, 0.5))
    return call.make(weight(angles).astype(dtype))


@converter("HannWindow", since=17, decides=(0,))
def hann_window(call: OnnxCall) -> Value:
    return _window(call, lambda angle: 0.5 - 0.5 * np.cos(angle))


@converter("HammingWindow", since=17, decides=(0,))
def hamming_window(call: OnnxCall) -> Value:
    return _window(call, lambda angle: (25 - 21 * np.cos(angle)) / 46)


@converter("BlackmanWindow", since=17, decides=(0,))
def blackman_window(call: OnnxCall) -> Value:
    return _window(call, lambda angle: 0.42 - 0.5 * np.cos(angle) + 0.08 * np.cos(2 * angle))


# Fourier transforms.


def _fitted(call: OnnxCall, value: Value, extents: dict[int, int]) -> Value:
    """The first elements along some axes, and zeros behind where there are fewer."""
    shape = call.shape(value)
    value = call.sliced(value, {axis: (0, min(shape[axis], extent), 1) for axis, extent in extents.items()})
    missing = [(0, extents.get(axis, dim) - dim) for axis, dim in enumerate(call.shape(value))]
    return call.op("pad", value, pad_width=tuple(missing)) if any(after for _, after in missing) else value


def _spectrum(call: OnnxCall, pairs: Value, length: int, onesided: bool) -> Value:
    """The transform along the last axis but one, after which the parts come: one or two of them."""
    rank, parts = call.rank(pairs), call.shape(pairs)[-1]
    if onesided and parts == 1:
        numbers = _fitted(call, pairs, {rank - 2: length})
        numbers = call.reshape(numbers, call.shape(numbers)[:-1])
        return call.op("view_as_real", call.op("rfft", numbers, n=length))
    whole = _full_spectrum(call, pairs, length, inverse=False)
    return call.sliced(whole, {rank - 2: (0, length // 2 + 1, 1)}) if onesided else whole


def _full_spectrum(call: OnnxCall, pairs: Value, length: int, inverse: bool) -> Value:
    rank = call.rank(pairs)
    numbers = call.op("view_as_complex", _fitted(call, pairs, {rank - 2: length, rank - 1: 2}))
    return call.op("view_as_real", call.op("fft", numbers, inverse=inverse))


def _signal(call: OnnxCall, pairs: Value, length: int, onesided: bool) -> Value:
    """The inverse of it; of one side, the real numbers that have it as their spectrum."""
    if not onesided:
        return call.scaled(_full_spectrum(call, pairs, length, inverse=True), 1 / length)
    rank = call.rank(pairs)
    half = call.op("view_as_complex", _fitted(call, pairs, {rank - 2: length // 2 + 1, rank - 1: 2}))
    numbers = call.scaled(call.op("irfft", half, n=length, doubled=True), 1 / length)
    return call.reshape(numbers, (*call.shape(numbers), 1))


def _checked_parts(call: OnnxCall, value: Value, least_rank: int) -> None:
    shape = call.shape(value, "the signal")
    if len(shape) < least_rank or shape[-1] not in (1, 2):
        raise FormatError(
            f"a signal of shape {shape}", why="the last axis holds a number's one or two parts, another the numbers"
        )


def _transform(call: OnnxCall, axis: int) -> Value:
    """Along any axis but the last."""
    data, inverse, onesided = call[0], bool(call.attr("inverse")), bool(call.attr("onesided"))
    _checked_parts(call, data, least_rank=2)
    rank, parts = call.rank(data), call.shape(data)[-1]
    axis = normalize_axis(axis, rank)
    if axis == rank - 1:
        raise FormatError("the transform is along the last axis", why="that one holds the parts of numbers")
    if onesided and parts != (2 if inverse else 1):
        raise FormatError(f"a one-sided transform of numbers with {parts} parts")
    extent = call.shape(data)[axis]
    usual = 2 * (extent - 1) if onesided and inverse else extent
    length = usual if call.get(1) is None else _count(call, 1, "the length of the transform")
    if length < 1:
        raise FormatError(f"a transform of length {length}")
    order = [*(a for a in range(rank - 1) if a != axis), axis, rank - 1]
    turned = (_signal if inverse else _spectrum)(call, call.transposed(data, order), length, onesided)
    return call.transposed(turned, np.argsort(order).tolist())


@converter("DFT", since=17, decides=(1,))
@in_float32
def dft_along_attribute(call: OnnxCall) -> Value:
    return _transform(call, call.attr("axis"))


@converter("DFT", since=20, decides=(1, 2))
@in_float32
def dft(call: OnnxCall) -> Value:
    return _transform(call, int(call.number(2, "the axis", -2)))


@converter("STFT", since=17, decides=(1, 3))
@in_float32
def stft(call: OnnxCall) -> Value:
    """The spectrum of every window of the signal; without a last axis the signal is real."""
    signal, window = call[0], call.get(2)
    if call.rank(signal) == 2:
        signal = call.reshape(signal, (*call.shape(signal), 1))
    _checked_parts(call, signal, least_rank=3)
    extent, step = call.shape(signal)[1], _count(call, 1, "the step between frames")
    usual = extent if window is None else call.extent(window, 0)
    length = usual if call.get(3) is None else _count(call, 3, "the length of a frame")
    if not 1 <= length <= extent or (window is not None and call.shape(window) != (length,)):
        raise FormatError(f"frames of {length} elements, in a signal of {extent} and by a window of {usual}")
    count = 1 + (extent - length) // step
    starts = call.scaled(call.positions(count, 0, 2, INT32), min(step, extent))
    places = call.op("broadcast_add", starts, call.positions(length, 1, 2, INT32))
    frames = call.op("take", signal, places, axis=1)
    if window is not None:
        frames = call.op("broadcast_mul", frames, call.reshape(window, (length, 1)))
    return _spectrum(call, frames, length, bool(call.attr("onesided")))


# Pitch.


@converter("MelWeightMatrix", since=17, decides=(0, 1, 2, 3, 4))
def mel_weight_matrix(call: OnnxCall) -> Value:
    """Triangles over the frequencies of a spectrum, one for each band: they begin where the one
    before has its peak of 1 and end where the next has it, and peaks are evenly spaced in pitch."""
    bands, length, rate = (
        _count(call, index, what)
        for index, what in enumerate(["the number of bands", "the length of the transform", "the sample rate"])
    )
    low, high = call.number(3, "the lower edge"), call.number(4, "the upper edge")
    if not 0 <= low <= high < np.inf:
        raise FormatError(f"frequencies from {low} to {high} hertz", why="they are not negative, and rise")
    rows = length // 2 + 1
    call.check_table(rows, bands + 2)
    pitch = np.linspace(_mel(low), _mel(high), bands + 2, endpoint=False)
    bins = np.floor((length + 1) * _hertz(pitch) / rate)
    if bins[-1] > rows:
        raise FormatError(f"{high} hertz is more than half of the sample rate, {rate}")
    start, peak, end = bins[:-2], bins[1:-1], bins[2:]
    row = np.arange(rows)[:, None]
    rising, falling = (row - start) / np.maximum(peak - start, 1), (end - row) / np.maximum(end - peak, 1)
    weights = np.where(row == peak, 1, np.maximum(np.minimum(rising, falling), 0))
    return call.make(weights.astype(dtype_of(call.attr("output_datatype"), "attribute 'output_datatype'")))


def _mel(hertz: float) -> float:
    return float(2595 * np.log10(1 + hertz / 700))


def _hertz(mel: np.ndarray) -> np.ndarray:
    return np.asarray(700 * (10 ** (mel / 2595) - 1))
