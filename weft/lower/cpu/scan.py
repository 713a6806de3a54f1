"""The template of running reductions along an axis: sums, products, recurrences.

What a step does is an element of a monoid: neighbours in a vector are joined in a few steps, each
with what is 1, 2, 4... lanes before, and a row costs one join for each vector one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ... import te
from ...base.cpu_facts import COSTS
from ...base.cpu_target import CpuTarget
from ...base.dtype import FLOAT32, FLOAT64, DType, is_float, is_integer
from ...base.shape import normalize_axis
from ...core.fused import FusedGroup
from ...core.op import Op
from ...ops.reduce.reductions import reduced_axes
from ...te.build import KernelBuilder
from ...te.expr import Broadcast, Expr, Ramp, Shuffle, Var, as_expr, cast, const, minimum, select
from ...te.loops import Buffer, Kernel, Store
from ...te.schedule import bind_shared
from ...te.transform import lower_vectors
from ...te.visit import masked_load
from ..epilogue import static_spec
from ..group import Facts, LoweredKernel, Temporary, kernel_name
from ..loop_bodies import loop_body_kernels
from .nests.hoist import vector_loop
from .stage import lower_group

BLOCK = 256  # columns that have their states in scratch

State = tuple[Expr, ...]


class Scan(NamedTuple):
    """`lift` makes a state of an element of each operand, `join` one of an earlier and a later one;
    `written(before, after, *elements)` is what is written for an element."""

    lift: Callable[..., State]
    join: Callable[[State, State], State]
    start: tuple[float, ...]
    written: Callable[..., Expr]
    needs_before: bool = False
    reverse: bool = False


def state_dtype(dtype: DType) -> DType:
    """What states are kept in."""
    return FLOAT64 if is_float(dtype) else dtype


class Walk(NamedTuple):
    """Three axes, of which the middle one is walked along; their extents may be arguments."""

    outer: Any
    length: Any
    inner: Any


def scan_kernel(name: str, scan: Scan, dtypes: Sequence[DType], walk: Walk, target: CpuTarget) -> Kernel:
    """From operands of some dtypes to a result of the last one."""
    b = KernelBuilder(name)
    *xs, out = (b.arg(f"x{number}", dtype, (prod(walk),)) for number, dtype in enumerate(dtypes))
    if type(walk.inner) is int and walk.inner == 1:
        _write_rows(b, scan, xs, out, walk, target)
    else:
        _write_columns(b, scan, xs, out, walk, target)
    return lower_vectors(b.finish())


def _write_rows(b: KernelBuilder, scan: Scan, xs: list[Buffer], out: Buffer, walk: Walk, target: CpuTarget) -> None:
    """Along rows in memory. A turn is a row."""
    wide, length = state_dtype(xs[0].dtype), as_expr(walk.length)
    lanes = target.lanes(wide)
    with b.parallel("row", walk.outer) as row:
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


def _write_columns(b: KernelBuilder, scan: Scan, xs: list[Buffer], out: Buffer, walk: Walk, target: CpuTarget) -> None:
    """Along the middle one of three axes. A turn is a block of columns."""
    wide, length, inner = state_dtype(xs[0].dtype), as_expr(walk.length), as_expr(walk.inner)
    lanes = target.lanes(wide)
    blocks, j = (walk.inner + (BLOCK - 1)) // BLOCK, Var("j")
    with b.parallel("p", walk.outer * blocks) as p:
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


# Operators that are scans.


def _picked(params: Any) -> Callable[..., Expr]:
    """The element itself counts, or not."""
    if params.exclusive:
        return lambda before, after, x: before[0]
    return lambda before, after, x: after[0]


def _sum(params: Any) -> Scan:
    return Scan(lambda x: (x,), lambda a, b: (a[0] + b[0],), (0,), _picked(params), params.exclusive, params.reverse)


def _prod(params: Any) -> Scan:
    return Scan(lambda x: (x,), lambda a, b: (a[0] * b[0],), (1,), _picked(params), params.exclusive)


def _log_sum(params: Any) -> Scan:
    def join(a: State, b: State) -> State:
        high, low = te.max(a[0], b[0]), te.min(a[0], b[0])
        far = te.isinf(high)
        sums = high + te.log1p(te.exp(low - te.select(far, te.const(0, high.dtype), high)))
        return (te.select(far, high, sums),)

    return Scan(lambda x: (x,), join, (-np.inf,), lambda old, new, x: new[0])


def _recurrence(params: Any) -> Scan:
    """States are maps s -> a s + b. Backwards, what is kept is a times the sum, as the element
    before takes it."""

    def join(first: State, then: State) -> State:
        return first[0] * then[0], then[0] * first[1] + then[1]

    if params.reverse:
        lift: Any = lambda a, b: (a, a * b)
        written: Any = lambda before, after, a, b: before[1] + b
    else:
        lift = lambda a, b: (a, b)
        written = lambda before, after, a, b: after[1]
    return Scan(lift, join, (1, 0), written, params.reverse, params.reverse)


def _before(reverse: bool, times: bool) -> Scan:
    """The product of all elements before each one, times another."""
    written: Any = lambda before, after, x, *other: before[0] * other[0] if times else before[0]
    return Scan(lambda x, *other: (x,), lambda a, b: (a[0] * b[0],), (1,), written, True, reverse)


_SCANS: dict[str, Callable[[Any], Scan]] = {
    "cumsum": _sum,
    "cumprod": _prod,
    "logcumsumexp": _log_sum,
    "_recurrence": _recurrence,
}
SCANS = (*_SCANS, "_prod_others")


def walk_of(name: str, params: Any, shape: Sequence[Any]) -> Walk | None:
    """What a scan goes along; None if that are several axes which are no neighbours."""
    axes = [normalize_axis(params.axis, len(shape))] if name in _SCANS else sorted(reduced_axes(params, len(shape)))
    if not axes or list(axes) != list(range(axes[0], axes[-1] + 1)):
        return None
    return Walk(prod(shape[: axes[0]]), prod(shape[axes[0] : axes[-1] + 1]), prod(shape[axes[-1] + 1 :]))


def scan_kernels(group: FusedGroup, fact: Facts, target: CpuTarget) -> list[LoweredKernel]:
    """The kernels of a scan, by the operator's own body where its elements or axes are others."""
    (node,) = group.nodes
    specs = [static_spec(fact(entry)) for entry in node.inputs]
    shape, dtype = specs[0]
    walk = walk_of(node.op_name, node.params, shape)
    served = dtype in (FLOAT32, FLOAT64) or is_integer(dtype)
    if walk is None or not served or any(spec != specs[0] for spec in specs) or 0 in shape:
        return loop_body_kernels(group, fact) if Op.kernels.contains(node.op) else lower_group(group, fact, target)
    cost = COSTS.scanned_by_functions if node.op_name == "logcumsumexp" else COSTS.scanned
    work = prod(shape) * round(cost / target.facts.nanoseconds_per_operation)
    name, (output,) = kernel_name(group), group.outputs

    def lowered(scan: Scan, dtypes: Sequence[DType], *places: Hashable) -> LoweredKernel:
        return LoweredKernel(scan_kernel(name, scan, dtypes, walk, target), places, work)

    if node.op_name in _SCANS:
        return [lowered(_SCANS[node.op_name](node.params), [dtype] * (len(specs) + 1), *node.inputs, output)]
    (x,), wide = node.inputs, state_dtype(dtype)
    before = Temporary(0, shape, wide)  # the product of those before, which that of those after is multiplied by
    return [
        lowered(_before(False, False), [dtype, wide], x, before),
        lowered(_before(True, True), [dtype, wide, dtype], x, before, output),
    ]
