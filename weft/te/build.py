"""Kernels written imperatively: nested `with` blocks and stores become loop IR."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal, cast

from ..base.dtype import BOOL, INT64, DType
from ..base.errors import DTypeError, InvalidValue
from .expr import Expr, ExprLike, Var, access_lanes, as_expr, widen
from .extents import Extent
from .loops import (
    Alloc,
    Barrier,
    Buffer,
    Exchange,
    For,
    GridAxis,
    If,
    Kernel,
    Let,
    LoopKind,
    Parallel,
    Prefetch,
    Scope,
    Seq,
    Stmt,
    Store,
    TileStep,
    While,
    as_indices,
    buffer,
)
from .verify import verify


@dataclass(frozen=True, slots=True, eq=False)
class _Binding:
    """A let or an alloc that holds for the rest of its block."""

    target: Var | Buffer
    value: Expr | None = None

    def around(self, body: Stmt) -> Stmt:
        if isinstance(self.target, Buffer):
            return Alloc(self.target, body)
        assert self.value is not None
        return Let(self.target, self.value, body)


_Block = list["Stmt | _Binding"]
Axis = Literal["x", "y", "z"]


UNBOUNDED = 1 << 40  # elements of a buffer that is addressed by strides


class KernelBuilder:
    """Writes one kernel.

    >>> b = KernelBuilder("double")
    >>> x, y = b.arg("x", "float32", (4, 8)), b.arg("y", "float32", (4, 8))
    >>> with b.parallel("i", 4) as i, b.loop("j", 8) as j:
    ...     b.store(y, (i, j), x[i, j] * 2)
    >>> b.finish().parallel.var.name
    'i'

    A kernel for a GPU has blocks and threads around it; what they share is allocated between them.

    >>> b = KernelBuilder("reverse")
    >>> x, y = b.arg("x", "float32", (4, 8)), b.arg("y", "float32", (4, 8))
    >>> with b.block("i", 4) as i:
    ...     row = b.alloc("row", "float32", (8,), scope="shared")
    ...     with b.thread("j", 8) as j:
    ...         b.store(row, j, x[i, j])
    ...         b.barrier()
    ...         b.store(y, (i, j), row[7 - j])
    >>> b.finish().body.kind
    'block.x'
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._buffers: list[Buffer] = []
        self._scalars: list[Var] = []
        self._blocks: list[_Block] = [[]]
        self._parallel: Parallel | None = None

    def arg(
        self,
        name: str,
        dtype: DType | str,
        shape: Sequence[ExprLike],
        *,
        strides: Sequence[ExprLike] | None = None,
        alignment: int = 0,
    ) -> Buffer:
        """A buffer that the caller passes."""
        argument = buffer(name, dtype, shape, strides=strides, alignment=alignment)
        self._buffers.append(argument)
        return argument

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """Those that the caller passes, so far."""
        return tuple(self._buffers)

    def scalar(self, name: str) -> Var:
        """An int64 that the caller passes."""
        self._scalars.append(Var(name, INT64))
        return self._scalars[-1]

    def alloc(
        self,
        name: str,
        dtype: DType | str,
        shape: Sequence[ExprLike] = (),
        *,
        scope: Scope = "scratch",
        lanes: int = 1,
        alignment: int = 0,
    ) -> Buffer:
        """A buffer of the kernel's own, until the end of this block. It holds nothing yet."""
        if scope == "arg":
            raise InvalidValue(f"buffer {name} is allocated with scope 'arg'", hint="use arg()")
        memory = buffer(name, dtype, shape, scope=scope, lanes=lanes, alignment=alignment)
        self._blocks[-1].append(_Binding(memory))
        return memory

    def registers(
        self, name: str, dtype: DType | str, shape: Sequence[int] = (), start: ExprLike = 0, lanes: int = 1
    ) -> Buffer:
        """Registers until the end of this block, or vectors of them, each of which begins with a value."""
        made = self.alloc(name, dtype, shape, scope="register", lanes=lanes)
        for place in product(*map(range, shape)):
            self.store(made, place, start)
        return made

    def let(self, name: str, value: ExprLike) -> Var:
        """A name for a value computed once, until the end of this block."""
        bound = as_expr(value)
        var = Var(name, bound.dtype, bound.lanes)
        self._blocks[-1].append(_Binding(var, bound))
        return var

    def store(
        self, target: Buffer, indices: ExprLike | Sequence[ExprLike], value: ExprLike, mask: Expr | None = None
    ) -> None:
        """`target[indices] = value`, in the lanes that the mask names."""
        at = as_indices(target, indices)
        lanes = access_lanes(target, at)
        stored = widen(as_expr(value, target.dtype), lanes)
        guard = None if mask is None else widen(mask, lanes)
        self._blocks[-1].append(Store(target, at, stored, guard))

    def prefetch(self, target: Buffer, indices: ExprLike | Sequence[ExprLike], level: int = 1) -> None:
        """A hint that an element will be read soon."""
        self._blocks[-1].append(Prefetch(target, as_indices(target, indices), level))

    def tile(
        self, action: Any, *tiles: int, source: Buffer | None = None, at: ExprLike = 0, stride: int = 0, rows: Any = ()
    ) -> None:
        """A step of the unit that multiplies tiles; see `TileStep`."""
        indices = () if source is None else as_indices(source, at)
        self._blocks[-1].append(TileStep(action, tiles, tuple(rows), source, indices, stride))

    def barrier(self) -> None:
        """Waits until all threads of the block are here."""
        self._blocks[-1].append(Barrier())

    def exchange(self, target: Buffer, indices: ExprLike | Sequence[ExprLike], value: Expr, distance: int) -> None:
        """`target[indices]` becomes the value that the thread has whose number differs in the bits of `distance`."""
        self._blocks[-1].append(Exchange(target, as_indices(target, indices), value, distance))

    def emit(self, statement: Stmt) -> None:
        """Any statement, made elsewhere."""
        self._blocks[-1].append(statement)

    @contextmanager
    def parallel(self, name: str, extent: ExprLike) -> Iterator[Var]:
        """The outermost loop, split over threads; it contains everything the kernel does."""
        if len(self._blocks) > 1 or self._blocks[0] or self._parallel is not None:
            raise InvalidValue(
                f"parallel loop {name} of kernel {self.name} is not its outermost statement",
                why="a kernel has one parallel loop, around all it does",
            )
        self._parallel = Parallel(Var(name), as_expr(extent))
        self._blocks.append([])
        yield self._parallel.var
        body = self._close()
        self._blocks[-1].append(body)

    @contextmanager
    def loop(self, name: str, extent: ExprLike, kind: LoopKind = "serial") -> Iterator[Var]:
        """for name in 0 .. extent - 1."""
        var, count = Var(name), as_expr(extent)
        self._blocks.append([])
        yield var
        body = self._close()
        self._blocks[-1].append(For(var, count, body, kind))

    def block(self, name: str, extent: ExprLike, axis: Axis = "x") -> AbstractContextManager[Var]:
        """A loop whose turns are the blocks along an axis of the grid. Sizes that their number follows from are scalars
        of the kernel."""
        if isinstance(extent, Extent):
            self._scalars += [var for var in extent.trace.scalars if var not in self._scalars]
        return self.loop(name, extent, cast(GridAxis, f"block.{axis}"))

    def thread(self, name: str, extent: int, axis: Axis = "x") -> AbstractContextManager[Var]:
        """A loop of constant extent whose turns are the threads along an axis of each block."""
        return self.loop(name, extent, cast(GridAxis, f"thread.{axis}"))

    def unrolled(self, name: str, extent: int) -> AbstractContextManager[Var]:
        """A loop of constant extent that becomes straight code."""
        return self.loop(name, extent, "unroll")

    def vector(self, name: str, lanes: int) -> AbstractContextManager[Var]:
        """A loop of constant extent whose iterations become the lanes of vectors."""
        return self.loop(name, lanes, "vector")

    @contextmanager
    def repeat_while(self, condition: Expr) -> Iterator[None]:
        """The block again and again while the condition, evaluated before each turn, holds."""
        self._check_condition(condition)
        self._blocks.append([])
        yield
        body = self._close()
        self._blocks[-1].append(While(condition, body))

    @contextmanager
    def when(self, condition: Expr) -> Iterator[None]:
        """The block only if the condition holds."""
        self._check_condition(condition)
        self._blocks.append([])
        yield
        body = self._close()
        self._blocks[-1].append(If(condition, body))

    @contextmanager
    def otherwise(self) -> Iterator[None]:
        """The block only if the condition of the `when` just before it does not hold."""
        last = self._blocks[-1][-1] if self._blocks[-1] else None
        if not isinstance(last, If) or last.otherwise is not None:
            raise InvalidValue(f"kernel {self.name} has an otherwise() that follows no when()")
        self._blocks.append([])
        yield
        body = self._close()
        self._blocks[-1][-1] = If(last.condition, last.then, body)

    def finish(self) -> Kernel:
        """The kernel."""
        if len(self._blocks) != 1:
            raise InvalidValue(f"kernel {self.name} is finished inside an open block")
        top = self._blocks[0]
        if self._parallel is not None and len(top) != 1:
            raise InvalidValue(f"kernel {self.name} has statements after its parallel loop")
        kernel = Kernel(self.name, tuple(self._buffers), _block(top), self._parallel, tuple(self._scalars))
        verify(kernel)
        return kernel

    def _close(self) -> Stmt:
        return _block(self._blocks.pop())

    def _check_condition(self, condition: Expr) -> None:
        if condition.dtype != BOOL or condition.lanes != 1:
            raise DTypeError(
                f"a condition of kernel {self.name} is {condition.dtype} x{condition.lanes}",
                why="control flow takes one bool",
            )


def _block(items: _Block) -> Stmt:
    """The statements of a block, those after a let or an alloc inside its body."""
    tail: list[Stmt] = []
    for item in reversed(items):
        if isinstance(item, _Binding):
            tail = [item.around(_sequence(tail[::-1]))]
        else:
            tail.append(item)
    return _sequence(tail[::-1])


def _sequence(statements: list[Stmt]) -> Stmt:
    return statements[0] if len(statements) == 1 else Seq(tuple(statements))
