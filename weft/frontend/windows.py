"""Windows that move over any number of axes, of convolutions and pools, by operators on images:
lines are images of one row, and volumes are gone through axis by axis."""

from __future__ import annotations

from functools import partial, reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import INT64
from ..base.errors import FormatError
from ..base.shape import mul_dims
from .building import Building
from .emitter import Value


class Windows(NamedTuple):
    """One number for each spatial axis, and two of padding: those before, then those behind."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def reach(self) -> tuple[int, ...]:
        """How many neighbouring elements a window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation))

    @property
    def sides(self) -> tuple[tuple[int, int], ...]:
        """The padding before and behind, axis by axis."""
        count = len(self.kernel)
        return tuple(zip(self.pads[:count], self.pads[count:]))

    def along(self, *axes: int) -> Windows:
        """The windows along some axes only."""
        count = len(self.kernel)
        kernel, strides, dilation = (tuple(row[a] for a in axes) for row in (self.kernel, self.strides, self.dilation))
        return Windows(kernel, strides, tuple(self.pads[a] for a in (*axes, *(a + count for a in axes))), dilation)

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


# Convolutions.


def convolved(
    call: Building, op: str, data: Value, weight: Value, bias: Value | None, windows: Windows, **attrs: Any
) -> Value:
    """A convolution, or a transposed one; what it adds to the output, `output_padding`, is one
    number an axis."""
    count = len(windows.kernel)
    if count > 2:
        deep = _convolved_volumes if op == "conv2d" else _spread_volumes
        return deep(call, op, data, weight, bias, windows, **attrs)
    if count == 1 and "output_padding" in attrs:
        attrs["output_padding"] = (0, *attrs["output_padding"])
    inputs = [as_image(call, value, count) for value in (data, weight)]
    inputs += [] if bias is None else [bias]
    outcome = call.op(op, *inputs, use_bias=bias is not None, **windows.attrs("kernel_size"), **attrs)
    return as_line(call, outcome, count)


def _convolved_volumes(
    call: Building, op: str, data: Value, weight: Value, bias: Value | None, windows: Windows, **attrs: Any
) -> Value:
    """One axis less: the places along the first are items of the batch, its taps are channels."""
    n, c, extent, *rest = call.dims(data)
    (k, *kernel), stride, step, reach = windows.kernel, windows.strides[0], windows.dilation[0], windows.reach[0]
    if isinstance(extent, int) and extent + sum(windows.sides[0]) < reach:
        raise FormatError(f"a kernel that reaches over {reach} for an extent of {extent}")
    data = padded(call, data, {2: windows.sides[0]})
    taps = [_cut(call, data, {2: (t * step, reach - 1 - t * step, stride)}) for t in range(k)]
    stacked = call.op("stack", *taps, axis=2)  # (n, c, k, out, ...)
    out = call.dims(stacked)[3]
    moved = call.op("transpose", stacked, axes=(0, 3, 1, 2, *range(4, 4 + len(rest))))
    flat = call.reshape(moved, (mul_dims(n, out), mul_dims(c, k), *rest))
    filters, channels = call.shape(weight)[:2]
    weight = call.reshape(weight, (filters, channels * k, *kernel))
    flat = convolved(call, op, flat, weight, bias, windows.along(*range(1, len(windows.kernel))), **attrs)
    return _as_second(call, call.reshape(flat, (n, out, *call.dims(flat)[1:])))


def _spread_volumes(
    call: Building, op: str, data: Value, weight: Value, bias: Value | None, windows: Windows, **attrs: Any
) -> Value:
    """The transpose: channels become the taps along the first axis, which are then put in their places."""
    n, c, extent, *rest = call.dims(data)
    k, channels = windows.kernel[0], attrs.pop("channels")
    more, *others = attrs.pop("output_padding", (0,) * len(windows.kernel))
    flat = call.reshape(_as_second(call, data), (mul_dims(n, extent), c, *rest))
    size, many, _, *kernel = call.shape(weight)
    weight = call.reshape(weight, (size, many * k, *kernel))
    inner = windows.along(*range(1, len(windows.kernel)))
    flat = convolved(call, op, flat, weight, None, inner, channels=channels * k, output_padding=tuple(others), **attrs)
    taps = call.reshape(flat, (n, extent, channels, k, *call.dims(flat)[2:]))
    moved = call.op("transpose", taps, axes=(0, 2, 3, 1, *range(4, 4 + len(rest))))
    total = _spread(call, moved, windows.along(0), more)
    if bias is None:
        return total
    return call.op("broadcast_add", total, call.reshape(bias, (channels, *[1] * (len(rest) + 1))))


