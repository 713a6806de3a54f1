"""Boxes and edges come in; out comes where the boxes stand: in rows, with few crossings, without overlaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

ROW_GAP, COLUMN_GAP = 36.0, 22.0
SWEEPS = 6

Edge = tuple[int, int]


class Place(NamedTuple):
    """The middle of a box."""

    x: float
    y: float


def placed(sizes: Sequence[tuple[float, float]], edges: Sequence[Edge]) -> list[Place]:
    """The places of boxes with a width and a height, in an order in which most edges lead on. Edges that go back do
    not count.

    >>> [round(place.x) for place in placed([(40, 10), (40, 10), (40, 10)], [(0, 1), (0, 2)])]
    [51, 20, 82]
    """
    forward = sorted({edge for edge in edges if edge[0] < edge[1]})
    rows = _rows(len(sizes), forward)
    above, below = _neighbours(forward)
    position = {box: float(place) for row in rows for place, box in enumerate(row)}
    for sweep in range(SWEEPS):
        near = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            row.sort(key=lambda box: _mean(box, near, position))
            position.update({box: float(place) for place, box in enumerate(row)})
    xs = _columns(rows, sizes, above, below)
    left = min((xs[box] - sizes[box][0] / 2 for box in range(len(sizes))), default=0.0)
    made = [Place(0.0, 0.0)] * len(sizes)
    y = 0.0
    for row in rows:
        height = max(sizes[box][1] for box in row)
        for box in row:
            made[box] = Place(xs[box] - left, y + height / 2)
        y += height + ROW_GAP
    return made


def _rows(count: int, edges: Sequence[Edge]) -> list[list[int]]:
    """Each box below all that it reads; what reads nothing, right above its first reader."""
    rank, first = [0] * count, dict[int, int]()
    for source, target in edges:  # sorted: whatever leads to a source has been seen
        rank[target] = max(rank[target], rank[source] + 1)
    for source, target in edges:
        first[source] = min(first.get(source, rank[target]), rank[target])
    for box in set(first) - {target for _, target in edges}:
        rank[box] = first[box] - 1
    rows: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for box, number in enumerate(rank):
        rows[number].append(box)
    return [row for row in rows if row]


def _neighbours(edges: Sequence[Edge]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for source, target in edges:
        above.setdefault(target, []).append(source)
        below.setdefault(source, []).append(target)
    return above, below


def _mean(box: int, near: Mapping[int, list[int]], position: Mapping[int, float]) -> float:
    found = near.get(box)
    return sum(position[other] for other in found) / len(found) if found else position[box]


def _columns(
    rows: Sequence[Sequence[int]],
    sizes: Sequence[tuple[float, float]],
    above: Mapping[int, list[int]],
    below: Mapping[int, list[int]],
) -> dict[int, float]:
    """The middle of each box: near the middle of what it is joined to, without overlaps in a row."""
    xs: dict[int, float] = {}
    for row in rows:
        x = 0.0
        for box in row:
            xs[box] = x + sizes[box][0] / 2
            x += sizes[box][0] + COLUMN_GAP
        for box in row:
            xs[box] -= x / 2
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_mean(box, above if sweep % 2 == 0 else below, xs) for box in row]
            _apart(row, wanted, sizes, xs)
    return xs


def _apart(row: Sequence[int], wanted: list[float], sizes: Sequence[tuple[float, float]], xs: dict[int, float]) -> None:
    """Gives the boxes of a row the places they want, moved apart: between being pushed right and left."""
    gap = [(sizes[a][0] + sizes[b][0]) / 2 + COLUMN_GAP for a, b in pairwise(row)]
    right, left = list(wanted), list(wanted)
    for i, need in enumerate(gap):
        right[i + 1] = max(right[i + 1], right[i] + need)
    for i, need in reversed(list(enumerate(gap))):
        left[i] = min(left[i], left[i + 1] - need)
    for box, a, b in zip(row, right, left):
        xs[box] = (a + b) / 2
