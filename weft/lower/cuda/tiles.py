"""Which tiles a product is cut into: a cost model with measured constants picks them, nothing is timed."""

from __future__ import annotations

from typing import NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.stages import decided
from ...te.tensor_cores.product import Tile

# Microseconds on an H200, operands in the second cache, kernels launched ahead of what they follow.
START = 1.5  # until a block multiplies
TURN = 0.1  # more, where warpgroups take turns
STORE = 6e-5  # an element of a tile: from the last product until it is stored
FUNCTION = 8e-5  # an element: a function such as exp in what follows the product
STAGE = 0.14  # a stage of a ring takes at least so long
TENSOR_SHARE = 0.8  # of the nominal rate of products
NARROW = {32: 1.5, 64: 1.25, 128: 1.08, 192: 1.03}  # products of few columns read their operands more often
CACHE_RATE = 14.7e6  # bytes from the second cache to all multiprocessors
SPLIT = {2: 0.5, 4: 0.8, 8: 1.8}  # partial sums through a cluster of so many
SPLIT_ELEMENT = 7e-5  # and an element of them


class Extent(NamedTuple):
    """Of a product: how many, their rows and columns, the stages that one sum takes, and the functions that follow."""

    batch: int
    rows: int
    columns: int
    k_blocks: int
    functions: int = 0


def candidates(kind: str, turned: bool) -> list[Tile]:
    """Tiles that are worth asking about; operands that are stored by columns come in boxes of 64."""
    plain = [(2, 256), (2, 192), (2, 128), (2, 64), (1, 256), (1, 192), (1, 128), (1, 64)]
    tiles = [Tile(kind, groups, width) for groups, width in plain]
    turns = [(128, 2), (192, 1), (128, 1), (64, 2)]
    tiles += [Tile(kind, 2, width, blocks, True) for width, blocks in turns]
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
    busy = -(-tiles // waves) * tile.split  # on the average
    size = tile.rows * tile.width
    rate = target.tensor_rate(element) / target.sms * TENSOR_SHARE / 1e6
    multiply = 2.0 * size * tile.depth / rate * NARROW.get(tile.width, 1.0)
    stage = max(STAGE, multiply, tile.stage_bytes * busy / CACHE_RATE)
    main = stage * -(-extent.k_blocks // tile.split)
    store = (STORE + FUNCTION * extent.functions) * size
    if tile.split > 1:
        return waves * (START + main + store + SPLIT[tile.split] + SPLIT_ELEMENT * size)
    if tile.alternate:  # one warpgroup stores while the other multiplies
        return START + TURN + waves * max(main, store / 2) + store
    return START + waves * (main + store)


def _clusters(size: int, target: CudaTarget) -> int:
    """Those that run at once: clusters lie within groups of multiprocessors, whose number is no multiple of 4."""
    return max(1, target.sms // size - (target.sms // 44 if size > 2 else 0))


def choose_tile(extent: Extent, tiles: list[Tile], target: CudaTarget, element: str) -> Tile:
    """The tile that is expected to be the fastest."""
    costs = {tile: microseconds(tile, extent, target, element) for tile in tiles}
    best = min(costs, key=lambda tile: costs[tile])
    decided("tile of the product, us", choose_tile, str(best), lambda: {str(t): cost for t, cost in costs.items()})
    large = extent.rows >= 8192 and extent.columns >= 8192
    return best._replace(together=16) if large else best
