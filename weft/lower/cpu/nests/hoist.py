"""What is the same in every turn of a loop is computed before it; a division by such a value
becomes a multiplication."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ....base.dtype import is_float
from ....te.expr import Binary, Const, Expr, ExprLike, Load, Var, const
from ....te.loops import For, Let, Stmt, Store
from ....te.simplify_loops import statements
from ....te.visit import parts, rewrite
from ...access import accessed
from ..nest import lane_loop


def hoist(body: Stmt, turning: Iterable[Var] = ()) -> tuple[Stmt, Callable[[Stmt], Stmt]]:
    """The body of loops over variables, and what binds the values it now expects around them."""
    moving = {s.var for s in statements(body) if isinstance(s, (For, Let))} | set(turning)
    written = {s.buffer for s in statements(body) if isinstance(s, Store)}
    known: dict[int, bool] = {}
    kept: list[Expr] = []
    lets: list[tuple[Var, Expr]] = []

    def is_fixed(node: Expr) -> bool:
        if id(node) not in known:
            kept.append(node)
            known[id(node)] = _own(node, moving, written) and all(map(is_fixed, parts(node)))
        return known[id(node)]

    def bind(label: str, value: Expr) -> Var:
        lets.append((Var(label, value.dtype), value))
        return lets[-1][0]

    def rule(node: Any) -> Any:
        if not isinstance(node, Expr):
            return node
        fixed = is_fixed(node)
        if not is_float(node.dtype) or isinstance(node, (Const, Var)):
            return node
        if fixed:
            return bind("same", node)
        if isinstance(node, Binary) and node.op == "div" and is_fixed(node.b):
            return node.a * bind("inverse", const(1, node.dtype) / node.b)
        return node

    made = rewrite(body, rule)

    def around(inner: Stmt) -> Stmt:
        for var, value in reversed(lets):
            inner = Let(var, value, inner)
        return inner

    return made, around


def _own(node: Expr, moving: set[Var], written: set[Any]) -> bool:
    """Whether a node itself, parts aside, gives the same in every turn."""
    if isinstance(node, Load):
        source = accessed(node)
        return node.mask is None and source.scope == "arg" and source not in written
    return not (isinstance(node, Var) and node in moving)


def hoisted(body: Stmt) -> Stmt:
    """Loops with all that is the same in every turn of them bound around them."""
    made, around = hoist(body)
    return around(made)


def vector_loop(var: Var, start: ExprLike, end: ExprLike, lanes: int, body: Stmt) -> Stmt:
    """var = start .. end - 1 in lanes, with what is the same in all turns before them."""
    body, around = hoist(body, (var,))
    return around(lane_loop(var, start, end, lanes, body))
