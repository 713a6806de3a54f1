"""Sums that are split over a cluster: each block has partial sums of a whole tile, and finishes some of its rows.

A block sends every other one the rows that are that one's, by a copy that completes a barrier there, and adds what it
got in the order of ranks: the result does not depend on who was first.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....te.expr import Expr, select
from ....te.tensor_cores.layouts import PANEL_ROWS, WARPGROUP, accumulator_column, accumulator_row
from ...builder import Value
from . import asm
from .results import GroupSums, finish_runs

RUN = 8  # neighbours that a thread finishes at a time


def store_split(sums: GroupSums, values: Sequence[Value]) -> None:
    """Exchanges partial sums and stores the rows of this block."""
    w, product, tile = sums.w, sums.product, sums.product.tile
    meet = f"bar.sync 1, {WARPGROUP * tile.warpgroups};"
    w.asm(asm.CLUSTER_WAIT)  # the others have made their barriers
    w.asm(meet)  # nobody reads the ring any more
    line = product.frame.split_row_bytes(tile)
    row = product.warpgroup * PANEL_ROWS + accumulator_row(product.thread)
    at = w.let("at", product.base + row * line + accumulator_column(product.thread) * 4)
    for j in range(tile.width // 8):
        for half in range(2):
            pair = values[4 * j + 2 * half : 4 * j + 2 * half + 2]
            w.asm(f"st.shared.v2.f32 [$0+{32 * j + 8 * line * half}], {{$1, $2}};", at, *pair)
    w.asm(asm.WRITES_SEEN)
    w.asm(meet)
    own = tile.rows // tile.split * line  # bytes of the rows of one block
    _send(sums, own)
    w.asm(asm.WAIT, product.other, 0)
    w.asm(asm.CLUSTER_ARRIVE_APART)
    _finish_rows(sums, own, line)
    w.asm(asm.CLUSTER_WAIT)  # nobody leaves while others may still read what it sent


def _send(sums: GroupSums, own: int) -> None:
    """A thread for each of the other blocks."""
    w, product, tile = sums.w, sums.product, sums.product.tile
    peer = product.thread_number
    to = product.base + product.memory.staged + product.rank * own
    with w.when((peer < tile.split) & peer.not_equal(product.rank)):
        there = w.read(asm.MAP_RANK, "i32", to, peer)
        barrier = w.read(asm.MAP_RANK, "i32", product.other, peer)
        w.asm(asm.SEND.format(bytes=own), there, product.base + peer * own, barrier)


def _finish_rows(sums: GroupSums, own: int, line: int) -> None:
    product, tile = sums.product, sums.product.tile
    rows = tile.rows // tile.split
    first = sums.row - product.warpgroup * tile.own_rows + product.rank * rows

    def total(row: Expr, run: Expr) -> list[Value]:
        return _added(sums, row * line + run * (RUN * 4), own)

    finish_runs(sums, product.thread_number, WARPGROUP * tile.warpgroups, rows, RUN, first, total)


def _added(sums: GroupSums, offset: Expr, own: int) -> list[Value]:
    """The sums of all ranks, in their order; the own ones are read where they were written."""
    w, product, tile = sums.w, sums.product, sums.product.tile
    total: list[Value] = []
    for rank in range(tile.split):
        sent = offset + product.memory.staged + rank * own
        here = offset + product.rank * own
        at = product.base + select(product.rank.equal(rank), here, sent)
        text = "ld.shared.v4.f32 {$0, $1, $2, $3}, [$8];\nld.shared.v4.f32 {$4, $5, $6, $7}, [$8+16];"
        part = w.read_many(text, ["float"] * RUN, at)
        total = [w.b.add(a, b) for a, b in zip(total, part)] if total else part
    return total
