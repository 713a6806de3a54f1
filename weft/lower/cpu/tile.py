"""Register tiles: how many turns of which loops run side by side, so that a value is loaded once
for many uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base.cpu_target import CpuTarget
from ...base.dtype import DType
from ...base.stages import decided
from ...te.extents import is_open
from ..axes import Axis

Sizes = Sequence[tuple[int, Any]]  # (size of a tile, how many)
MAX_ACROSS = 14  # turns of the axis whose elements are broadcast
MAX_PANELS = 4  # vectors side by side


class Tiling(NamedTuple):
    """`counts`: (turns in a tile, number of such tiles), which together cover the axis; of an axis whose extent is an
    argument, so are the numbers."""

    axis: Axis
    counts: Sizes


def registers(target: CpuTarget) -> int:
    """Vectors that a kernel may keep at once. NEON has 32, of which two are left for what is loaded ahead: none of its
    instructions reads an operand from memory."""
    return {"avx512": 32, "neon": 30}.get(target.isa, 16)


class TileSize(NamedTuple):
    """`rows` times `vectors` sums of `lanes` lanes."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        return self.vectors * self.lanes


def tile_size(target: CpuTarget, dtype: DType) -> TileSize:
    """The tile that fills the registers, whatever the extents are: 8 x 3 sums, 3 vectors and a broadcast of 32."""
    return TileSize(8 if registers(target) > 16 else 4, 3, target.lanes(dtype))


def balanced(extent: int, factor: int) -> tuple[tuple[int, int], ...]:
    """Tiles of at most `factor` turns, as equal as they can be.

    >>> balanced(49, 14), balanced(28, 14), balanced(5, 8)
    (((13, 1), (12, 3)), ((14, 2),), ((5, 1),))
    """
    tiles = -(-extent // factor)
    small, larger = divmod(extent, tiles)
    parts = ((small + 1, larger), (small, tiles - larger))
    return tuple((turns, count) for turns, count in parts if count and turns)


def tiles_of(extent: Any, size: int) -> Sizes:
    """Tiles that cover an extent: balanced ones of a number; else as many as there are of the size, and a few for the
    rest.

    >>> tiles_of(15, 4)
    ((4, 3), (3, 1))
    """
    if isinstance(extent, int):
        return balanced(extent, size)
    tiles: list[tuple[int, Any]] = [(size, extent // size)]
    rest = extent % size
    for part in (4, 2, 1):
        if part < size:
            tiles.append((part, rest // part))
            rest = rest % part
    return tuple(tiles)


def choose_tiles(across: Sequence[Axis], panels: Axis | None, budget: int) -> tuple[Tiling | None, Tiling | None]:
    """Tiles of an axis whose loads the panels share, and of the panels themselves.

    Per step of the reduction a tile of a x p loads a broadcasts and p vectors for a * p uses, and
    keeps a * p results, p vectors and one broadcast in registers.
    """
    best: tuple[float, Axis | None, int, int] = (2.0, None, 1, 1)
    tried = [(2.0, 1, 1)]
    candidates: list[Axis | None] = [axis for axis in across if axis.extent > 1] or [None]
    for axis in candidates:
        for p in range(1, min(MAX_PANELS, panels.extent if panels else 1) + 1):
            for a in _sizes(axis):
                if a * p + p + 1 <= budget:
                    loads = 1 / _average(axis, a) + 1 / _average(panels, p)
                    tried.append((loads, a, p))
                    if loads < best[0] - 1e-9:
                        best = (loads, axis, a, p)
    _, axis, a, p = best
    decided("register tile", choose_tiles, f"{a} x {p}", lambda: _costs(tried))
    first = None
    if axis is not None and a > 1:
        first = Tiling(axis, tiles_of(axis.extent, a))
    second = Tiling(panels, balanced(panels.extent, p)) if panels is not None and p > 1 else None
    return first, second


def _costs(tried: Sequence[tuple[float, int, int]]) -> dict[str, float]:
    """The loads of each size, along the axis that is best for it."""
    return {f"{a} x {p}": loads for loads, a, p in sorted(tried, reverse=True)}


def _sizes(axis: Axis | None) -> Sequence[int]:
    """What tiles of an axis may have."""
    if axis is not None and is_open(axis.extent):
        return [a for a in (1, 2, 4, 8) if a <= MAX_ACROSS]
    return range(1, min(MAX_ACROSS, axis.extent if axis else 1) + 1)


def _average(axis: Axis | None, factor: int) -> float:
    if axis is not None and is_open(axis.extent):
        return factor
    return axis.extent / -(-axis.extent // factor) if axis is not None else 1.0
