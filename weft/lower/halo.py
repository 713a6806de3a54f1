"""Groups that end in a halo: their result is written into the middle of a larger image, whose rim
is filled with zeros beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..core.fused import FusedGroup
from ..core.ir import NodeEntry
from ..te.build import KernelBuilder
from ..te.expr import Expr, ExprLike, as_expr
from ..te.loops import Kernel
from ..te.transform import lower_vectors

ROWS, COLUMNS = 2, 3  # the axes around which a halo is


class Frame(NamedTuple):
    """Where a result stands in a larger image: its shape, and the first row and column."""

    shape: tuple[int, ...]
    top: int
    left: int

    def at(self, indices: Sequence[Expr]) -> tuple[Expr, ...]:
        """Indices of the result as those of the image."""
        moved = list(indices)
        moved[ROWS] = moved[ROWS] + self.top
        moved[COLUMNS] = moved[COLUMNS] + self.left
        return tuple(moved)


def without_halo(group: FusedGroup) -> FusedGroup | None:
    """The group up to its halo; None if it does not end in one around an anchor's result."""
    last = group.nodes[-1]
    if last.op_name != "_halo" or group.master is None or len(group.nodes) == 1:
        return None
    (result,) = last.inputs
    return group._replace(nodes=group.nodes[:-1], outputs=(NodeEntry(result.node, result.index),))


def rim_kernel(name: str, frame: Frame, inner: Sequence[int]) -> Kernel:
    """Zeros in the rows and columns of an image that a result of shape `inner` does not cover."""
    b = KernelBuilder(name)
    n, c, rows, columns, *block = frame.shape
    image = b.arg("image", "float32", frame.shape)
    bottom, right = frame.top + inner[ROWS], frame.left + inner[COLUMNS]

    def clear(first_row: ExprLike, height: int, first: int, width: int) -> None:
        if not height or not width:
            return
        with b.loop("h", height) as h, b.loop("w", width) as w:
            place = (plane // c, plane % c, as_expr(first_row) + h, w + first)
            if block:
                with b.vector("lane", block[0]) as lane:
                    b.store(image, (*place, lane), 0.0)
            else:
                b.store(image, place, 0.0)

    with b.parallel("plane", n * c) as plane:
        clear(0, frame.top, 0, columns)
        clear(bottom, rows - bottom, 0, columns)
        clear(frame.top, inner[ROWS], 0, frame.left)
        clear(frame.top, inner[ROWS], right, columns - right)
    return lower_vectors(b.finish())
