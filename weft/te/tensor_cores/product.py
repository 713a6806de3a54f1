"""A product of matrices on tensor cores, as a statement: which operands, in what tiles, and what is stored of each sum.

Blocks of threads walk over tiles of the result. In a block one warp copies operands into a ring of stages in shared
memory, and warpgroups multiply from there; a stage is 128 bytes of k of every row of both operands, whatever the dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from ...base.dtype import DType
from ..expr import Expr, Load, Symbolic, Var, as_expr, cast, select
from ..loops import Alloc, Buffer, For, Let, Seq, Stmt, Store, WholeKernel, buffer
from .layouts import PANEL_ROWS, ROW_BYTES, WARP, WARPGROUP, window_origin

if TYPE_CHECKING:
    from ..extents import Extent

MAX_STAGES = 8
ALIGNMENT = 1024  # of tiles: what permutations of chunks count from
BARRIER_BYTES = 256
SPLIT_GAP = 4  # floats between rows of partial sums, so that they lie in different banks
PIXELS = (32, 64)  # bytes of pixels of which a stage has several: what permutations of chunks can span
UNITS = {"fp16": 2, "bf16": 2, "tf32": 4}  # bytes of an element, by the kind of product


class Tile(NamedTuple):
    """How a product is cut. `warpgroups` of 64*`blocks` rows each lie under each other, or take whole tiles in turns
    (`alternate`), so that one stores while the other multiplies. A sum may be `split` over as many blocks of threads,
    a cluster, which add up what they have. `together`: rows of tiles walked column by column. `resident`: blocks of
    threads that share a multiprocessor."""

    kind: str
    warpgroups: int = 2
    width: int = 256
    blocks: int = 1
    alternate: bool = False
    split: int = 1
    together: int = 8
    resident: int = 1

    @property
    def item_bytes(self) -> int:
        return UNITS[self.kind]

    @property
    def depth(self) -> int:
        """Elements of k in a stage."""
        return ROW_BYTES // self.item_bytes

    @property
    def own_rows(self) -> int:
        """Rows of a warpgroup."""
        return PANEL_ROWS * self.blocks

    @property
    def rows(self) -> int:
        return self.own_rows * (1 if self.alternate else self.warpgroups)

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups + WARP

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.width) * ROW_BYTES

    @property
    def accumulators(self) -> int:
        """Of a thread."""
        return self.blocks * self.width // 2

    def __str__(self) -> str:
        words = [f"{self.kind} {self.rows}x{self.width}"]
        words += [f"split {self.split}"] if self.split > 1 else []
        return ", ".join(words + (["in turns"] if self.alternate else []))


class Memory(NamedTuple):
    """Shared memory of a block: the ring, what is staged for stores, barriers. `columns`: those staged at a time."""

    stages: int
    columns: int
    a: int
    b: int
    staged: int
    barriers: int
    bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """Matrices of rows by k in memory, one after the other; `turned` ones are stored by columns (k by rows). `matrix`
    says which one a product of some number takes."""

    buffer: Buffer  # of one axis
    map: int  # which of the kernel's tensor maps looks at it; 0 too where there are none
    turned: bool = False
    matrix: Expr | None = None  # by the number of the product; None: the first

    def at(self, row: Expr, k: Expr, rows: int | Extent, depth: int | Extent) -> Expr:
        """An element."""
        matrix = as_expr(0) if self.matrix is None else self.matrix
        inner = k * rows + row if self.turned else row * depth + k
        return self.buffer[matrix * (rows * depth) + inner]


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Rows that are windows of pictures (NHWC), gathered as they are copied: one for each pixel of the result, with k
    in the order (row of the filter, column of the filter, channel)."""

    buffer: Buffer
    pictures: tuple[int | Extent, int, int, int]  # how many, height, width, channels
    image: tuple[int, int]  # of results: height and width
    filter: tuple[int, int]
    strides: tuple[int, int]
    pads: tuple[int, int]  # above and on the left
    dilation: tuple[int, int]
    map: int = 0

    def at(self, row: Expr, k: Expr, rows: int | Extent, depth: int | Extent) -> Expr:
        """An element; zeros are around pictures."""
        _, height, width, channels = self.pictures
        picture, top, left = window_origin(row, self.image, self.strides, self.pads)
        tap = k // channels
        y = top + tap // self.filter[1] * self.dilation[0]
        x = left + tap % self.filter[1] * self.dilation[1]
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        place = ((picture * height + y) * width + x) * channels + k % channels
        return Load(self.buffer, (select(inside, place, as_expr(0)),), inside)

    @property
    def channels(self) -> int:
        """Of a pixel. Each tap is read in blocks of `Tile.depth`, the last of which may be short."""
        return self.pictures[3]

    def taps_together(self, tile: Tile) -> int:
        """How many taps a stage has: more than one where so many pixels fill a row of it."""
        pixel, taps = self.channels * tile.item_bytes, self.filter[0] * self.filter[1]
        together = ROW_BYTES // pixel if pixel in PIXELS else 1
        return together if taps % together == 0 else 1

    def k_blocks(self, tile: Tile) -> int:
        """Stages that go over all taps."""
        taps, together = self.filter[0] * self.filter[1], self.taps_together(tile)
        return taps // together if together > 1 else taps * -(-self.channels // tile.depth)


