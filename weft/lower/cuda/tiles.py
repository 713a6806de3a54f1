"""Which tiles a product is cut into: a cost model with measured constants picks them, nothing is timed."""

from __future__ import annotations

from typing import NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.stages import decided
from ...te.tensor_cores.layouts import ROW_BYTES
from ...te.tensor_cores.product import Tile

# Microseconds, measured with operands in the second cache.
START = 1.3  # of a kernel that was launched ahead
STORE = 4.9e-5  # an element of a tile: from the last product until it is stored
INGEST = 117e3  # bytes that one multiprocessor copies in
TENSOR_SHARE = 0.93  # of the nominal rate of products
SPLIT = {1: 0.0, 2: 1.2, 4: 1.8, 8: 2.4}  # partial sums through a cluster of so many
LONE_GROUP = 1.15  # one warpgroup alone does not keep a multiprocessor's tensor cores busy


class Extent(NamedTuple):
    """Of a product: how many, their rows and columns, and the stages that one sum takes."""

    batch: int
    rows: int
    columns: int
    k_blocks: int


def candidates(kind: str, turned: bool) -> list[Tile]:
    """Tiles that are worth asking about; operands that are stored by columns come in boxes of 64."""
    plain = [(2, 256), (2, 192), (2, 128), (2, 64), (1, 256), (1, 128), (1, 64)]
    tiles = [Tile(kind, groups, width) for groups, width in plain]
    tiles += [Tile(kind, 2, 128, 2, True), Tile(kind, 2, 256, 1, True), Tile(kind, 2, 128, 1, True)]
    narrow = [] if turned else [(1, 32), (2, 32)]
    tiles += [
        Tile(kind, groups, width, split=split)
        for groups, width in [(1, 64), (2, 64), (1, 128), (2, 128), *narrow]
        for split in (2, 4, 8)
    ]
    return tiles


def microseconds(tile: Tile, extent: Extent, target: CudaTarget, element: str) -> float:
    """What a product is expected to take in these tiles."""
    tiles = -(-extent.rows // tile.rows) * -(-extent.columns // tile.width) * extent.batch
    at_once = _clusters(tile.split, target) if tile.split > 1 else target.sms * tile.resident
    waves = -(-tiles // at_once)
    flops = 2.0 * tile.rows * tile.width * ROW_BYTES / tile.item_bytes
    rate = target.tensor_rate(element) / target.sms * TENSOR_SHARE / 1e6
    busy = LONE_GROUP if tile.warpgroups == 1 else 1.0
    stage = max(tile.stage_bytes / INGEST, flops / rate * busy)
    main = stage * -(-extent.k_blocks // tile.split)
    store = STORE * tile.rows * tile.width
    if tile.alternate:
        return START + waves * max(main, store) + store
    return START + waves * (main + store) + SPLIT[tile.split]


def _clusters(size: int, target: CudaTarget) -> int:
    """Clusters of one block on each multiprocessor that run at once: they lie within groups of 16 or 18 of them."""
    return target.sms // 18 * (16 // size) + max(0, target.sms % 18 // size)


def choose_tile(extent: Extent, tiles: list[Tile], target: CudaTarget, element: str) -> Tile:
    """The tile that is expected to be the fastest."""
    costs = {tile: microseconds(tile, extent, target, element) for tile in tiles}
    best = min(costs, key=lambda tile: costs[tile])
    decided("tile of the product, us", choose_tile, str(best), lambda: {str(t): cost for t, cost in costs.items()})
    large = extent.rows >= 8192 and extent.columns >= 8192
    return best._replace(together=16) if large else best
