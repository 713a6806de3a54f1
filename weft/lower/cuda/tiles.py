"""Which tiles a product is cut into: a cost model with measured constants picks them, nothing is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from ...base.cuda_target import CudaTarget
from ...base.stages import decided
from ...te.tensor_cores.product import Tile
from .size_classes import least_loss

T = TypeVar("T")

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


class Work(NamedTuple):
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


def microseconds(tile: Tile, work: Work, target: CudaTarget, element: str) -> float:
    """What a product is expected to take in these tiles."""
    tiles = -(-work.rows // tile.rows) * -(-work.columns // tile.width) * work.batch
    at_once = _clusters(tile.split, target) if tile.split > 1 else target.sms * tile.resident
    waves = -(-tiles // at_once)
    busy = -(-tiles // waves) * tile.split  # on the average
    size = tile.rows * tile.width
    rate = target.tensor_rate(element) / target.sms * TENSOR_SHARE / 1e6
    multiply = 2.0 * size * tile.depth / rate * NARROW.get(tile.width, 1.0)
    stage = max(STAGE, multiply, tile.stage_bytes * busy / CACHE_RATE)
    main = stage * -(-work.k_blocks // tile.split)
    store = (STORE + FUNCTION * work.functions) * size
    if tile.split > 1:
        return waves * (START + main + store + SPLIT[tile.split] + SPLIT_ELEMENT * size)
    if tile.alternate:  # one warpgroup stores while the other multiplies
        return START + TURN + waves * max(main, store / 2) + store
    return START + waves * (main + store)


def _clusters(size: int, target: CudaTarget) -> int:
    """Those that run at once: clusters lie within groups of multiprocessors, whose number is no multiple of 4."""
    return max(1, target.sms // size - (target.sms // 44 if size > 2 else 0))


def choose_tile(works: list[Work], tiles: list[Tile], target: CudaTarget, element: str) -> Tile:
    """The tile that is expected to be the fastest; where there are several sizes, that which suits all of them."""
    costs = [partial(microseconds, work=work, target=target, element=element) for work in works]
    best = chosen_tile(tiles, costs, choose_tile)
    return best._replace(together=16) if are_large(works) else best


def chosen_tile(tiles: Sequence[T], costs: Sequence[Callable[[T], float]], where: Callable[..., object]) -> T:
    """The tile of which some costs are the best."""
    best = least_loss(tiles, costs)

    def told() -> dict[str, float]:
        return {str(tile): sum(cost(tile) for cost in costs) / len(costs) for tile in tiles}

    decided("tile of the product, us", where, str(best), told)
    return best


def are_large(works: list[Work]) -> bool:
    """Whether so many rows of tiles should be walked together that both operands stay in the cache."""
    return all(work.rows >= 8192 and work.columns >= 8192 for work in works)
