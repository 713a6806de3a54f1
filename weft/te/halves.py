"""A vector loop of two turns around vectors comes in; vectors of twice as many lanes go out, whose halves are the
turns. So lanes can be along two axes, of which the outer one is not beside the inner one in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ..base.dtype import INT64
from ..base.errors import Unsupported
from .expr import Binary, Broadcast, Call, Cast, Compare, Const, Expr, Load, Ramp, Select, Shuffle, Unary, Var, as_expr
from .loops import Alloc, Buffer, For, If, Let, Prefetch, Seq, Stmt, Store
from .simplify import simplify
from .simplify_loops import sequence
from .visit import free_of, in_order, over, rewrite, same, substitute

Places = tuple[Expr, ...]
TURNS = (0, 1)
_ELEMENT_WISE = (Unary, Binary, Compare, Select, Cast, Call)


def joined_halves(loop: For, name: str) -> Stmt:
    """The loop of a kernel, whose body is in vectors, as straight code on vectors that are twice as wide.

    >>> from .build import KernelBuilder
    >>> from .printer import show
    >>> from .transform import lower_vectors
    >>> b = KernelBuilder("halves")
    >>> x, y = b.arg("x", "float32", (8,)), b.arg("y", "float32", (64,))
    >>> with b.vector("half", 2) as half, b.vector("lane", 4) as lane:
    ...     b.store(y, half * 32 + lane, x[half * 4 + lane] * 2.0)
    >>> print(show(lower_vectors(b.finish()).body))
    let value = x[ramp(0, 1, x8)] * broadcast(2.0, x8)
    y[ramp(0, 1, x4)] = shuffle(value, value, [0, 1, 2, 3])
    y[ramp(32, 1, x4)] = shuffle(value, value, [4, 5, 6, 7])
    """
    return _Joining(loop.var, name).statement(loop.body)


class _Joining:
    def __init__(self, var: Var, name: str) -> None:
        self.name = name
        self.depends = {var}
        self.values: tuple[dict[Var, Expr], dict[Var, Expr]] = ({var: as_expr(0)}, {var: as_expr(1)})
        self.wide: dict[Var, Var] = {}
        self.own: dict[Buffer, Buffer] = {}

    # Statements

    def statement(self, node: Stmt) -> Stmt:
        match node:
            case Seq(body=body):
                return sequence([self.statement(part) for part in body])
            case For(extent=extent) if self._is_alike(extent):
                return For(node.var, extent, self.statement(node.body), node.kind)
            case If(condition=condition) if condition.lanes == 1 and self._is_alike(condition):
                otherwise = None if node.otherwise is None else self.statement(node.otherwise)
                return If(condition, self.statement(node.then), otherwise)
            case Alloc(buffer=buffer):
                wide = self.own[buffer] = self._widened(buffer)
                return Alloc(wide, self.statement(node.body))
            case Let():
                return self._let(node)
            case Store():
                return self._store(node)
            case Prefetch():
                first: Stmt = self.turn(node, 0)
                return first
        raise self._refused(f"what {type(node).__name__} does differs between its turns, or is not one vector")

    def _let(self, node: Let) -> Stmt:
        var, value = node.var, node.value
        if value.lanes > 1:
            wide = self.wide[var] = Var(var.name, var.dtype, 2 * var.lanes)
            for turn in TURNS:
                self.values[turn][var] = _half(wide, turn)
            return Let(wide, self.vector(value), self.statement(node.body))
        if self._is_alike(value):
            return Let(var, value, self.statement(node.body))
        self.depends.add(var)
        values = [self.turn(value, turn) for turn in TURNS]
        if var.dtype == INT64:  # an index stays visible
            for turn in TURNS:
                self.values[turn][var] = values[turn]
            return self.statement(node.body)
        names = [Var(var.name, var.dtype) for _ in TURNS]
        for turn in TURNS:
            self.values[turn][var] = names[turn]
        return Let(names[0], values[0], Let(names[1], values[1], self.statement(node.body)))

    def _store(self, node: Store) -> Stmt:
        if node.buffer in self.own:
            mask = None if node.mask is None else self.vector(node.mask)
            return Store(
                self.own[node.buffer], self._own_place(node.buffer, node.indices), self.vector(node.value), mask
            )
        if node.value.lanes == 1:
            return Seq(tuple([self.turn(node, turn) for turn in TURNS]))
        places = self._places(node.indices)
        beside = _side_by_side(places, node.value.lanes)
        value = self.vector(node.value)
        if beside is not None and node.mask is None:
            return Store(node.buffer, beside, value)
        whole = Var("value", value.dtype, value.lanes)
        masks = [None if node.mask is None else self.turn(node.mask, turn) for turn in TURNS]
        halves = [Store(node.buffer, places[turn], _half(whole, turn), masks[turn]) for turn in TURNS]
        return Let(whole, value, Seq(tuple(halves)))

    # Expressions

    def vector(self, root: Expr) -> Expr:
        """A vector of both turns."""
        done: dict[int, Any] = {}
        for node, inner in in_order((root,)):
            done[id(node)] = node if node.lanes == 1 else self._joined(node, inner, done)
        found: Expr = done[id(root)]
        return found

    def _joined(self, node: Expr, inner: Any, done: dict[int, Any]) -> Expr:
        if isinstance(node, _ELEMENT_WISE):
            return over(node, inner, done)
        if isinstance(node, Var) and node in self.wide:
            return self.wide[node]
        if isinstance(node, Broadcast) and self._is_alike(node.value):
            return Broadcast(node.value, 2 * node.lanes)
        if isinstance(node, Load) and node.source in self.own:
            source: Any = node.source
            return Load(self.own[source], self._own_place(source, node.indices))
        if isinstance(node, Load) and node.mask is None:
            beside = _side_by_side(self._places(node.indices), node.lanes)
            if beside is not None:
                return Load(node.source, beside)
        return _both(*[self.turn(node, turn) for turn in TURNS])

    def _places(self, indices: Places) -> tuple[Places, Places]:
        low, high = (tuple([self.turn(index, turn) for index in indices]) for turn in TURNS)
        return low, high

    def turn(self, node: Any, number: int) -> Any:
        """What a node is in one of the turns."""

        def rule(part: Any) -> Any:
            if isinstance(part, Load) and part.source in self.own:
                source: Any = part.source
                return _half(Load(self.own[source], self._own_place(source, part.indices)), number)
            return part

        return (
            rewrite(substitute(node, self.values[number]), rule) if self.own else substitute(node, self.values[number])
        )

    def _is_alike(self, node: Expr) -> bool:
        return free_of(node, self.depends)

    # Memory of the loop's own

    def _widened(self, buffer: Buffer) -> Buffer:
        if buffer.scope == "register" and buffer.lanes > 1:
            return replace(buffer, lanes=2 * buffer.lanes)
        if buffer.scope == "register" or not buffer.shape or not isinstance(buffer.shape[-1], Const):
            raise self._refused(f"{buffer.name}, allocated inside, is not in vectors")
        strides = (*[simplify(stride * 2) for stride in buffer.strides[:-1]], buffer.strides[-1])
        return replace(buffer, shape=(*buffer.shape[:-1], simplify(buffer.shape[-1] * 2)), strides=strides)

    def _own_place(self, buffer: Buffer, indices: Places) -> Places:
        if buffer.scope == "register":
            return indices
        last = simplify(indices[-1])
        if not isinstance(last, Ramp) or not same(last, Ramp(as_expr(0), as_expr(1), last.lanes)):
            raise self._refused(f"lanes read others of {buffer.name} than their own")
        return (*[_plain(index) for index in indices[:-1]], Ramp(last.base, last.stride, 2 * last.lanes))

    def _refused(self, why: str) -> Unsupported:
        what = "two turns of a loop around vectors cannot become one vector"
        return Unsupported(what, where=self.name, why=why, hint="make the outer loop serial")


def _both(low: Expr, high: Expr) -> Expr:
    return Shuffle(low, high, tuple(range(2 * low.lanes)))


def _half(vector: Expr, number: int) -> Expr:
    half = vector.lanes // 2
    return Shuffle(vector, vector, tuple(range(number * half, (number + 1) * half)))


def _plain(index: Expr) -> Expr:
    return index.value if isinstance(index, Broadcast) else index


def _side_by_side(places: tuple[Places, Places], lanes: int) -> Places | None:
    """The indices of twice as many neighbours, if those of the second half follow those of the first."""
    low, high = places
    ends = [simplify(index) for index in (low[-1], high[-1])] if low else []
    if not ends or not all(isinstance(end, Ramp) and same(end.stride, as_expr(1)) for end in ends):
        return None
    first, second = ends
    assert isinstance(first, Ramp)
    assert isinstance(second, Ramp)
    outer = [(_plain(a), _plain(b)) for a, b in zip(low[:-1], high[:-1])]
    if not same(simplify(second.base - first.base), as_expr(lanes)) or not all(same(a, b) for a, b in outer):
        return None
    return (*[a for a, _ in outer], Ramp(first.base, first.stride, 2 * lanes))
