"""Products of matrices by single warps, on every GPU from sm_80 on: requests come in, kernels with a plan of
`te.tensor_cores.warp_product` go out. Operands are copied by threads, so any size and any order is taken."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.errors import InvalidValue
from ...base.plan import Launch
from ...te.build import KernelBuilder
from ...te.expr import Call, Var
from ...te.extents import is_multiple
from ...te.loops import Kernel, Store
from ...te.tensor_cores.product import Operand, Window
from ...te.tensor_cores.warp_product import WarpProduct, WarpTile, ring_of
from ...te.visit import postorder
from .product import Matrices, Request
from .size_classes import samples
from .tiles import FUNCTION, STORE, Work, are_large, chosen_tile

RUN = 8  # neighbours that are finished at once
LARGEST = 1 << 31  # elements of a picture's tensor: they are counted in 32 bits
MOST_BY_WORDS = 64  # sums of a thread that reads operands word by word
MAX_THREADS = 1536  # of a multiprocessor, on those that have the fewest

# Microseconds, as measured on an H200, and shares of what a machine does.
START = 2.0  # until the first products
STAGE = 0.2  # a stage takes at least so long
BYTES_A_CYCLE = 56  # from the second cache to a multiprocessor
MOST = {2: 2048, 4: 1024}  # operations of single warps a cycle, by bytes of an element: what newer ones do needs groups
SHARE = 0.72  # of it that is reached
SMALL_PARTS = {512: 0.55, 1024: 0.75, 2048: 0.9}  # of it, where warps have so few sums: they read operands more often

PLAIN = [(128, 256, 2, 4), (256, 128, 4, 2), (128, 128, 2, 2), (128, 128, 2, 4), (128, 64, 4, 2), (64, 128, 2, 4)]
PLAIN += [(64, 64, 2, 2), (32, 64, 1, 4), (64, 32, 4, 1)]
EXACT = [
    (128, 128, 4, 2),
    (128, 128, 2, 4),
    (128, 64, 4, 2),
    (64, 128, 2, 4),
    (64, 64, 2, 2),
    (32, 64, 1, 4),
    (64, 32, 4, 1),
]


def write_warp_product(b: KernelBuilder, request: Request, target: CudaTarget, tile: WarpTile | None = None) -> Kernel:
    """The kernel of a product over the buffers that a builder has, in the tiles that are expected to be the fastest."""
    b.emit(plan_warp_product(request, target, tile))
    return b.finish()


def plan_warp_product(request: Request, target: CudaTarget, tile: WarpTile | None = None) -> WarpProduct:
    """All that is decided about a product."""
    tile = tile or _best_tile(request, target)
    ring = ring_of(tile, target.shared_bytes)
    if ring is None or not _takes(tile, request):
        raise InvalidValue(
            f"a product of {request.rows} x {request.columns} x {request.depth} in tiles {tile}",
            why=f"two stages or its sums exceed a block's {target.shared_bytes} bytes of shared memory, or "
            "operands that are stored by columns do not suit it",
            hint="leave the choice of the tile to the cost model",
        )
    batch, row, column = Var("batch"), Var("row"), Var("column")
    total = Var("total", request.dtype or request.out.dtype)
    a, b = (_operand(side, batch) for side in (request.a, request.b))
    flat = (batch * request.rows + row) * request.columns + column
    store = Store(request.out, (flat,), request.finish(total, batch, row, column))
    units = -(-request.rows // tile.rows) * -(-request.columns // tile.width) * request.batch
    launch = Launch((units, 1, 1), (tile.threads, 1, 1), ring.bytes, 1, target.has_dependent_launch)
    extents = request.batch, request.rows, request.columns, request.depth
    lanes = next(lanes for lanes in (RUN, RUN // 2, 2, 1) if is_multiple(request.columns, lanes))
    return WarpProduct(launch, (), a, b, *extents, batch, row, column, total, store, tile, ring, lanes)


def _operand(side: Matrices | Window, batch: Var) -> Any:
    if isinstance(side, Window):
        return side
    return Operand(side.buffer, 0, side.turned, None if side.matrix is None else side.matrix(batch))


def can_count(window: Window) -> bool:
    """Whether offsets in pictures fit 32 bits."""
    return prod(window.pictures) < LARGEST


# Tiles


def warp_tiles(kind: str, exact: bool, target: CudaTarget) -> list[WarpTile]:
    """Those that a multiprocessor has shared memory and registers for, with as many blocks of them as it holds."""
    found = []
    for shape in EXACT if exact else PLAIN:
        tile = WarpTile(kind, *shape, exact)
        fitting = (tile._replace(resident=count) for count in (4, 3, 2, 1))
        found += [next(t for t in fitting if _fits(t, target))] if _fits(tile, target) else []
    return found


def _fits(tile: WarpTile, target: CudaTarget) -> bool:
    ring = ring_of(tile, target.shared_bytes)
    threads = tile.threads * tile.resident
    registers = min(-(-tile.registers // 8) * 8, 256)
    enough = registers * threads <= target.registers and threads <= MAX_THREADS
    return ring is not None and enough and (tile.resident == 1 or ring.stages > 2)


def _takes(tile: WarpTile, request: Request) -> bool:
    """Whether operands that are stored by columns have whole lines in a tile, and registers for them, if they are read
    word by word."""
    sides = ((request.a, tile.rows), (request.b, tile.width))
    turned = [rows for side, rows in sides if isinstance(side, Matrices) and side.turned]
    enough = tile.item_bytes == 2 or not turned or tile.sums <= MOST_BY_WORDS
    return enough and all(rows % tile.depth == 0 for rows in turned)


def _best_tile(request: Request, target: CudaTarget) -> WarpTile:
    index = [Var(name) for name in ("batch", "row", "column")]
    made = request.finish(Var("total", request.dtype or request.out.dtype), *index)
    functions = sum(isinstance(node, Call) for node in postorder((made,)))
    exact = request.kind == "tf32" and target.precision == "fp32"
    tiles = [tile for tile in warp_tiles(request.kind, exact, target) if _takes(tile, request)]
    works = [
        Work(batch, rows, columns, -(-depth // tiles[0].depth), functions)
        for batch, rows, columns, depth in samples(request.batch, request.rows, request.columns, request.depth)
    ]
    best = chosen_tile(tiles, [partial(microseconds, work=work, target=target) for work in works], _best_tile)
    most = max(work.batch * -(-work.rows // best.rows) * -(-work.columns // best.width) for work in works)
    best = best._replace(resident=min(best.resident, -(-most // target.sms)))  # those that are there have longer rings
    return best._replace(together=16) if are_large(works) else best


def microseconds(tile: WarpTile, work: Work, target: CudaTarget) -> float:
    """What a product is expected to take in these tiles."""
    tiles = -(-work.rows // tile.rows) * -(-work.columns // tile.width) * work.batch
    beside = min(tile.resident, -(-tiles // target.sms))  # blocks on a multiprocessor
    waves = -(-tiles // (target.sms * beside))
    size = beside * tile.rows * tile.width
    nominal = target.tensor_rate("float16" if tile.item_bytes == 2 else "float32") / target.sms / 1e6
    rate = SHARE * min(nominal, MOST[tile.item_bytes] * target.clock_mhz)
    rate *= SMALL_PARTS.get(tile.sums * 32, 1.0)
    multiply = 2.0 * size * tile.depth * (3 if tile.exact else 1) / rate
    ingest = beside * tile.stage_bytes / (BYTES_A_CYCLE * target.clock_mhz)
    main = max(STAGE, multiply, ingest) * work.k_blocks
    return waves * (START + main + (STORE + FUNCTION * work.functions) * size)
