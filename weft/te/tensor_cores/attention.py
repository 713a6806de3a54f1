"""Attention on tensor cores, as a statement: softmax(scale Q K' + mask) V, with queries, keys and values read through
views of larger tensors.

A block of threads has some queries of one head. It walks over blocks of keys and values, which one warp copies into a
ring; scores and results stay in registers, scaled anew whenever the largest score of a query has grown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from ..expr import Expr, ExprLike, Symbolic, Var, as_expr, call, cast, const, maximum, select
from ..loops import Alloc, Buffer, For, Let, Seq, Stmt, Store, WholeKernel, buffer
from .layouts import PANEL_ROWS, ROW_BYTES, WARP, WARPGROUP

if TYPE_CHECKING:
    from ..extents import Extent

HALF_BYTES = 2
PANEL_COLUMNS = ROW_BYTES // HALF_BYTES
BARRIER_BYTES, ALIGNMENT = 256, 1024
MAX_COLUMNS = 256


class AttentionTile(NamedTuple):
    """`warpgroups` of 64 queries each; keys and values come in blocks of `keys`, in `stages` of a ring."""

    warpgroups: int
    keys: int
    stages: int = 2

    @property
    def queries(self) -> int:
        return PANEL_ROWS * self.warpgroups

    @property
    def threads(self) -> int:
        return WARPGROUP * self.warpgroups + WARP


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A tensor as a part of another, which lies flat in a buffer: an index of the batch, a row and a column are at
    `start` and a step for each. Axes of the batch with a step of 0 are shared, and the tensor map has them not."""

    buffer: Buffer
    map: int
    start: int | Extent
    steps: tuple[int | Extent, ...]

    @property
    def mapped(self) -> list[int]:
        """Axes of the batch that the tensor map has, from the innermost out."""
        return [axis for axis in reversed(range(len(self.steps) - 2)) if not is_zero(self.steps[axis])]

    def at(self, batch: Sequence[ExprLike], row: ExprLike, column: ExprLike) -> Expr:
        place = as_expr(self.start)
        for index, step in zip((*batch, row, column), self.steps):
            place = place + index * as_expr(step)
        return self.buffer[place]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attended(WholeKernel):
    """For every index of the batch and every query: `store`, in which `result` is the sum over keys of probabilities
    times values. Probabilities are the softmax of `factor` times `score`, in which `total` is the product of a query
    and a key. `unseen`: those of a query that sees no key are "nan" or "zero"; "clean": 0 in place of any NaN."""

    kind: str
    batch: tuple[int | Extent, ...]
    queries: int | Extent
    keys: int | Extent
    width: int
    values: int
    query: Seen
    key: Seen
    value: Seen
    out: Seen
    batch_at: tuple[Var, ...]
    query_at: Var
    key_at: Var
    column_at: Var
    total: Var
    result: Var
    score: Expr
    factor: float
    causal: bool
    unseen: str
    store: Store

    @property
    def heads(self) -> Any:
        return prod(self.batch)

    def loops(self) -> Stmt:
        """Scores, their largest, probabilities, sums: one query after the other, in float32."""
        scores = buffer("scores", "float32", (self.keys,), scope="scratch")
        top, total = (buffer(name, "float32", (1,), scope="scratch") for name in ("top", "total"))
        low, zero, at = const(float("-inf"), "float32"), const(0.0, "float32"), as_expr(0)
        k, key, column = Var("k"), self.key_at, self.column_at
        product = cast(self.query.at(self.batch_at, self.query_at, k), "float32")
        product = product * cast(self.key.at(self.batch_at, key, k), "float32")
        made: Expr = cast(self.score, "float32") * const(self.factor, "float32")
        if self.causal:
            made = select(key <= self.query_at, made, low)
        summed = For(k, as_expr(self.width), Store(total, (at,), total[0] + product))
        keep = Seq((Store(scores, (key,), made), Store(top, (at,), maximum(top[0], scores[key]))))
        dot = Seq((Store(total, (at,), zero), summed, Let(self.total, cast(total[0], self.total.dtype), keep)))
        unseen = call("exp", scores[key] - select(compare_low(top[0]), zero, top[0]))
        weigh = Seq((Store(scores, (key,), unseen), Store(total, (at,), total[0] + scores[key])))
        part = scores[key] * cast(self.value.at(self.batch_at, key, column), "float32")
        mix = For(key, as_expr(self.keys), Store(top, (at,), top[0] + part))
        whole: Expr = top[0] / total[0]
        if self.unseen != "nan":
            lost = total[0].equal(0.0)
            lost = lost | call("isnan", total[0]) if self.unseen == "clean" else lost
            whole = select(lost, zero, whole)
        end = Let(self.result, cast(whole, self.result.dtype), self.store)
        columns = For(column, as_expr(self.values), Seq((Store(top, (at,), zero), mix, end)))
        keys = as_expr(self.keys)
        steps = (Store(top, (at,), low), For(key, keys, dot), Store(total, (at,), zero), For(key, keys, weigh), columns)
        body: Stmt = Alloc(scores, Alloc(top, Alloc(total, Seq(steps))))
        for var, extent in ((self.query_at, self.queries), *zip(self.batch_at[::-1], self.batch[::-1])):
            body = For(var, as_expr(extent), body)
        return body


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attention(Attended):
    """By warpgroups, which tensor maps copy for."""

    tile: AttentionTile

    @property
    def query_tiles(self) -> Any:
        return -(-self.queries // self.tile.queries)

    @property
    def width_panels(self) -> int:
        return -(-self.width // PANEL_COLUMNS)

    @property
    def value_panels(self) -> int:
        return -(-self.values // PANEL_COLUMNS)

    @property
    def key_start(self) -> int:
        """Where keys begin in shared memory: behind queries, in whose place results are stored."""
        return max(self.width_panels, self.value_panels) * self.tile.queries * ROW_BYTES

    @property
    def key_bytes(self) -> int:
        """Of a stage of keys."""
        return self.width_panels * self.tile.keys * ROW_BYTES

    @property
    def value_bytes(self) -> int:
        return self.value_panels * self.tile.keys * ROW_BYTES

    @property
    def value_start(self) -> int:
        return self.key_start + self.tile.stages * self.key_bytes

    @property
    def barrier_start(self) -> int:
        return self.value_start + self.tile.stages * self.value_bytes

    @property
    def shared_bytes(self) -> int:
        return self.barrier_start + BARRIER_BYTES + ALIGNMENT

    def __str__(self) -> str:
        kind = "causal attention" if self.causal else "attention"
        return f"{kind} {self.batch} x {self.queries} x {self.keys}, columns {self.width} and {self.values}"


def is_zero(step: int | Extent) -> bool:
    """Whether a step is that of an axis that is shared: one that is open never is."""
    return not isinstance(step, Symbolic) and step == 0


def compare_low(value: Expr) -> Expr:
    """Whether a score is minus infinity."""
    return value.equal(float("-inf"))
