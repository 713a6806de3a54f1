"""The index simplifier, against brute-force evaluation by Python's own integers."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import te
from weft.te.expr import Binary, Broadcast, Compare, Const, Expr, Ramp, Select, Unary, Var
from weft.te.loops import For, If, Seq
from weft.te.simplify import Simplifier, simplify
from weft.te.simplify_loops import simplify_statement
from weft.te.visit import parts, postorder

VARS = [Var(name) for name in "ijkn"]

PYTHON = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": lambda a, b: a // b if b else 0,
    "floormod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "and": operator.and_,
    "or": operator.or_,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "eq": operator.eq,
    "ne": operator.ne,
}


def value_of(root: Expr, env: dict) -> object:
    """Evaluation written apart from the code under test; vectors are lists."""
    done: dict[int, object] = {}
    for node in postorder((root,)):
        inner = [done[id(part)] for part in parts(node)]
        done[id(node)] = _lanewise(node, inner, env)
    return done[id(root)]


def _lanewise(node, inner, env):
    if isinstance(node, Var):
        return env[node]
    if isinstance(node, Const):
        return node.value
    if isinstance(node, Ramp):
        return [inner[0] + inner[1] * lane for lane in range(node.lanes)]
    if isinstance(node, Broadcast):
        return [inner[0]] * node.lanes
    if node.lanes > 1:
        return [_scalar(node, [part[lane] for part in inner]) for lane in range(node.lanes)]
    return _scalar(node, inner)


def _scalar(node, inner):
    if isinstance(node, Select):
        return inner[1] if inner[0] else inner[2]
    if isinstance(node, Unary):
        return -inner[0] if node.op == "neg" else not inner[0]
    assert isinstance(node, (Binary, Compare))
    return PYTHON[node.op](*inner)


small = st.integers(-9, 9)


def integers(depth: int):
    leaf = st.one_of(st.sampled_from(VARS), small.map(te.as_expr))
    if depth == 0:
        return leaf
    inner = integers(depth - 1)
    ops = st.sampled_from("add sub mul min max".split())
    divisions = st.sampled_from(["floordiv", "floormod"])
    return st.one_of(
        leaf,
        st.builds(te.binary, ops, inner, inner),
        st.builds(te.binary, divisions, inner, st.integers(-4, 12).map(te.as_expr)),
        st.builds(lambda a: -a, inner),
        st.builds(te.select, conditions(depth - 1), inner, inner),
    )


def conditions(depth: int):
    inner = integers(max(depth - 1, 0))
    ops = st.sampled_from("lt le gt ge eq ne".split())
    plain = st.builds(te.compare, ops, inner, inner)
    joined = st.builds(te.binary, st.sampled_from(["and", "or"]), plain, plain)
    return st.one_of(plain, joined, plain.map(lambda c: ~c))


spans = st.tuples(st.integers(-5, 5), st.integers(0, 12)).map(lambda t: (t[0], t[0] + t[1]))
all_ranges = st.lists(spans, min_size=len(VARS), max_size=len(VARS)).map(lambda found: dict(zip(VARS, found)))


def bounds(expr: Expr, ranges: dict) -> tuple[int, int]:
    """The interval that the simplifier works with."""
    simplifier = Simplifier(ranges)
    return simplifier.interval(simplifier(expr))


def points(ranges: dict, seed: int, count: int = 24) -> list[dict]:
    rng = np.random.default_rng(seed)
    inside = [{v: int(rng.integers(a, b + 1)) for v, (a, b) in ranges.items()} for _ in range(count)]
    corners = [{v: ends[which] for v, ends in ranges.items()} for which in (0, 1)]
    return inside + corners


@settings(max_examples=400, deadline=None)
@given(st.one_of(integers(3), conditions(3)), all_ranges, st.integers(0, 2**32))
def test_simplified_scalars_keep_their_value_and_bounds(expr, ranges, seed):
    result = simplify(expr, ranges)
    low, high = bounds(expr, ranges)
    for point in points(ranges, seed):
        expected = value_of(expr, point)
        assert value_of(result, point) == expected, te.show(result)
        assert low <= expected <= high


@settings(max_examples=300, deadline=None)
@given(
    integers(2),
    st.integers(-6, 6),
    st.sampled_from([2, 4, 8]),
    st.sampled_from("add sub mul floordiv floormod min max lt le ge eq".split()),
    st.integers(-3, 17),
    all_ranges,
    st.integers(0, 2**32),
)
def test_simplified_vectors_keep_their_value(base, stride, lanes, op, other, ranges, seed):
    ramp = Ramp(base, te.as_expr(stride), lanes)
    expr = te.compare(op, ramp, other) if op in ("lt", "le", "ge", "eq") else None
    expr = expr if expr is not None else te.binary(op, ramp, other)
    result = simplify(expr, ranges)
    for point in points(ranges, seed):
        assert value_of(result, point) == value_of(expr, point), te.show(result)


i, j, k, n = VARS


@pytest.mark.parametrize("op", ["floordiv", "floormod"])
def test_bounds_of_divisions_by_a_range_hold_every_value(op):
    rng = np.random.default_rng(0)
    for _ in range(40):
        low, divisor = int(rng.integers(-20, 20)), int(rng.integers(1, 6))
        ranges = {i: (low, low + 12), j: (divisor, divisor + 6)}
        found = bounds(te.binary(op, i, j), ranges)
        values = [PYTHON[op](a, b) for a in range(low, low + 13) for b in range(divisor, divisor + 7)]
        assert found[0] <= min(values)
        assert max(values) <= found[1]


IDENTITIES = [
    (lambda: (i * 8 + j) // 8, {j: (0, 7)}, "i"),
    (lambda: (i * 8 + j) % 8, {j: (0, 7)}, "j"),
    (lambda: (i * 8 + j) // 8, {}, "i + j // 8"),
    (lambda: (i * 16 + j) // 32, {j: (0, 15)}, "i // 2"),
    (lambda: (i * 16 + j + 16) // 48, {j: (0, 15)}, "(i + 1) // 3"),
    (lambda: (i * 16 + j) // 32, {j: (0, 16)}, "(i * 16 + j) // 32"),
    (lambda: (i * 16 + j) // 32, {j: (-1, 15)}, "(i * 16 + j) // 32"),
    (lambda: (i * 16 + j) % 32, {j: (0, 15)}, "i % 2 * 16 + j"),
    (lambda: i // 3 * 3 + i % 3, {}, "i"),
    (lambda: i // 12 * 12 + i // 4 % 3 * 4 + i % 4, {}, "i"),
    (lambda: (i // 2) // 3, {}, "i // 6"),
    (lambda: (i % 12) % 4, {}, "i % 4"),
    (lambda: (i * 6 + 3) % 4, {}, "(i * 3 + 1) % 2 * 2 + 1"),
    (lambda: i * 1 + 0, {}, "i"),
    (lambda: i * 0, {}, "0"),
    (lambda: i - i + j, {}, "j"),
    (lambda: te.min(i, 9), {i: (0, 7)}, "i"),
    (lambda: te.max(i + 4, j), {i: (0, 7), j: (0, 4)}, "i + 4"),
    (lambda: te.select(i * 4 + j < n * 4, i, j), {i: (0, 1), j: (0, 3), n: (2, 9)}, "i"),
    (lambda: ~(i < j), {}, "i >= j"),
    (lambda: (i < 8) & (j < 4), {i: (0, 7)}, "j < 4"),
    (lambda: Ramp(i * 16, te.as_expr(1), 16) // 16, {}, "broadcast(i, x16)"),
    (lambda: Ramp(i * 16, te.as_expr(1), 16) % 16, {}, "ramp(0, 1, x16)"),
    (lambda: Ramp(i, te.as_expr(1), 4) * 3 + j, {}, "ramp(i * 3 + j, 3, x4)"),
    (lambda: te.cast(te.as_expr(3), "float32") * 2 + 1, {}, "7.0"),
    (lambda: 5 - i, {}, "i * -1 + 5"),
]


@pytest.mark.parametrize(("make", "ranges", "expected"), IDENTITIES)
def test_identities(make, ranges, expected):
    assert te.show(simplify(make(), ranges)) == expected


def test_nothing_that_may_wrap_is_divided():
    x = te.placeholder((4,), "int64", "x")
    kept = simplify((x[0] * 4 + 1) // 4)
    assert te.show(kept) == "(x[0] * 4 + 1) // 4"


def test_floats_keep_nan_and_signed_zero():
    x = te.placeholder((4,), "float32", "x")
    for expr in (x[i] + 0.0, x[i] - x[i], x[i] * 0.0, ~(x[i] < 0.0)):
        assert te.same(simplify(expr), expr)
    assert te.same(simplify(x[i] * 1.0), x[i])


def test_a_deep_expression_is_simplified_without_recursion():
    expr: Expr = i
    for step in range(5000):
        expr = (expr + Var(f"v{step}") * 0 + step) * 3 // 3
    assert te.same(simplify(expr), simplify(i + sum(range(5000))))


def test_statements_learn_ranges_from_loops_and_lets():
    b = te.KernelBuilder("t")
    y = b.arg("y", "int64", (4, 8))
    with b.loop("i", 4) as row, b.loop("j", 8) as col:
        flat = b.let("flat", row * 8 + col)
        with b.when(flat < 32):
            b.store(y, (flat // 8, flat % 8), te.min(row, 3))
        with b.otherwise():
            b.store(y, (0, 0), 1)
    text = te.show(simplify_statement(b.finish().body))
    assert "if" not in text
    assert "min" not in text


def test_loops_of_one_and_of_none_vanish():
    b = te.KernelBuilder("t")
    y = b.arg("y", "int64", (4,))
    with b.loop("i", 1) as row:
        b.store(y, row + 1, row)
    with b.loop("j", 0) as row:
        b.store(y, row, 7)
    kinds = {type(s) for s in postorder((simplify_statement(b.finish().body),))}
    assert not kinds & {For, If}
    assert Seq not in kinds
