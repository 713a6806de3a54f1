"""Loops changed: statements or kernels come in, ones that do the same go out."""

from __future__ import annotations

from dataclasses import replace

from ..base.errors import InvalidValue
from .expr import Const, Expr, Var, as_expr
from .halves import joined_halves
from .loops import For, If, Kernel, Let, LoopKind, Parallel, Stmt, Store
from .simplify import simplify
from .simplify_loops import sequence, simplify_statement, statements
from .vectorise import constant_ranges, lower_vector_loop
from .visit import rewrite, rewrite_statements, substitute


def split(body: Stmt, var: Var, factor: int, kind: LoopKind = "serial") -> Stmt:
    """One loop as two, the inner of `factor` turns and of that kind: var = outer * factor + inner.

    Where the factor does not divide the extent, what the loop does is put under a condition, which
    becomes a mask when the inner loop is vectorised.

    >>> from .build import KernelBuilder
    >>> from .printer import show
    >>> b = KernelBuilder("k")
    >>> y = b.arg("y", "int64", (10,))
    >>> with b.loop("i", 10) as i:
    ...     b.store(y, i, i)
    >>> print(show(split(b.finish().body, i, 4)))
    for i_o in 0..3:
      for i_i in 0..4:
        if i_o * 4 + i_i < 10:
          y[i_o * 4 + i_i] = i_o * 4 + i_i
    """
    outer, inner = Var(f"{var.name}_o"), Var(f"{var.name}_i")
    index = outer * factor + inner

    def rule(node: Stmt) -> Stmt:
        if not isinstance(node, For) or node.var is not var:
            return node
        turn = substitute(node.body, {var: index})
        if not _divides(factor, node.extent):
            turn = If(index < node.extent, turn)
        turns = simplify((node.extent + (factor - 1)) // factor)
        return For(outer, turns, For(inner, as_expr(factor), turn, kind))

    return rewrite_statements(body, rule)


def over_threads(kernel: Kernel) -> Kernel:
    """The turns of the outermost loop as those that threads share."""
    loop = kernel.body
    if not isinstance(loop, For) or kernel.parallel is not None:
        raise InvalidValue(
            f"the outermost loop of kernel {kernel.name} cannot be shared by threads",
            why="threads share one already" if kernel.parallel else "its body is no loop",
        )
    return replace(kernel, body=loop.body, parallel=Parallel(loop.var, loop.extent))


def lower_vectors(kernel: Kernel) -> Kernel:
    """Vector loops become vector expressions, the innermost first; then all is simplified."""
    ranges = constant_ranges(kernel)

    def rule(node: Stmt) -> Stmt:
        if not _is_kind(node, "vector"):
            return node
        assert isinstance(node, For)
        if _is_of_vectors(node):
            return joined_halves(node, kernel.name)
        return lower_vector_loop(node, kernel.name, ranges)

    return simplify_statement(replace(kernel, body=rewrite_statements(kernel.body, rule)))


def _is_of_vectors(loop: For) -> bool:
    """Whether a vector loop has two turns, and vectors inside."""
    two = isinstance(loop.extent, Const) and loop.extent.value == 2
    return two and any(isinstance(node, Store) and node.value.lanes > 1 for node in statements(loop.body))


def expand_unrolled(kernel: Kernel) -> Kernel:
    """Unrolled loops become straight code, one copy per turn; then all is simplified."""
    rule = lambda node: _copies(node) if _is_kind(node, "unroll") else node
    return simplify_statement(replace(kernel, body=rewrite_statements(kernel.body, rule)))


def expanded(body: Stmt) -> Stmt:
    """Loops of a constant number of turns as straight code, one copy per turn."""
    return rewrite_statements(body, lambda node: _copies(node) if isinstance(node, For) else node)


def legalise(kernel: Kernel) -> Kernel:
    """The kernel as code generation takes it: serial loops and those of the grid only."""
    return expand_unrolled(lower_vectors(kernel))


def _copies(node: For) -> Stmt:
    lets = [s.var for s in statements(node.body) if isinstance(s, Let)]
    return sequence([_copy(node, lets, turn) for turn in range(_constant_extent(node))])


def _copy(node: For, lets: list[Var], turn: int) -> Stmt:
    """One turn, with lets of its own: their values become constants that differ by turn."""
    names = {var: Var(var.name, var.dtype, var.lanes) for var in lets}
    values: dict[Var, Expr] = {node.var: as_expr(turn), **names}

    def rule(part: Expr | Stmt) -> Expr | Stmt:
        if isinstance(part, Let):
            return Let(names[part.var], part.value, part.body)
        return values.get(part, part) if isinstance(part, Var) else part

    return rewrite(node.body, rule)


def _constant_extent(node: For) -> int:
    extent = simplify(node.extent)
    if not isinstance(extent, Const):
        raise InvalidValue(f"{node.kind} loop {node.var.name} has no constant extent")
    return int(extent.value)


def _divides(factor: int, extent: Expr) -> bool:
    remainder = simplify(extent % factor)
    return isinstance(remainder, Const) and remainder.value == 0


def _is_kind(node: Expr | Stmt, kind: LoopKind) -> bool:
    return isinstance(node, For) and node.kind == kind
