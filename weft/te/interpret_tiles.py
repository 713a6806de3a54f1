"""What steps of tiles mean: a frame with tiles comes in, and is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base.dtype import INT32
from ..base.errors import OutOfRange, RunError
from .evaluate import DOTS, Value
from .loops import TILE_ROWS, TILE_WORDS, TILES, TileStep

if TYPE_CHECKING:
    from .steps import Frame


def run_tile_step(frame: Frame, step: TileStep, indices: Sequence[Value]) -> None:
    tiles = frame.tiles
    if step.action == "shape":
        if max(step.tiles) >= TILES or not all(0 < rows <= TILE_ROWS for rows in step.rows):
            raise RunError(f"tiles {step.tiles} of {step.rows} rows", where=frame.where)
        tiles.clear()
        tiles.update((tile, np.zeros((rows, TILE_WORDS), INT32)) for tile, rows in zip(step.tiles, step.rows))
        return
    missing = [tile for tile in step.tiles if tile not in tiles]
    if missing:
        raise RunError(f"tile {missing[0]} has no shape", where=frame.where)
    if step.action == "release":
        tiles.clear()
    elif step.action == "zero":
        tiles[step.tiles[0]][:] = 0
    elif step.action in ("load", "store"):
        _move(frame, step, int(indices[0]))
    else:
        _multiply(step, *(tiles[tile] for tile in step.tiles))


def _move(frame: Frame, step: TileStep, first: int) -> None:
    """Rows of a buffer's words, to a tile or from it."""
    assert step.buffer is not None
    (tile,) = step.tiles
    held, buffer = frame.tiles[tile], step.buffer
    places = first + np.arange(len(held))[:, None] * step.stride + np.arange(TILE_WORDS)
    if places.min() < 0 or places.max() >= frame.shapes[buffer][0]:
        raise OutOfRange(
            f"rows of tile {tile} reach {places.min()} to {places.max()} of buffer {buffer.name}",
            where=frame.where,
            why=f"the shape is {frame.shapes[buffer]}",
        )
    memory = frame.arrays[buffer]
    if step.action == "load":
        frame.on_read(buffer, (places,))
        held[:] = memory[places].view(INT32)
    else:
        frame.on_write(buffer, (places,))
        memory[places] = held.view(memory.dtype)


def _multiply(step: TileStep, totals: Any, a: Any, b: Any) -> None:
    if len(totals) != len(a) or len(b) != TILE_WORDS:
        raise RunError(f"tiles of {len(totals)}, {len(a)} and {len(b)} rows are multiplied")
    dtype = INT32 if step.action == "dot_bytes" else np.dtype("float32")
    sums, x, y = (tile.view(dtype) for tile in (totals, a, b))
    for k in range(TILE_WORDS):
        sums[:] = DOTS[step.action](sums, x[:, k : k + 1], y[k : k + 1])
