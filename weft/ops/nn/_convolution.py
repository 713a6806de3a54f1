"""Convolution in any layout: its geometry, and the three linear maps that forward and backward
passes are made of, each once in numpy (by matrix products) and once as te loops.

    forward  out[n,o,y,x]    = sum over i,p,q of data[n,i,y*s+p*d-pad,...] * weight[o,i,p,q]
    data     data[n,i,...]   = the transpose of that in data
    weight   weight[o,i,p,q] = the transpose of that in weight
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import DType, is_float
from ...base.errors import InvalidValue, LayoutError
from ...base.layout import Layout
from ...core.schema import Params
from .._families import Array
from .._layouts import logical_index, physical_index, rearrange
from ._windows import Window, Windows, fold, read, windows_of

NCHW, OIHW = Layout("NCHW"), Layout("OIHW")


class Convolution(NamedTuple):
    """What a convolution does, without the extents of its tensors."""

    windows: Windows
    groups: int
    data: Layout
    kernel: Layout
    out: Layout

    @property
    def bias(self) -> Layout:
        """C, split as the output's channels are."""
        parts = [(letter, size) for letter, size in self.out.axes if letter in "Cc"]
        return Layout("".join(f"{size or ''}{letter}" for letter, size in parts))


def convolution_of(params: Params) -> Convolution:
    """The geometry that attributes describe, checked."""
    data, kernel = Layout(params.layout), Layout(params.kernel_layout)
    out = Layout(getattr(params, "out_layout", "__undef__"))
    out = out if out.defined else data
    for layout, canonical in ((data, NCHW), (out, NCHW), (kernel, OIHW)):
        if not layout.convertible(canonical) or "h" in layout or "w" in layout:
            raise LayoutError(
                f"a convolution cannot have layout {layout}",
                why=f"it needs the axes {canonical} in some order, with H and W whole",
            )
    if params.channels % params.groups:
        raise InvalidValue(
            f"channels ({params.channels}) cannot be split in {params.groups} groups",
            why="the number of groups must divide it",
        )
    windows = windows_of(params.kernel_size, params.strides, params.padding, params.dilation)
    return Convolution(windows, params.groups, data, kernel, out)


# numpy. Data and outputs come in NCHW, weights in OIHW.


