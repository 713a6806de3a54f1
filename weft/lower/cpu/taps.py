"""Where the taps of a filter stand: for each output of a convolution, or of its transpose, the
source positions that exist. Taps outside contribute nothing, so no kernel multiplies by padding."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import gcd
from typing import Any, NamedTuple

from ...ops.nn._windows import Window
from ...te.expr import Expr, ExprLike, as_expr, maximum, minimum, select
from ...te.extents import is_open, lesser
from .tile import balanced


class Line(NamedTuple):
    """One axis: `outs` results from `sources` elements, forward or transposed. Both are numbers or arguments."""

    window: Window
    outs: Any
    sources: Any
    transposed: bool

    @property
    def is_open(self) -> bool:
        return is_open(self.outs) or is_open(self.sources)


class Phase(NamedTuple):
    """Results first, first + step, ... (`length` of them), which the same taps reach: number b
    reads the source at b * stride + offset, for each (tap, offset)."""

    first: int
    step: int
    length: Any
    stride: int
    taps: tuple[tuple[int, int], ...]


class Run(NamedTuple):
    """`tiles` times `width` results side by side, from `start` on; `inside` says for each tap
    which of them have a source, the same for all tiles of the run."""

    start: Any
    width: int
    tiles: Any
    inside: tuple[tuple[int, ...], ...]


class OpenRun(NamedTuple):
    """Tiles of `width` results side by side that cover `length`, an argument. The sources of results from `whole` on,
    below `rim`, are all there; elsewhere each is asked for."""

    width: int
    length: Any
    whole: Any
    rim: Any


def phases(line: Line) -> list[Phase]:
    """
    >>> phases(Line(Window(3, 2, 1, 1), 6, 3, True))  # doctest: +NORMALIZE_WHITESPACE
    [Phase(first=0, step=2, length=3, stride=1, taps=((1, 0),)),
     Phase(first=1, step=2, length=3, stride=1, taps=((0, 1), (2, 0)))]
    """
    window, outs = line.window, line.outs
    taps = [(tap, tap * window.dilation) for tap in range(window.size)]
    if not line.transposed:
        offsets = tuple((tap, place - window.before) for tap, place in taps)
        return [Phase(0, 1, outs, window.stride, offsets)]
    made = []
    for first in range(window.stride if is_open(outs) else min(window.stride, outs)):
        count = (outs - first + (window.stride - 1)) // window.stride
        start = first + window.before
        own = [(tap, (start - d) // window.stride) for tap, d in taps if _meets(start - d, window)]
        made.append(Phase(first, window.stride, count, 1, tuple(own)))
    return made


def _meets(distance: int, window: Window) -> bool:
    return distance % window.stride == 0


def runs(phase: Phase, sources: int, width: int) -> list[Run]:
    """The results of a phase in tiles of at most `width`, equal neighbours together.

    >>> [r[:3] for r in runs(Phase(0, 1, 16, 1, ((0, -1), (1, 0), (2, 1))), 16, 4)]
    [(0, 4, 1), (4, 4, 2), (12, 4, 1)]
    """
    tiles: list[Run] = []
    start = 0
    for turns, count in balanced(phase.length, width):
        before, inner = _inner_tiles(phase, sources, start, turns, count)
        single = [*range(before), *range(before + inner, count)]
        if inner:
            single.insert(before, before)
        for number in single:
            at = start + number * turns
            alike = inner if number == before and inner else 1
            tiles.append(Run(at, turns, alike, _inside(phase, sources, at, turns)))
        start += turns * count
    found = []
    for _, same in groupby(tiles, key=lambda run: (run.width, run.inside)):
        members = list(same)
        found.append(members[0]._replace(tiles=sum(run.tiles for run in members)))
    return found


def open_run(phase: Phase, sources: Any, width: int) -> OpenRun:
    """The same for any number of results."""
    offsets = [offset for _, offset in phase.taps]
    if not offsets:
        return OpenRun(width, phase.length, 0, phase.length)
    whole = max(-(min(offsets) // phase.stride), 0)
    reached = (sources - 1 - max(offsets)) // phase.stride + 1
    return OpenRun(width, phase.length, whole, lesser(reached, phase.length))


def _inner_tiles(phase: Phase, sources: int, start: int, turns: int, count: int) -> tuple[int, int]:
    """How many of some tiles stand before those that have all their sources, and how many do."""
    offsets = [offset for _, offset in phase.taps] or [0]
    first = max(-((min(offsets) + start * phase.stride) // (turns * phase.stride)), 0)
    reach = (start + turns - 1) * phase.stride + max(offsets)
    last = (sources - 1 - reach) // (turns * phase.stride)
    return min(first, count), max(min(last + 1, count) - first, 0)


def _inside(phase: Phase, sources: int, start: int, turns: int) -> tuple[tuple[int, ...], ...]:
    return tuple(
        tuple(t for t in range(turns) if 0 <= (start + t) * phase.stride + offset < sources) for _, offset in phase.taps
    )


class Reach(NamedTuple):
    """The taps that reach a result: `taps` of them, the j-th is tap first + j * step, which
    stands on the source at + j * distance."""

    taps: Expr
    first: Expr
    step: ExprLike
    at: Expr
    distance: ExprLike


def reach(line: Line, out: Expr) -> Reach:
    """The taps of a result that is known only when the kernel runs."""
    window = line.window
    if not line.transposed:
        start = out * window.stride - window.before
        first = maximum(-(start // window.dilation), 0)
        last = minimum((line.sources - 1 - start) // window.dilation, window.size - 1)
        at = start + first * window.dilation
        return Reach(maximum(last - first + 1, 0), first, 1, at, window.dilation)
    step = window.stride // gcd(window.stride, window.dilation)
    distance = step * window.dilation // window.stride
    place = out + window.before
    lowest, taps = _by_rest(window, place % window.stride, step)
    source = (place - lowest * window.dilation) // window.stride
    skipped = maximum(-((line.sources - 1 - source) // distance), 0)
    last = minimum(source // distance, taps - 1)
    return Reach(maximum(last - skipped + 1, 0), lowest + skipped * step, step, source - skipped * distance, -distance)


def _by_rest(window: Window, rest: Expr, step: int) -> tuple[Expr, Expr]:
    """The lowest tap that stands on positions of a rest modulo the stride, and how many do."""
    lowest, taps = as_expr(0), as_expr(0)
    for tap in range(min(step, window.size)):
        number = tap * window.dilation % window.stride
        count = -(-(window.size - tap) // step)
        lowest = select(rest.equal(number), as_expr(tap), lowest)
        taps = select(rest.equal(number), as_expr(count), taps)
    return lowest, taps


def windows_inside(line: Line, tap: Expr) -> tuple[Expr, Expr, Expr]:
    """For a tap of a forward convolution: the first window that has a source there, how many do,
    and the source of the first."""
    window = line.window
    start = tap * window.dilation - window.before
    first = maximum(-(start // window.stride), 0)
    last = minimum((line.sources - 1 - start) // window.stride, line.outs - 1)
    return first, maximum(last - first + 1, 0), start + first * window.stride


def padded(extent: int, side: int) -> float:
    """How much work tiles of that side do, for each element that there is.

    >>> padded(5, 4), padded(6, 3)
    (1.6, 1.0)
    """
    return -(-extent // side) * side / extent


def code_size(parts: Sequence[Run]) -> int:
    """Products of one panel that the straight code of these runs has."""
    return sum(len(columns) for run in parts for columns in run.inside)
