"""Attention by single warps, as a statement: float32 on every GPU, and all dtypes where there are no products of
warpgroups.

A block of threads has some queries of one head, 16 for each warp. It walks over blocks of keys and values, which all of
its threads copy ahead; scores and results stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from .attention import Attended
from .fragments import BLOCK_ROWS
from .layouts import K_STEP_BYTES, ROW_BYTES, WARP
from .product import ALIGNMENT, UNITS


class WarpAttentionTile(NamedTuple):
    """So many `warps`, and `stages` of blocks of keys and values. `exact`: float32 by three products of tf32."""

    kind: str
    warps: int = 4
    stages: int = 2
    exact: bool = False

    @property
    def item_bytes(self) -> int:
        return UNITS[self.kind]

    @property
    def queries(self) -> int:
        return BLOCK_ROWS * self.warps

    @property
    def keys(self) -> int:
        """Of a block: as many as elements of a line, so that values are an operand as any other."""
        return ROW_BYTES // self.item_bytes

    @property
    def threads(self) -> int:
        return WARP * self.warps


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class WarpAttention(Attended):
    """Shared memory has queries, then stages of keys and values."""

    tile: WarpAttentionTile

    @property
    def query_tiles(self) -> Any:
        return -(-self.queries // self.tile.queries)

    @property
    def width_panels(self) -> int:
        return -(-self.width * self.tile.item_bytes // ROW_BYTES)

    @property
    def value_panels(self) -> int:
        return -(-self.values * self.tile.item_bytes // ROW_BYTES)

    @property
    def width_steps(self) -> int:
        """Of k, in the product of queries and keys."""
        return -(-self.width * self.tile.item_bytes // K_STEP_BYTES)

    @property
    def value_blocks(self) -> int:
        """Of 16 columns."""
        return -(-self.values // BLOCK_ROWS)

    @property
    def key_start(self) -> int:
        return self.width_panels * self.tile.queries * ROW_BYTES

    @property
    def value_offset(self) -> int:
        """Of values in a stage."""
        return self.width_panels * self.tile.keys * ROW_BYTES

    @property
    def stage_bytes(self) -> int:
        return (self.width_panels + self.value_panels) * self.tile.keys * ROW_BYTES

    @property
    def shared_bytes(self) -> int:
        return self.key_start + self.tile.stages * self.stage_bytes + ALIGNMENT

    def __str__(self) -> str:
        kind = "causal attention" if self.causal else "attention"
        return f"{kind} {self.batch} x {self.queries} x {self.keys}, columns {self.width} and {self.values}, by warps"
