"""Windows that move over images, of convolutions and pools: lines are images of one row."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..base.errors import FormatError
from .building import Building
from .emitter import Value


class Windows(NamedTuple):
    """One number for each spatial axis, and two of padding: those before, then those behind."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]

    def attrs(self, kernel_name: str) -> dict[str, tuple[int, ...]]:
        """As attributes of operators on images."""
        kernel, strides, pads, dilation = self
        if len(kernel) == 1:
            kernel, strides, dilation = (1, *kernel), (1, *strides), (1, *dilation)
            pads = (0, pads[0], 0, pads[1])
        return {kernel_name: kernel, "strides": strides, "padding": pads, "dilation": dilation}


def per_axis(call: Building, name: str, count: int, default: int) -> tuple[int, ...]:
    """An attribute with one number for each spatial axis."""
    numbers = tuple(call.attr(name) or (default,) * count)
    if len(numbers) != count or any(item is None or item < 0 for item in numbers):
        raise FormatError(f"{name} {numbers}, which is not one number for each of {count}")
    return numbers


def as_image(call: Building, value: Value, count: int) -> Value:
    """(n, c, length) as (n, c, 1, length), where there is one spatial axis."""
    return call.op("expand_dims", value, axis=2) if count == 1 else value


def as_line(call: Building, value: Value, count: int) -> Value:
    """The way back."""
    return call.op("squeeze", value, axis=(2,)) if count == 1 else value


def convolved(
    call: Building, op: str, data: Value, weight: Value, bias: Value | None, windows: Windows, **attrs: Any
) -> Value:
    """A convolution of images or lines, or a transposed one."""
    count = len(windows.kernel)
    inputs = [as_image(call, value, count) for value in (data, weight)]
    inputs += [] if bias is None else [bias]
    outcome = call.op(op, *inputs, use_bias=bias is not None, **windows.attrs("kernel_size"), **attrs)
    return as_line(call, outcome, count)


def pooled(call: Building, op: str, data: Value, windows: Windows, ceil: bool, **attrs: Any) -> Value:
    """A pool of images or lines."""
    count = len(windows.kernel)
    outcome = call.op(op, as_image(call, data, count), **windows.attrs("pool_size"), ceil_mode=ceil, **attrs)
    return as_line(call, outcome, count)
