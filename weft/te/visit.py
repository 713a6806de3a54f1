"""The one walker over expressions and statements: their parts, the same node with other parts,
bottom-up rewriting, substitution and structural comparison. Iterative, linear in shared DAGs."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeVar, cast, overload

from .expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Ramp,
    Reduce,
    Select,
    Shuffle,
    Unary,
    Var,
    access_lanes,
    binary,
    call,
    compare,
    select,
    widen,
)
from .loops import Alloc, Barrier, Exchange, For, If, Let, Prefetch, Seq, Stmt, Store, TileStep, While
from .tensor_cores.attention import Attention
from .tensor_cores.product import Product
from .tensor_cores.warp_attention import WarpAttention
from .tensor_cores.warp_product import WarpProduct

Node = Expr | Stmt
N = TypeVar("N", bound=Node)


def _optional(node: Node | None) -> tuple[Any, ...]:
    return () if node is None else (node,)


_PARTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Var: lambda e: (),
    Const: lambda e: (),
    Unary: lambda e: (e.a,),
    Binary: lambda e: (e.a, e.b),
    Compare: lambda e: (e.a, e.b),
    Select: lambda e: (e.condition, e.a, e.b),
    Cast: lambda e: (e.a,),
    Call: lambda e: e.args,
    Load: lambda e: e.indices + _optional(e.mask),
    Reduce: lambda e: (e.body,),
    Ramp: lambda e: (e.base, e.stride),
    Broadcast: lambda e: (e.value,),
    Shuffle: lambda e: (e.a, e.b),
    For: lambda s: (s.extent, s.body),
    While: lambda s: (s.condition, s.body),
    Store: lambda s: s.indices + (s.value,) + _optional(s.mask),
    Let: lambda s: (s.value, s.body),
    Alloc: lambda s: (s.body,),
    If: lambda s: (s.condition, s.then) + _optional(s.otherwise),
    Seq: lambda s: s.body,
    Prefetch: lambda s: s.indices,
    TileStep: lambda s: s.indices,
    Barrier: lambda s: (),
    Product: lambda s: (s.store,),
    WarpProduct: lambda s: (s.store,),
    Attention: lambda s: (s.score, s.store),
    WarpAttention: lambda s: (s.score, s.store),
    Exchange: lambda s: (*s.indices, s.value),
}


@overload
def parts(node: Expr) -> tuple[Expr, ...]: ...
@overload
def parts(node: Node) -> tuple[Node, ...]: ...
def parts(node: Node) -> tuple[Node, ...]:
    """The expressions and statements directly inside a node, in order."""
    return _PARTS[type(node)](node)


def _load(e: Load, p: Sequence[Expr]) -> Expr:
    return masked_load(e.source, p[: len(e.indices)], p[-1] if e.mask is not None else None)


def masked_load(source: Any, indices: Sequence[Expr], mask: Expr | None) -> Expr:
    """A load whose mask and indices are widened to each other's lanes."""
    if mask is None:
        return Load(source, tuple(indices))
    lanes = access_lanes(source, indices)
    if mask.lanes > lanes and indices:
        indices = (widen(indices[0], mask.lanes), *indices[1:])
        lanes = mask.lanes
    if mask.lanes > lanes:  # the one element of a rank-0 source is always there
        return Select(mask, widen(Load(source, ()), mask.lanes), widen(zero(source), mask.lanes))
    return Load(source, tuple(indices), widen(mask, lanes))


def zero(source: Any) -> Const:
    """The value that masked-off lanes of a load give."""
    return Const(source.dtype.type(0).item(), source.dtype)


def _store(s: Store, p: Sequence[Expr]) -> Store:
    indices, value = tuple(p[: len(s.indices)]), p[len(s.indices)]
    mask = p[-1] if s.mask is not None else None
    lanes = max(access_lanes(s.buffer, indices), value.lanes, 1 if mask is None else mask.lanes)
    if lanes > access_lanes(s.buffer, indices) and indices:
        indices = (widen(indices[0], lanes), *indices[1:])
    guard = None if mask is None else widen(mask, lanes)
    return Store(s.buffer, indices, widen(value, lanes), guard)


