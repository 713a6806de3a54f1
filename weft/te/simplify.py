"""Index expressions made shorter: an expression or statement comes in with the ranges of its
variables, one with the same values goes out.

Integer sums are kept as linear forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from typing import Any, TypeGuard, cast

from ..base.dtype import BOOL, INT64, is_float, is_integer
from .evaluate import folded
from .expr import (
    Binary,
    Broadcast,
    Cast,
    Compare,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    access_lanes,
    as_expr,
    binary,
    const,
    widen,
)
from .intervals import Interval, Ranges, fits, has_interval, interval_of
from .linear import ONE, ZERO, Affine, Linear, LinearForms, expression, scalar, wrapped
from .loops import Stmt
from .visit import Interner, N, Node, in_order, over, parts, postorder, with_parts, zero

Form = Linear[Expr]
_OPERATIONS = frozenset({Unary, Binary, Compare, Select, Cast})
_INVERSE = {"lt": "ge", "ge": "lt", "gt": "le", "le": "gt", "eq": "ne", "ne": "eq"}
# What a comparison says when every value of a - b lies in an interval.
_DECIDE: dict[str, Callable[[int, int], bool | None]] = {
    "lt": lambda low, high: True if high < 0 else False if low >= 0 else None,
    "le": lambda low, high: True if high <= 0 else False if low > 0 else None,
    "gt": lambda low, high: True if low > 0 else False if high <= 0 else None,
    "ge": lambda low, high: True if low >= 0 else False if high < 0 else None,
    "eq": lambda low, high: False if low > 0 or high < 0 else True if low == high else None,
    "ne": lambda low, high: True if low > 0 or high < 0 else False if low == high else None,
}


def simplify(expr: Expr, ranges: Ranges | None = None) -> Expr:
    """An expression of the same value, where each variable stays in its range (both ends in it).

    An int64 variable without a range is taken for an index: less than 2**47 in magnitude.

    >>> from .printer import show
    >>> i, j = Var("i"), Var("j")
    >>> show(simplify((i * 8 + j) // 8 + (i * 8 + j) % 8, {j: (0, 7)}))
    'i + j'
    """
    return Simplifier(ranges or {})(expr)


class Simplifier:
    """Rewrites bottom-up over interned nodes; knows the interval and linear form of each."""

    def __init__(self, ranges: Ranges) -> None:
        self.ranges = ranges
        self._intern = Interner()
        self._forms = LinearForms()
        self._sums: dict[Hashable, Expr] = {}  # the expression of a form
        self._interval: dict[int, Interval] = {}
        self._done: dict[int, Node] = {}
        self._kept: list[Node] = []  # ids are keys only as long as their nodes live

    def __call__(self, root: N) -> N:
        done = self._done
        if id(root) not in done:
            for node, inner in in_order((root,), done):
                if id(node) not in done:  # by what a rule asked for meanwhile
                    done[id(node)] = self.step(over(node, inner, done))
                    self._kept.append(node)
        return done[id(root)]  # type: ignore[return-value]

    def step(self, node: Node) -> Node:
        """A node over simplified parts, simplified."""
        if not isinstance(node, Expr):
            return self.statement(node)
        shorter = self._operation(node) if type(node) in _OPERATIONS else None
        return self._intern(self._by_kind(node) if shorter is None else shorter)

    def statement(self, node: Stmt) -> Stmt:
        """A statement over simplified parts; see `simplify_statement` for what can be left out."""
        return node

    def one(self, node: Expr) -> Expr:
        return cast(Expr, self.step(node))

    # --- facts

    def linear(self, node: Expr) -> Form:
        """The linear form of an interned int64 scalar; its value is that modulo 2**64."""
        return cast(Affine[Expr], self._forms.of(node)).base

    def interval(self, node: Expr) -> Interval:
        """The values an interned integer or bool can have. Its parts' intervals are known, except
        below nodes that a rule has just made, which are few."""
        found = self._interval.get(id(node))
        if found is not None:
            return found
        for below in postorder((node,), self._interval):
            if isinstance(below, Expr):
                self._interval[id(below)] = self._make_interval(below)
        return self._interval[id(node)]

    def _make_interval(self, node: Expr) -> Interval:
        if not has_interval(node):
            return 0, 0
        inner = [
            self._interval[id(part)] if isinstance(part, Expr) and has_interval(part) else None for part in parts(node)
        ]
        low, high = interval_of(node, inner, self.ranges)
        if node.dtype == INT64 and node.lanes == 1 and isinstance(node, Binary):
            form = self.linear(node)
            if node not in form.terms and self._exact(form):
                tight = self._linear_interval(form)
                low, high = max(low, tight[0]), min(high, tight[1])
        return low, high

    def _linear_interval(self, form: Form) -> Interval:
        low = high = form.constant
        for term, coefficient in form.terms.items():
            ends = [coefficient * end for end in self.interval(term)]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _exact(self, form: Form) -> bool:
        """Whether the form never wraps, so that it may be divided and compared."""
        return fits(self._linear_interval(form), INT64)

    # --- rules for every dtype

    def _operation(self, node: Expr) -> Expr | None:
        """An operation on constants is a constant; op(broadcast a, broadcast b) is
        broadcast(op(a, b)), and the same for ramps where it holds."""
        inner = parts(node)
        if node.lanes == 1 and type(inner[0]) is not Const:
            return None
        kinds = {type(part) for part in inner}
        if kinds == {Const}:
            return folded(node)
        if node.lanes == 1:
            return None
        if kinds == {Broadcast}:
            scalar = with_parts(node, [cast(Broadcast, part).value for part in inner])
            return Broadcast(self.one(scalar), node.lanes)
        if isinstance(node, Binary) and node.dtype == INT64:
            return self._ramp(node)
        return None

    def _by_kind(self, node: Expr) -> Expr:
        rule = _BY_KIND.get(type(node))
        return node if rule is None else rule(self, self._intern(node))

    def _variable(self, node: Var) -> Expr:
        low, high = self.ranges.get(node, (0, 1))
        return as_expr(low) if low == high and node.dtype == INT64 and node.lanes == 1 else node

    def _load(self, node: Load) -> Expr:
        verdict = known_truth(node.mask)
        if verdict is False:
            return widen(zero(node.source), node.lanes)
        mask = None if verdict else node.mask
        indices = narrowed(node.indices)
        if mask is not None and access_lanes(node.source, indices) < node.lanes:
            return node
        return widen(Load(node.source, indices, mask), node.lanes)

    def _select(self, node: Select) -> Expr:
        verdict = known_truth(node.condition)
        if verdict is not None:
            return node.a if verdict else node.b
        return node.a if node.a is node.b else node

    def _unary(self, node: Unary) -> Expr:
        if node.dtype == INT64 and node.lanes == 1 and node.op == "neg":
            return self._rebuilt(self.linear(node))
        if isinstance(node.a, Unary) and node.a.op == node.op:
            return node.a.a
        inner = node.a
        if node.op == "not" and isinstance(inner, Compare) and not is_float(inner.a.dtype):
            return self.one(Compare(_INVERSE[inner.op], inner.a, inner.b))
        return node

    def _compare(self, node: Compare) -> Expr:
        verdict = None
        if has_interval(node.a):
            difference = self._difference(node.a, node.b)
            verdict = None if difference is None else _DECIDE[node.op](*difference)
        return node if verdict is None else widen(const(verdict, BOOL), node.lanes)

    def _difference(self, a: Expr, b: Expr) -> Interval | None:
        """The values of a - b over the integers, without wrapping."""
        if a is b:
            return 0, 0
        forms = [self._lane_form(side) for side in (a, b)] if a.dtype == INT64 else []
        known = [form for form in forms if form is not None and self._exact(form)]
        if len(known) == 2:
            return self._linear_interval(known[0].plus(known[1], -1))
        left, right = self.interval(a), self.interval(b)
        return left[0] - right[1], left[1] - right[0]

    def _lane_form(self, node: Expr) -> Form | None:
        """The linear form of any lane of a vector: a ramp is base + stride * lane."""
        form = self._forms.of(node)
        if form is None or form.stride == ZERO:
            return None if form is None else form.base
        lane = self._intern(Var("lane"))
        self._interval[id(lane)] = (0, node.lanes - 1)
        return form.base.plus(Linear(0, {lane: 1}), form.stride.constant)

    def _binary(self, node: Binary) -> Expr:
        if node.dtype == BOOL:
            return self._logic(node)
        scalar_index = node.dtype == INT64 and node.lanes == 1
        if scalar_index and node.op in ("add", "sub", "mul"):
            form = self.linear(node)
            return node if node in form.terms else self._rebuilt(self._recombined(form))
        if scalar_index and node.op in ("floordiv", "floormod"):
            return self._divided(node)
        if is_integer(node.dtype) and node.op in ("min", "max"):
            return self._extreme(node)
        return self._neutral(node)

    def _neutral(self, node: Binary) -> Expr:
        """x * 1 = x / 1 = x; for integers x + 0 = x - 0 = x and x * 0 = 0."""
        if (node.op in ("mul", "div") and _is(node.b, 1)) or (node.op == "mul" and _is(node.a, 1)):
            return node.a if _is(node.b, 1) else node.b
        if not is_integer(node.dtype):
            return node
        if node.op in ("add", "sub") and _is(node.b, 0):
            return node.a
        if node.op == "add" and _is(node.a, 0):
            return node.b
        if node.op == "mul" and (_is(node.a, 0) or _is(node.b, 0)):
            return node.a if _is(node.a, 0) else node.b
        return node.a if node.op in ("floordiv", "div") and _is(node.b, 1) else node

    def _logic(self, node: Binary) -> Expr:
        """x & true = x, x & false = false, x | true = true, x | false = x, x op x = x."""
        if node.op not in ("and", "or"):
            return node
        for side, other in ((node.a, node.b), (node.b, node.a)):
            verdict = known_truth(side)
            if verdict is not None:
                return other if verdict == (node.op == "and") else side
        return node.a if node.a is node.b else node

    def _extreme(self, node: Binary) -> Expr:
        difference = self._difference(node.a, node.b)
        if difference is None:
            return node
        lower, upper = (node.a, node.b) if node.op == "min" else (node.b, node.a)
        if difference[1] <= 0:
            return lower
        return upper if difference[0] >= 0 else node

    # --- rules for linear forms

    def _recombined(self, form: Form) -> Form:
        """k*c * (x // c) + k * (x % c) = k * x."""
        for term, factor in list(form.terms.items()):
            if not (_is_op(term, "floormod") and isinstance(term.b, Const)):
                continue
            for quotient in self._quotients(term.a, int(term.b.value)):
                if form.terms.get(quotient) == wrapped(factor * int(term.b.value)):
                    terms = {t: c for t, c in form.terms.items() if t not in (term, quotient)}
                    rest = Linear(form.constant, terms)
                    return self._recombined(rest.plus(self.linear(term.a), factor).wrapped())
        return form

    def _quotients(self, x: Expr, divisor: int) -> list[Expr]:
        """The forms that x // divisor may have taken: itself, or y // (d * divisor) of y // d."""
        forms = [self._intern(binary("floordiv", x, divisor))]
        if _is_op(x, "floordiv") and isinstance(x.b, Const):
            merged = divisor * int(x.b.value)
            if fits((merged, merged), INT64):
                forms.append(self._intern(binary("floordiv", x.a, merged)))
        return forms

    def _rebuilt(self, form: Form) -> Expr:
        """The expression of a linear form."""
        key = (form.constant, *form.terms.items())
        if key not in self._sums:
            self._sums[key] = self._intern(expression(form))
            self._forms.learn(self._sums[key], scalar(form))
        return self._sums[key]

    def _divided(self, node: Binary) -> Expr:
        """x // c and x % c for a constant c > 0, where x = c * whole + rest:
        x // c = whole + rest // c, and x % c = rest % c."""
        if not isinstance(node.b, Const) or node.b.value <= 0:
            return node
        form, divisor = self.linear(node.a), int(node.b.value)
        if not self._exact(form):
            return node
        whole, rest = form.split(divisor)
        low, high = self._linear_interval(rest)
        if low // divisor == high // divisor:
            turns = low // divisor
            if node.op == "floormod":
                return self._rebuilt(self._recombined(rest.plus(ONE, -turns * divisor)))
            return self._rebuilt(self._recombined(whole.plus(ONE, turns)))
        if node.op == "floormod":
            return self._remainder(rest, divisor)
        quotient = self._quotient(rest, divisor)
        return self._rebuilt(self._recombined(whole.plus(self.linear(quotient))))

    def _quotient(self, rest: Form, divisor: int) -> Expr:
        """(g*x + r) // (g*c) = (x + r // g) // c, x // c where 0 <= r < g, and (x // a) // b = x // (a*b)."""
        common = self._step(rest, divisor)
        rest, divisor = rest.split(common)[0], divisor // common
        inner = self._rebuilt(rest)
        if _is_op(inner, "floordiv") and isinstance(inner.b, Const) and inner.b.value > 0:
            merged = int(inner.b.value) * divisor
            if fits((merged, merged), INT64):
                inner, divisor = inner.a, merged
        return self._intern(binary("floordiv", inner, divisor))

    def _remainder(self, rest: Form, divisor: int) -> Expr:
        """(g*x + r) % (g*c) = g * ((x + r // g) % c) + r % g, g * (x % c) + r where 0 <= r < g, and
        (x % (k*c)) % c = x % c."""
        common = self._step(rest, divisor)
        steps, below = rest.split(common)
        inner = self._rebuilt(steps)
        if _is_op(inner, "floormod") and isinstance(inner.b, Const) and inner.b.value:
            inner = inner.a if int(inner.b.value) % (divisor // common) == 0 else inner
        remainder = self._intern(binary("floormod", inner, divisor // common))
        return self._rebuilt(self.linear(remainder).times(common).plus(below))

    def _step(self, rest: Form, divisor: int) -> int:
        """The largest divisor g of another for which a form is g*x + r: of all its factors, so that r is a number, or
        of some, where the others stay below it."""
        common = math.gcd(divisor, *rest.terms.values())
        for step in sorted({math.gcd(divisor, factor) for factor in rest.terms.values()}, reverse=True):
            low, high = self._linear_interval(rest.split(step)[1])
            if step > common and low >= 0 and high < step:
                return step
        return common

    # --- rules for ramps

    def _ramp(self, node: Binary) -> Expr | None:
        a, b = node.a, node.b
        if not all(isinstance(side, (Ramp, Broadcast)) for side in (a, b)):
            return None
        (base_a, step_a), (base_b, step_b) = _as_ramp(a), _as_ramp(b)
        if node.op in ("add", "sub"):
            base, step = binary(node.op, base_a, base_b), binary(node.op, step_a, step_b)
        elif node.op == "mul" and (isinstance(a, Broadcast) or isinstance(b, Broadcast)):
            factor = base_a if isinstance(a, Broadcast) else base_b
            ramp = b if isinstance(a, Broadcast) else a
            base, step = (binary("mul", part, factor) for part in _as_ramp(ramp))
        elif node.op in ("floordiv", "floormod") and isinstance(b, Broadcast):
            return self._divided_ramp(node.op, a, base_b)
        else:
            return None
        return self.one(Ramp(self(base), self(step), node.lanes))

    def _divided_ramp(self, op: str, ramp: Expr, by: Expr) -> Expr | None:
        """Where the steps are multiples of the divisor, or all lanes have one quotient."""
        form = self._lane_form(ramp)
        if form is None or not isinstance(by, Const) or by.value <= 0 or not self._exact(form):
            return None
        assert isinstance(ramp, Ramp)
        divisor, step = int(by.value), int(cast(Const, ramp.stride).value)
        lanes = ramp.lanes
        if step % divisor == 0:
            base = self(binary(op, ramp.base, divisor))
            quotients = Ramp(base, as_expr(step // divisor), lanes)
            return self.one(quotients) if op == "floordiv" else Broadcast(base, lanes)
        whole, rest = self.linear(ramp.base).split(divisor)
        low, high = self._linear_interval(rest)
        low, high = low + min(0, step * (lanes - 1)), high + max(0, step * (lanes - 1))
        if low // divisor != high // divisor:
            return None
        turns = low // divisor
        if op == "floordiv":
            return Broadcast(self._rebuilt(whole.plus(ONE, turns)), lanes)
        base = self._rebuilt(rest.plus(ONE, -turns * divisor))
        return Ramp(base, ramp.stride, lanes)


_BY_KIND: dict[type, Callable[[Simplifier, Any], Expr]] = {
    Var: Simplifier._variable,
    Binary: Simplifier._binary,
    Compare: Simplifier._compare,
    Unary: Simplifier._unary,
    Select: Simplifier._select,
    Cast: lambda self, node: node.a if node.a.dtype == node.dtype else node,
    Load: Simplifier._load,
    Ramp: lambda self, node: Broadcast(node.base, node.lanes) if _is(node.stride, 0) else node,
}


def _as_ramp(node: Expr) -> tuple[Expr, Expr]:
    if isinstance(node, Ramp):
        return node.base, node.stride
    return cast(Broadcast, node).value, as_expr(0)


def narrowed(indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    """Indices that are the same in all lanes as scalars."""
    return tuple(index.value if isinstance(index, Broadcast) else index for index in indices)


def _is_op(node: Expr, op: str) -> TypeGuard[Binary]:
    return isinstance(node, Binary) and node.op == op


def _is(node: Expr, value: int) -> bool:
    inner = node.value if isinstance(node, Broadcast) else node
    return isinstance(inner, Const) and inner.value == value and inner.dtype != BOOL


def known_truth(node: Expr | None) -> bool | None:
    """The truth of a condition that is known, in all lanes."""
    inner = node.value if isinstance(node, Broadcast) else node
    return bool(inner.value) if isinstance(inner, Const) else None
