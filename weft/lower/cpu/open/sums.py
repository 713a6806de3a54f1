"""Reductions inside open kernels: over an axis in lanes, several turns at once, and long sums in
parts, so that rounding errors do not grow with their length."""

from __future__ import annotations

from typing import Any

from ....te.expr import Binary, Call, Const, Expr, Load, Var, as_expr, const
from ....te.loops import Alloc, Buffer, For, If, Seq, Stmt, Store, buffer
from ....te.simplify_loops import sequence, statements
from ....te.visit import loads, postorder, rewrite, substitute
from ..long_sums import adds
from ..partial import with_accumulator

PART = 64  # summands that are added up before they join the sum
ABREAST = 4  # turns whose values are combined before they join: joining takes time
JOINED = frozenset(("add", "mul", "max", "min"))


def in_lanes(body: Stmt, var: Var, lanes: int) -> Stmt:
    """Every lane reduces its share of the loop over `var`; then the shares are combined."""

    def split(node: Any) -> Any:
        if isinstance(node, Alloc) and node.buffer.scope == "register" and _loop(node, var):
            return _shared(node, var, lanes)
        return node

    return rewrite(body, split)


def _loop(node: Stmt, var: Var) -> bool:
    return any(isinstance(s, For) and s.var is var for s in statements(node))


def _shared(node: Alloc, var: Var, lanes: int) -> Stmt:
    acc = node.buffer
    steps = list(node.body.body) if isinstance(node.body, Seq) else [node.body]
    place = next(i for i, s in enumerate(steps) if isinstance(s, For))
    start, loop = steps[place - 1], steps[place]
    assert isinstance(start, Store)
    own = buffer(f"{acc.name}_own", acc.dtype, (), scope="register")
    shares = buffer(f"{acc.name}_shares", acc.dtype, (lanes,), scope="scratch")
    lane = Var("lane")
    by_lane = with_accumulator(rewrite(loop, lambda n: _strided(n, var, lane, lanes)), acc, own)
    share = sequence([Store(own, (), start.value), by_lane, Store(shares, (lane,), own[()])])
    parts: list[Stmt] = [
        For(lane, as_expr(lanes), Alloc(own, share), "vector"),
        Store(acc, (), _tree(loop, acc, [acc[()], *(shares[each] for each in range(lanes))])),
    ]
    return Alloc(acc, Alloc(shares, sequence([*steps[:place], *parts, *steps[place + 1 :]])))


def _strided(node: Any, var: Var, lane: Var, lanes: int) -> Any:
    """The loop as one lane runs it: every so many turns, the last one only if there is one."""
    if not (isinstance(node, For) and node.var is var):
        return node
    turn, full = Var("turn"), node.extent // lanes
    main = cascaded(For(turn, full, substitute(node.body, {var: turn * lanes + lane})))
    last = full * lanes + lane
    return Seq((main, If(last < node.extent, substitute(node.body, {var: last}))))


def _tree(loop: Stmt, acc: Buffer, items: list[Expr]) -> Expr:
    """All items combined as the loop combines, neighbours first."""
    store = next(n for n in statements(loop) if isinstance(n, Store) and n.buffer is acc)
    update = store.value
    assert isinstance(update, Binary)
    return _combined(update.op, items)


def _combined(op: str, items: list[Expr]) -> Expr:
    while len(items) > 1:
        pairs: list[Expr] = [Binary(op, a, b) for a, b in zip(items[::2], items[1::2])]
        items = [*pairs, *items[len(pairs) * 2 :]]
    return items[0]


def cascaded(body: Stmt) -> Stmt:
    """The body with innermost loops that reduce several turns at once, and long ones that add up
    floats in two levels."""
    return rewrite(body, lambda node: _in_parts(node) if isinstance(node, For) else node)


def _abreast(loop: For) -> Stmt:
    """The loop with as many turns in one, where all it does is to join values, and those take no
    function."""
    store, short = loop.body, isinstance(loop.extent, Const) and int(loop.extent.value) < ABREAST
    if short or loop.kind != "serial" or not (isinstance(store, Store) and _joins(store)):
        return loop
    update = store.value
    assert isinstance(update, Binary)
    if any(isinstance(node, Call) for node in postorder((update.b,))):
        return loop
    turn, rest, count = Var(loop.var.name), Var(loop.var.name), loop.extent // ABREAST
    each = [substitute(update.b, {loop.var: turn * ABREAST + n}) for n in range(ABREAST)]
    joined = Store(store.buffer, (), Binary(update.op, update.a, _combined(update.op, each)))
    after = substitute(store, {loop.var: count * ABREAST + rest})
    return Seq((For(turn, count, joined), For(rest, loop.extent % ABREAST, after)))


def _joins(store: Store) -> bool:
    update = store.value
    return (
        store.buffer.scope == "register"
        and store.mask is None
        and isinstance(update, Binary)
        and update.op in JOINED
        and isinstance(update.a, Load)
        and update.a.source is store.buffer
        and all(load.source is not store.buffer for load in loads(update.b))
    )


def _in_parts(loop: For) -> Stmt:
    inner = list(statements(loop.body))
    stores = [s for s in inner if isinstance(s, Store) and s.buffer.scope == "register"]
    short = isinstance(loop.extent, Const) and int(loop.extent.value) <= PART
    if short or len(stores) != 1 or not adds(stores[0]):
        return _abreast(loop)
    if loop.kind != "serial" or any(isinstance(s, (For, Alloc)) for s in inner):
        return loop
    acc, block, turn = stores[0].buffer, Var("part"), Var(loop.var.name)
    part = buffer(f"{acc.name}_part", acc.dtype, (), scope="register")
    body = with_accumulator(substitute(loop.body, {loop.var: block * PART + turn}), acc, part)
    steps = (
        Store(part, (), const(0, acc.dtype)),
        _abreast(For(turn, as_expr(PART), body)),
        Store(acc, (), acc[()] + part[()]),
    )
    rest = Var(loop.var.name)
    after = substitute(loop.body, {loop.var: loop.extent // PART * PART + rest})
    return Seq(
        (For(block, loop.extent // PART, Alloc(part, Seq(steps))), _abreast(For(rest, loop.extent % PART, after)))
    )
