"""Reductions over rows of memory inside open kernels: in lanes, by several accumulators at once,
and in parts, so that rounding errors do not grow with the number of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from .... import te
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, ExprLike, minimum
from ....te.loops import Buffer
from ....te.reducers import combine, identity

ABREAST = 2  # vectors that are reduced side by side, to hide the latency of an addition
PART = 32  # times so many, before they join a wider accumulator
TOGETHER = 4  # lanes that are combined at a time

Values = Callable[[Expr, Expr], Sequence[Expr]]


class Segments(NamedTuple):
    """Rows of neighbours in memory, one after the other."""

    number: ExprLike
    length: Expr


def over_segments(
    b: KernelBuilder,
    combiner: str,
    dtypes: tuple[DType, DType],
    segments: Segments,
    lanes: int,
    values: Values,
    number: int,
) -> list[Expr]:
    """What `values` gives, `number` expressions for an element of a segment, reduced over all of
    them; in the first dtype within a part, then in the second."""
    full = b.let("full", segments.length // lanes)
    last = b.let("last", full * lanes)
    shares = [b.alloc(f"shares{n}", dtypes[1], (lanes,)) for n in range(number)]
    with b.vector("lane", lanes) as lane:
        totals = _accumulators(b, "total", combiner, dtypes[1], number)
        with b.loop("segment", segments.number) as segment:
            vector = lambda turn: values(segment, turn * lanes + lane)
            rest = _in_parts(b, combiner, dtypes[0], full, vector, totals)
            with b.when(last + lane < segments.length):
                _join(b, combiner, rest, values(segment, last + lane))
            _join(b, combiner, totals, [acc[()] for acc in rest])
        for share, total in zip(shares, totals):
            b.store(share, lane, total[()])
    return _over_lanes(b, combiner, shares, lanes)


def down_columns(
    b: KernelBuilder,
    combiner: str,
    dtypes: tuple[DType, DType],
    count: Expr,
    values: Callable[[Expr], Sequence[Expr]],
    number: int,
) -> list[Expr]:
    """The same in each lane on its own: what `values` gives for a row, over `count` rows."""
    totals = _accumulators(b, "total", combiner, dtypes[1], number)
    rest = _in_parts(b, combiner, dtypes[0], count, values, totals)
    _join(b, combiner, totals, [acc[()] for acc in rest])
    return [b.let("whole", total[()]) for total in totals]


def _in_parts(
    b: KernelBuilder,
    combiner: str,
    dtype: DType,
    turns: Expr,
    values: Callable[[Expr], Sequence[Expr]],
    totals: Sequence[Buffer],
) -> list[Buffer]:
    """Reduces turns to the totals, but for the last few, whose accumulators go out."""
    groups = b.let("groups", turns // ABREAST)
    with b.loop("part", (groups + (PART - 1)) // PART) as part:
        first = b.let("first", part * PART)
        own = [_accumulators(b, f"own{k}_", combiner, dtype, len(totals)) for k in range(ABREAST)]
        with b.loop("turn", minimum(groups - first, PART)) as turn:
            at = b.let("at", (first + turn) * ABREAST)
            for k, accumulators in enumerate(own):
                _join(b, combiner, accumulators, values(at + k))
        for total, *each in zip(totals, *own):
            _join(b, combiner, [total], [_tree(combiner, [acc[()] for acc in each])])
    rest = _accumulators(b, "rest", combiner, dtype, len(totals))
    with b.loop("turn", turns % ABREAST) as turn:
        _join(b, combiner, rest, values(groups * ABREAST + turn))
    return rest


def _accumulators(b: KernelBuilder, name: str, combiner: str, dtype: DType, number: int) -> list[Buffer]:
    made = [b.alloc(f"{name}{n}", dtype, (), scope="register") for n in range(number)]
    for acc in made:
        b.store(acc, (), identity(combiner, dtype))
    return made


def _join(b: KernelBuilder, combiner: str, accumulators: Sequence[Buffer], values: Sequence[Expr]) -> None:
    for acc, value in zip(accumulators, values):
        b.store(acc, (), combine(combiner, acc[()], te.cast(value, acc.dtype)))


def _tree(combiner: str, items: list[Expr]) -> Expr:
    """All items, neighbours first."""
    while len(items) > 1:
        pairs = [combine(combiner, *pair) for pair in zip(items[::2], items[1::2])]
        items = [*pairs, *items[len(pairs) * 2 :]]
    return items[0]


def _over_lanes(b: KernelBuilder, combiner: str, shares: Sequence[Buffer], lanes: int) -> list[Expr]:
    """What all lanes have, some of them at a time."""
    together = min(TOGETHER, lanes)
    number, dtype = len(shares), shares[0].dtype
    own = [_accumulators(b, f"some{k}_", combiner, dtype, number) for k in range(together)]
    with b.loop("turn", lanes // together) as turn:
        for k, accumulators in enumerate(own):
            _join(b, combiner, accumulators, [share[turn * together + k] for share in shares])
    return [b.let("whole", _tree(combiner, [acc[()] for acc in each])) for each in zip(*own)]
