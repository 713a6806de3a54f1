"""The generic schedule of a stage without a reduction: every output element from a few inputs.

Axes that all tensors walk through in one go become one axis; the innermost is vectorised, the
outer ones are shared by threads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base.target import Target
from ..te.expr import Expr, Load, Var, as_expr
from ..te.loops import Buffer, Kernel, Stmt, Store, buffer
from ..te.simplify_loops import simplify_statement
from ..te.visit import parts, postorder, rewrite
from .access import Affine, accessed, address
from .nest import Axis, finished_kernel, in_blocks, vector_loop


def pointwise_kernel(
    name: str, buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt, target: Target
) -> Kernel:
    """The kernel of a body that stores elements at `axes`."""
    buffers, axes, body = collapsed(buffers, axes, body)
    lanes = vector_lanes(body, target)
    if not axes:
        return finished_kernel(name, buffers, [], body)
    inner, outer = axes[-1], list(axes[:-1])
    if not outer:
        block, body = in_blocks(inner, lanes, body)
        return finished_kernel(name, buffers, [block], body)
    return finished_kernel(name, buffers, outer, vector_loop(inner, lanes, body))


def vector_lanes(body: Stmt, target: Target) -> int:
    """As many lanes as the widest element type in the body allows."""
    dtypes = {node.dtype for node in postorder((body,)) if isinstance(node, Load)}
    dtypes |= {node.buffer.dtype for node in postorder((body,)) if isinstance(node, Store)}
    return min((target.lanes(dtype) for dtype in dtypes), default=1)


def collapsed(
    buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt
) -> tuple[Sequence[Buffer], Sequence[Axis], Stmt]:
    """The same with neighbouring axes joined wherever every access allows it."""
    body = simplify_statement(body, {axis.var: (0, max(axis.extent - 1, 0)) for axis in axes})
    places = _addresses(body, axes)
    axes = [axis for axis in axes if axis.extent != 1 or places is None]
    if places is None or len(axes) < 2:
        return buffers, axes, body
    groups: list[list[Axis]] = [[axes[0]]]
    for axis in axes[1:]:
        last = groups[-1][-1]
        if all(p.terms.get(last.var, 0) == p.terms.get(axis.var, 0) * axis.extent for p in places):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    if len(groups) == len(axes):
        return buffers, axes, body
    return _flattened(buffers, groups, body)


def _addresses(body: Stmt, axes: Sequence[Axis]) -> list[Affine] | None:
    """The linear address of every access; None if one has none, or an axis is used as a value."""
    places: list[Affine] = []
    for node in postorder((body,)):
        if not isinstance(node, (Load, Store)) or accessed(node).scope != "arg":
            continue
        if node.mask is not None:
            return None
        found = address(node)
        if found is None:
            return None
        places.append(found)
    return None if _value_vars(body) & {axis.var for axis in axes} else places


def _value_vars(body: Stmt) -> set[Var]:
    """Variables that are read outside addresses."""
    found: set[Var] = set()
    seen: set[int] = set()
    stack: list[Any] = [body]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Var):
            found.add(node)
        elif isinstance(node, Store):
            stack.append(node.value)
        elif not isinstance(node, Load):
            stack.extend(parts(node))
    return found


def _flattened(
    buffers: Sequence[Buffer],
    groups: Sequence[Sequence[Axis]],
    body: Stmt,
) -> tuple[Sequence[Buffer], Sequence[Axis], Stmt]:
    flat = {b: buffer(b.name, b.dtype, (_size(b),)) for b in buffers}
    joined = []
    for group in groups:
        extent = 1
        for axis in group:
            extent *= axis.extent
        joined.append(Axis(Var(group[-1].var.name), extent))

    joined_vars = {axis.var for group in groups for axis in group}

    def index(place: Affine) -> Expr:
        total: Expr = as_expr(place.constant)
        for group, axis in zip(groups, joined):
            coefficient = place.terms.get(group[-1].var, 0)
            if coefficient:
                total = total + axis.var * coefficient
        for var, coefficient in place.terms.items():
            if var not in joined_vars:
                total = total + var * coefficient
        return total

    def flatten(node: Any) -> Any:
        if not isinstance(node, (Load, Store)) or accessed(node).scope != "arg":
            return node
        if isinstance(node, Load):
            place = address(node)
            assert place is not None
            return Load(flat[node.source], (index(place),))  # type: ignore[index]
        place = address(node)
        assert place is not None
        return Store(flat[node.buffer], (index(place),), node.value)

    return [flat[b] for b in buffers], joined, rewrite(body, flatten)


def _size(source: Buffer) -> Expr:
    total = 1
    for extent in source.shape:
        total *= int(extent.value)  # type: ignore[attr-defined]
    return as_expr(total)
