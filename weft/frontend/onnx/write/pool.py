"""Writers of pools. Where ONNX counts windows or their elements in another way, the padding is
written out, and sums are divided by known numbers."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ....base.dtype import is_float
from ..writing import Writing, writes
from .layers import four, pair


class AxisWindows(NamedTuple):
    """The windows of a pool along one axis."""

    size: int
    stride: int
    dilation: int
    before: int
    after: int
    extent: int
    many: int
    rounded_up: bool

    @property
    def sticking_out(self) -> int:
        """How far the last window reaches behind the data; the padding, or more where windows are rounded up."""
        if not self.rounded_up:
            return self.after
        last = (self.many - 1) * self.stride + (self.size - 1) * self.dilation
        return max(last + 1 - self.before - self.extent, self.after)

    def elements(self, with_padding: bool) -> np.ndarray:
        """How many elements of each window count."""
        places = np.arange(self.many)[:, None] * self.stride - self.before
        places = places + np.arange(self.size) * self.dilation
        low, high = (-self.before, self.after) if with_padding else (0, 0)
        return np.asarray(np.count_nonzero((places >= low) & (places < self.extent + high), axis=1))


def _windows(w: Writing) -> list[AxisWindows]:
    params, pads = w.params, four(w.params.padding)
    axes = [params.layout.index(letter) for letter in "HW"]
    sizes = zip(pair(params.pool_size), pair(params.strides), pair(params.dilation))
    return [
        AxisWindows(*size, pads[i], pads[2 + i], w.shape[axis], w.outs[0].shape[axis], params.ceil_mode)
        for i, (axis, size) in enumerate(zip(axes, sizes))
    ]


@writes("max_pool2d")
def max_pool2d(w: Writing) -> None:
    rows = _windows(w)
    data = w.image()
    pads = [row.before for row in rows] + [row.sticking_out for row in rows]
    lowest = -math.inf if is_float(w.dtype) else np.iinfo(w.dtype).min
    if w.writer.op_of.get(data) == "Pad":
        # ONNX Runtime would take zeros that are padded before a MaxPool for padding of its own.
        data = w.node("Max", data, w.constant(lowest))
    if any(pad >= row.size for pad, row in zip(pads, rows * 2)):  # more than ONNX takes
        data, pads = _padded(w, data, pads, lowest), [0] * 4
    w.give_image(w.node("MaxPool", data, pads=pads, dilations=[row.dilation for row in rows], **_strides(rows)))


def _strides(rows: list[AxisWindows]) -> dict[str, list[int]]:
    return {"kernel_shape": [row.size for row in rows], "strides": [row.stride for row in rows]}


def _padded(w: Writing, data: str, pads: list[int], value: float) -> str:
    widths = w.ints([0, 0, *pads[:2], 0, 0, *pads[2:]])
    return w.node("Pad", data, widths, w.constant(value))


@writes("avg_pool2d")
def avg_pool2d(w: Writing) -> None:
    rows, include = _windows(w), w.params.count_include_pad
    w.require(is_float(w.dtype), "integers")
    data = w.image()
    plain = all(
        row.dilation == 1 and row.sticking_out == row.after and max(row.before, row.after) < row.size for row in rows
    )
    if plain:
        pads = [row.before for row in rows] + [row.after for row in rows]
        pooled = w.node("AveragePool", data, pads=pads, count_include_pad=include, **_strides(rows))
    else:
        pooled = _summed(w, data, rows)
        with np.errstate(divide="ignore"):
            shares = 1 / np.multiply.outer(*(row.elements(include) for row in rows))
        pooled = w.node("Mul", pooled, w.constant(shares))
    w.give_image(pooled)


def _summed(w: Writing, data: str, rows: list[AxisWindows]) -> str:
    """The sum of each window: a convolution of every channel by ones."""
    pads = [row.before for row in rows] + [row.sticking_out for row in rows]
    channels = w.shape[w.params.layout.index("C")]
    ones = w.constant(np.ones((channels, 1, *(row.size for row in rows))))
    return w.node(
        "Conv",
        _padded(w, data, pads, 0),
        ones,
        group=channels,
        dilations=[row.dilation for row in rows],
        **_strides(rows),
    )


@writes("global_avg_pool2d", "global_max_pool2d")
def global_pool2d(w: Writing) -> None:
    w.give_image(w.node("GlobalAveragePool" if w.op_name == "global_avg_pool2d" else "GlobalMaxPool", w.image()))


@writes("adaptive_avg_pool2d")
def adaptive_avg_pool2d(w: Writing) -> None:
    """P x Q^T, where each row of P and Q has the shares of one bin; one bin of all is a node of its own."""
    layout, size = w.params.layout, w.params.output_size
    if set(size) == {1}:
        w.give_image(w.node("GlobalAveragePool", w.image()))
        return
    height, width = (w.shape[layout.index(letter)] for letter in "HW")
    left, right = w.constant(_bins(height, size[0])), w.constant(_bins(width, size[-1]).T)
    w.give_image(w.node("MatMul", w.node("MatMul", left, w.image()), right))


def _bins(extent: int, count: int) -> np.ndarray:
    """Bin i is [floor(i extent / count), ceil((i + 1) extent / count))."""
    shares = np.zeros((count, extent))
    for i in range(count):
        low, high = i * extent // count, -(-(i + 1) * extent // count)
        shares[i, low:high] = 1 / (high - low)
    return shares
