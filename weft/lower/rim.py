"""The rim around a result that was written into the middle of a larger image."""

from __future__ import annotations

from collections.abc import Sequence

from ..base.dtype import DType
from ..te.build import KernelBuilder
from ..te.expr import ExprLike, as_expr
from ..te.loops import Kernel
from ..te.transform import lower_vectors

ROWS, COLUMNS = 2, 3  # the axes around which a halo is


def rim_kernel(
    name: str,
    shape: Sequence[int],
    dtype: DType,
    start: Sequence[int],
    inner: Sequence[int],
    fill: float,
    strides: Sequence[int] | None = None,
) -> Kernel:
    """Fills the rows and columns of an image that a result of shape `inner`, whose first element is
    at `start`, does not cover."""
    b = KernelBuilder(name)
    n, c, rows, columns, *block = shape
    image = b.arg("image", dtype, shape, strides=strides)
    value = as_expr(fill, dtype)
    top, left = start[ROWS], start[COLUMNS]
    bottom, right = top + inner[ROWS], left + inner[COLUMNS]

    def filled(first_row: ExprLike, height: int, first: int, width: int) -> None:
        if not height or not width:
            return
        with b.loop("h", height) as h, b.loop("w", width) as w:
            place = (plane // c, plane % c, as_expr(first_row) + h, w + first)
            if block:
                with b.vector("lane", block[0]) as lane:
                    b.store(image, (*place, lane), value)
            else:
                b.store(image, place, value)

    with b.parallel("plane", n * c) as plane:
        filled(0, top, 0, columns)
        filled(bottom, rows - bottom, 0, columns)
        filled(top, inner[ROWS], 0, left)
        filled(top, inner[ROWS], right, columns - right)
    return lower_vectors(b.finish())
