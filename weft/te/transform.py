"""Loops changed by name: kernels or statements come in, ones that do the same go out.

A loop is named by its variable, or by the variable's name where that is unique.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Generic, Literal, NamedTuple, TypeVar, cast

from ..base.errors import InvalidValue, NotFound
from .expr import Const, Expr, Var, as_expr
from .loops import For, GridAxis, If, Kernel, Let, LoopKind, Parallel, Seq, Stmt
from .simplify import simplify
from .simplify_loops import sequence, simplify_statement, statements
from .vectorise import lower_vector_loop
from .visit import free_of, rewrite, substitute

K = TypeVar("K", bound=Kernel | Stmt)
Tail = Literal["guard", "loop"]


class Split(NamedTuple, Generic[K]):
    target: K
    outer: Var
    inner: Var
    tail: Var | None  # the loop over what is left, with tail="loop"


class Fused(NamedTuple, Generic[K]):
    target: K
    var: Var


def split(target: K, loop: Var | str, factor: int, tail: Tail = "guard") -> Split[K]:
    """One loop as two, the inner of `factor` turns: var = outer * factor + inner.

    Where the factor does not divide the extent, `guard` puts the body under a condition (which
    becomes a mask when the inner loop is vectorised) and `loop` adds a loop over the rest.

    >>> from .build import KernelBuilder
    >>> from .printer import show
    >>> b = KernelBuilder("k")
    >>> y = b.arg("y", "int64", (10,))
    >>> with b.loop("i", 10) as i:
    ...     b.store(y, i, i)
    >>> print(show(split(b.finish(), i, 4, tail="loop").target))
    kernel k(y: int64[10]):
      for i_o in 0..2:
        for i_i in 0..4:
          y[i_o * 4 + i_i] = i_o * 4 + i_i
      for i_t in 0..2:
        y[8 + i_t] = 8 + i_t
    """
    if factor < 1:
        raise InvalidValue(f"loop {_label(loop)} is split by {factor}", why="not positive")
    name = _label(loop)
    outer, inner, rest = Var(f"{name}_o"), Var(f"{name}_i"), Var(f"{name}_t")
    index = outer * factor + inner

    def with_guard(node: For) -> Stmt:
        _check_unbound(node)
        body = substitute(node.body, {node.var: index})
        if not _divides(factor, node.extent):
            body = If(index < node.extent, body)
        turns = simplify((node.extent + (factor - 1)) // factor)
        return For(outer, turns, For(inner, as_expr(factor), body, node.kind))

    def with_loop(node: For) -> Stmt:
        _check_unbound(node)
        full = simplify(node.extent // factor)
        body = substitute(node.body, {node.var: index})
        main = For(outer, full, For(inner, as_expr(factor), body, node.kind))
        if _divides(factor, node.extent):
            return main
        start, left = simplify(full * factor), simplify(node.extent - full * factor)
        after = substitute(node.body, {node.var: start + rest})
        return Seq((main, For(rest, left, after, "serial")))

    made = _at_loop(target, loop, with_guard if tail == "guard" else with_loop)
    return Split(made, outer, inner, rest if tail == "loop" else None)


def fuse(target: K, outer: Var | str, inner: Var | str) -> Fused[K]:
    """Two loops, one directly inside the other, as one: outer = var // n, inner = var % n."""
    var = Var(f"{_label(outer)}_{_label(inner)}")

    def fused(node: For) -> Stmt:
        below = node.body
        if not (isinstance(below, For) and _is(below.var, inner)):
            raise InvalidValue(f"loop {_label(inner)} is not directly inside {_label(outer)}")
        _check_independent((node, below))
        _check_unbound(node)
        _check_unbound(below)
        n = below.extent
        body = substitute(below.body, {node.var: var // n, below.var: var % n})
        return For(var, simplify(node.extent * n), body, node.kind)

    return Fused(_at_loop(target, outer, fused), var)


def reorder(target: K, *order: Var | str) -> K:
    """Loops directly inside each other put in this order; others between them stay in place."""

    def permuted(node: For) -> Stmt | None:
        nest = _nest(node)
        places = [at for at, loop in enumerate(nest) if any(_is(loop.var, o) for o in order)]
        if len(places) != len(order) or places[0] != 0:
            return None
        _check_independent(nest[: places[-1] + 1])
        by_name = [next(loop for loop in nest if _is(loop.var, o)) for o in order]
        chosen = dict(zip(places, by_name))
        body = nest[places[-1]].body
        for at in range(places[-1], -1, -1):
            loop = chosen.get(at, nest[at])
            body = For(loop.var, loop.extent, body, loop.kind)
        return body

    changed = False

    def rule(node: Expr | Stmt) -> Expr | Stmt:
        nonlocal changed
        made = permuted(node) if isinstance(node, For) else None
        changed = changed or made is not None
        return node if made is None else made

    for loop in order:
        _find(_body(target), loop)
    result = _map_body(target, lambda body: rewrite(body, rule))
    if not changed:
        raise InvalidValue(
            f"loops {', '.join(map(_label, order))} cannot be put in order",
            why="they are not directly inside each other",
        )
    return result


def parallelise(kernel: Kernel, loop: Var | str) -> Kernel:
    """The outermost loop of a kernel run by several threads; its turns must be independent."""
    if kernel.parallel is not None:
        raise InvalidValue(f"kernel {kernel.name} has a parallel loop already")
    node = sequence((kernel.body,))
    if not (isinstance(node, For) and _is(node.var, loop)):
        raise InvalidValue(f"loop {_label(loop)} is not the outermost of kernel {kernel.name}")
    return replace(kernel, body=node.body, parallel=Parallel(node.var, node.extent))


def vectorise(target: K, loop: Var | str) -> K:
    """Marks a loop of constant extent, its lanes, for `lower_vectors`."""
    return _mark(target, loop, "vector")


def unroll(target: K, loop: Var | str) -> K:
    """Marks a loop of constant extent for `expand_unrolled`."""
    return _mark(target, loop, "unroll")


def bind(target: K, loop: Var | str, axis: GridAxis) -> K:
    """Makes each turn of a loop a block, or a thread of a block, along an axis of the grid.

    >>> from .build import KernelBuilder
    >>> from .printer import show
    >>> b = KernelBuilder("k")
    >>> n = b.scalar("n")
    >>> y = b.arg("y", "int64", (n,))
    >>> with b.loop("i", n) as i:
    ...     b.store(y, i, i)
    >>> kernel, block, thread, _ = split(b.finish(), i, 128)
    >>> print(show(bind(bind(kernel, block, "block.x"), thread, "thread.x")))
    kernel k(y: int64[n], n: int64):
      for i_o in 0..(n + 127) // 128 block.x:
        for i_i in 0..128 thread.x:
          if i_o * 128 + i_i < n:
            y[i_o * 128 + i_i] = i_o * 128 + i_i
    """
    return _at_loop(target, loop, lambda node: replace(node, kind=axis))


def lower_vectors(kernel: Kernel) -> Kernel:
    """Vector loops become vector expressions, the innermost first; then all is simplified."""
    rule = lambda node: lower_vector_loop(node, kernel) if _is_kind(node, "vector") else node
    return simplify_statement(replace(kernel, body=rewrite(kernel.body, rule)))


def expand_unrolled(kernel: Kernel) -> Kernel:
    """Unrolled loops become straight code, one copy per turn; then all is simplified."""
    rule = lambda node: _copies(node) if _is_kind(node, "unroll") else node
    return simplify_statement(replace(kernel, body=rewrite(kernel.body, rule)))


def legalise(kernel: Kernel) -> Kernel:
    """The kernel as code generation takes it: serial loops and those of the grid only."""
    return expand_unrolled(lower_vectors(kernel))


def _copies(node: For) -> Stmt:
    lets = [s.var for s in statements(node.body) if isinstance(s, Let)]
    return sequence([_copy(node, lets, turn) for turn in range(constant_extent(node))])


def _copy(node: For, lets: list[Var], turn: int) -> Stmt:
    """One turn, with lets of its own: their values become constants that differ by turn."""
    names = {var: Var(var.name, var.dtype, var.lanes) for var in lets}
    values: dict[Var, Expr] = {node.var: as_expr(turn), **names}

    def rule(part: Expr | Stmt) -> Expr | Stmt:
        if isinstance(part, Let):
            return Let(names[part.var], part.value, part.body)
        return values.get(part, part) if isinstance(part, Var) else part

    return rewrite(node.body, rule)


def constant_extent(node: For) -> int:
    extent = simplify(node.extent)
    if not isinstance(extent, Const):
        raise InvalidValue(f"{node.kind} loop {node.var.name} has no constant extent")
    return int(extent.value)


def _mark(target: K, loop: Var | str, kind: LoopKind) -> K:
    def marked(node: For) -> Stmt:
        made = replace(node, kind=kind)
        constant_extent(made)
        return made

    return _at_loop(target, loop, marked)


def _at_loop(target: K, loop: Var | str, change: Callable[[For], Stmt]) -> K:
    var = _find(_body(target), loop)
    rule = lambda node: change(node) if isinstance(node, For) and node.var is var else node
    return _map_body(target, lambda body: rewrite(body, rule))


def _find(root: Stmt, loop: Var | str) -> Var:
    found = {s.var for s in statements(root) if isinstance(s, For) and _is(s.var, loop)}
    if not found:
        names = dict.fromkeys(s.var.name for s in statements(root) if isinstance(s, For))
        raise NotFound(f"there is no loop {_label(loop)}", why="loops: " + ", ".join(names))
    if len(found) > 1:
        raise InvalidValue(f"several loops are called {loop!r}", hint="name it by its variable")
    return found.pop()


def _nest(node: For) -> list[For]:
    nest = [node]
    while isinstance(nest[-1].body, For):
        nest.append(nest[-1].body)
    return nest


def _check_independent(nest: tuple[For, ...] | list[For]) -> None:
    variables = [loop.var for loop in nest]
    for loop in nest:
        if not free_of(loop.extent, variables):
            raise InvalidValue(f"the extent of loop {loop.var.name} depends on a loop around it")


def _check_unbound(node: For) -> None:
    if node.is_bound:
        raise InvalidValue(
            f"loop {node.var.name} is bound to {node.kind}",
            why="one axis of the grid cannot be two loops, nor two axes one",
            hint="split or fuse first, then bind",
        )


def _divides(factor: int, extent: Expr) -> bool:
    remainder = simplify(extent % factor)
    return isinstance(remainder, Const) and remainder.value == 0


def _is(var: Var, loop: Var | str) -> bool:
    return var is loop or var.name == loop


def _is_kind(node: Expr | Stmt, kind: LoopKind) -> bool:
    return isinstance(node, For) and node.kind == kind


def _label(loop: Var | str) -> str:
    return loop if isinstance(loop, str) else loop.name


def _body(target: Kernel | Stmt) -> Stmt:
    return target.body if isinstance(target, Kernel) else target


def _map_body(target: K, change: Callable[[Stmt], Stmt]) -> K:
    if isinstance(target, Kernel):
        return replace(target, body=change(target.body))
    return cast(K, change(cast(Stmt, target)))