_REBUILD: dict[type, Callable[[Any, Any], Any]] = {
    Unary: lambda e, p: Unary(e.op, *p),
    Binary: lambda e, p: binary(e.op, *p),
    Compare: lambda e, p: compare(e.op, *p),
    Select: lambda e, p: select(*p),
    Cast: lambda e, p: Cast(p[0], e.dtype),
    Call: lambda e, p: call(e.name, *p),
    Load: _load,
    Reduce: lambda e, p: Reduce(e.combiner, p[0], e.axes),
    Ramp: lambda e, p: Ramp(p[0], p[1], e.lanes),
    Broadcast: lambda e, p: Broadcast(p[0], e.lanes),
    Shuffle: lambda e, p: Shuffle(p[0], p[1], e.order),
    For: lambda s, p: For(s.var, p[0], p[1], s.kind),
    While: lambda s, p: While(*p),
    Store: _store,
    Let: lambda s, p: Let(s.var, *p),
    Alloc: lambda s, p: Alloc(s.buffer, *p),
    If: lambda s, p: If(*p),
    Seq: lambda s, p: Seq(tuple(p)),
    Prefetch: lambda s, p: Prefetch(s.buffer, tuple(p), s.level),
    TileStep: lambda s, p: replace(s, indices=tuple(p)),
    Product: lambda s, p: replace(s, store=p[0]),
    Attention: lambda s, p: replace(s, score=p[0], store=p[1]),
    Exchange: lambda s, p: Exchange(s.buffer, tuple(p[:-1]), p[-1], s.distance),
}


def with_parts(node: N, new: Sequence[Node]) -> N:
    """The same node over other parts; scalars are widened where a part became a vector."""
    for old, part in zip(_PARTS[type(node)](node), new):
        if old is not part:
            return cast(N, _REBUILD[type(node)](node, new))
    return node


def postorder(roots: Iterable[Node], known: Container[int] = ()) -> Iterator[Node]:
    """Every node once, each after its parts; not those, nor what is below them, of known ids."""
    return map(_FIRST, in_order(roots, known))


_FIRST = itemgetter(0)


