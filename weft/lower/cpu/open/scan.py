"""Running reductions along an axis as open kernels: sizes are arguments.

What a step does is an element of a monoid: neighbours in a vector are joined in a few steps, each
with what is 1, 2, 4... lanes before, and a row costs one join for each vector one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ....base.cpu_target import CpuTarget
from ....base.dtype import FLOAT64, DType, is_float
from ....te.build import KernelBuilder
from ....te.expr import Broadcast, Expr, Ramp, Shuffle, Var, as_expr, cast, const, minimum, select
from ....te.loops import Buffer, Kernel, Store
from ....te.schedule import bind_shared
from ....te.transform import lower_vectors
from ....te.visit import masked_load
from .nest import vector_loop

BLOCK = 256  # columns that have their states in scratch

State = tuple[Expr, ...]


class Scan(NamedTuple):
    """`lift` makes a state of an element of each operand, `join` one of an earlier and a later one;
    `written(before, after, *elements)` is what is written for an element."""

    name: str
    lift: Callable[..., State]
    join: Callable[[State, State], State]
    start: tuple[float, ...]
    written: Callable[..., Expr]
    needs_before: bool = False
    reverse: bool = False


def state_dtype(dtype: DType) -> DType:
    """What states are kept in."""
    return FLOAT64 if is_float(dtype) else dtype


def row_scan_kernel(scan: Scan, dtypes: Sequence[DType], target: CpuTarget) -> Kernel:
    """Along rows in memory, from operands of some dtypes to a result of the last one. Scalars: how
    many there are, and their length. A turn is a row."""
    b, wide = KernelBuilder(scan.name), state_dtype(dtypes[0])
    rows, length = b.scalar("rows"), b.scalar("length")
    *xs, out = (b.arg(f"x{n}", dtype, (rows * length,)) for n, dtype in enumerate(dtypes))
    lanes = target.lanes(wide)
    with b.parallel("row", rows) as row:
        start = b.let("start", row * length)
        full = b.let("full", length // lanes)
        lane = Ramp(as_expr(0), as_expr(1), lanes)
        inside = lane < Broadcast(length - full * lanes, lanes)
        body = _Vectors(b, scan, xs, out, wide, lanes)
        carry = [b.alloc("carry", wide, (), scope="register", lanes=lanes) for _ in scan.start]
        for part, value in zip(carry, body.nothing):
            b.store(part, (), value)

        def last() -> None:
            with b.when(full * lanes < length):
                body.emit(start + full * lanes, carry, inside)

        if scan.reverse:
            last()
        with b.loop("turn", full) as turn:
            place = full - 1 - turn if scan.reverse else turn
            body.emit(start + place * lanes, carry, None)
        if not scan.reverse:
            last()
    return lower_vectors(b.finish())


class _Vectors(NamedTuple):
    b: KernelBuilder
    scan: Scan
    xs: list[Buffer]
    out: Buffer
    wide: DType
    lanes: int

    @property
    def nothing(self) -> list[Expr]:
        return [Broadcast(const(value, self.wide), self.lanes) for value in self.scan.start]

    def emit(self, at: Expr, carry: Sequence[Buffer], inside: Expr | None) -> None:
        """One vector of each operand from a place on; only those inside count."""
        b, scan = self.b, self.scan
        place = Ramp(at, as_expr(1), self.lanes)
        values = [b.let("x", cast(masked_load(x, (place,), inside), self.wide)) for x in self.xs]
        state = self._bound(scan.lift(*values))
        if inside is not None:
            state = self._bound([select(inside, own, none) for own, none in zip(state, self.nothing)])
        step = 1
        while step < self.lanes:
            state = self._bound(scan.join(self._moved(state, step), state))
            step *= 2
        before = tuple([part[()] for part in carry])
        after = self._bound(scan.join(before, state))
        own = self._bound(scan.join(before, self._moved(state, 1))) if scan.needs_before else before
        written = cast(scan.written(own, after, *values), self.out.dtype)
        b.store(self.out, (place,), written, inside)
        end = 0 if scan.reverse else self.lanes - 1
        whole = tuple([Shuffle(part, part, (end,) * self.lanes) for part in state])
        for part, value in zip(carry, self._bound(scan.join(before, whole))):
            b.store(part, (), value)

    def _bound(self, state: Sequence[Expr]) -> State:
        return tuple([self.b.let("state", part) for part in state])

    def _moved(self, state: State, step: int) -> State:
        """In each lane what is so many lanes before, and nothing where there is none."""
        lanes = range(self.lanes)
        if self.scan.reverse:
            order = [lane + step for lane in lanes]
        else:
            order = [lane - step if lane >= step else self.lanes + lane for lane in lanes]
        return tuple([Shuffle(part, none, tuple(order)) for part, none in zip(state, self.nothing)])


def column_scan_kernel(scan: Scan, dtypes: Sequence[DType], target: CpuTarget) -> Kernel:
    """The same along the middle one of three axes; scalars: their extents. A turn is a block of
    columns."""
    b, wide = KernelBuilder(scan.name), state_dtype(dtypes[0])
    outer, length, inner = (b.scalar(name) for name in ("outer", "length", "inner"))
    size = outer * length * inner
    *xs, out = (b.arg(f"x{n}", dtype, (size,)) for n, dtype in enumerate(dtypes))
    lanes = target.lanes(wide)
    blocks, j = (inner + (BLOCK - 1)) // BLOCK, Var("j")
    with b.parallel("p", outer * blocks) as p:
        first = b.let("first", p % blocks * BLOCK)
        start = b.let("start", p // blocks * length * inner + first)
        width = b.let("width", minimum(as_expr(BLOCK), inner - first))
        states = [b.alloc("states", wide, (BLOCK,)) for _ in scan.start]

        def each(stores: Sequence[Store]) -> None:
            b.emit(vector_loop(j, as_expr(0), width, lanes, bind_shared(stores)))

        each([Store(s, (j,), const(value, wide)) for s, value in zip(states, scan.start)])
        with b.loop("turn", length) as turn:
            row = b.let("row", start + (length - 1 - turn if scan.reverse else turn) * inner)
            values = [cast(x[row + j], wide) for x in xs]
            before = tuple([state[j] for state in states])
            after = scan.join(before, scan.lift(*values))
            written = cast(scan.written(before, after, *values), out.dtype)
            each([Store(out, (row + j,), written), *[Store(state, (j,), value) for state, value in zip(states, after)]])
    return lower_vectors(b.finish())
