"""A product of matrices by products of single warps, as a statement: for GPUs that have no products of warpgroups.

All threads of a block copy operands into a ring of stages in shared memory, ahead of time, and multiply from there:
each warp has a part of the block's tile. A stage is 128 bytes of k of every row of both operands, whatever the dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .fragments import BLOCK_COLUMNS, BLOCK_ROWS
from .layouts import ROW_BYTES, WARP
from .product import ALIGNMENT, SPLIT_GAP, UNITS, Summed

WORD = 4  # bytes of a sum
MAX_WARP_STAGES = 6


class WarpTile(NamedTuple):
    """How a product is cut: tiles of `rows` by `width`, of which `down` by `across` warps have equal parts. `together`:
    rows of tiles that are walked column by column. `resident`: blocks of threads that share a multiprocessor. `exact`:
    float32 by three products of tf32."""

    kind: str
    rows: int = 128
    width: int = 128
    down: int = 2
    across: int = 4
    exact: bool = False
    resident: int = 1
    together: int = 8

    @property
    def item_bytes(self) -> int:
        return UNITS[self.kind]

    @property
    def depth(self) -> int:
        """Elements of k in a stage."""
        return ROW_BYTES // self.item_bytes

    @property
    def threads(self) -> int:
        return WARP * self.down * self.across

    @property
    def blocks(self) -> tuple[int, int]:
        """Of 16 rows and of 8 columns, of a warp."""
        return self.rows // self.down // BLOCK_ROWS, self.width // self.across // BLOCK_COLUMNS

    @property
    def sums(self) -> int:
        """Of a thread."""
        return self.rows * self.width // self.threads

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.width) * ROW_BYTES

    @property
    def line_bytes(self) -> int:
        """Of a row of sums, where they wait to be finished: rows begin in different banks."""
        return (self.width + SPLIT_GAP) * WORD

    @property
    def registers(self) -> int:
        """That a thread needs, about: sums, operands of a step of k, addresses."""
        down, across = self.blocks
        step = 4 * down + 2 * across
        return self.sums * (2 if self.exact else 1) + step * (2 if self.exact else 1) + 56

    def __str__(self) -> str:
        words = [f"{self.kind} {self.rows}x{self.width} of {self.down}x{self.across} warps"]
        words += ["in three"] if self.exact else []
        return ", ".join(words + ([f"{self.resident} resident"] if self.resident > 1 else []))


class Ring(NamedTuple):
    """Shared memory of a block: so many stages; sums lie in the same place later."""

    stages: int
    bytes: int


def ring_of(tile: WarpTile, limit: int) -> Ring | None:
    """The most stages that fit into a block's share of so many bytes; None where two do not, or not the sums."""
    share = (limit + ALIGNMENT) // tile.resident - 2 * ALIGNMENT  # each block takes 1 KB more, and a tile's alignment
    stages = min(MAX_WARP_STAGES, share // tile.stage_bytes)
    taken = max(stages * tile.stage_bytes, tile.rows * tile.line_bytes)
    return Ring(stages, taken + ALIGNMENT) if stages >= 2 and taken <= share else None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WarpProduct(Summed):
    """By single warps. A row of results is stored in runs of `lanes` neighbours."""

    tile: WarpTile
    ring: Ring
    lanes: int

    def __str__(self) -> str:
        return f"product {self.count}{self.rows} x {self.columns} x {self.depth} by warps in tiles {self.tile}"

    @property
    def k_blocks(self) -> Any:
        """Stages that one sum takes."""
        return -(-self.depth // self.tile.depth)

    @property
    def tiles(self) -> tuple[Any, Any]:
        """Down and across, of one product."""
        return -(-self.rows // self.tile.rows), -(-self.columns // self.tile.width)
