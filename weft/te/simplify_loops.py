"""Statements made shorter: expressions are simplified with what loops and lets say about their
variables, and what never runs is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar, cast

from ..base.dtype import INT64
from .expr import Const, Expr, Var, access_lanes
from .intervals import INDEX, Interval, Ranges
from .loops import Alloc, For, If, Kernel, Let, Seq, Stmt, Store, While
from .simplify import Simplifier, known_truth, narrowed
from .visit import statements_in

K = TypeVar("K", bound=Kernel | Stmt)
NOTHING = Seq(())


def simplify_statement(target: K, ranges: Ranges | None = None) -> K:
    """A kernel or statement that does the same. Loops of one turn lose their loop.

    >>> from .build import KernelBuilder
    >>> from .printer import show
    >>> b = KernelBuilder("k")
    >>> y = b.arg("y", "int64", (8,))
    >>> with b.loop("i", 4) as i, b.when(i < 9):
    ...     b.store(y, i * 2 // 2, i + 0)
    >>> print(show(simplify_statement(b.finish())))
    kernel k(y: int64[8]):
      for i in 0..4:
        y[i] = i
    """
    known = dict(ranges or {})
    if not isinstance(target, Kernel):
        return cast(K, _StatementSimplifier(known).whole(target))
    if target.parallel is not None:
        extent = target.parallel.extent
        last = int(extent.value) - 1 if isinstance(extent, Const) else INDEX[1]
        known.setdefault(target.parallel.var, (0, max(last, 0)))
    body = _StatementSimplifier(known).whole(target.body)
    return replace(target, body=body)


def statements(root: Stmt) -> Iterator[Stmt]:
    """Every statement, each before those inside it, in order."""
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += statements_in(node)[::-1]


def loops_inside(loop: For) -> list[For]:
    """A loop and those that stand directly inside each other in it."""
    nest = [loop]
    while isinstance(nest[-1].body, For):
        nest.append(nest[-1].body)
    return nest


class _StatementSimplifier(Simplifier):
    def __init__(self, known: dict[Var, Interval]) -> None:
        super().__init__(known)
        self._known = known

    def whole(self, root: Stmt) -> Stmt:
        self._learn(root)
        return self(root)

    def _learn(self, root: Stmt) -> None:
        """The ranges of all bound variables; outer ones first, for inner ones depend on them."""
        binders = [node for node in statements(root) if isinstance(node, (For, Let))]
        times = Counter(node.var for node in binders)
        for node in binders:
            if isinstance(node, For):
                low, high = 0, max(self._extent(node.extent, times[node.var]) - 1, 0)
                earlier = self._known.get(node.var, (low, high))
                self._known[node.var] = (low, max(high, earlier[1]))
            elif node.var.dtype == INT64 and node.var.lanes == 1:
                self._known[node.var] = self._let(node, times[node.var])

    def _extent(self, extent: Expr, times: int) -> int:
        if isinstance(extent, Const):
            return int(extent.value)
        return INDEX[1] if times > 1 else self.interval(self(extent))[1]

    def _let(self, node: Let, times: int) -> Interval:
        return (-(2**63), 2**63 - 1) if times > 1 else self.interval(self(node.value))

    def statement(self, node: Stmt) -> Stmt:
        match node:
            case If():
                return _branch(node)
            case For() if node.is_bound:  # the grid is a part of how a kernel is called
                return node
            case For(extent=Const(value=count)) if count <= 0:
                return NOTHING
            case For(var=var) if self._known.get(var) == (0, 0) and _is_one(node.extent):
                return node.body
            case For() | Alloc():
                return NOTHING if _is_nothing(node.body) else node
            case Let(var=var, value=Const(value=value)) if self._known.get(var) == (value, value):
                return node.body
            case While() if known_truth(node.condition) is False:
                return NOTHING
            case Seq(body=body):
                return sequence(body)
            case Store(mask=mask):
                truth = known_truth(mask)
                return NOTHING if truth is False else _store(node, None if truth else mask)
        return node


def _is_one(extent: Expr) -> bool:
    return isinstance(extent, Const) and extent.value == 1


def _branch(node: If) -> Stmt:
    truth = known_truth(node.condition)
    if truth is not None:
        return node.then if truth else node.otherwise or NOTHING
    otherwise = None if node.otherwise is None or _is_nothing(node.otherwise) else node.otherwise
    if otherwise is None and _is_nothing(node.then):
        return NOTHING
    return If(node.condition, node.then, otherwise)


def _store(node: Store, mask: Expr | None) -> Store:
    indices = narrowed(node.indices)
    if access_lanes(node.buffer, indices) < node.value.lanes:
        indices = node.indices
    return Store(node.buffer, indices, node.value, mask)


def sequence(body: tuple[Stmt, ...] | list[Stmt]) -> Stmt:
    """Statements one after the other, without nested or needless Seqs."""
    flat: list[Stmt] = []
    for part in body:
        flat.extend(part.body if isinstance(part, Seq) else (part,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def _is_nothing(node: Stmt) -> bool:
    return isinstance(node, Seq) and not node.body
