"""Transposes of convolutions of stride 1 whose results are much larger than their source: products
of all filters and windows, made before, come in; their sums, each where its tap stands, go out.

    out[n, c, y, x] = bias[c] + sum over taps t of products[n, c, t, y + dy(t), x + dx(t)]
"""

from __future__ import annotations

from typing import NamedTuple

from ...base.cpu_target import CpuTarget
from ...base.dtype import DType
from ...te.build import KernelBuilder
from ...te.expr import Var, const
from ...te.loops import Kernel
from ...te.visit import masked_load
from .open_tile import ceil_div, lanes_from
from .patches import TAP_FIELDS, UNBOUNDED


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
    folds = Folds(*[b.scalar(name) for name in Folds._fields])
    plane = folds.height * folds.width
    with (
        b.parallel("turn", folds.turns) as turn,
        b.loop("row", folds.rows) as row,
        b.loop("vector", ceil_div(folds.columns, lanes)) as vector,
    ):
        column = b.let("column", vector * lanes)
        total = b.alloc("total", dtype, (), scope="register", lanes=lanes)
        b.store(total, (), const(0, dtype))
        with b.loop("tap", folds.taps) as tap:
            y = b.let("y", row + taps[tap * TAP_FIELDS])
            x = b.let("x", column + taps[tap * TAP_FIELDS + 1])
            with b.when((y >= 0) & (y < folds.height)):
                lane = lanes_from(x, lanes)
                start = (turn * folds.taps + tap) * plane + y * folds.width
                there = (lane >= 0) & (lane < folds.width)
                value = masked_load(products, (lanes_from(start + x, lanes),), there)
                b.store(total, (), total[()] + value)
        at = lanes_from((turn * folds.rows + row) * folds.columns + column, lanes)
        result = total[()] + bias[turn % folds.channels]
        b.store(out, at, result, lanes_from(column, lanes) < folds.columns)
    return b.finish()
