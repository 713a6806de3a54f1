"""Reductions inside nests: over an axis in lanes, several turns at once, and such that rounding errors do not grow with
their length. Sums of float32 are short trees whose results are added up in float64, which costs little more than loads;
long sums of others are in parts."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ....base.dtype import FLOAT32, FLOAT64, INT32
from ....te.expr import Binary, Call, Cast, Const, Expr, Load, Var, as_expr, cast, const
from ....te.loops import Alloc, Buffer, For, If, Let, Seq, Stmt, Store, buffer
from ....te.simplify import simplify
from ....te.simplify_loops import sequence, statements
from ....te.visit import loads, postorder, rewrite, substitute
from ...long_sums import adds

PART = 64  # summands that are added up before they join the sum
ABREAST = 8  # turns whose values are combined before they join: joining takes time
CALLED = 4  # the same where each takes a function
SCALARS = 4  # lanes whose shares are combined one by one
FEW = 16  # summands that are added up in their own dtype
JOINED = frozenset(("add", "mul", "max", "min"))

Totals = set[Buffer]  # float64, of what is summed up in float32 first


def widened(body: Stmt) -> tuple[Stmt, Totals]:
    """The body with sums and products of float32 in float64, but for short ones."""
    totals: Totals = set()
    body = rewrite(body, lambda node: _without_lets(node) if isinstance(node, For) else node)
    return rewrite(body, lambda node: _with_total(node, totals) if _is_narrow(node) else node), totals


def _without_lets(loop: For) -> For:
    """The loop with values in place of names where all it does is to combine a register with one."""
    bound: dict[Var, Expr] = {}
    inner = loop.body
    while isinstance(inner, Let):
        bound[inner.var] = substitute(inner.value, bound)
        inner = inner.body
    return replace(loop, body=substitute(inner, bound)) if _joins(inner, JOINED) else loop


def _is_narrow(node: Any) -> bool:
    if not isinstance(node, Alloc) or node.buffer.scope != "register" or node.buffer.dtype != FLOAT32:
        return False
    loops = [s for s in statements(node) if isinstance(s, For)]
    own = [s for s in loops if isinstance(s.body, Store) and s.body.buffer is node.buffer]
    joins = bool(own) and all(_joins(loop.body, ("add", "mul")) for loop in own)
    return joins and any(_is_long(loop, FEW) for loop in loops)


def _with_total(node: Alloc, totals: Totals) -> Stmt:
    total = buffer(node.buffer.name, FLOAT64, (), scope="register")
    totals.add(total)

    def rule(part: Any) -> Any:
        if isinstance(part, Load) and part.source is node.buffer:
            return cast(total[()], FLOAT32)
        if not isinstance(part, Store) or part.buffer is not node.buffer:
            return part
        value = part.value
        if isinstance(value, Binary) and any(load.source is total for load in loads(value.a)):
            return Store(total, (), Binary(value.op, total[()], cast(value.b, FLOAT64)))
        return Store(total, (), cast(value, FLOAT64))

    return Alloc(total, rewrite(node.body, rule))


def in_lanes(body: Stmt, var: Var, lanes: int, totals: Totals | None = None) -> Stmt:
    """Every lane reduces its share of the loop over `var`; then the shares are combined. Without totals, loops stay as
    they are otherwise."""
    return rewrite(body, lambda node: _shared(node, var, lanes, totals) if isinstance(node, Alloc) else node)


def _reduces(loop: Stmt, var: Var, acc: Buffer) -> bool:
    """Whether a loop over `var`, or around it, reduces into this accumulator: sums stand beside sums in one body."""
    inside = list(statements(loop)) if isinstance(loop, For) else []
    looped = any(isinstance(node, For) and node.var is var for node in inside)
    return looped and any(isinstance(node, Store) and node.buffer is acc for node in inside)


def _shared(node: Alloc, var: Var, lanes: int, totals: Totals | None) -> Stmt:
    acc = node.buffer
    steps = list(node.body.body) if isinstance(node.body, Seq) else [node.body]
    place = next((number for number, step in enumerate(steps) if _reduces(step, var, acc)), None)
    if acc.scope != "register" or place is None:
        return node
    start, loop = steps[place - 1], steps[place]
    assert isinstance(start, Store)
    own = buffer(f"{acc.name}_own", acc.dtype, (), scope="register")
    shares = buffer(f"{acc.name}_shares", acc.dtype, (lanes,), scope="scratch")
    lane, op = Var("lane"), _operation(loop, acc)
    by_lane = with_accumulator(rewrite(loop, lambda n: _strided(n, var, lane, lanes)), acc, own)
    if totals is not None:
        totals |= {own} if acc in totals else set()
        by_lane = cascaded(by_lane, totals)
    share = sequence([Store(own, (), start.value), by_lane, Store(shares, (lane,), own[()])])
    few = [shares[each] for each in range(min(lanes, SCALARS))]
    parts: list[Stmt] = [
        For(lane, as_expr(lanes), Alloc(own, share), "vector"),
        *_halved(shares, lanes, op),
        Store(acc, (), in_pairs(partial(Binary, op), [acc[()], *few])),
    ]
    return Alloc(acc, Alloc(shares, sequence([*steps[:place], *parts, *steps[place + 1 :]])))


def _strided(node: Any, var: Var, lane: Var, lanes: int) -> Any:
    """The loop as one lane runs it: every so many turns, the last one only if there is one."""
    if not (isinstance(node, For) and node.var is var):
        return node
    turn, full = Var("turn"), simplify(node.extent // lanes)
    main = For(turn, full, substitute(node.body, {var: turn * lanes + lane}))
    last, rest = full * lanes + lane, simplify(node.extent % lanes)
    if isinstance(rest, Const) and not int(rest.value):
        return main
    return Seq((main, If(last < node.extent, substitute(node.body, {var: last}))))


def with_accumulator(stmt: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """The statement with another accumulator."""

    def change(node: Any) -> Any:
        if isinstance(node, Load) and node.source is old:
            return Load(new, node.indices)
        if isinstance(node, Store) and node.buffer is old:
            return Store(new, node.indices, node.value, node.mask)
        return node

    return rewrite(stmt, change)


def _operation(loop: Stmt, acc: Buffer) -> str:
    """How the loop combines."""
    update = next(n for n in statements(loop) if isinstance(n, Store) and n.buffer is acc).value
    assert isinstance(update, Binary)
    return update.op


def _halved(shares: Buffer, lanes: int, op: str) -> Iterator[Stmt]:
    """The shares of all lanes combined, half of them with the others, until few are left."""
    while lanes > SCALARS:
        lanes, lane = lanes // 2, Var("lane")
        yield For(
            lane, as_expr(lanes), Store(shares, (lane,), Binary(op, shares[lane], shares[lane + lanes])), "vector"
        )


def in_pairs(combine: Callable[[Expr, Expr], Expr], items: Sequence[Expr]) -> Expr:
    """All items combined, neighbours first."""
    while len(items) > 1:
        pairs = [combine(a, b) for a, b in zip(items[::2], items[1::2])]
        items = [*pairs, *items[len(pairs) * 2 :]]
    return items[0]


def cascaded(body: Stmt, totals: Totals) -> Stmt:
    """The body with innermost loops that reduce several turns at once, and long ones that add up
    floats in two levels."""
    return rewrite(body, lambda node: _in_parts(node, totals) if isinstance(node, For) else node)


def calls(body: Stmt) -> bool:
    """Whether functions are computed."""
    return any(isinstance(node, Call) for node in postorder((body,)))


def _is_long(loop: For, least: int) -> bool:
    return not isinstance(loop.extent, Const) or int(loop.extent.value) > least


def _abreast(loop: For, totals: Totals) -> Stmt:
    """The loop with several turns in one, where all it does is to join values."""
    store, most = loop.body, CALLED if calls(loop) else ABREAST
    if not _is_long(loop, most - 1) or loop.kind != "serial" or not _joins(store, JOINED):
        return loop
    assert isinstance(store, Store)
    update = store.value
    assert isinstance(update, Binary)
    turn, rest, count = Var(loop.var.name), Var(loop.var.name), loop.extent // most
    value, total = update.b, store.buffer.dtype
    if isinstance(value, Cast) and update.op == "add" and (store.buffer in totals or _is_small(value.a)):
        value = value.a
    each = [substitute(value, {loop.var: turn * most + n}) for n in range(most)]
    own = cast(in_pairs(partial(Binary, update.op), each), total)
    joined = Store(store.buffer, (), Binary(update.op, update.a, own))
    after = substitute(store, {loop.var: count * most + rest})
    return Seq((For(turn, count, joined), For(rest, loop.extent % most, after)))


def _is_small(value: Expr) -> bool:
    """Whether a few such values have a sum of the same dtype."""
    narrow = isinstance(value, Cast) and value.a.dtype.kind in "iu" and value.a.dtype.itemsize <= 2
    return narrow and value.dtype == INT32


def _joins(store: Stmt, ops: Container[str]) -> bool:
    """Whether all that a statement does is to combine a register with a value."""
    update = store.value if isinstance(store, Store) else None
    return (
        isinstance(store, Store)
        and store.buffer.scope == "register"
        and store.mask is None
        and isinstance(update, Binary)
        and update.op in ops
        and isinstance(update.a, Load)
        and update.a.source is store.buffer
        and all(load.source is not store.buffer for load in loads(update.b))
    )


def _in_parts(loop: For, totals: Totals) -> Stmt:
    inner = list(statements(loop.body))
    stores = [s for s in inner if isinstance(s, Store) and s.buffer.scope == "register"]
    if len(stores) != 1 or not adds(stores[0]) or not _is_long(loop, PART) or stores[0].buffer in totals:
        return _abreast(loop, totals)
    if loop.kind != "serial" or any(isinstance(s, (For, Alloc)) for s in inner):
        return loop
    acc, block, turn = stores[0].buffer, Var("part"), Var(loop.var.name)
    part = buffer(f"{acc.name}_part", acc.dtype, (), scope="register")
    body = with_accumulator(substitute(loop.body, {loop.var: block * PART + turn}), acc, part)
    steps = (
        Store(part, (), const(0, acc.dtype)),
        _abreast(For(turn, as_expr(PART), body), totals),
        Store(acc, (), acc[()] + part[()]),
    )
    rest = Var(loop.var.name)
    after = substitute(loop.body, {loop.var: loop.extent // PART * PART + rest})
    left = _abreast(For(rest, loop.extent % PART, after), totals)
    return Seq((For(block, loop.extent // PART, Alloc(part, Seq(steps))), left))
