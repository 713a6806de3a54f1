"""Long sums are added up in blocks, and many blocks in blocks of those: rounding errors grow with
the size of a block and the number of levels, not with the length of the sum.

    for k in 0..n: acc += f(k)     becomes     for o in 0..n // b:
                                                 total = acc
                                                 acc = 0
                                                 for i in 0..b: acc += f(o * b + i)
                                                 acc = total + acc
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..base.dtype import is_float
from ..te.expr import Binary, Cast, Const, Expr, Load, Var, as_expr, const
from ..te.loops import Alloc, Buffer, For, Kernel, Let, Seq, Stmt, Store, buffer
from ..te.simplify_loops import sequence, statements
from ..te.transform import lower_vectors
from ..te.visit import free_of, parts, postorder, substitute, with_parts

BLOCK = 512  # summands
LONG_SUM = 2 * BLOCK
LONG_PRODUCT = 16 * BLOCK  # of products: filters and matrices of ordinary networks stay below it


def finished(kernel: Kernel) -> Kernel:
    """A kernel with its long sums in blocks and its vector loops as vectors."""
    body = _outermost(kernel.body)
    return lower_vectors(Kernel(kernel.name, kernel.buffers, body, kernel.parallel, kernel.scalars))


def _outermost(stmt: Stmt) -> Stmt:
    """Every outermost loop that adds to what was there before it, in blocks."""
    lets: list[Let] = []
    while isinstance(stmt, Let):  # there may be more of them in each other than Python calls
        lets.append(stmt)
        stmt = stmt.body
    body = _without_lets(stmt)
    for let in reversed(lets):
        body = with_parts(let, [let.value, body])
    return body


def _without_lets(stmt: Stmt) -> Stmt:
    if isinstance(stmt, For) and stmt.kind == "serial":
        accumulators = _accumulators(stmt)
        if accumulators:
            return _Sums(accumulators).of(stmt)
    inner = [part if isinstance(part, Expr) else _outermost(part) for part in parts(stmt)]
    return with_parts(stmt, inner)


def _accumulators(loop: For) -> list[Buffer]:
    """Registers from outside the loop that it adds floats to, and does nothing else with."""
    inner = list(statements(loop))
    own = {s.buffer for s in inner if isinstance(s, Alloc)}
    stores = [s for s in inner if isinstance(s, Store) and s.buffer.scope == "register"]
    others = {s.buffer for s in stores if not adds(s)}
    found = dict.fromkeys(s.buffer for s in stores if s.buffer not in own and s.buffer not in others)
    if not found:
        return []
    read = {load.source for load in postorder(_other_values(inner)) if isinstance(load, Load)}
    return [stored for stored in found if stored not in read]


def _other_values(inner: Sequence[Stmt]) -> list[Expr]:
    """All that statements compute, but for what sums are added to."""
    values: list[Expr] = []
    for stmt in inner:
        own = [part for part in parts(stmt) if isinstance(part, Expr)]
        if isinstance(stmt, Store) and adds(stmt):
            assert isinstance(stmt.value, Binary)
            own = [stmt.value.b if part is stmt.value else part for part in own]
        values += own
    return values


def adds(store: Store) -> bool:
    """Whether a store adds to the float that is in its place."""
    update = store.value
    return (
        is_float(store.buffer.dtype)
        and isinstance(update, Binary)
        and update.op == "add"
        and isinstance(update.a, Load)
        and update.a.source is store.buffer
    )


def _is_product(value: Expr) -> bool:
    while isinstance(value, Cast):
        value = value.a
    return isinstance(value, Binary) and value.op == "mul"


class _Sums:
    """Loops that add to the same accumulators."""

    def __init__(self, accumulators: Sequence[Buffer]) -> None:
        self.accumulators = accumulators

    def of(self, stmt: Stmt) -> Stmt:
        """The statement with each of its long sums in blocks."""
        if isinstance(stmt, For):
            return self._loop(stmt, self.length(stmt.body)) if self._is_long(stmt) else stmt
        if isinstance(stmt, Seq):
            return sequence([self.of(part) for part in stmt.body])
        if isinstance(stmt, Let):
            return Let(stmt.var, stmt.value, self.of(stmt.body))
        return stmt

    def _is_long(self, loop: For) -> bool:
        stores = [s for s in statements(loop) if isinstance(s, Store)]
        added = [s.value.b for s in stores if s.buffer in self.accumulators]  # type: ignore[attr-defined]
        limit = LONG_PRODUCT if all(_is_product(value) for value in added) else LONG_SUM
        return self.length(loop) > limit

    def _loop(self, loop: For, each: int) -> Stmt:
        """A loop whose turns add `each` summands to a sum."""
        if not isinstance(loop.extent, Const) or loop.kind != "serial":
            return loop
        turns = int(loop.extent.value)
        if not each or turns * each <= LONG_SUM:
            return loop
        if each >= BLOCK:
            whole = For(loop.var, loop.extent, self._apart(self.of(loop.body)))
            return self._loop(whole, 1)
        size = BLOCK // each
        number, turn, last = (Var(f"{loop.var.name}_{letter}") for letter in "bit")
        inner = For(turn, as_expr(size), _at(loop, number * size + turn))
        made = [self._loop(For(number, as_expr(turns // size), self._apart(inner)), 1)]
        if turns % size:
            rest = _at(loop, as_expr(turns // size * size) + last)
            made.append(self._apart(For(last, as_expr(turns % size), rest)))
        return sequence(made)

    def _apart(self, stmt: Stmt) -> Stmt:
        """The statement with sums that start at zero, which are added to those before it."""
        asides = [_aside(acc) for acc in self.accumulators]
        made = sequence([*(a.before for a in asides), stmt, *(a.after for a in asides)])
        for aside in asides:
            made = Alloc(aside.total, made)
        return made

    def length(self, stmt: Stmt) -> int:
        """The most summands that a statement adds to one element."""
        return max(self._lengths(stmt).values(), default=0)

    def _lengths(self, stmt: Stmt) -> Counter[tuple[Any, ...]]:
        """How many summands go to each place of each accumulator."""
        if isinstance(stmt, Store):
            own = stmt.buffer in self.accumulators
            return Counter({(stmt.buffer, *map(_place, stmt.indices)): 1} if own else {})
        lengths: Counter[tuple[Any, ...]] = Counter()
        for part in parts(stmt):
            lengths.update({} if isinstance(part, Expr) else self._lengths(part))
        if not isinstance(stmt, For) or not isinstance(stmt.extent, Const):
            return lengths
        turns = int(stmt.extent.value)
        return Counter({key: n * (1 if _depends(key, stmt.var) else turns) for key, n in lengths.items()})


def _at(loop: For, index: Expr) -> Stmt:
    return substitute(loop.body, {loop.var: index})


def _place(index: Expr) -> Any:
    """An index as part of a key: one number, or the expression itself."""
    return int(index.value) if isinstance(index, Const) else index


def _depends(key: tuple[Any, ...], var: Var) -> bool:
    return any(isinstance(item, Expr) and not free_of(item, [var]) for item in key)


class _Aside(NamedTuple):
    """What keeps the sums before a block, and what adds them to those of the block."""

    total: Buffer
    before: Stmt
    after: Stmt


def _aside(acc: Buffer) -> _Aside:
    total = buffer(f"{acc.name}_total", acc.dtype, acc.shape, scope="scratch")
    zero = const(0, acc.dtype)
    keep = _each(acc, lambda at: Store(total, at, acc[at]))
    clear = _each(acc, lambda at: Store(acc, at, zero))
    return _Aside(total, sequence([keep, clear]), _each(acc, lambda at: Store(acc, at, total[at] + acc[at])))


def _each(acc: Buffer, store: Callable[[tuple[Var, ...]], Stmt]) -> Stmt:
    """A store for every element of an accumulator."""
    turns = tuple(Var("each") for _ in acc.shape)
    made = store(turns)
    for turn, extent in zip(reversed(turns), reversed(acc.shape)):
        made = For(turn, extent, made, "unroll")
    return made
