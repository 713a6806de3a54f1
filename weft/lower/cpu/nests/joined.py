"""Axes that every access walks through in one go become one: an image's rows are then one long row,
whatever its width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....te.expr import Expr, Load, Var, as_expr
from ....te.extents import Trace
from ....te.loops import Buffer, For, Stmt, Store
from ....te.simplify import simplify
from ....te.simplify_loops import statements
from ....te.visit import parts, postorder, rewrite, same, substitute

Buffers = dict[Buffer, Buffer]  # as they were, and as they are now


def join_loops(body: Stmt, buffers: Buffers) -> Stmt:
    """The body with loops that stand directly inside each other joined where they can be."""
    while True:
        pair = next((s for s in statements(body) if _is_pair(s) and _fits(s, body)), None)
        if pair is None:
            return body
        body = _joined(body, pair, buffers)


def _joined(body: Stmt, pair: Stmt, buffers: Buffers) -> Stmt:
    assert isinstance(pair, For)
    inner = pair.body
    assert isinstance(inner, For)
    var = Var(inner.var.name)

    def rule(node: Any) -> Any:
        if isinstance(node, For) and node.var is pair.var:
            assert isinstance(node.body, For)
            return For(var, simplify(pair.extent * inner.extent), node.body.body, inner.kind)
        return node

    return _moved(rewrite(body, rule), pair.var, inner.var, var, buffers)


def _is_pair(node: Stmt) -> bool:
    return isinstance(node, For) and isinstance(node.body, For)


def _fits(pair: Stmt, body: Stmt) -> bool:
    assert isinstance(pair, For)
    assert isinstance(pair.body, For)
    return can_join(body, pair.var, pair.body.var, pair.body.extent)


def can_join(body: Stmt, outer: Var, inner: Var, extent: Expr) -> bool:
    """Whether all that is said of two variables is that they are neighbouring indices, the second
    of all there are along its axis."""
    uses = 0
    touched: dict[Any, bool] = {}
    for node in postorder((body,)):
        if isinstance(node, (Load, Store)):
            source = node.buffer if isinstance(node, Store) else node.source
            place = _place(node, outer, inner)
            if place is not None:
                assert isinstance(source, Buffer)
                if source.scope != "arg" or not same(source.shape[place + 1], extent):
                    return False
                uses += 2
            if touched.setdefault(source, place is not None) != (place is not None):
                return False
    return uses == _mentions(body, (outer, inner))


def _place(access: Load | Store, outer: Var, inner: Var) -> int | None:
    for place, (a, b) in enumerate(zip(access.indices, access.indices[1:])):
        if a is outer and b is inner:
            return place
    return None


def _mentions(body: Stmt, variables: Sequence[Var]) -> int:
    """How often nodes have one of the variables as a part."""
    nodes = postorder((body,))
    return sum(part in variables for node in nodes for part in parts(node) if type(part) is Var)


def _moved(body: Stmt, outer: Var, inner: Var, joined: Var, buffers: Buffers) -> Stmt:
    """The body with one index in place of two."""
    made: Buffers = {}

    def flat(source: Any, place: int) -> Buffer:
        if source not in made:
            shape = [*source.shape]
            shape[place : place + 2] = [simplify(source.shape[place] * source.shape[place + 1])]
            strides = [*source.strides]
            del strides[place]
            made[source] = Buffer(
                source.name, source.dtype, tuple(shape), tuple(strides), source.scope, source.lanes, source.alignment
            )
        return made[source]

    def rule(node: Any) -> Any:
        if not isinstance(node, (Load, Store)):
            return node
        place = _place(node, outer, inner)
        if place is None:
            return node
        at = (*node.indices[:place], joined, *node.indices[place + 2 :])
        if isinstance(node, Store):
            return Store(flat(node.buffer, place), at, node.value, node.mask)
        return Load(flat(node.source, place), at, node.mask)

    body = rewrite(body, rule)
    for first, last in list(buffers.items()):
        buffers[first] = made.get(last, last)
    return body


def join_axes(axes: Sequence[Any], body: Stmt, buffers: Buffers, trace: Trace) -> tuple[list[Any], Stmt]:
    """Neighbouring axes of a nest, joined where they can be."""
    joined = list(axes)
    place = len(joined) - 2
    while place >= 0:
        outer, inner = joined[place : place + 2]
        extent = substitute(as_expr(inner.extent), trace.equal)
        if can_join(body, outer.var, inner.var, extent):
            var = Var(inner.var.name)
            body = _moved(body, outer.var, inner.var, var, buffers)
            joined[place : place + 2] = [type(inner)(var, outer.extent * inner.extent)]
        place -= 1
    return joined, body
