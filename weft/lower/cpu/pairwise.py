"""A reduction that has no others beside it: its loops become one, whose turns are combined in
pairs, so that no value waits for the one just before it. Sums are more exact that way, too."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...te.expr import Binary, Expr, Load, Var, as_expr
from ...te.loops import For, Stmt, Store
from ...te.simplify_loops import loops_inside, sequence, simplify_statement, statements
from ...te.visit import loads, rewrite, substitute
from ..access import accessed, step
from .pointwise import value_vars

PAIRED = 8  # turns that are combined before their result is added to the rest
COMBINED = frozenset({"add", "max", "min"})


def pairwise(body: Stmt) -> Stmt:
    """The body with its only reduction in pairs; as it was where that is not simple, or short."""
    loops = [node for node in statements(body) if isinstance(node, For)]
    if not loops or loops != loops_inside(loops[0]) or not _is_simple(loops[-1].body):
        return body
    joined = _joined(loops)
    turns = prod(_extent(loop) for loop in joined)
    if turns < 2 * PAIRED or value_vars(body) & {loop.var for loop in joined}:
        return body
    store = substitute(loops[-1].body, {loop.var: as_expr(0) for loop in joined[:-1]})
    combined = _paired(store, loops[-1].var, turns)
    return rewrite(body, lambda node: combined if node is joined[0] else node)


def _joined(loops: Sequence[For]) -> list[For]:
    """The innermost loops through which every load walks in one go."""
    reads, turns, inner = loads(loops[-1].body), 1, loops[-1]
    joined: list[For] = []
    for loop in reversed(loops):
        if any(step(load, loop.var) != turns * (step(load, inner.var) or 0) for load in reads):
            break
        joined.insert(0, loop)
        turns *= _extent(loop)
    return joined


def _extent(loop: For) -> int:
    return int(loop.extent.value)  # type: ignore[attr-defined]


def _is_simple(stmt: Stmt) -> bool:
    """Whether it combines acc with something that is not a product, which takes no step of its
    own."""
    value = stmt.value if isinstance(stmt, Store) else None
    if not isinstance(value, Binary) or value.op not in COMBINED or not isinstance(value.a, Load):
        return False
    reads = loads(value.b)
    flat = all(load.mask is None and accessed(load).scope == "arg" for load in reads)
    dense = all(accessed(load).rank == 1 for load in reads)
    is_product = isinstance(value.b, Binary) and value.b.op == "mul"
    return flat and dense and bool(reads) and not is_product


def _paired(stmt: Stmt, var: Var, turns: int) -> Stmt:
    assert isinstance(stmt, Store)
    assert isinstance(stmt.value, Binary)
    acc, value, op = stmt.value.a, stmt.value.b, stmt.value.op
    outer, rest = Var(f"{var.name}_o"), Var(f"{var.name}_t")
    parts: list[Expr] = [substitute(value, {var: outer * PAIRED + number}) for number in range(PAIRED)]
    while len(parts) > 1:
        parts = [Binary(op, a, b) for a, b in zip(parts[::2], parts[1::2])]
    full, left = divmod(turns, PAIRED)
    whole = Store(stmt.buffer, stmt.indices, Binary(op, acc, parts[0]))
    loops: list[Stmt] = [For(outer, as_expr(full), whole)]
    if left:
        loops.append(For(rest, as_expr(left), substitute(stmt, {var: rest + full * PAIRED})))
    return simplify_statement(sequence(loops))
