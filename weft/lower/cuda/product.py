"""Products of matrices on tensor cores: groups come in, kernels with a plan of `te.tensor_cores` go out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.dtype import DTYPES, FLOAT32, DType
from ...base.errors import InvalidValue
from ...base.plan import Launch, TensorMap
from ...te.build import KernelBuilder
from ...te.expr import Call, Expr, Load, Var
from ...te.extents import Extent, is_multiple, is_open, lesser
from ...te.loops import Buffer, Kernel, Store
from ...te.tensor_cores.layouts import PANEL_ROWS, ROW_BYTES
from ...te.tensor_cores.product import Beside, Operand, Product, Tile, Window, shared_memory
from ...te.visit import loads, postorder, rewrite
from .size_classes import samples
from .tiles import Work, candidates, choose_tile

KINDS = {DTYPES["float16"]: "fp16", DTYPES["bfloat16"]: "bf16", FLOAT32: "tf32"}
ELEMENTS = {"fp16": "float16", "bf16": "bfloat16", "tf32": "tfloat32"}
COPY_BYTES = 16  # what strides of copied tensors are multiples of
RUN = 8  # neighbours that are stored at once where sums are split
MAX_EXACT = 64  # sums of a thread that are made in parts: it has as many again


class Matrices(NamedTuple):
    """An operand in memory: matrices of `rows` by k, or k by rows where they are `turned`. `matrix`, of the number of a
    product, says which one it takes; None: all take the first."""

    buffer: Buffer
    matrices: int | Extent = 1
    turned: bool = False
    matrix: Callable[[Expr], Expr] | None = None


@dataclass(frozen=True)
class Request:
    """A product to be planned, whose sizes may be open. `rest`: what does not fit tf32 of both operands, for sums in
    three passes."""

    a: Matrices | Window
    b: Matrices
    batch: int | Extent
    rows: int | Extent
    columns: int | Extent
    depth: int | Extent
    out: Buffer
    finish: Callable[[Expr, Expr, Expr, Expr], Expr]  # sum, number of the product, row, column -> what is stored
    kind: str
    beside: Buffer | None = None  # read by `finish` at the result's own index only, and of its shape and dtype
    rest: tuple[Buffer, ...] | None = None
    dtype: DType | None = None  # of the sum in `finish`; None: that of the result


def fits_copies(extent: int | Extent, dtype: DType) -> bool:
    """Whether rows of so many elements can be copied by tensor maps."""
    size = extent * dtype.itemsize
    return is_multiple(size, COPY_BYTES) or bool(size % COPY_BYTES == 0)


def write_product(b: KernelBuilder, request: Request, target: CudaTarget, tile: Tile | None = None) -> Kernel:
    """The kernel of a product over the buffers that a builder has, in the tiles that are expected to be the fastest."""
    b.emit(plan_product(request, b.buffers, target, tile))
    return b.finish()


def plan_product(request: Request, buffers: Sequence[Buffer], target: CudaTarget, tile: Tile | None = None) -> Product:
    """All that is decided about a product."""
    tile = tile or _best_tile(request, target)
    staged = _is_staged(request, tile)
    beside = request.beside is not None and tile.split == 1 and staged
    memory = shared_memory(tile, request.out.dtype, staged, beside, target.shared_bytes)
    passes_over = 3 if request.rest else 1
    k_blocks = _k_blocks(request, request.depth, tile)
    if memory is None or (tile.split > 1 and (is_open(k_blocks) or tile.split > passes_over * k_blocks)):
        raise InvalidValue(
            f"a product of {request.rows} x {request.columns} x {request.depth} in tiles {tile}",
            why="its stages do not fit, or some of the blocks that share a sum would have none of it",
            hint="leave the choice of the tile to the cost model",
        )
    maps: list[TensorMap] = []

    def number(made: TensorMap) -> int:
        maps.append(made)
        return len(maps) - 1

    at = {buffer: n for n, buffer in enumerate(buffers)}
    batch, row, column = Var("batch"), Var("row"), Var("column")
    element = "float32" if request.rest else ELEMENTS[tile.kind]
    a = _operand(request.a, request, tile, tile.rows, at, number, batch, element)
    right = _operand(request.b, request, tile, tile.width, at, number, batch, element)
    assert isinstance(right, Operand)
    passes: tuple[tuple[int, int], ...] = ((a.map, right.map),)
    if request.rest is not None:
        passes = _three_passes(request, (a, right), maps, at, number)
    out_map = number(_result_map(request, at[request.out])) if staged and tile.split == 1 else None
    other = None
    if beside and request.beside is not None:
        value = Var("beside", request.beside.dtype)
        whole = request.finish(Var("total", request.dtype or request.out.dtype), batch, row, column)
        load = next(e for e in loads(whole) if e.source is request.beside)
        other = Beside(value, load, number(_result_map(request, at[request.beside])))
    total = Var("total", request.dtype or request.out.dtype)
    made = request.finish(total, batch, row, column)
    if other is not None:
        stands = other.value
        made = rewrite(made, lambda e: stands if isinstance(e, Load) and e.source is request.beside else e)
    flat = (batch * request.rows + row) * request.columns + column
    store = Store(request.out, (flat,), made)
    units = -(-request.rows // tile.rows) * -(-request.columns // tile.width) * request.batch
    blocks = units * tile.split if tile.split > 1 else lesser(units, target.sms * tile.resident)
    launch = Launch((blocks, 1, 1), (tile.threads, 1, 1), memory.bytes, tile.split, True)
    extents = request.batch, request.rows, request.columns, request.depth
    sides, at_index = (a, right, *extents), (batch, row, column)
    return Product(launch, tuple(maps), *sides, *at_index, total, store, tile, memory, passes, out_map, other)


def _is_staged(request: Request, tile: Tile) -> bool:
    out = request.out.dtype
    return out.itemsize == 2 and fits_copies(request.columns, out) and tile.width % PANEL_ROWS == 0


def _best_tile(request: Request, target: CudaTarget) -> Tile:
    turned = any(getattr(side, "turned", False) for side in (request.a, request.b))
    found = [tile for tile in candidates(request.kind, turned) if _suits(request, tile, target)]
    passes_over = 3 if request.rest else 1
    index = [Var(name) for name in ("batch", "row", "column")]
    made = request.finish(Var("total", request.dtype or request.out.dtype), *index)
    functions = sum(isinstance(node, Call) for node in postorder((made,)))
    works = [
        Work(batch, rows, columns, passes_over * _k_blocks(request, depth, found[0]), functions)
        for batch, rows, columns, depth in samples(request.batch, request.rows, request.columns, request.depth)
    ]
    most = 1 if is_open(request.depth) else works[0].k_blocks
    found = [tile for tile in found if tile.split <= most]
    return choose_tile(works, found, target, "float16" if found[0].item_bytes == 2 else "float32")


def _k_blocks(request: Request, depth: Any, tile: Tile) -> Any:
    """Stages of one pass over so much of k."""
    return request.a.k_blocks(tile) if isinstance(request.a, Window) else -(-depth // tile.depth)


def _suits(request: Request, tile: Tile, target: CudaTarget) -> bool:
    if tile.split > 1 and not is_multiple(request.columns, RUN):
        return False
    if request.rest and (tile.accumulators > MAX_EXACT or tile.alternate):
        return False
    staged = _is_staged(request, tile)
    beside = request.beside is not None and staged
    return shared_memory(tile, request.out.dtype, staged, beside, target.shared_bytes) is not None


def _operand(
    side: Matrices | Window,
    request: Request,
    tile: Tile,
    rows: int,
    at: dict[Buffer, int],
    number: Callable[[TensorMap], int],
    batch: Var,
    element: str,
) -> Any:
    if isinstance(side, Window):
        return replace(side, map=number(_window_map(at[side.buffer], side, tile, element)))
    extent = request.rows if side is request.a else request.columns
    place = number(_matrix_map(at[side.buffer], side, extent, request.depth, rows, tile, element))
    return Operand(side.buffer, place, side.turned, None if side.matrix is None else side.matrix(batch))


def _matrix_map(buffer: int, side: Matrices, extent: Any, depth: Any, rows: int, tile: Tile, element: str) -> TensorMap:
    size = tile.item_bytes
    inner, outer = (extent, depth) if side.turned else (depth, extent)
    box = (PANEL_ROWS, ROW_BYTES // size, 1) if side.turned else (tile.depth, rows, 1)
    dims: Any = inner, outer, side.matrices
    return TensorMap(buffer, element, dims, (inner * size, inner * outer * size), box)


def _window_map(buffer: int, window: Window, tile: Tile, element: str) -> TensorMap:
    """Corners say how far the first taps of windows reach outside of a picture, and stay away from its far end."""
    count, height, width, channels = window.pictures
    size = tile.item_bytes
    strides = (channels * size, width * channels * size, height * width * channels * size)
    upper = []
    for axis, extent in ((1, width), (0, height)):
        last = (window.image[axis] - 1) * window.strides[axis] - window.pads[axis]  # where the last window begins
        upper.append(last - (extent - 1))
    lower = (-window.pads[1], -window.pads[0])
    steps = (1, window.strides[1], window.strides[0], 1)
    together = window.taps_together(tile)
    dims: Any = channels, width, height, count
    box = tile.depth // together, tile.rows
    corners = (lower, (upper[0], upper[1]))
    return TensorMap(buffer, element, dims, strides, box, ROW_BYTES // together, steps=steps, corners=corners)


def _result_map(request: Request, buffer: int) -> TensorMap:
    out, size = request.out.dtype, request.out.dtype.itemsize
    columns, rows = request.columns, request.rows
    dims: Any = columns, rows, request.batch
    return TensorMap(buffer, out.name, dims, (columns * size, rows * columns * size), (PANEL_ROWS, PANEL_ROWS, 1))


def _three_passes(
    request: Request, sides: tuple[Any, Any], maps: list[TensorMap], at: dict[Buffer, int], number: Any
) -> tuple[tuple[int, int], ...]:
    """a b = a bl + al b + a b, where products read the part of a number that fits tf32, and al, bl are the rest: small
    terms come first."""
    assert request.rest is not None
    rests = [number(maps[side.map]._replace(buffer=at[rest])) for side, rest in zip(sides, request.rest)]
    return (sides[0].map, rests[1]), (rests[0], sides[1].map), (sides[0].map, sides[1].map)
