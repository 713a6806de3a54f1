"""A rim around an image, as an operator of its own: what produces the image can then write it into
the middle of the larger one, and no copy is made.

A build puts it before convolutions and pools, after gradients are taken: it has none."""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import te
from ...base.layout import Layout
from ...base.shape import add_dims
from ...core.schema import FLOAT, INTS, attr, schema
from .._families import INJECTIVE, define

NCHW = Layout("NCHW")


@schema
class HaloAttrs:
    pads: tuple[int, ...] = attr(INTS, "rows and columns: (top, left, bottom, right)", low=0)
    fill: float = attr(FLOAT, "what the rim consists of", default=0.0)


def _shape(params: HaloAttrs, ins: Any, outs: Any) -> Any:
    if ins[0] is None:
        return [None], [None]
    top, left, bottom, right = params.pads
    n, c, height, width, *block = ins[0]
    rows, columns = add_dims(height, top + bottom), add_dims(width, left + right)
    return [None], [(n, c, rows, columns, *block)]


def _layout(params: HaloAttrs, ins: Any, last: Any, outs: Any) -> Any:
    """Any layout that has rows and columns, whole, where NCHW has them."""
    given = ins[0]
    if not given.defined:
        return [given], [given]
    fits = given.index_of("H") == 2 and given.index_of("W") == 3
    written = last[0] if last[0].defined else NCHW
    kept = given if fits and "h" not in given and "w" not in given else written
    return [kept], [kept]


def _first(params: HaloAttrs, shape: Any) -> tuple[int, ...]:
    """Where the data begins in the result."""
    return (0, 0, *params.pads[:2], *[0] * (len(shape) - 4))


def _reference(params: HaloAttrs, x: Any) -> Any:
    top, left, bottom, right = params.pads
    pads = [(0, 0), (0, 0), (top, bottom), (left, right)] + [(0, 0)] * (x.ndim - 4)
    return np.pad(x, pads, constant_values=params.fill)


def _compute(params: HaloAttrs, x: te.Tensor) -> te.Tensor:
    top, left = params.pads[:2]
    height, width = x.shape[2:4]
    (shape,) = _shape(params, [x.shape], [None])[1]

    def element(n: Any, c: Any, h: Any, w: Any, *block: Any) -> Any:
        y, z = h - top, w - left
        inside = te.all_of([y >= 0, y < height, z >= 0, z < width])
        return te.read_or(x, (n, c, y, z, *block), inside, params.fill)

    return te.compute(shape, element, name="halo")


halo = define(
    "_halo",
    "The data with a rim around its third and fourth axes.",
    attrs=HaloAttrs,
    pattern=INJECTIVE,
    shape=_shape,
    layout=_layout,
    reference=_reference,
    compute=_compute,
)
halo.set_attr("FPlaces", lambda params, shapes: [_first(params, shapes[0])])
halo.set_attr("FRim", lambda params: params.fill)