@dataclass(frozen=True, slots=True, eq=False)
class Beside:
    """A tensor of the shape of the result that is read element by element: it is copied into the memory from which
    results are stored, while sums are made. `value` stands for its element, which `load` reads."""

    value: Var
    load: Expr
    map: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Summed(WholeKernel):
    """For every batch, row and column: `store`, in which `total` is the sum over k of a[row, k] * b[column, k]."""

    a: Operand | Window
    b: Operand
    batch: int | Extent
    rows: int | Extent
    columns: int | Extent
    depth: int | Extent
    batch_at: Var
    row_at: Var
    column_at: Var
    total: Var
    store: Store

    @property
    def beside(self) -> Beside | None:
        """What is copied to where results are staged."""
        return None

    @property
    def count(self) -> str:
        """How many products there are, for people."""
        return f"{self.batch} x " if isinstance(self.batch, Symbolic) or self.batch > 1 else ""

    def loops(self) -> Stmt:
        """Sums in float32, one after the other. Passes over the rest of operands only add what float32 has anyway."""
        k, total = Var("k"), buffer("total", "float32", (), scope="register")
        a = self.a.at(self.row_at, k, self.rows, self.depth)
        b = self.b.at(self.column_at, k, self.columns, self.depth)
        added = Store(total, (), total[()] + cast(a, "float32") * cast(b, "float32"))
        stored: Stmt = Let(self.total, cast(total[()], self.total.dtype), self.store)
        if self.beside is not None:
            stored = Let(self.beside.value, self.beside.load, stored)
        summed = For(k, as_expr(self.depth), added)
        body: Stmt = Alloc(total, Seq((Store(total, (), as_expr(0.0)), summed, stored)))
        around = ((self.column_at, self.columns), (self.row_at, self.rows), (self.batch_at, self.batch))
        for var, extent in around:
            body = For(var, as_expr(extent), body)
        return body


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Product(Summed):
    """By warpgroups. `passes`: pairs of tensor maps; the sum goes over all of them one after the other. `out_map`: by
    which results of 16 bits are stored as tiles; without it each thread stores what it has."""

    tile: Tile
    memory: Memory
    passes: tuple[tuple[int, int], ...]
    out_map: int | None = None
    beside: Beside | None = None

    def __str__(self) -> str:
        return f"product {self.count}{self.rows} x {self.columns} x {self.depth} in tiles {self.tile}"

    @property
    def k_blocks(self) -> Any:
        """Stages that one sum takes, of one pass."""
        if isinstance(self.a, Window):
            return self.a.k_blocks(self.tile)
        return -(-self.depth // self.tile.depth)

    @property
    def tiles(self) -> tuple[Any, Any]:
        """Down and across, of one product."""
        return -(-self.rows // self.tile.rows), -(-self.columns // self.tile.width)


def shared_memory(tile: Tile, out: DType, staged: bool, beside: bool, limit: int) -> Memory | None:
    """The plan of a block's shared memory, within so many bytes; None where two stages do not fit."""
    limit = limit // tile.resident - (ALIGNMENT if tile.resident > 1 else 0)
    columns = _staged_columns(tile, beside) if staged and tile.split == 1 else 0
    taken = tile.warpgroups * tile.own_rows * columns * out.itemsize
    if tile.split > 1:
        taken = tile.rows * (tile.width + SPLIT_GAP) * 4
    stages = min(MAX_STAGES, (limit - ALIGNMENT - BARRIER_BYTES - taken) // tile.stage_bytes)
    if stages < 2:
        return None
    body = stages * tile.stage_bytes
    if tile.split > 1 and body < taken:  # partial sums are sent from where the ring was
        return None
    barriers = -(-(body + taken) // ROW_BYTES) * ROW_BYTES
    whole = barriers + BARRIER_BYTES + ALIGNMENT
    if tile.split > 1:  # the blocks of a cluster lie on multiprocessors of their own
        whole = max(whole, limit // 2 + ALIGNMENT)
    return Memory(stages, columns, 0, stages * tile.rows * ROW_BYTES, body, barriers, whole)


def _staged_columns(tile: Tile, beside: bool) -> int:
    """All where they fit, or where a tensor is copied to the same place beforehand."""
    if beside or tile.width * tile.blocks <= 192:
        return tile.width
    return 128 // tile.blocks
