"""Windows that slide over the last two axes of a tensor, for convolutions and pools.

Comes in: sizes, strides, padding and dilation as attributes. Goes out: output extents, numpy views
of all windows and their transpose, and te indices with the conditions under which they are inside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.errors import InvalidValue, ShapeError
from ...base.shape import Dim, add_dims, ceil_div_dims, floor_div_dims, max_dims, min_dims, sub_dims
from .._families import Array


class Window(NamedTuple):
    """A window along one axis."""

    size: int
    stride: int = 1
    before: int = 0  # padding
    after: int = 0
    dilation: int = 1

    @property
    def reach(self) -> int:
        """How many neighbouring elements a window spans."""
        return (self.size - 1) * self.dilation + 1

    def out_extent(self, extent: Dim, ceil: bool = False, what: str = "kernel") -> Dim:
        """How many windows fit; with `ceil`, a last one may stick out, if it starts inside."""
        if extent is None or isinstance(extent, str):
            return self._open_extent(extent, ceil)
        padded = extent + self.before + self.after
        if padded < self.reach:
            raise ShapeError(f"{what} size ({self.reach}) exceeds input ({extent} padded to {padded})")
        if not ceil:
            return (padded - self.reach) // self.stride + 1
        count = -((self.reach - padded) // self.stride) + 1
        return count - 1 if (count - 1) * self.stride >= extent + self.before else count

    def _open_extent(self, extent: Dim, ceil: bool) -> Dim:
        """The same for an expression."""
        steps = add_dims(extent, self.before + self.after - self.reach)
        if not ceil:
            return add_dims(floor_div_dims(steps, self.stride), 1)
        count = add_dims(ceil_div_dims(steps, self.stride), 1)
        inside = ceil_div_dims(add_dims(extent, self.before), self.stride)  # windows that start there
        return max_dims(sub_dims(count, 1), min_dims(count, inside))

    def in_extent(self, out: Dim) -> Dim:
        """The extent that gives that many windows, where only one does."""
        if self.stride != 1:
            return None
        extent = add_dims(out, self.reach - 1 - self.before - self.after)
        return extent if isinstance(extent, str) or (isinstance(extent, int) and extent >= 0) else None

    def source(self, window: Any, tap: Any) -> Any:
        """The input position of a tap of a window; it may be in the padding."""
        place = window if self.stride == 1 else window * self.stride
        if self.size > 1:
            place = place + (tap if self.dilation == 1 else tap * self.dilation)
        return place if self.before == 0 else place - self.before

    def inside(self, place: te.Expr, extent: int, out: int) -> list[te.Expr]:
        """The conditions for a source position to be no padding, if any are needed."""
        last = (out - 1) * self.stride + self.reach - 1 - self.before
        low = [place >= 0] if self.before > 0 else []
        may_pass = self.after > 0 and te.stays_open(extent)
        return low + ([place < extent] if may_pass or last >= extent else [])

    def inside_slices(self, tap: int, out: int, extent: int) -> tuple[slice, slice]:
        """The windows in which a tap is no padding, and the positions it stands on in them."""
        start = tap * self.dilation - self.before
        first = max(-(start // self.stride), 0)
        count = max(min(out, (extent - 1 - start) // self.stride + 1) - first, 0)
        begin = start + first * self.stride if count else 0
        return (slice(first, first + count), slice(begin, begin + count * self.stride, self.stride))

    def window_of(self, place: Any, tap: Any, out: int) -> tuple[te.Expr, list[te.Expr]]:
        """The window in which a tap stands on an input position, and the conditions for one."""
        start = place + (self.before - tap * self.dilation)
        window = start if self.stride == 1 else start // self.stride
        conditions = [] if self.stride == 1 else [(start % self.stride).equal(0)]
        return window, [*conditions, window >= 0, window < out]


Windows = tuple[Window, Window]


def windows_of(
    size: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    what: str = "kernel_size",
) -> Windows:
    """The windows along height and width, from attributes as operators have them."""
    heights_widths = [_pair(size, what), _pair(strides, "strides"), _pair(dilation, "dilation")]
    top, left, bottom, right = four_pads(padding)
    (kh, kw), (sh, sw), (dh, dw) = heights_widths
    return Window(kh, sh, top, bottom, dh), Window(kw, sw, left, right, dw)


def _pair(values: Sequence[int], what: str) -> tuple[int, int]:
    if len(values) not in (1, 2) or min(values) < 1:
        raise InvalidValue(f"{what} cannot be {tuple(values)}", why="it is two positive numbers")
    return values[0], values[-1]


def four_pads(padding: Sequence[int]) -> tuple[int, int, int, int]:
    """top, left, bottom, right, from one, two or four numbers."""
    if len(padding) not in (1, 2, 4) or min(padding) < 0:
        raise InvalidValue(
            f"padding cannot be {tuple(padding)}",
            why="it is one number for all sides, two (height, width), or four (top, left, bottom, "
            "right), none negative",
        )
    if len(padding) == 4:
        return padding[0], padding[1], padding[2], padding[3]
    return padding[0], padding[-1], padding[0], padding[-1]


def read(tensor: te.Tensor, index: Sequence[Any], conditions: Sequence[te.Expr], fill: Any) -> Any:
    """An element, or the fill where a condition does not hold."""
    return te.read_or(tensor, index, te.all_of(conditions), fill)


# numpy: all windows of an array's last two axes at once.


def window_view(x: Array, windows: Windows, outs: tuple[int, int], fill: Any = 0) -> Array:
    """(..., H, W) as (..., rows of windows, columns of windows, taps down, taps across)."""
    needed = [(out - 1) * w.stride + w.reach for w, out in zip(windows, outs)]
    pads = [(w.before, max(0, need - extent - w.before)) for w, need, extent in zip(windows, needed, x.shape[-2:])]
    if any(before or after for before, after in pads):
        x = np.pad(x, [(0, 0)] * (x.ndim - 2) + pads, constant_values=fill)
    x = x[..., : needed[0], : needed[1]]
    down, across = windows
    view = np.lib.stride_tricks.sliding_window_view(x, (down.reach, across.reach), (-2, -1))
    return view[..., :: down.stride, :: across.stride, :: down.dilation, :: across.dilation]


@np.errstate(all="ignore")
def fold(taps: Array, windows: Windows, extents: tuple[int, int]) -> Array:
    """The transpose of `window_view`: every tap is added to the element it stands on."""
    down, across = windows
    rows, columns = taps.shape[-4:-2]
    sizes = [
        max((out - 1) * w.stride + w.reach, extent + w.before)
        for w, out, extent in zip(windows, (rows, columns), extents)
    ]
    total = np.zeros((*taps.shape[:-4], *sizes), taps.dtype)
    for i in range(down.size):
        for j in range(across.size):
            total[..., _steps(down, i, rows), _steps(across, j, columns)] += taps[..., i, j]
    height, width = extents
    return total[..., down.before : down.before + height, across.before : across.before + width]


def _steps(window: Window, tap: int, out: int) -> slice:
    start = tap * window.dilation
    return slice(start, start + (out - 1) * window.stride + 1, window.stride)