def in_order(roots: Iterable[Node], known: Container[int] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """The same, each with its parts."""
    seen: set[int] = set()
    found: list[tuple[Any, tuple[Any, ...]]] = []
    stack: list[Any] = list(roots)[::-1]
    while stack:
        node = stack.pop()
        if type(node) is tuple:  # its parts are done
            found.append(node)
            continue
        key = id(node)
        if key in seen or key in known:
            continue
        seen.add(key)
        inner = _PARTS[type(node)](node)
        waiting = [part for part in inner[::-1] if id(part) not in seen]
        if waiting:
            stack.append((node, inner))
            stack += waiting
        else:
            found.append((node, inner))
    return found


def over(node: N, inner: Sequence[Node], done: Mapping[int, Node]) -> N:
    """A node with what stands for each of its parts, by id."""
    for part in inner:
        if done[id(part)] is not part:
            return cast(N, _REBUILD[type(node)](node, [done[id(part)] for part in inner]))
    return node


def rewrite(root: N, rule: Callable[[Any], Any]) -> N:
    """Bottom-up: `rule` gets each node once, over parts already rewritten, and gives its stand-in.

    A shared node stays shared.
    """
    done: dict[int, Node] = {}
    for node, inner in in_order((root,)):
        done[id(node)] = rule(over(node, inner, done))
    return cast(N, done[id(root)])


def statements_in(node: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement, in order."""
    return _STATEMENTS_IN[type(node)](node)


_STATEMENTS_IN: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    For: lambda s: (s.body,),
    While: lambda s: (s.body,),
    Let: lambda s: (s.body,),
    Alloc: lambda s: (s.body,),
    If: lambda s: (s.then, *_optional(s.otherwise)),
    Seq: lambda s: s.body,
    Product: lambda s: (s.store,),
    WarpProduct: lambda s: (s.store,),
    Attention: lambda s: (s.store,),
    WarpAttention: lambda s: (s.store,),
    **dict.fromkeys((Store, Prefetch, TileStep, Barrier, Exchange), lambda s: ()),
}


def rewrite_statements(root: Stmt, rule: Callable[[Any], Any]) -> Stmt:
    """The same as `rewrite` for a rule about statements, which are few beside the expressions in them."""
    order = [root]
    for node in order:
        order += statements_in(node)
    done: dict[int, Stmt] = {}
    for node in reversed(order):
        if id(node) not in done:
            new = [done.get(id(part), part) for part in _PARTS[type(node)](node)]
            done[id(node)] = rule(with_parts(node, new))
    return done[id(root)]


def substitute(root: N, values: Mapping[Var, Expr]) -> N:
    """The node with variables replaced. What the values themselves contain is left alone.

    >>> from .expr import const
    >>> i, j = Var("i"), Var("j")
    >>> same(substitute(i * 2 + j, {i: j + 1}), (j + 1) * 2 + j)
    True
    """
    if not values:
        return root
    return rewrite(root, lambda node: values.get(node, node) if type(node) is Var else node)


def free_of(root: Node, variables: Iterable[Var]) -> bool:
    """Whether none of the variables occurs."""
    wanted = set(variables)
    return not any(node in wanted for node in postorder((root,)))


def loads(root: Node) -> list[Load]:
    """Every distinct Load node, innermost first."""
    return [node for node in postorder((root,)) if isinstance(node, Load)]


_FACTS: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    Var: lambda e: (id(e),),
    # repr tells 0.0 from -0.0, and a NaN is the same as itself; the number of a dtype is quicker to hash than it is
    Const: lambda e: (e.value if type(e.value) is int else repr(e.value), e.dtype.num),
    Unary: lambda e: (e.op,),
    Binary: lambda e: (e.op,),
    Compare: lambda e: (e.op,),
    Cast: lambda e: (e.dtype.num,),
    Call: lambda e: (e.name,),
    Load: lambda e: (id(e.source), e.mask is None),
    Reduce: lambda e: (e.combiner, tuple(id(axis) for axis in e.axes)),
    Ramp: lambda e: (e.lanes,),
    Broadcast: lambda e: (e.lanes,),
    Shuffle: lambda e: (e.order,),
    For: lambda s: (id(s.var), s.kind),
    Store: lambda s: (id(s.buffer), s.mask is None),
    Let: lambda s: (id(s.var),),
    Alloc: lambda s: (id(s.buffer),),
    If: lambda s: (s.otherwise is None,),
    Prefetch: lambda s: (id(s.buffer), s.level),
    TileStep: lambda s: (s.action, s.tiles, s.rows, id(s.buffer), s.stride),
    Exchange: lambda s: (id(s.buffer), s.distance),
}


class Interner:
    """Gives structurally equal nodes one representative, so that `is` compares structure."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], Node] = {}
        self._kept: dict[int, Node] = {}

    def __call__(self, root: N) -> N:
        kept = self._kept
        if id(root) in kept:
            return root
        inner = _PARTS[type(root)](root)
        for part in inner:
            if id(part) not in kept:
                break
        else:
            return self._representative(root, inner)  # type: ignore[return-value]
        done: dict[int, Node] = {}
        stack: list[Node] = [root]
        while stack:
            node = stack[-1]
            inner = _PARTS[type(node)](node)
            waiting = [part for part in inner if id(part) not in kept and id(part) not in done]
            if waiting:
                stack.extend(waiting)
            else:
                whole = with_parts(node, [done.get(id(part), part) for part in inner]) if inner and done else node
                done[id(stack.pop())] = self._representative(whole, _PARTS[type(whole)](whole))
        return cast(N, done[id(root)])

    def _representative(self, node: Node, inner: Sequence[Node]) -> Node:
        """Of a node whose parts are representatives."""
        kind = type(node)
        key: tuple[Any, ...]
        if kind is Binary:  # most are
            key = (kind, node.op, id(inner[0]), id(inner[1]))  # type: ignore[union-attr]
        else:
            facts = _FACTS.get(kind)
            key = (kind, None if facts is None else facts(node), *map(id, inner))
        representative = self._known.setdefault(key, node)
        self._kept[id(representative)] = representative
        return representative


def same(a: Node, b: Node) -> bool:
    """Whether two expressions or statements have the same structure over the same variables.

    >>> i = Var("i")
    >>> same(i + 1, i + 1), same(i + 1, i + 2)
    (True, False)
    """
    intern = Interner()
    return intern(a) is intern(b)
