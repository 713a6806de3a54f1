"""Attention of queries to blocks of keys, one block after the other, in registers: scores, which of them count, and
probabilities relative to the largest score so far.

A thread has sums of two rows of 16, in pairs of neighbours, of all tensor cores' products alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any

from ....base.cuda_target import CudaTarget
from ....base.dtype import DTYPES
from ....te.expr import Expr, Ramp, Var, as_expr, widen
from ....te.extents import is_multiple
from ....te.linear import Linear, scalar
from ....te.loops import Kernel
from ....te.tensor_cores.attention import Attended
from ....te.tensor_cores.layouts import accumulator_row, lesser
from ....te.visit import substitute
from ...builder import Value
from .frame import Frame
from .writer import Loop, u32

HALVES = {"fp16": DTYPES["float16"], "bf16": DTYPES["bfloat16"]}
PAIR = 2
ROWS = 2  # of a thread: its sums are in a row of the upper eight of 16, and in one of the lower
LOG2_E = 1.4426950408889634


class OnlineSoftmax:
    """What threads that attend do with scores. `tile` is how many queries and keys a block of threads has at a time."""

    def __init__(self, kernel: Kernel, plan: Attended, target: CudaTarget, tile: tuple[int, int], maps: int) -> None:
        self.seen, self.keys_at_once = plan, tile[1]
        self.frame = Frame(kernel, target, maps)
        self.w = w = self.frame.w
        self.thread_number, block = w.special("tid.x"), w.special("ctaid.x")
        self.base = self.frame.shared_base()
        query_tiles: Any = -(-plan.queries // tile[0])
        tiles = w.count(query_tiles)
        head, turn = block // tiles, block % tiles
        if plan.causal:  # queries that see the most keys begin first
            turn = w.count(query_tiles - 1) - turn
        self.first = w.let("first", turn * tile[0])
        self.batch = self._batch_index(head)
        last = w.count(plan.keys)
        if plan.causal:
            last = lesser(self.first + tile[0], last)
        self.blocks = w.let("blocks", (last + (tile[1] - 1)) // tile[1])

    def _batch_index(self, number: Expr) -> list[Expr]:
        found: list[Expr] = []
        for extent in map(self.w.count, reversed(self.seen.batch)):
            found.append(self.w.let("index", number % extent))
            number = number // extent
        return found[::-1]

    def take_rows(self, thread: Expr, first: Expr, first_own: Expr) -> None:
        """Which rows a thread has, by its number among those that share queries from the `first` on; those that it
        multiplies together with begin at `first_own`."""
        self.thread, self.first_own = thread, first_own
        self.rows = [self.w.let("row", first + accumulator_row(thread, 2 * half)) for half in range(ROWS)]

    def attend(self, sums: int, **state: Expr | Value) -> Loop:
        """Goes over all blocks of keys; gives what is known after the last."""
        w = self.w
        zero, low = w.b.const("float", 1, 0.0), w.b.const("float", 1, -inf)
        state |= {"block": u32(0)} | {f"sum{n}": zero for n in range(sums)}
        state |= {f"top{half}": low for half in range(ROWS)} | {f"total{half}": zero for half in range(ROWS)}
        with w.repeat(lambda k: k.block < self.blocks, **state) as k:
            self._begin_block(k)
            scores = self._scores(k)
            self._weigh(k, scores, sums)
            self._advance(k)
        return k

    # What products are made of

    def _begin_block(self, k: Loop) -> None:
        """What comes before the products of a block."""

    def _score_sums(self, k: Loop) -> list[Value]:
        """Products of this thread's queries and all keys of a block."""
        raise NotImplementedError

    def _value_sums(self, k: Loop, old: list[Value], weights: list[Value]) -> list[Value]:
        """Results, and the products of weights and values added."""
        raise NotImplementedError

    def _advance(self, k: Loop) -> None:
        """The next block."""
        raise NotImplementedError

    def _weights(self, number: int, first: Value, second: Value) -> dict[int, Value]:
        """Two neighbours as the second product takes them, by their numbers."""
        return {number: self.w.packed(first, second, HALVES[self.seen.kind])}

    # Scores

    def _scores(self, k: Loop) -> list[Value]:
        """Scores of a block of keys, those that a query does not see minus infinity."""
        w, plan = self.w, self.seen
        raw = self._score_sums(k)
        first = w.let("key", k.block * self.keys_at_once)
        scores = self._finished(raw, first) if plan.score is not plan.total else raw
        if not plan.causal and is_multiple(plan.keys, self.keys_at_once):
            return scores
        beyond = first + self.keys_at_once > w.count(plan.keys)
        if plan.causal:
            beyond = beyond | (first + self.keys_at_once > self.first_own)
        return w.b.branch(w.value(beyond), lambda: self._hidden(scores, first), scores)

    def _hidden(self, scores: Sequence[Value], first: Expr) -> list[Value]:
        w, made = self.w, []
        low = w.b.const("float", 1, -inf)
        column = w.let("column", first + self.thread % 4 * PAIR)
        for number, score in enumerate(scores):
            key = column + (number // 4 * 8 + number % 2)
            seen = key < w.count(self.seen.keys)
            if self.seen.causal:
                seen = seen & (key <= self.rows[number // 2 % 2])
            made.append(w.b.select(w.value(seen), score, low))
        return made

    def _finished(self, raw: Sequence[Value], first: Expr) -> list[Value]:
        """What the plan makes of products of queries and keys: for pairs of keys, where there are only pairs."""
        w, plan, made = self.w, self.seen, list[Value]()
        lanes = PAIR if is_multiple(plan.keys, PAIR) else 1
        key, total = Var("key"), Var("total", plan.total.dtype, lanes)
        at_key: Expr = Ramp(key, as_expr(1), lanes) if lanes > 1 else key
        score = widen(substitute(plan.score, {plan.key_at: at_key, plan.total: total}), lanes)
        for var, index in zip(plan.batch_at, self.batch):
            w.e.variables[var] = scalar(Linear(0, {w.wide(index): 1}))
        unit = w.let("unit", first // lanes + self.thread % 4 * (PAIR // lanes))
        for number in range(0, len(raw), lanes):
            row = lesser(self.rows[number // 2 % 2], w.count(plan.queries - 1))
            more = (number // 4 * 8 + number % 2) // lanes
            at = Linear(more * lanes, {w.wide(unit): lanes})
            if not is_multiple(plan.keys, self.keys_at_once):
                at = Linear(0, {w.wide(lesser(unit + more, w.count(plan.keys // lanes - 1))): lanes})
            w.e.variables[plan.query_at] = scalar(Linear(0, {w.wide(row): 1}))
            w.e.variables[key] = scalar(at)
            w.e.variables[total] = w.vector(raw[number : number + lanes]) if lanes > 1 else raw[number]
            found = w.value(score)
            made += [w.b.extract(found, lane) for lane in range(lanes)]
        return made

    # Probabilities

    def _weigh(self, k: Loop, scores: list[Value], sums: int) -> None:
        """Probabilities of a block, relative to the largest score so far, and their product with the values."""
        w, b, plan = self.w, self.w.b, self.seen
        factor = b.const("float", 1, plan.factor * LOG2_E)
        weights: dict[int, Value] = {}
        scales = []
        for half in range(ROWS):
            own = [n for n in range(len(scores)) if n // 2 % 2 == half]
            top = _tree([scores[n] for n in own], self._larger)
            for distance in (1, 2):
                top = self._larger(top, self._of_neighbour(top, distance))
            before = w.value(k.carried[f"top{half}"])
            top = self._larger(before, top)
            is_low = b.compare("oeq", top, b.like(top, -inf))
            shift = b.neg(b.mul(b.select(is_low, b.like(top, 0.0), top), factor))
            scale = self._exp2(b.fma(before, factor, shift))
            total = b.mul(w.value(k.carried[f"total{half}"]), scale)
            for n in own[::2]:  # packed at once: few floats are in registers at a time
                first, second = (self._exp2(b.fma(scores[m], factor, shift)) for m in (n, n + 1))
                total = b.add(total, b.add(first, second))
                weights |= self._weights(n, first, second)
            k.next(**{f"top{half}": top, f"total{half}": total})
            scales.append(scale)
        old = [b.mul(w.value(k.carried[f"sum{n}"]), scales[n // 2 % 2]) for n in range(sums)]
        made = self._value_sums(k, old, [weights[n] for n in sorted(weights)])
        k.next(**{f"sum{n}": value for n, value in enumerate(made)})

    # Results

    def results(self, k: Loop, sums: int) -> list[Value]:
        """Sums by the probabilities' own sum."""
        w, b, plan = self.w, self.w.b, self.seen
        factors: list[tuple[Value, Value | None]] = []
        for half in range(ROWS):
            total = w.value(k.carried[f"total{half}"])
            for distance in (1, 2):
                total = b.add(total, self._of_neighbour(total, distance))
            inverse = w.read("rcp.approx.ftz.f32 $0, $1;", "float", total, effect=False)
            if plan.unseen != "nan":
                lost = b.compare("oeq" if plan.unseen == "zero" else "ueq", total, b.like(total, 0.0))
                inverse = b.select(lost, b.like(inverse, 0.0), inverse)
                factors.append((inverse, lost))
            else:
                factors.append((inverse, None))
        return [self._scaled(w.value(k.carried[f"sum{n}"]), *factors[n // 2 % 2]) for n in range(sums)]

    def _scaled(self, value: Value, factor: Value, lost: Value | None) -> Value:
        b = self.w.b
        made = b.mul(value, factor)
        return made if lost is None or self.seen.unseen == "zero" else b.select(lost, b.like(made, 0.0), made)

    def _larger(self, a: Value, b: Value) -> Value:
        return self.w.b.call("maxnum.f32", a, a, b)

    def _exp2(self, x: Value) -> Value:
        return self.w.read("ex2.approx.ftz.f32 $0, $1;", "float", x, effect=False)

    def _of_neighbour(self, x: Value, distance: int) -> Value:
        return self.w.read(f"shfl.sync.bfly.b32 $0, $1, {distance}, 31, -1;", "float", x)


def _tree(values: Sequence[Value], join: Callable[[Value, Value], Value]) -> Value:
    """All values joined by pairs."""
    found = list(values)
    while len(found) > 1:
        rest = found[len(found) // 2 * 2 :]
        found = [join(a, b) for a, b in zip(found[::2], found[1::2])] + rest
    return found[0]
