"""Products of a few rows: what they cost is reading the other operand once, and no tensor core is needed for that.

The threads of a warp share sums. Each loads 16 bytes of weights at a time, many of them before it multiplies, and adds
up in float32. Where weights lie along k, a warp has a few columns and its threads take turns along k; where they lie
across columns, threads have neighbouring columns, and rows of weights are shared out between threads, warps and all.
Threads add up what they have by shuffles, warps through shared memory, in an order that never changes. Where it is open
how many rows there are, threads have sums of as many as there may be.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ...base.cuda_target import CudaTarget
from ...base.dtype import FLOAT32, DType
from ...te.build import KernelBuilder
from ...te.expr import Expr, Ramp, Var, as_expr, cast, lane_of, minimum
from ...te.extents import Extent, at_least
from ...te.loops import WARP, Buffer, Kernel
from ...te.transform import legalise
from .aligned import with_alignment
from .grid import quotient, remainder
from .product import Matrices, Request
from .totals import DISTANCES, group_total, shown_item

MOST_ROWS = 8
SUMS = 64  # that a thread has at most: of so many rows and columns
IN_FLIGHT = 8  # loads that it waits for at once
RESIDENT = 8  # warps of a multiprocessor whose loads keep memory busy
WARPS, MOST_WARPS = 4, 16  # of a block
FEWEST = 4  # rows: of more, a thread needs the registers of two
RESIDENT_THREADS = 256  # of a multiprocessor: what registers are divided by
LINE = 4  # threads beside each other, at least: what they read of a row of weights is no less than half a line
SHARE = 0.3  # of the rate of multiply-adds, measured: most instructions convert, load and count


class Cut(NamedTuple):
    """How threads share a product. A warp has `across` threads beside each other, which have `own` columns each; the
    others, and `split` warps, share k. A block has `groups` of such warps side by side."""

    along: bool  # vectors of weights lie along k, not across columns
    lanes: int  # elements of a vector
    across: int
    own: int
    groups: int
    split: int

    @property
    def warps(self) -> int:
        return self.groups * self.split

    @property
    def shares(self) -> int:
        """Threads that share k."""
        return self.split * (WARP // self.across)


def most_rows(dtype: DType, target: CudaTarget, share: float = SHARE) -> int:
    """Up to how many rows threads multiply as fast as memory gives weights, so that no tensor core could be faster:
    a weight takes itemsize / memory rate to be read, and a row of it two operations."""
    read = dtype.itemsize / (target.memory_rate * 1e9)
    multiplied = 2 / (target.scalar_rate * share)
    return min(int(read / multiplied), MOST_ROWS)


def most_of_template(dtype: DType, target: CudaTarget, otherwise: bool) -> int:
    """Up to how many rows are for this template; `otherwise` says whether warpgroups can multiply them, too, which
    read weights in tiles of 64 rows, most of them empty, at 0.6 to 0.8 of memory's rate."""
    return most_rows(dtype, target) if otherwise else MOST_ROWS


def has_few_rows(rows: int | Extent, columns: int | Extent, most: int) -> bool:
    """Whether a product, or what it is turned around, has so few rows. Where rows are open that is asked, if there may
    be so few."""
    if isinstance(columns, Extent):
        return False
    if not isinstance(rows, Extent):
        return min(rows, columns) <= most
    return columns > most and at_least(rows.expr) <= most and bool(rows <= most)


def write_few_rows(b: KernelBuilder, request: Request, target: CudaTarget, most: int = MOST_ROWS) -> Kernel:
    """The kernel over the buffers that a builder has. Open rows are at most so many."""
    return _FewRows(b, request, target, most).kernel()


class _Lines(NamedTuple):
    """What lines are: rows of the product, or columns of one that is turned around; how many there are, and of how many
    a thread has sums; how many columns each has."""

    is_turned: bool
    number: int | Extent
    most: int
    columns: int


def _lines(request: Request, most: int) -> _Lines:
    rows, columns = request.rows, int(request.columns)
    if isinstance(rows, Extent):
        return _Lines(False, rows, most, columns)
    few, many = sorted((rows, columns))
    return _Lines(columns < rows, few, few, many)


