"""A reduction over a vectorised axis: each lane reduces its share, then the lanes are combined."""

from __future__ import annotations

from typing import Any

from ...te.expr import Expr, Load, Var, as_expr
from ...te.loops import Alloc, Buffer, For, Seq, Stmt, Store, buffer
from ...te.simplify_loops import sequence, statements
from ...te.visit import rewrite, substitute
from ..axes import Axis


def partial_sums(body: Stmt, axis: Axis, lanes: int) -> Stmt:
    """The body with the reduction over `axis` in lanes."""
    full = axis.extent // lanes * lanes

    def transform(node: Any) -> Any:
        if isinstance(node, Alloc) and node.buffer.scope == "register":
            return _split_accumulator(node, axis, lanes, full)
        return node

    return rewrite(body, transform)


def _split_accumulator(node: Alloc, axis: Axis, lanes: int, full: int) -> Stmt:
    acc = node.buffer
    steps = list(node.body.body) if isinstance(node.body, Seq) else [node.body]
    place = next((i for i, s in enumerate(steps) if isinstance(s, For) and _reduces(s, axis.var, acc)), None)
    if place is None:
        return node
    start, loop = steps[place - 1], steps[place]
    assert isinstance(start, Store)
    assert isinstance(loop, For)
    own = buffer(f"{acc.name}_lane", acc.dtype, (), scope="register")
    shares = buffer(f"{acc.name}_lanes", acc.dtype, (lanes,), scope="scratch")
    lane, turn, each = Var("share"), Var(axis.var.name), Var("each")
    strided = _with_loop(loop, axis.var, turn, full // lanes)
    by_lane = substitute(with_accumulator(strided, acc, own), {axis.var: turn * lanes + lane})
    share = [Store(own, (), start.value), by_lane, Store(shares, (lane,), own[()])]
    first = Alloc(own, sequence(share))
    parts: list[Stmt] = [
        For(lane, as_expr(lanes), first, "vector"),
        For(each, as_expr(lanes), Store(acc, (), _combined(loop, acc, shares[each]))),
    ]
    if axis.extent != full:
        tail = Var(axis.var.name)
        rest = _with_loop(loop, axis.var, tail, axis.extent - full)
        parts.append(substitute(rest, {axis.var: tail + full}))
    return Alloc(acc, Alloc(shares, sequence([*steps[:place], *parts, *steps[place + 1 :]])))


def _reduces(loop: For, var: Var, acc: Buffer) -> bool:
    """Whether a loop over `var`, or around it, reduces into this accumulator: sums stand beside sums in one body."""
    inside = list(statements(loop))
    looped = any(isinstance(node, For) and node.var is var for node in inside)
    return looped and any(isinstance(node, Store) and node.buffer is acc for node in inside)


def _with_loop(stmt: Stmt, var: Var, other: Var, extent: int) -> Stmt:
    """The statement with the loop over `var` counting with another variable to another extent."""

    def change(node: Any) -> Any:
        if isinstance(node, For) and node.var is var:
            return For(other, as_expr(extent), node.body, node.kind)
        return node

    return rewrite(stmt, change)


def with_accumulator(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """The statement with another accumulator."""

    def change(node: Any) -> Any:
        if isinstance(node, Load) and node.source is old:
            return Load(new, node.indices)
        if isinstance(node, Store) and node.buffer is old:
            return Store(new, node.indices, node.value, node.mask)
        return node

    return rewrite(stmt, change)


def _combined(loop: Stmt, acc: Buffer, value: Expr) -> Expr:
    """acc combined with a value, in the way the loop combines."""
    store = next(n for n in statements(loop) if isinstance(n, Store) and n.buffer is acc)
    update = store.value
    return type(update)(update.op, acc[()], value)  # type: ignore[attr-defined, call-arg]
