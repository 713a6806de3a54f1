"""The rules of kernels with a grid. A kernel comes in; an error says which rule it breaks.

- Loops bound to blocks are outermost, those bound to threads directly inside them: between them are
  only lets, and allocs of shared memory. An axis is bound once. There is no parallel loop beside.
- Extents of blocks are expressions of the scalar arguments, those of threads constants.
- Shared memory is allocated between the blocks and the threads, with constant extents; other
  memory inside the threads.
- A barrier or an exchange is inside a block, and no condition, loop or vector around it lets threads pass it by.
  A condition on what memory holds may or may not; that only a run can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from ..base.errors import InvalidValue
from .expr import Expr, Load, Var
from .grid import (
    AXES,
    MAX_SHARED_BYTES,
    MAX_THREADS,
    MAX_THREADS_IN_ALL,
    Grid,
    buffer_bytes,
    constant,
    grid_of,
    is_block,
    outer_nest,
)
from .loops import Alloc, Barrier, Buffer, Exchange, For, If, Kernel, Let, Stmt, While
from .simplify_loops import statements
from .visit import parts, postorder

_Nest = Sequence[For | Let | Alloc]


def verify(kernel: Kernel) -> None:
    """Raises InvalidValue if a kernel breaks a rule of grids.

    >>> from .expr import as_expr
    >>> from .loops import Seq
    >>> verify(Kernel("k", (), For(Var("j"), as_expr(8), Seq(()), "thread.x")))
    Traceback (most recent call last):
    weft.base.errors.InvalidValue: loop j is bound to thread.x outside all blocks
      where: kernel k
      try:   put a loop bound to block.x around it, of extent 1 if need be
    """
    special = [node for node in statements(kernel.body) if _is_of_grid(node)]
    if not special:
        return
    try:
        _verify_grid(kernel, special)
    except InvalidValue as error:
        error.at(f"kernel {kernel.name}")
        raise


def _is_of_grid(node: Stmt) -> bool:
    match node:
        case For():
            return node.is_bound
        case Alloc(buffer=buffer):
            return buffer.scope == "shared"
    return isinstance(node, (Barrier, Exchange))


def _verify_grid(kernel: Kernel, special: Sequence[Stmt]) -> None:
    nest = outer_nest(kernel)
    _check_outermost(special, nest)
    _check_loops([node for node in nest if isinstance(node, For)])
    _check_allocs(nest)
    grid = grid_of(kernel)
    if grid is None:
        raise InvalidValue("a barrier outside all blocks", why="there is nobody to wait for")
    if kernel.parallel is not None:
        raise InvalidValue(f"the kernel has a parallel loop, {kernel.parallel.var.name}, and loops bound to a grid")
    for loop in grid.blocks:
        _check_block_extent(loop, kernel.scalars)
    _check_threads(grid.threads)
    _check_shared(grid)
    _check_barriers(kernel.body, grid)


def _check_outermost(special: Sequence[Stmt], nest: _Nest) -> None:
    known = {id(node) for node in nest}
    for node in special:
        if id(node) in known:
            continue
        if isinstance(node, For):
            raise InvalidValue(
                f"loop {node.var.name}, bound to {node.kind}, is not one of the outermost",
                why="only loops of the grid, lets and shared memory stand around it",
                hint="move it out, and what each thread does into it",
            )
        if isinstance(node, Alloc):
            raise _misplaced(node.buffer)


def _misplaced(buffer: Buffer) -> InvalidValue:
    return InvalidValue(
        f"shared memory {buffer.name} is not allocated between blocks and threads",
        why="there is one for each block, which all of its threads use",
        hint="allocate it inside the loops of blocks and outside those of threads",
    )


def _check_loops(loops: Sequence[For]) -> None:
    """The order of bound loops, from the outermost in."""
    seen: dict[str, For] = {}
    for loop in loops:
        name, kind = loop.var.name, loop.kind
        if kind in seen:
            raise InvalidValue(f"loops {seen[kind].var.name} and {name} are both bound to {kind}")
        around = [other for other in seen.values() if is_block(other) != is_block(loop)]
        if is_block(loop) and around:
            raise InvalidValue(
                f"loop {name}, bound to {kind}, is inside {around[0].var.name}, bound to {around[0].kind}",
                why="threads are inside blocks",
            )
        if not is_block(loop) and not around:
            raise InvalidValue(
                f"loop {name} is bound to {kind} outside all blocks",
                hint="put a loop bound to block.x around it, of extent 1 if need be",
            )
        seen[kind] = loop


def _check_allocs(nest: _Nest) -> None:
    for at, node in enumerate(nest):
        if not isinstance(node, Alloc):
            continue
        around = [loop for loop in nest[:at] if isinstance(loop, For)]
        below = [loop for loop in nest[at:] if isinstance(loop, For)]
        if node.buffer.scope != "shared" and below:
            raise InvalidValue(
                f"{node.buffer.scope} memory {node.buffer.name} is allocated outside of loop "
                f"{below[0].var.name}, bound to {below[0].kind}",
                why="each thread has its own",
                hint="allocate it inside the loops of the grid, or with scope 'shared'",
            )
        if node.buffer.scope == "shared":
            between = around and all(map(is_block, around)) and not any(map(is_block, below))
            if not between:
                raise _misplaced(node.buffer)


def _check_block_extent(loop: For, scalars: Sequence[Var]) -> None:
    for node in postorder((loop.extent,)):
        if isinstance(node, Load) or (isinstance(node, Var) and node not in scalars):
            what = node.source.name if isinstance(node, Load) else node.name
            raise InvalidValue(
                f"the extent of loop {loop.var.name}, bound to {loop.kind}, depends on {what}",
                why="the grid is known before the kernel runs: from its scalar arguments",
            )


def _check_threads(loops: Sequence[For]) -> None:
    counts: list[int] = []
    for loop in loops:
        name, most = f"loop {loop.var.name}, bound to {loop.kind},", _most_threads(loop)
        count = constant(loop.extent)
        if count is None:
            raise InvalidValue(
                f"{name} has no constant extent",
                hint="split it by a constant: the outer loop for blocks, the inner for threads",
            )
        if not 1 <= count <= most:
            raise InvalidValue(f"{name} has {count} turns", why=f"a block has 1 to {most} there")
        counts.append(count)
    if prod(counts) > MAX_THREADS_IN_ALL:
        raise InvalidValue(
            f"a block of {' x '.join(map(str, counts))} threads", why=f"a block has at most {MAX_THREADS_IN_ALL}"
        )


def _most_threads(loop: For) -> int:
    return MAX_THREADS[AXES.index(loop.kind[-1])]


def _check_shared(grid: Grid) -> None:
    for buffer in grid.shared:
        if any(constant(size) is None for size in (*buffer.shape, *buffer.strides)):
            raise InvalidValue(
                f"shared memory {buffer.name} has an extent or a stride that is not constant",
                why="a block takes its memory when it starts, as much as the kernel was made with",
                hint="size it for what a block does, not for the whole",
            )
        if buffer.lanes > 1:
            raise InvalidValue(
                f"the elements of shared memory {buffer.name} are vectors of {buffer.lanes}",
                why="only registers are",
                hint="give it one more axis",
            )
    if grid.shared_bytes > MAX_SHARED_BYTES:
        parts = ", ".join(f"{buffer.name} {buffer_bytes(buffer)}" for buffer in grid.shared)
        raise InvalidValue(
            f"a block shares {grid.shared_bytes} bytes of memory",
            why=f"it can have at most {MAX_SHARED_BYTES}; it allocates {parts}",
        )


# --- barriers


def _check_barriers(body: Stmt, grid: Grid) -> None:
    """No barrier is where threads of a block are known to go different ways."""
    differs = {loop.var: loop.var.name for loop in grid.threads if constant(loop.extent) != 1}
    stack: list[tuple[Stmt, str]] = [(body, "")]
    while stack:
        node, parting = stack.pop()
        if isinstance(node, (Barrier, Exchange)) and parting:
            raise InvalidValue(
                f"{'a barrier' if isinstance(node, Barrier) else 'an exchange'} is inside {parting}",
                why="all threads of a block have to reach it",
                hint="put the barrier outside, and the condition around what needs it",
            )
        if isinstance(node, Let):
            differs[node.var] = _thread_behind(node.value, differs)
        parting = parting or _parting(node, differs)
        inside = [part for part in parts(node) if not isinstance(part, Expr)]
        stack.extend((part, parting) for part in reversed(inside))


def _parting(node: Stmt, differs: Mapping[Var, str]) -> str:
    """What sends threads different ways inside a statement, in words; nothing if they agree."""
    match node:
        case If() | While():
            thread = _thread_behind(node.condition, differs)
            return f"a condition on {thread}, which counts threads" if thread else ""
        case For(var=var, kind="vector"):
            return f"vector loop {var.name}, whose lanes are one thread"
        case For(var=var):
            thread = _thread_behind(node.extent, differs)
            return f"loop {var.name}, whose extent depends on {thread}" if thread else ""
    return ""


def _thread_behind(root: Expr, differs: Mapping[Var, str]) -> str:
    """The thread axis that a value is computed from, if not by way of memory; else nothing."""
    seen: set[int] = set()
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, Var) and differs.get(node):
            return differs[node]
        if id(node) not in seen and not isinstance(node, Load):
            seen.add(id(node))
            stack.extend(parts(node))
    return ""
