"""Attention by single warps: what is known of queries, keys and values becomes a plan of
`te.tensor_cores.warp_attention`. Threads copy operands, so views of any steps are taken whose columns are
neighbours."""

from __future__ import annotations

from dataclasses import replace

from ...base.cuda_target import CudaTarget
from ...base.plan import Launch
from ...te.build import KernelBuilder
from ...te.extents import is_same
from ...te.loops import Kernel
from ...te.tensor_cores.attention import MAX_COLUMNS, Seen
from ...te.tensor_cores.warp_attention import WarpAttention, WarpAttentionTile
from .attention import AttentionRequest, Strided, described, is_empty

KINDS = {"float16": "fp16", "bfloat16": "bf16", "float32": "tf32"}
SHAPES = ((4, 2), (4, 1), (2, 1))  # warps and stages, the fastest first


def can_attend_by_warps(request: AttentionRequest) -> bool:
    """Whether columns are neighbours in memory, and registers hold those of a head."""
    sides = (request.query, request.key, request.value, request.out)
    alike = all(side.buffer.dtype.name in KINDS and side.buffer.dtype == request.out.buffer.dtype for side in sides)
    lines = all(is_same(side.steps[-1], 1) for side in sides)
    fits = max(request.width, request.values) <= MAX_COLUMNS
    return alike and lines and fits and request.factor > 0 and not is_empty(request)


def write_warp_attention(
    b: KernelBuilder, request: AttentionRequest, target: CudaTarget, tile: WarpAttentionTile | None = None
) -> Kernel:
    """The kernel over the buffers that a builder has, with the tile that is given, or the largest that fits."""
    tiles = warp_attention_tiles(request, target) if tile is None else [tile]
    sides = [_seen(side) for side in (request.query, request.key, request.value, request.out)]
    plans = [WarpAttention(Launch(), (), tile=each, **described(request, KINDS, sides)) for each in tiles]
    plan = next((plan for plan in plans if plan.shared_bytes <= target.shared_bytes), plans[-1])
    blocks = plan.heads * plan.query_tiles
    threads = (plan.tile.threads, 1, 1)
    launch = Launch((blocks, 1, 1), threads, plan.shared_bytes, 1, target.has_dependent_launch)
    b.emit(replace(plan, launch=launch))
    return b.finish()


def warp_attention_tiles(request: AttentionRequest, target: CudaTarget) -> list[WarpAttentionTile]:
    """Those to choose from. The last one fits the shared memory of every GPU from sm_80 on."""
    kind = KINDS[request.out.buffer.dtype.name]
    exact = kind == "tf32" and target.precision == "fp32"
    return [WarpAttentionTile(kind, warps, stages, exact) for warps, stages in SHAPES]


def _seen(side: Strided) -> Seen:
    return Seen(side.buffer, 0, side.start, side.steps)
