"""What numbers of a graph are of the sizes of its inputs: in come the numbers that several traces have in one place,
each with its sizes, out goes an expression over the names of those sizes.

A number is taken as a sum of products of sizes, each size at most once in a product: 8*n*s + 1. Traces at all corners
of a box of sizes say what the factors are; more traces, outside of the box, say whether it is so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod

from ...base.extents import Extent, Untold, evaluate
from ...base.shape import Dim

Point = dict[str, int]  # a size for each name


def corners_of(sizes: Mapping[str, tuple[int, int]]) -> list[Point]:
    """The corners of a box; the last name changes first.

    >>> corners_of({"n": (2, 4)})
    [{'n': 2}, {'n': 4}]
    """
    return [dict(zip(sizes, corner)) for corner in product(*sizes.values())]


def number_of(values: Sequence[int], points: Sequence[Point], candidates: Sequence[Dim] = ()) -> int | str | None:
    """The number or expression that has these values at these points, the first of which are corners: one of the
    candidates, or a sum of products. None where there is none.

    >>> points = [*corners_of({"n": (2, 4), "s": (3, 5)}), {"n": 6, "s": 7}]
    >>> number_of([8 * p["n"] * p["s"] + 1 for p in points], points)
    '8*n*s + 1'
    >>> print(number_of([p["n"] ** 2 for p in points], points))
    None
    """
    if len(set(values)) == 1:
        return values[0]
    for candidate in candidates:
        if isinstance(candidate, str) and all(evaluate(candidate, p) == v for p, v in zip(points, values)):
            return candidate
    return _sum_of_products(values, points)


def _sum_of_products(values: Sequence[int], points: Sequence[Point]) -> int | str | None:
    """By divided differences: one name after the other, f(a, ...) = u + v a, where v = (f(a1) - f(a0)) / (a1 - a0)."""
    names = list(points[0])
    factors = [Fraction(value) for value in values[: 2 ** len(names)]]
    for place, name in enumerate(names):
        stride = 2 ** (len(names) - 1 - place)
        low, high = points[0][name], points[stride][name]
        for at in range(len(factors)):
            if not at // stride % 2:
                slope = (factors[at + stride] - factors[at]) / (high - low)
                factors[at], factors[at + stride] = factors[at] - slope * low, slope
    if any(factor.denominator != 1 for factor in factors):
        return None
    total = Extent.of(0)
    for at, factor in enumerate(factors):
        inside = [name for place, name in enumerate(names) if at >> (len(names) - 1 - place) & 1]
        total = total + prod(map(Extent.named, inside), start=Extent.of(int(factor)))
    try:
        fits = all(evaluate(total.dim, point) == value for point, value in zip(points, values))
    except Untold:
        return None
    return total.dim if fits else None
