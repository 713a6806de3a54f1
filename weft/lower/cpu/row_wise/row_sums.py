"""Reductions over rows of memory whose length is an argument: in lanes, by several accumulators at once,
and in parts, so that rounding errors do not grow with the number of elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .... import te
from ....base.dtype import DType
from ....te.build import KernelBuilder
from ....te.expr import Expr, minimum
from ....te.loops import Buffer
from ....te.reducers import combine, identity

ABREAST = 2  # vectors that are reduced side by side, to hide the latency of an addition
PART = 32  # times so many, before they join a wider accumulator
TOGETHER = 4  # lanes that are combined at a time

Values = Callable[[Expr], Sequence[Expr]]


def over_row(
    b: KernelBuilder, combiner: str, dtypes: tuple[DType, DType], length: Expr, lanes: int, values: Values, number: int
) -> list[Expr]:
    """What `values` gives, `number` expressions for an element of a row, reduced over all of them; in the first dtype
    within a part, then in the second."""
    full = b.let("full", length // lanes)
    last = b.let("last", full * lanes)
    shares = [b.alloc(f"shares{n}", dtypes[1], (lanes,)) for n in range(number)]
    with b.vector("lane", lanes) as lane:
        totals = accumulators(b, "total", combiner, dtypes[1], number)
        rest = _in_parts(b, combiner, dtypes[0], full, lambda turn: values(turn * lanes + lane), totals)
        with b.when(last + lane < length):
            join(b, combiner, rest, values(last + lane))
        join(b, combiner, totals, [acc[()] for acc in rest])
        for share, total in zip(shares, totals):
            b.store(share, lane, total[()])
    return _over_lanes(b, combiner, shares, lanes)


def _in_parts(
    b: KernelBuilder, combiner: str, dtype: DType, turns: Expr, values: Values, totals: Sequence[Buffer]
) -> list[Buffer]:
    """Reduces turns to the totals, but for the last few, whose accumulators go out."""
    groups = b.let("groups", turns // ABREAST)
    with b.loop("part", (groups + (PART - 1)) // PART) as part:
        first = b.let("first", part * PART)
        own = [accumulators(b, f"own{k}_", combiner, dtype, len(totals)) for k in range(ABREAST)]
        with b.loop("turn", minimum(groups - first, PART)) as turn:
            at = b.let("at", (first + turn) * ABREAST)
            for k, each in enumerate(own):
                join(b, combiner, each, values(at + k))
        for total, *each in zip(totals, *own):
            join(b, combiner, [total], [_tree(combiner, [acc[()] for acc in each])])
    rest = accumulators(b, "rest", combiner, dtype, len(totals))
    with b.loop("turn", turns % ABREAST) as turn:
        join(b, combiner, rest, values(groups * ABREAST + turn))
    return rest


def accumulators(b: KernelBuilder, name: str, combiner: str, dtype: DType, number: int) -> list[Buffer]:
    made = [b.alloc(f"{name}{n}", dtype, (), scope="register") for n in range(number)]
    for acc in made:
        b.store(acc, (), identity(combiner, dtype))
    return made


def join(b: KernelBuilder, combiner: str, accumulators: Sequence[Buffer], values: Sequence[Expr]) -> None:
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
    own = [accumulators(b, f"some{k}_", combiner, dtype, number) for k in range(together)]
    with b.loop("turn", lanes // together) as turn:
        for k, each in enumerate(own):
            join(b, combiner, each, [share[turn * together + k] for share in shares])
    return [b.let("whole", _tree(combiner, [acc[()] for acc in each])) for each in zip(*own)]
