"""Reductions over the threads of a warp or a block: every thread gets the total, by the same steps each time."""

from __future__ import annotations

from collections.abc import Sequence

from ...te.build import KernelBuilder
from ...te.expr import Expr, lane_of, select
from ...te.loops import WARP, Buffer
from ...te.reducers import combine

DISTANCES = (16, 8, 4, 2, 1)  # between threads of a warp that combine what they have


def lanes_total(combiner: str, value: Expr) -> Expr:
    """All lanes of a vector combined, neighbours first."""
    items = [lane_of(value, lane) for lane in range(value.lanes)]
    while len(items) > 1:
        pairs = [combine(combiner, a, b) for a, b in zip(items[::2], items[1::2])]
        items = [*pairs, *items[len(pairs) * 2 :]]
    return items[0]


def warp_total(b: KernelBuilder, combiner: str, total: Buffer) -> None:
    """A register of each thread becomes that of all 32 of its warp, combined."""
    other = b.alloc("other", total.dtype, (), scope="register")
    for distance in DISTANCES:
        b.exchange(other, (), total[()], distance)
        b.store(total, (), combine(combiner, total[()], other[()]))


def block_total(b: KernelBuilder, combiner: str, total: Buffer, parts: Buffer | None, thread: Expr, warps: int) -> None:
    """The same of all threads of a block, which are so many warps; each total has parts of its own."""
    warp_total(b, combiner, total)
    if parts is None:
        return
    with b.when((thread % WARP).equal(0)):
        b.store(parts, thread // WARP, total[()])
    b.barrier()
    b.store(total, (), parts[0])
    for warp in range(1, warps):
        b.store(total, (), combine(combiner, total[()], parts[warp]))


def group_total(b: KernelBuilder, totals: Buffer, distances: Sequence[int]) -> None:
    """Sums in registers become those of all threads of a warp that such distances lead to."""
    (count,) = (int(extent.value) for extent in totals.shape)  # type: ignore[attr-defined]
    others = b.alloc("others", totals.dtype, (count,), scope="register")
    for distance in distances:
        for item in range(count):
            b.exchange(others, item, totals[item], distance)
        for item in range(count):
            b.store(totals, item, totals[item] + others[item])


def shown_item(b: KernelBuilder, totals: Buffer, first: int, replica: Expr, replicas: int) -> Expr:
    """Of registers that `replicas` threads have alike, that with the number `first` + `replica`: each shows another."""
    (count,) = (int(extent.value) for extent in totals.shape)  # type: ignore[attr-defined]
    shown: Expr = totals[first]
    for number in range(1, min(replicas, count - first)):
        shown = select(replica.equal(number), totals[first + number], shown)
    return b.let("shown", shown)