def _spread(call: Building, taps: Value, windows: Windows, more: int) -> Value:
    """Results along one axis from (n, c, taps, sources, ...). Every stride-th result has the same taps, which stand on
    sources side by side: these are added up, and results of all rests are interleaved."""
    (k,), (stride,), _, (step,) = windows
    ((before, behind),), (reach,) = windows.sides, windows.reach
    longer = reach - stride - before - behind + more  # than stride times the sources
    turns = -(-longer // stride)  # of each rest, beyond one for each source
    places = [
        [(tap, at // stride) for tap, at in enumerate(range(start, start - k * step, -step)) if at % stride == 0]
        for start in range(before, before + stride)
    ]
    offsets = [offset for row in places for _, offset in row]
    first, last = max(-min(offsets), 0), max(turns + max(offsets), 0)
    taps = padded(call, taps, {3: (first, last)})
    sums = []
    for row in places:
        parts = [_cut(call, taps, {2: (t, k - 1 - t), 3: (first + at, last - at - turns)}) for t, at in row]
        sums.append(reduce(partial(call.op, "elemwise_add"), parts) if parts else None)
    made = next(one for one in sums if one is not None)
    shape = n, c, _, many, *rest = call.told(call.dims(made))
    dense = [call.zeros(shape, call.dtype(made)) if one is None else one for one in sums]
    whole = dense[0] if stride == 1 else call.op("stack", *dense, axis=4)
    whole = call.reshape(whole, (n, c, mul_dims(many, stride), *rest))
    return _cut(call, whole, {2: (0, turns * stride - longer)})


def _cut(call: Building, value: Value, parts: dict[int, tuple[int, ...]]) -> Value:
    """Along some axes the elements from the first on, without so many behind, every stride-th of them."""
    if all(part in ((0, 0), (0, 0, 1)) for part in parts.values()):
        return value
    rows = [(*parts.get(axis, (0, 0)), 1)[:3] for axis in range(max(parts) + 1)]
    begin, behind, stride = zip(*rows)
    end = tuple(-count if count else 2**31 - 1 for count in behind)
    return call.op("strided_slice", value, begin=begin, end=end, stride=stride)


def _as_second(call: Building, value: Value) -> Value:
    """The second and third axes swapped."""
    return call.op("transpose", value, axes=(0, 2, 1, *range(3, call.rank(value))))


def folded(call: Building, value: Value, axis: int, windows: Windows, out: int) -> Value:
    """The transpose of cutting windows from one axis: the taps, along `axis`, of the windows along the
    next one are added up where they stand in an axis of `out` elements."""
    taps, many, *rest = call.shape(value)[axis:]
    (stride,), (step,), (reach,), ((before, _),) = windows.strides, windows.dilation, windows.reach, windows.sides
    places = np.arange(taps)[:, None] * step + np.arange(many) * stride
    extent = max((many - 1) * stride + reach, before + out)
    like = call.op("zeros", shape=(*call.shape(value)[:axis], extent, *rest), dtype=call.dtype(value))
    whole = call.op("_take_grad", value, like, call.make(places, INT64), axis=axis)
    return call.sliced(whole, {axis: (before, before + out, 1)})


def padded(call: Building, value: Value, sides: dict[int, tuple[int, int]], fill: float = 0.0) -> Value:
    """Elements before and behind along some axes, or nothing where there are none."""
    if not any(before or behind for before, behind in sides.values()):
        return value
    widths = tuple(sides.get(axis, (0, 0)) for axis in range(call.rank(value)))
    return call.op("pad", value, pad_width=widths, pad_value=fill)


# Pools.


def pooled(call: Building, op: str, data: Value, windows: Windows, ceil: bool, **attrs: Any) -> Value:
    """A pool over any number of axes: over the last two, then over those before."""

    def of_images(image: Value, inner: Windows) -> Value:
        return call.op(op, image, **inner.attrs("pool_size"), ceil_mode=ceil, **attrs)

    (outcome,) = _by_images(call, [data], windows, lambda values, inner: [of_images(values[0], inner)])
    return outcome


def largest_with_places(call: Building, data: Value, places: Value, windows: Windows, ceil: bool) -> list[Value]:
    """The largest element of every window, and which of the places stands on the first of them."""

    def of_images(values: list[Value], inner: Windows) -> list[Value]:
        image, where = values
        attrs: dict[str, Any] = {**inner.attrs("pool_size"), "ceil_mode": ceil}
        best = call.op("max_pool2d", image, **attrs)
        return [best, call.op("_max_pool2d_pick", where, image, best, **attrs)]

    return _by_images(call, [data, places], windows, of_images)


def _by_images(call: Building, values: list[Value], windows: Windows, of_images: Any) -> list[Value]:
    """What is separable done to the last two axes, then with those as one to the axes before."""
    count = len(windows.kernel)
    if count == 1:
        images = of_images([as_image(call, value, 1) for value in values], windows)
        return [as_line(call, image, 1) for image in images]
    if count == 2:
        return list(of_images(values, windows))
    n, c, *depths, height, width = call.dims(values[0])
    flat = [call.reshape(value, (n, mul_dims(c, *depths), height, width)) for value in values]
    flat = of_images(flat, windows.along(count - 2, count - 1))
    rows, columns = call.dims(flat[0])[2:]
    deep = [call.reshape(value, (n, c, *depths, mul_dims(rows, columns))) for value in flat]
    outer = windows.along(*range(count - 2))
    pads = (*outer.pads[: count - 2], 0, *outer.pads[count - 2 :], 0)
    kernel, strides, dilation = ((*row, 1) for row in (outer.kernel, outer.strides, outer.dilation))
    deep = _by_images(call, deep, Windows(kernel, strides, pads, dilation), of_images)
    return [call.reshape(value, (*call.dims(value)[:-1], rows, columns)) for value in deep]


def window_sums(call: Building, data: Value, windows: Windows, ceil: bool) -> Value:
    """The sum of every window, in which padding is 0: a mean of windows that are all full, times
    their size."""
    sides = {}
    for axis, dim in enumerate(call.shape(data)[2:]):
        (before, behind), stride, reach = windows.sides[axis], windows.strides[axis], windows.reach[axis]
        whole = dim + before + behind - reach
        steps = -(-whole // stride) if ceil else whole // stride
        if ceil and steps * stride >= dim + before:  # a window that would begin behind the data
            steps -= 1
        sides[2 + axis] = (before, max(steps * stride + reach - dim - before, 0))
    whole_windows = windows._replace(pads=(0,) * len(windows.pads))
    means = pooled(call, "avg_pool2d", padded(call, data, sides), whole_windows, False)
    return call.scaled(means, float(prod(windows.kernel)))
