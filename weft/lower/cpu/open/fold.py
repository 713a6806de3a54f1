"""Transposes of convolutions of stride 1 whose results are much larger than their source: products
of all filters and windows, made before, come in; their sums, each where its tap stands, go out.

    out[n, c, y, x] = bias[c] + sum over taps t of products[n, c, t, y + dy(t), x + dx(t)]
"""

from __future__ import annotations

from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Var, const
from ....te.loops import Kernel
from ....te.visit import masked_load
from .patches import TAP_FIELDS, UNBOUNDED
from .tile import ceil_div, lanes_from


class Folds(NamedTuple):
    """Scalars: extents of the source and of the results, channels of these, and taps."""

    height: Var
    width: Var
    rows: Var
    columns: Var
    channels: Var
    taps: Var
    turns: Var  # one for each plane of results


def fold_kernel(target: CpuTarget, dtype: DType) -> Kernel:
    """The kernel over buffers products, bias, taps and out."""
    b, lanes = KernelBuilder(f"open_fold_{dtype.name}"), target.lanes(dtype)
    products, bias = (b.arg(name, dtype, (UNBOUNDED,)) for name in ("products", "bias"))
    taps, out = b.arg("taps", "int64", (UNBOUNDED,)), b.arg("out", dtype, (UNBOUNDED,))
    given = Folds(*[b.scalar(name) for name in Folds._fields])
    plane = given.height * given.width
    with (
        b.parallel("turn", given.turns) as turn,
        b.loop("row", given.rows) as row,
        b.loop("vector", ceil_div(given.columns, lanes)) as vector,
    ):
        column = b.let("column", vector * lanes)
        total = b.alloc("total", dtype, (), scope="register", lanes=lanes)
        b.store(total, (), const(0, dtype))
        with b.loop("tap", given.taps) as tap:
            y = b.let("y", row + taps[tap * TAP_FIELDS])
            x = b.let("x", column + taps[tap * TAP_FIELDS + 1])
            with b.when((y >= 0) & (y < given.height)):
                lane = lanes_from(x, lanes)
                start = (turn * given.taps + tap) * plane + y * given.width
                there = (lane >= 0) & (lane < given.width)
                value = masked_load(products, (lanes_from(start + x, lanes),), there)
                b.store(total, (), total[()] + value)
        at = lanes_from((turn * given.rows + row) * given.columns + column, lanes)
        made = total[()] + bias[turn % given.channels]
        b.store(out, at, made, lanes_from(column, lanes) < given.columns)
    return b.finish()
