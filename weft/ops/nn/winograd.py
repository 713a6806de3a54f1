"""3x3 convolution with fewer multiplications: tiles of m x m outputs from (m+2) x (m+2) inputs.

    Y = A^T [ (G g G^T) * (B^T d B) ] A          (Winograd; * is element by element)

The product is summed over input channels before A is applied, so it is (m+2)^2 matrix products.
A build puts these operators in place of conv2d, after gradients are taken: they have none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.dtype import FLOAT64
from ...base.errors import ShapeError
from ...base.layout import Layout
from ...base.shape import add_dims, floor_div_dims, mul_dims, show, unify_dim
from ...core.schema import BOOL, INT, INTS, attr, schema
from .. import _layouts as layouts
from .._families import OUT_FUSABLE, Array, define, ranked
from .._kernels import Body

NCHW = Layout("NCHW")


# The transforms evaluate polynomials at 0, at these points, at their negatives and at infinity. Of
# all pairs of short numbers these two round least: the error is 0.4 of what 1 and 2 give. Their
# powers up to the third are exact in float32.
POINTS: dict[int, tuple[float, ...]] = {2: (1.0,), 4: (5 / 8, 3 / 2)}


def input_transform(m: int, d: Sequence[Any], keep: Callable[[Any], Any]) -> list[Any]:
    """B^T d: sums of d over the coefficients of prod (x^2 - q^2) x, over all points q but the row's
    own. Even and odd powers are shared by a point and its negative. `keep` sees every step.

    >>> input_transform(2, (1, 10, 100, 1000), keep=lambda step: step)
    [99, 110, 90, 990]
    """
    squares = [p * p for p in POINTS[m]]
    whole = _with_roots(squares)
    rows = [_sum(whole, d[0::2], keep)]
    for p in POINTS[m]:
        others = _with_roots([q for q in squares if q != p * p])
        even, odd = _sum(others, d[2::2], keep), _sum(others, d[1:-1:2], keep)
        rows += [keep(_plus(even, p, odd)), keep(_plus(even, -p, odd))]
    return [*rows, _sum(whole, d[1::2], keep)]


def output_transform(m: int, values: Sequence[Any], keep: Callable[[Any], Any]) -> list[Any]:
    """A^T values: row k is the sum of p^k times the value at p, the last with that at infinity.

    >>> output_transform(2, (1, 10, 100, 1000), keep=lambda step: step)
    [111, 910]
    """
    pairs = list(zip(values[1::2], values[2::2]))
    folded = [[keep(a + b) for a, b in pairs], [keep(a - b) for a, b in pairs]]
    rows = []
    for k in range(m):
        total = values[0] if k == 0 else values[-1] if k == m - 1 else None
        for p, value in reversed(list(zip(POINTS[m], folded[k % 2]))):
            total = keep(value * p**k if total is None else _plus(total, p**k, value))
        rows.append(total)
    return rows


def _with_roots(roots: Sequence[float]) -> list[float]:
    """The coefficients of prod (x - root), lowest power first."""
    coefficients = [1.0]
    for root in roots:
        coefficients = [low - root * high for low, high in zip([0.0, *coefficients], [*coefficients, 0.0])]
    return coefficients


def _sum(factors: Sequence[float], values: Sequence[Any], keep: Callable[[Any], Any]) -> Any:
    """The sum of factor * value; the last factor is 1."""
    total = values[-1]
    for factor, value in zip(factors[-2::-1], values[-2::-1]):
        total = keep(_plus(total, factor, value))
    return total


def _plus(total: Any, factor: float, value: Any) -> Any:
    if factor == 1:
        return total + value
    return total - value if factor == -1 else total + value * factor


class Transform(NamedTuple):
    """The three matrices of F(m x m, 3 x 3)."""

    inputs: Array  # B^T
    weight: Array  # G
    outputs: Array  # A^T


def _matrices(m: int) -> Transform:
    """G has (1, p, p^2) / prod (p - q) over the other finite points q, and (0, 0, 1)."""
    unit = list(np.eye(m + 2))
    points = [0.0, *(sign * p for p in POINTS[m] for sign in (1, -1))]
    g = [[p**k / np.prod([p - q for q in points if q != p]) for k in range(3)] for p in points]
    return Transform(
        np.array(input_transform(m, unit, keep=lambda step: step)),
        np.array([*g, [0, 0, 1]]),
        np.array(output_transform(m, unit, keep=lambda step: step)),
    )


TRANSFORMS: dict[int, Transform] = {m: _matrices(m) for m in POINTS}


@schema
class WinogradWeightAttrs:
    tile: int = attr(INT, "outputs of a tile in each direction: 2 or 4", low=2, high=4)
    lanes: int = attr(INT, "output channels in a block", low=1)
    turned: bool = attr(BOOL, "whether channels are swapped and taps reversed first, as for gradients", default=False)


def _weight_shape(params: WinogradWeightAttrs, ins: Any, outs: Any) -> Any:
    if ins[0] is None:
        return [None], [None]
    if len(ins[0]) != 4:
        raise ShapeError(f"filters have four dimensions, not {show(ins[0])}")
    outputs, inputs, *window = ins[0]
    if params.turned:
        outputs, inputs = inputs, outputs
    if any(isinstance(d, int) and d != 3 for d in window) or (isinstance(outputs, int) and outputs % params.lanes):
        raise ShapeError(f"3x3 filters in blocks of {params.lanes} cannot be {show(ins[0])}")
    blocks = floor_div_dims(outputs, params.lanes)
    return [None], [((params.tile + 2) ** 2, blocks, inputs, params.lanes)]


def _weight_reference(params: WinogradWeightAttrs, w: Array) -> Array:
    """The points of G g G^T are kron(G, G) times the elements of g: a matrix product a block."""
    if params.turned:
        w = w.swapaxes(0, 1)[:, :, ::-1, ::-1]
    outputs, inputs = w.shape[:2]
    g = TRANSFORMS[params.tile].weight
    transform = np.kron(g, g)
    blocks = w.reshape(outputs // params.lanes, params.lanes, inputs, 9)
    packed = np.empty((len(transform), len(blocks), inputs, params.lanes), w.dtype)
    for number, block in enumerate(blocks.transpose(0, 3, 2, 1)):
        columns = block.astype("float64", order="C").reshape(9, inputs * params.lanes)
        packed[:, number] = (transform @ columns).reshape(packed.shape[0], inputs, params.lanes)
    return packed


def _weight_kernels(params: WinogradWeightAttrs, inputs: Any, outputs: Any) -> Any:
    """G g G^T in float64, as the reference does, of a block of filters side by side."""
    (((*channels, _, _), _),) = inputs
    outs, depth = channels[::-1] if params.turned else channels
    blocks, points = outs // params.lanes, (params.tile + 2) ** 2
    body = Body("winograd_weight", inputs, outputs)
    views = {0: (*channels, 3, 3), 1: (points, blocks, depth, params.lanes)}
    kernel = body.kernel(views, work=outs * depth * points)
    with kernel as (b, w, out), b.parallel("block", blocks) as block, b.loop("i", depth) as i:
        _transform_block(b, params, (w, out), block, i)
    return body.kernels


def _transform_block(
    b: te.KernelBuilder, params: WinogradWeightAttrs, buffers: tuple[te.Buffer, te.Buffer], block: te.Expr, i: te.Expr
) -> None:
    """The filters of one input channel and of a block of output channels."""
    (w, out), g = buffers, TRANSFORMS[params.tile].weight.tolist()
    with b.vector("lane", params.lanes) as lane:
        o = block * params.lanes + lane

        def tap(p: int, q: int) -> te.Expr:
            return w[i, o, 2 - p, 2 - q] if params.turned else w[o, i, p, q]

        square = [[b.let("g", te.cast(tap(p, q), FLOAT64)) for q in range(3)] for p in range(3)]
        for x, row in enumerate(g):
            line = [b.let("h", _dot(row, column)) for column in zip(*square)]
            for y, other in enumerate(g):
                b.store(out, (x * len(g) + y, block, i, lane), te.cast(_dot(other, line), out.dtype))


def _dot(factors: Any, values: Any) -> Any:
    return sum(value * factor for factor, value in zip(factors, values) if factor)


winograd_weight = define(
    "_winograd_weight",
    "G g G^T of every filter: out[point, o // lanes, i, o % lanes].",
    attrs=WinogradWeightAttrs,
    shape=_weight_shape,
    reference=_weight_reference,
    kernels=_weight_kernels,
)


@schema
class WinogradConv2DAttrs:
    channels: int = attr(INT, "number of output channels", low=1)
    padding: tuple[int, ...] = attr(INTS, "zeros around: (top, left, bottom, right)", low=0)
    crop: tuple[int, ...] = attr(INTS, "outputs left out: (bottom, right)", default=(0, 0), low=0)
    tile: int = attr(INT, "outputs of a tile in each direction: 2 or 4", low=2, high=4)
    lanes: int = attr(INT, "channels in a block, of the data and of the output", low=1)
    use_bias: bool = attr(BOOL, "whether there is a bias", default=True)


def _conv_shape(params: WinogradConv2DAttrs, ins: Any, outs: Any) -> Any:
    if ins[0] is None:
        return [None] * len(ins), [None]
    n, blocks, height, width, lanes = ranked(ins[0], 5, "the data")
    points, outputs, inputs, lanes_of_filters = ranked(ins[1], 4, "the filters")
    unify_dim(points, (params.tile + 2) ** 2)
    unify_dim(outputs, params.channels // params.lanes)
    unify_dim(mul_dims(blocks, params.lanes), inputs)
    unify_dim(unify_dim(lanes, lanes_of_filters), params.lanes)
    top, left, bottom, right = params.padding
    rows = add_dims(height, top + bottom - 2 - params.crop[0])
    columns = add_dims(width, left + right - 2 - params.crop[1])
    if any(isinstance(extent, int) and extent < 1 for extent in (rows, columns)):
        raise ShapeError(f"{show(ins[0])} with padding {params.padding} is too small for 3x3")
    bias = (params.channels // params.lanes, params.lanes)
    out = (n, params.channels // params.lanes, rows, columns, lanes)
    return [None, None, bias][: len(ins)], [out]


def _conv_layout(params: WinogradConv2DAttrs, ins: Any, last: Any, outs: Any) -> Any:
    data, bias = Layout(f"NCHW{params.lanes}c"), Layout(f"C{params.lanes}c")
    return [data, Layout(), bias][: len(ins)], [data]


def _conv_reference(params: WinogradConv2DAttrs, x: Array, u: Array, *bias: Array) -> Array:
    m, t = params.tile, params.tile + 2
    blocked = Layout(f"NCHW{params.lanes}c")
    data = layouts.rearrange(x, blocked, NCHW)
    top, left, bottom, right = params.padding
    rows = data.shape[2] + top + bottom - 2 - params.crop[0]
    columns = data.shape[3] + left + right - 2 - params.crop[1]
    down, across = -(-rows // m), -(-columns // m)
    below = down * m + 2 - data.shape[2] - top
    beside = across * m + 2 - data.shape[3] - left
    padded = np.pad(data, [(0, 0), (0, 0), (top, below), (left, beside)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (t, t), (2, 3))[:, :, ::m, ::m]
    b, _, a = TRANSFORMS[m]
    v = np.einsum("xp,nidepq,yq->xynide", b, windows, b, optimize=True)
    filters = u.swapaxes(2, 3).reshape(t, t, params.channels, -1)
    product = np.einsum("xyoi,xynide->xynode", filters, v, optimize=True)
    y = np.einsum("px,xynode,qy->nodpeq", a, product, a, optimize=True)
    out = y.reshape(x.shape[0], params.channels, down * m, across * m)[:, :, :rows, :columns]
    if bias:
        out = out + bias[0].reshape(-1)[:, None, None]
    return np.ascontiguousarray(layouts.rearrange(out, NCHW, blocked)).astype(x.dtype)


winograd_conv2d = define(
    "_winograd_conv2d",
    "A 3x3 convolution of stride 1 on blocked channels, from transformed filters.",
    inputs={"data": "in blocks of channels", "weight": "from _winograd_weight", "bias": "or none"},
    named=False,
    attrs=WinogradConv2DAttrs,
    pattern=OUT_FUSABLE,
    shape=_conv_shape,
    layout=_conv_layout,
    reference=_conv_reference,
)
winograd_conv2d.set_num_inputs(lambda params: 3 if params.use_bias else 2)
