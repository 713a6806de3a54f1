"""Stages without a reduction: a thread computes one element of the result, or a vector of 16 bytes of them where
neighbours are neighbours in all that is read; where they are far apart in one, `transpose.py` does it."""

from __future__ import annotations

from collections.abc import Sequence

from ...base.cuda_target import CudaTarget
from ...te.expr import Call, Load, Var, as_expr
from ...te.extents import is_open
from ...te.loops import Buffer, For, Kernel, Stmt, Store
from ...te.visit import free_of, postorder, substitute
from ..access import accessed, step
from ..axes import Axis, simplified
from ..collapse import collapsed
from .aligned import ALIGNMENT, with_alignment
from .grid import over_elements
from .transpose import across_kernel, found_across

LINE = 32  # bytes that one thread stores of neighbours which are read one by one


def pointwise_kernel(
    name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, target: CudaTarget
) -> Kernel:
    """The kernel of a body that stores elements at `axes`."""
    buffers, axes, body = collapsed(buffers, axes, simplified(body, axes))
    buffers, body = with_alignment(buffers, body)
    across = found_across(axes, body)
    if across is not None:
        return across_kernel(name, buffers, axes, body, across)
    lanes = max(_at_once(axes, body, target), whole_line(axes, body))
    if lanes > 1:
        axes, body = in_vectors(axes, body, lanes)
    return over_elements(name, buffers, axes, body, target)


def vector_lanes(axes: Sequence[Axis], body: Stmt, target: CudaTarget) -> int:
    """How many neighbours along the innermost axis one thread computes: as many as 16 bytes hold of the widest dtype,
    where all that is read for them is in line, or the same."""
    if not axes or is_open(axes[-1].extent):
        return 1
    inner = axes[-1]
    accesses = [n for n in postorder((body,)) if isinstance(n, (Load, Store)) and accessed(n).scope == "arg"]
    if any(not _is_in_line(a, inner.var) for a in accesses):
        return 1
    lanes = min(target.lanes(accessed(a).dtype) for a in accesses)
    while lanes > 1 and inner.extent % lanes:
        lanes //= 2
    return lanes


def _at_once(axes: Sequence[Axis], body: Stmt, target: CudaTarget) -> int:
    """A vector; two of 16-bit floats with a function, so that a thread has more to read while it computes."""
    lanes = vector_lanes(axes, body, target)
    is_long = lanes == target.lanes("float16") and axes[-1].extent % (2 * lanes) == 0
    return 2 * lanes if is_long and any(isinstance(node, Call) for node in postorder((body,))) else lanes


def whole_line(axes: Sequence[Axis], body: Stmt) -> int:
    """All neighbours along a short innermost axis, where one thread stores them at once and reads them one by one:
    which of them are where is known then. 1 where it is too long, or no multiple of 16 bytes."""
    if not axes or is_open(axes[-1].extent):
        return 1
    inner, stores = axes[-1], [node for node in postorder((body,)) if isinstance(node, Store)]
    at_once = all(_is_in_line(store, inner.var) and accessed(store).scope == "arg" for store in stores)
    bytes_of = [inner.extent * store.buffer.dtype.itemsize for store in stores]
    fits = all(size % ALIGNMENT == 0 and size <= LINE for size in bytes_of)
    return inner.extent if at_once and fits else 1


def _is_in_line(access: Load | Store, var: Var) -> bool:
    """Whether neighbours along an axis are read or written together, or the same is for all of them."""
    return (access.mask is None or free_of(access.mask, [var])) and step(access, var) in (0, 1)


def in_vectors(axes: Sequence[Axis], body: Stmt, lanes: int) -> tuple[list[Axis], Stmt]:
    """The innermost axis in steps of so many lanes."""
    inner, turn, lane = axes[-1], Var(f"{axes[-1].var.name}_o"), Var("lane")
    at = substitute(body, {inner.var: turn * lanes + lane})
    return [*axes[:-1], Axis(turn, inner.extent // lanes)], For(lane, as_expr(lanes), at, "vector")
