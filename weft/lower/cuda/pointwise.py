"""Stages without a reduction: a thread computes one element of the result, or a vector of 16 bytes of them where
neighbours are neighbours in all that is read."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.cuda_target import CudaTarget
from ...te.expr import Load, Var, as_expr
from ...te.extents import is_open
from ...te.loops import Buffer, For, Kernel, Stmt, Store
from ...te.visit import postorder, substitute
from ..access import accessed, step
from ..axes import Axis, simplified
from ..collapse import collapsed
from .aligned import with_alignment
from .grid import over_elements


def pointwise_kernel(
    name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, target: CudaTarget
) -> Kernel:
    """The kernel of a body that stores elements at `axes`."""
    buffers, axes, body = collapsed(buffers, axes, simplified(body, axes))
    buffers, body = with_alignment(buffers, body)
    lanes = vector_lanes(axes, body, target)
    if lanes > 1:
        axes, body = _in_vectors(axes, body, lanes)
    return over_elements(name, buffers, axes, body, target)


def vector_lanes(axes: Sequence[Axis], body: Stmt, target: CudaTarget) -> int:
    """How many neighbours along the innermost axis one thread computes: as many as 16 bytes hold of the widest dtype,
    where all that is read for them is in line, or the same."""
    if not axes or is_open(axes[-1].extent):
        return 1
    inner = axes[-1]
    accesses = [n for n in postorder((body,)) if isinstance(n, (Load, Store)) and accessed(n).scope == "arg"]
    if any(a.mask is not None or step(a, inner.var) not in (0, 1) for a in accesses):
        return 1
    lanes = min(target.lanes(accessed(a).dtype) for a in accesses)
    while lanes > 1 and inner.extent % lanes:
        lanes //= 2
    return lanes


def _in_vectors(axes: Sequence[Axis], body: Stmt, lanes: int) -> tuple[list[Axis], Stmt]:
    """The innermost axis in steps of so many lanes."""
    inner, turn, lane = axes[-1], Var(f"{axes[-1].var.name}_o"), Var("lane")
    at = substitute(body, {inner.var: turn * lanes + lane})
    return [*axes[:-1], Axis(turn, inner.extent // lanes)], For(lane, as_expr(lanes), at, "vector")