def cut_few_rows(request: Request, target: CudaTarget, most_open: int = MOST_ROWS) -> Cut:
    """So many warps that loads of theirs keep memory busy; as few threads as that takes share a sum."""
    is_turned, _, rows, columns = _lines(request, most_open)
    weights = request.a if is_turned else request.b
    assert isinstance(weights, Matrices)
    batch, depth = int(request.batch), int(request.depth)
    inner = columns if weights.turned else depth
    lanes = target.lanes(weights.buffer.dtype)
    while inner % lanes:
        lanes //= 2
    wanted = RESIDENT * target.sms
    if weights.turned:
        most = MOST_WARPS if rows <= FEWEST else MOST_WARPS // 2
        across = _beside(batch, columns // lanes, target)
        blocks, shares = batch * -(-columns // (lanes * across)), WARP // across
        split = _split(blocks, wanted, depth // shares, most)
        return Cut(False, lanes, across, lanes, max(WARPS // split, 1), split)
    vectors, across, own = depth // lanes, 1, 1
    while WARP // across >= 2 * vectors:  # threads that would have nothing of a short k
        across *= 2
    while 2 * own < rows and 2 * own * rows <= SUMS:  # a row that is read serves so many columns
        own *= 2

    def warps(own: int) -> int:
        return batch * -(-columns // (own * across))

    turns = -(-vectors * across // WARP)
    while own > 1 and warps(own) < wanted:
        own //= 2
    while own * turns < IN_FLIGHT and 2 * own * rows <= SUMS and warps(2 * own) >= wanted:
        own *= 2
    split = _split(warps(own), wanted, turns // 2, MOST_WARPS // 2)
    return Cut(True, lanes, across, own, max(WARPS // split, 1), split)


def _beside(batch: int, vectors: int, target: CudaTarget) -> int:
    """Threads of a warp beside each other: fewer where blocks would be too few."""
    across = WARP
    while across > 1 and across // 2 >= vectors:
        across //= 2
    while across > LINE and batch * -(-vectors // across) < target.sms:
        across //= 2
    return across


def _split(warps: int, wanted: int, turns: int, most: int) -> int:
    """Warps that share a sum, each with two turns or more."""
    split = 1
    while split < most and warps * split < wanted and turns >= 2 * split:
        split *= 2
    return split


class _FewRows:
    def __init__(self, b: KernelBuilder, request: Request, target: CudaTarget, most: int) -> None:
        assert isinstance(request.a, Matrices)
        self.b, self.request, self.buffers = b, request, b.buffers
        self.turned, self.rows, self.most, self.columns = _lines(request, most)
        self.lines, self.weights = (request.b, request.a) if self.turned else (request.a, request.b)
        self.cut = cut_few_rows(request, target, most)
        self.depth = int(request.depth)
        self.steps = self.depth // (self.cut.lanes if self.cut.along else 1)  # that threads share
        self.items = self.most * self.cut.own  # sums of a thread

    def kernel(self) -> Kernel:
        b, cut, batch = self.b, self.cut, int(self.request.batch)
        beside = cut.groups * cut.across  # threads, each of which has columns of its own
        tiles = -(-self.columns // (cut.own * beside))
        shape = (cut.split, beside * self.items)
        with b.block("block", batch * tiles) as block:
            parts = b.alloc("parts", FLOAT32, shape, scope="shared") if cut.split > 1 else None
            with b.thread("warp", cut.warps, "y") as warp, b.thread("lane", WARP) as lane:
                blocks = batch * tiles
                self.batch = b.let("batch", quotient(block, tiles, blocks))
                self.first = b.let("first", remainder(block, tiles, blocks) * beside)
                own = b.let("own", warp // cut.split * cut.across + lane % cut.across)
                share = b.let("share", warp % cut.split * (WARP // cut.across) + lane // cut.across)
                totals = self._sums(own, share)
                group_total(b, totals, [distance for distance in DISTANCES if distance >= cut.across])
                self._shown(totals, own, lane // cut.across, warp % cut.split, parts)
                if parts is not None:
                    self._finish_parts(parts, warp * WARP + lane)
        buffers, body = with_alignment(self.buffers, b.finish().body)
        resident = max(RESIDENT_THREADS // (cut.warps * WARP), 1)
        return legalise(Kernel(b.name, tuple(buffers), body, resident=resident))

    # Sums of a thread

    def _sums(self, own: Expr, share: Expr) -> Buffer:
        """What a thread adds up, a register for each row and each of its columns."""
        b, cut = self.b, self.cut
        totals = b.alloc("totals", FLOAT32, (self.items,), scope="register")
        for item in range(self.items):
            b.store(totals, item, as_expr(0.0))
        lines = self.rows * self.depth
        self.line_start = b.let("line_start", self._matrix(self.lines) * lines)
        self.line_at: list[Any] = list(range(self.most))
        if isinstance(self.rows, Extent):  # what stands in the place of a row that there is not is never stored
            self.line_at = [b.let("line_at", minimum(as_expr(row), as_expr(self.rows - 1))) for row in self.line_at]
        self.places = self._places(self.first + own)
        loads = len(self.places)
        together = max(min(IN_FLIGHT // loads, IN_FLIGHT if self.most <= FEWEST else IN_FLIGHT // 2), 1)
        whole, rest = divmod(self.steps, cut.shares)
        if whole // together:
            with b.loop("turn", whole // together) as turn:
                self._take(totals, [(turn * together + n) * cut.shares + share for n in range(together)])
        begun = whole // together * together
        last = [n * cut.shares + share for n in range(begun, whole + bool(rest))]
        if last:
            self._take(totals, last, is_ragged=bool(rest))
        return totals

    def _matrix(self, side: Matrices) -> Expr:
        return as_expr(0) if side.matrix is None else side.matrix(self.batch)

    def _places(self, unit: Expr) -> list[Var]:
        """Where what this thread reads of weights begins: each of its columns, or a vector across all of them."""
        b, cut, depth = self.b, self.cut, self.depth
        start = self._matrix(self.weights) * (self.columns * depth)
        if not cut.along:
            vector = minimum(unit, as_expr(self.columns // cut.lanes - 1))
            return [b.let("place", start + vector * cut.lanes)]
        columns = [minimum(unit * cut.own + number, as_expr(self.columns - 1)) for number in range(cut.own)]
        return [b.let("place", start + column * depth) for column in columns]

    def _take(self, totals: Buffer, steps: Sequence[Expr], is_ragged: bool = False) -> None:
        """Loads the weights of some steps, then multiplies them. The last one may lie beyond k for some threads."""
        b, count = self.b, len(self.places)
        dtype, lanes = self.weights.buffer.dtype, self.cut.lanes
        held = b.alloc("held", dtype, (len(steps) * count,), scope="register", lanes=lanes)
        steps = [b.let("step", step) for step in steps]
        last = len(steps) - 1 if is_ragged else len(steps)
        for number, step in enumerate(steps):
            if number < last:
                self._hold(held, number * count, step)
                continue
            for place in range(count):
                b.store(held, number * count + place, as_expr(0, dtype))
            with b.when(step < self.steps):
                self._hold(held, number * count, step)
        for number, step in enumerate(steps):
            if number < last:
                self._multiply(totals, held, number * count, step)
                continue
            with b.when(step < self.steps):
                self._multiply(totals, held, number * count, step)

    def _hold(self, held: Buffer, first: int, step: Expr) -> None:
        stride = self.cut.lanes if self.cut.along else self.columns
        for number, place in enumerate(self.places):
            self.b.store(held, first + number, self.weights.buffer[self._run(place + step * stride)])

    def _run(self, start: Expr, stride: int | Extent = 1) -> Expr:
        return start if self.cut.lanes == 1 else Ramp(start, as_expr(stride), self.cut.lanes)

    def _multiply(self, totals: Buffer, held: Buffer, first: int, step: Expr) -> None:
        """Adds products with every row: of neighbours along k to one sum, or of each neighbour to its own."""
        b, cut = self.b, self.cut
        for row in range(self.most):
            line = b.let("line", cast(self._line(row, step), FLOAT32))
            for item in range(cut.own):
                place = row * cut.own + item
                weight = cast(held[first + (item if cut.along else 0)], FLOAT32)
                total = totals[place]
                if cut.along:
                    for lane in range(cut.lanes):
                        total = total + lane_of(weight, lane) * lane_of(line, lane)
                else:
                    total = total + lane_of(weight, item) * line
                b.store(totals, place, total)

    def _line(self, row: int, step: Expr) -> Expr:
        """What a row has beside weights of a step: as many neighbours along k, or one element."""
        first, k, at = self.line_start, step * self.cut.lanes if self.cut.along else step, self.line_at[row]
        stride = self.rows if self.lines.turned else 1
        start = first + (k * self.rows + at if self.lines.turned else k + at * self.depth)
        return self.lines.buffer[self._run(start, stride) if self.cut.along else start]

    # What becomes of them

    def _shown(self, totals: Buffer, own: Expr, replica: Expr, share: Expr, parts: Buffer | None) -> None:
        """Stores results, or a warp's part of them; threads that have the same sums take turns."""
        b, replicas = self.b, WARP // self.cut.across
        for first in range(0, self.items, replicas):
            item = b.let("item", replica + first)
            total = shown_item(b, totals, first, replica, replicas)
            if parts is None:
                with b.when(item < self.items):
                    self._store(self.first + own, item, total)
            else:
                with b.when(item < self.items):
                    b.store(parts, (share, own * self.items + item), total)

    def _finish_parts(self, parts: Buffer, thread: Expr) -> None:
        """Adds up the parts of warps, a thread for each result."""
        b, cut = self.b, self.cut
        count, threads = cut.groups * cut.across * self.items, cut.warps * WARP
        b.barrier()
        for first in range(0, count, threads):
            number = b.let("number", thread + first)
            with b.when(number < count):
                total: Expr = parts[0, number]
                for warp in range(1, cut.split):
                    total = total + parts[warp, number]
                self._store(self.first + number // self.items, number % self.items, total)

    def _store(self, unit: Expr, item: Expr, total: Expr) -> None:
        b, request, own = self.b, self.request, self.cut.own
        line, wide = b.let("line", item // own), b.let("wide", unit * own + item % own)
        row, column = (wide, line) if self.turned else (line, wide)
        there = wide < self.columns
        with b.when(there & (line < as_expr(self.rows)) if isinstance(self.rows, Extent) else there):
            made = request.finish(cast(total, request.dtype or request.out.dtype), self.batch, row, column)
            b.store(request.out, (self.batch * request.rows + row) * request.columns + column, made)
