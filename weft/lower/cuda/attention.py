"""Attention on tensor cores: what is known of queries, keys and values becomes a plan of `te.tensor_cores`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.dtype import DTYPES
from ...base.plan import Launch, TensorMap
from ...te.build import KernelBuilder
from ...te.expr import Expr, Var
from ...te.extents import Extent, is_open, is_same
from ...te.loops import Buffer, Kernel, Store
from ...te.tensor_cores.attention import HALF_BYTES, MAX_COLUMNS, PANEL_COLUMNS, Attention, AttentionTile, Seen
from ...te.tensor_cores.layouts import PANEL_ROWS
from .product import fits_copies
from .size_classes import most_common

FLOAT16 = DTYPES["float16"]
MAX_BATCH_AXES = 3  # a tensor map has five axes
LONG = 8  # blocks of two warpgroups for each multiprocessor, from which on they are the faster ones
KINDS = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True)
class Strided:
    """A part of a buffer of one axis: where it begins, and a step for each axis of the batch, rows and columns."""

    buffer: Buffer
    start: int | Extent
    steps: tuple[int | Extent, ...]


@dataclass(frozen=True)
class AttentionRequest:
    """`score`: (product of a query and a key, index of the batch, query, key) -> what is scaled by `factor`. The batch,
    how many queries and keys there are, and where they lie may be open."""

    query: Strided
    key: Strided
    value: Strided
    out: Strided
    batch: tuple[int | Extent, ...]
    queries: int | Extent
    keys: int | Extent
    width: int
    values: int
    factor: float
    causal: bool = False
    unseen: str = "nan"
    score: Callable[[Expr, Sequence[Expr], Expr, Expr], Expr] | None = None


def can_attend(request: AttentionRequest) -> bool:
    """Whether tensor maps can see all four tensors, and registers hold the columns of a head."""
    sides = (request.query, request.key, request.value, request.out)
    numbers = [n for side in sides for n in (side.start, *side.steps[:-1])]
    aligned = all(fits_copies(n, FLOAT16) for n in numbers) and all(is_same(side.steps[-1], 1) for side in sides)
    alike = all(side.buffer.dtype.name in KINDS and side.buffer.dtype == request.out.buffer.dtype for side in sides)
    fits = max(request.width, request.values) <= MAX_COLUMNS and request.values % 8 == 0 and request.width % 8 == 0
    pairs = request.score is None or is_open(request.keys) or request.keys % 2 == 0
    positive = request.factor > 0 and not is_empty(request)
    return aligned and alike and fits and pairs and positive and len(request.batch) <= MAX_BATCH_AXES


def is_empty(request: AttentionRequest) -> bool:
    """Whether there is nothing to attend to, or nobody who does."""
    return not all((*request.batch, request.queries, request.keys, request.values, request.width))


def attention_tile(request: AttentionRequest, target: CudaTarget) -> AttentionTile:
    """Two warpgroups where there are queries for them and registers: results of a thread, scores and what is around.
    One alone leaves room for other blocks beside it, which short sequences gain by."""
    columns = max(request.width, request.values)

    def suiting(heads: int, queries: int, keys: int) -> AttentionTile:
        pairs = -(-queries // (2 * PANEL_ROWS))
        if columns > 128:
            return AttentionTile(1, 64)
        if columns > 64:
            few = queries <= PANEL_ROWS or heads * pairs < target.sms // 2
            return AttentionTile(1 if few else 2, 64 if keys <= 64 else 128)
        return AttentionTile(2, 64) if heads * pairs >= LONG * target.sms else AttentionTile(1, 64, 4)

    return most_common(suiting, (prod(request.batch), request.queries, request.keys))


def write_attention(
    b: KernelBuilder, request: AttentionRequest, target: CudaTarget, tile: AttentionTile | None = None
) -> Kernel:
    """The kernel over the buffers that a builder has."""
    tile = tile or attention_tile(request, target)
    at = {buffer: number for number, buffer in enumerate(b.buffers)}
    maps: list[TensorMap] = []

    def seen(side: Strided, rows: int | Extent, columns: int, box: int) -> Seen:
        made = Seen(side.buffer, len(maps), side.start, side.steps)
        axes: list[Any] = [(columns, None), (rows, side.steps[-2])]
        axes += [(request.batch[axis], side.steps[axis]) for axis in made.mapped]
        dims: Any = tuple(extent for extent, _ in axes)
        strides: Any = tuple(step * HALF_BYTES for _, step in axes if step is not None)
        boxes = (PANEL_COLUMNS, box, *(1,) * len(made.mapped))
        element, start = side.buffer.dtype.name, side.start * HALF_BYTES
        maps.append(TensorMap(at[side.buffer], element, dims, strides, boxes, offset=start))
        return made

    query = seen(request.query, request.queries, request.width, tile.queries)
    key = seen(request.key, request.keys, request.width, tile.keys)
    value = seen(request.value, request.keys, request.values, tile.keys)
    out = seen(request.out, request.queries, request.values, PANEL_ROWS)
    sides = query, key, value, out
    plan = Attention(Launch(), tuple(maps), tile=tile, **described(request, KINDS, sides))
    blocks = plan.heads * plan.query_tiles
    b.emit(_launched(plan, Launch((blocks, 1, 1), (tile.threads, 1, 1), plan.shared_bytes, 1, True)))
    return b.finish()


def described(request: AttentionRequest, kinds: dict[str, str], sides: Sequence[Seen]) -> dict[str, Any]:
    """What all statements of attentions say, by the names of `Attended`; `sides` in its order."""
    dtype = request.out.buffer.dtype
    batch = tuple(Var(f"batch{axis}") for axis in range(len(request.batch)))
    query_at, key_at, column = Var("query"), Var("key"), Var("column")
    total, result = Var("total", dtype), Var("result", dtype)
    place = sides[-1].at(batch, query_at, column)
    return {
        **{name: getattr(request, name) for name in "batch queries keys width values factor causal unseen".split()},
        **dict(zip(("query", "key", "value", "out"), sides)),
        "kind": kinds[dtype.name],
        "batch_at": batch,
        "query_at": query_at,
        "key_at": key_at,
        "column_at": column,
        "total": total,
        "result": result,
        "score": total if request.score is None else request.score(total, batch, query_at, key_at),
        "store": Store(request.out.buffer, place.indices, result),  # type: ignore[attr-defined]
    }


def _launched(plan: Attention, launch: Launch) -> Attention:
    return replace(plan, launch=launch)