def _by_group(conv: Convolution, x: Array) -> Array:
    n, channels, height, width = x.shape
    return x.reshape(n, conv.groups, channels // conv.groups, height * width)


def _matrix(conv: Convolution, w: Array) -> Array:
    """(group, outputs of the group, taps)"""
    return w.reshape(conv.groups, w.shape[0] // conv.groups, w.size // w.shape[0])


def forward(conv: Convolution, x: Array, w: Array, outs: tuple[int, int] | None = None) -> Array:
    """Tap by tap, over the windows in which it stands on an element; all windows, or the first."""
    down, across = conv.windows
    extents: Any = tuple(win.out_extent(dim) for win, dim in zip(conv.windows, x.shape[2:]))
    rows, columns = outs or extents
    outputs = w.shape[0] // conv.groups
    filters = w.reshape(conv.groups, outputs, *w.shape[1:])
    total = np.zeros((x.shape[0], conv.groups, outputs, rows, columns), x.dtype)
    for p, q in np.ndindex(down.size, across.size):
        inside_rows, source_rows = down.inside_slices(p, rows, x.shape[2])
        inside_columns, source_columns = across.inside_slices(q, columns, x.shape[3])
        source = x[:, :, source_rows, source_columns]
        product = filters[..., p, q] @ _by_group(conv, source)
        shape = (*product.shape[:-1], *source.shape[2:])
        total[..., inside_rows, inside_columns] += product.reshape(shape)
    return total.reshape(x.shape[0], w.shape[0], rows, columns)


@np.errstate(all="ignore")
def transpose_in_data(conv: Convolution, g: Array, w: Array, extents: tuple[int, int]) -> Array:
    n, _, rows, columns = g.shape
    down, across = conv.windows
    taps = _matrix(conv, w).swapaxes(-1, -2) @ _by_group(conv, g)
    shape = (n, w.shape[1] * conv.groups, down.size, across.size, rows, columns)
    return fold(taps.reshape(shape).transpose(0, 1, 4, 5, 2, 3), conv.windows, extents)


@np.errstate(all="ignore")
def transpose_in_weight(conv: Convolution, g: Array, x: Array) -> Array:
    """Tap by tap, over the windows in which it stands on an element."""
    down, across = conv.windows
    outputs, channels = g.shape[1] // conv.groups, x.shape[1] // conv.groups
    total = np.zeros((conv.groups, outputs, channels, down.size, across.size), x.dtype)
    for p, q in np.ndindex(down.size, across.size):
        rows, source_rows = down.inside_slices(p, g.shape[2], x.shape[2])
        columns, source_columns = across.inside_slices(q, g.shape[3], x.shape[3])
        ours = _by_group(conv, g[:, :, rows, columns])
        theirs = _by_group(conv, x[:, :, source_rows, source_columns])
        total[..., p, q] = (ours @ theirs.swapaxes(-1, -2)).sum(axis=0)
    return total.reshape(g.shape[1], channels, down.size, across.size)


def whole(array: Array, layout: Layout, dtype: DType | None = None) -> Array:
    """An array in canonical layout, in a dtype that is safe to sum in."""
    dtype = array.dtype if dtype is None else dtype
    wide = np.float32 if is_float(dtype) and dtype.itemsize < 4 else dtype
    target = OIHW if "O" in layout else NCHW
    return rearrange(np.asarray(array).astype(wide, copy=False), layout, target)


# te. Tensors come in the layouts of the convolution; `shape` is the result's own.


def te_forward(conv: Convolution, x: te.Tensor, w: te.Tensor, shape: tuple[int, ...], dtype: DType) -> te.Tensor:
    """Padding is zeros like any others here: an infinite filter makes NaN of them."""
    extents = logical_extents(conv.data, x.shape)
    outs = logical_extents(conv.out, shape)
    channels, outputs = extents["C"] // conv.groups, outs["C"] // conv.groups
    data = te_padded(conv, x, extents, outs)
    axes = [
        te.reduce_axis(extent, name)
        for extent, name in zip((channels, *(win.size for win in conv.windows)), ("ic", "kh", "kw"))
    ]
    ic, *taps = (axis.var for axis in axes)

    def element(*indices: Any) -> Any:
        at = logical_index(conv.out, indices)
        source = {"N": at["N"], "C": _nth(at["C"], outputs, channels, conv, ic)}
        for letter, win, tap in zip("HW", conv.windows, taps):
            source[letter] = win.source(at[letter], tap) + win.before
        value = data[physical_index(conv.data, source)]
        tap_at = {"O": at["C"], "I": ic, "H": taps[0], "W": taps[1]}
        weight = w[physical_index(conv.kernel, tap_at)]
        return te.sum(te.cast(value, dtype) * te.cast(weight, dtype), axes)

    return te.compute(shape, element, name="conv2d")


def _padded_extent(win: Window, extent: Any, out: Any) -> Any:
    """How far windows reach from where the first one begins."""
    if te.stays_open(extent):
        return extent + (win.before + win.after)
    return max(extent + win.before, (out - 1) * win.stride + win.reach)


def te_padded(conv: Convolution, x: te.Tensor, extents: Mapping[str, int], outs: Mapping[str, int]) -> te.Tensor:
    """The data with zeros around it, as far as windows reach; the data itself if none is needed."""
    needed = {letter: _padded_extent(win, extents[letter], outs[letter]) for letter, win in zip("HW", conv.windows)}
    if all(needed[letter] == extents[letter] for letter in "HW"):
        return x
    where = {letter: conv.data.index_of(letter) for letter in "HW"}
    shape = list(x.shape)
    for letter, axis in where.items():
        shape[axis] = needed[letter]

    def element(*indices: Any) -> Any:
        index, conditions = list(indices), []
        for letter, win in zip("HW", conv.windows):
            place = indices[where[letter]] - win.before
            index[where[letter]] = place
            if needed[letter] != extents[letter]:
                conditions += [place >= 0, place < extents[letter]]
        return te.read_or(x, index, te.all_of(conditions), 0)

    return te.compute(shape, element, name="padded")


def te_transpose_in_data(
    conv: Convolution, g: te.Tensor, w: te.Tensor, shape: tuple[int, ...], dtype: DType
) -> te.Tensor:
    extents = logical_extents(conv.data, shape)
    outs = logical_extents(conv.out, g.shape)
    channels, outputs = extents["C"] // conv.groups, outs["C"] // conv.groups
    axes = [
        te.reduce_axis(extent, name)
        for extent, name in zip((outputs, *(win.size for win in conv.windows)), ("oc", "kh", "kw"))
    ]
    oc, *taps = (axis.var for axis in axes)

    def element(*indices: Any) -> Any:
        at = logical_index(conv.data, indices)
        output = _nth(at["C"], channels, outputs, conv, oc)
        source, conditions = {"N": at["N"], "C": output}, []
        for letter, win, tap in zip("HW", conv.windows, taps):
            source[letter], needed = win.window_of(at[letter], tap, outs[letter])
            conditions += needed
        value = read(g, physical_index(conv.out, source), conditions, 0)
        inner = at["C"] if conv.groups == 1 else at["C"] % channels
        weight = w[physical_index(conv.kernel, {"O": output, "I": inner, "H": taps[0], "W": taps[1]})]
        return te.sum(_product(value, weight, dtype, conditions), axes)

    return te.compute(shape, element, name="conv2d_grad_data")


def te_transpose_in_weight(
    conv: Convolution, g: te.Tensor, x: te.Tensor, shape: tuple[int, ...], dtype: DType
) -> te.Tensor:
    extents = logical_extents(conv.data, x.shape)
    outs = logical_extents(conv.out, g.shape)
    channels, outputs = extents["C"] // conv.groups, outs["C"] // conv.groups
    axes = [te.reduce_axis(outs[letter], name) for letter, name in zip("NHW", ("n", "oh", "ow"))]
    n, *places = (axis.var for axis in axes)

    def element(*indices: Any) -> Any:
        at = logical_index(conv.kernel, indices)
        grad = g[physical_index(conv.out, {"N": n, "C": at["O"], "H": places[0], "W": places[1]})]
        channel = _nth(at["O"], outputs, channels, conv, at["I"])
        source, conditions = {"N": n, "C": channel}, []
        for letter, win, place in zip("HW", conv.windows, places):
            source[letter] = win.source(place, at[letter])
            conditions += win.inside(source[letter], extents[letter], outs[letter])
        value = read(x, physical_index(conv.data, source), conditions, 0)
        return te.sum(_product(grad, value, dtype, conditions), axes)

    return te.compute(shape, element, name="conv2d_grad_weight")


def _product(a: Any, b: Any, dtype: DType, conditions: Sequence[te.Expr]) -> Any:
    """a * b where the conditions hold, else 0, which 0 * infinity is not."""
    value, condition = te.cast(a, dtype) * te.cast(b, dtype), te.all_of(conditions)
    return value if condition is None else te.select(condition, value, te.as_expr(0, dtype))


def _nth(place: Any, size: int, other_size: int, conv: Convolution, offset: Any) -> Any:
    """The offset's channel on the other side of the convolution, in the group of a channel."""
    return offset if conv.groups == 1 else place // size * other_size + offset


def logical_extents(layout: Layout, shape: tuple[int, ...]) -> dict[str, int]:
    """Extents by letter, blocks counted in."""
    canonical = OIHW if "O" in layout else NCHW
    whole_shape: Any = layout.convert_shape(shape, canonical)
    return {letter: whole_shape[i] for i, (letter, _) in enumerate(canonical.axes)}
