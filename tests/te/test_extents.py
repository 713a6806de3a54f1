"""Extents: numbers that stand for arguments and remember what was asked about them."""

import operator
import random

import pytest

from weft.te.expr import Const, Var, as_expr
from weft.te.extents import Extent, Trace, divisor, is_multiple, may_exceed, value_at


def holds(trace, sizes):
    return trace.table().numbers(sizes) is not None


def expression(rng, a, b, depth=0):
    """A random expression of two numbers, as a function: works on ints and on extents."""
    if depth == 3 or rng.random() < 0.2:
        return rng.choice([a, b, rng.randint(1, 5)])
    op = rng.choice([operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod])
    left, right = expression(rng, a, b, depth + 1), expression(rng, a, b, depth + 1)
    if op in (operator.floordiv, operator.mod):
        right = rng.randint(1, 6)
    return op(left, right)


def evaluated(expr, values):
    if isinstance(expr, Var):
        return values[expr]
    if isinstance(expr, Const):
        return expr.value
    symbols = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}
    symbols |= {"floordiv": operator.floordiv, "floormod": operator.mod}
    return symbols[expr.op](evaluated(expr.a, values), evaluated(expr.b, values))


@pytest.mark.parametrize("seed", range(40))
def test_arithmetic_is_that_of_ints(seed):
    trace = Trace()
    m, n = trace.extent("m", 7), trace.extent("n", 12)
    made = expression(random.Random(seed), m, n)
    if not isinstance(made, Extent):
        return
    assert made.value == expression(random.Random(seed), 7, 12)
    for sizes in [(7, 12), (1, 1), (30, 4), (5, 100)]:
        wanted = expression(random.Random(seed), *sizes)
        assert trace.table().numbers(sizes)[made.row] == wanted
        assert evaluated(made.expr, dict(zip(trace.arguments, sizes))) == wanted
    assert not trace.guards


@pytest.mark.parametrize("seed", range(40))
def test_values_and_divisors_elsewhere(seed):
    """What an extent is at other sizes, and a number that divides it at all of them; nothing is asked."""
    trace = Trace()
    m, n = trace.extent("m", 7), trace.extent("n", 12)
    made = expression(random.Random(seed), m * 6, n * 4)
    if not isinstance(made, Extent):
        return
    step = divisor(made)
    for sizes in [(7, 12), (1, 1), (30, 4), (5, 100)]:
        wanted = expression(random.Random(seed), 6 * sizes[0], 4 * sizes[1])
        assert value_at(made, dict(zip(trace.arguments, sizes))) == wanted
        assert wanted % step == 0 if step else wanted == 0
    assert not trace.guards


def test_known_divisors():
    trace = Trace()
    n, m = trace.extent("n", 3), trace.extent("m", 5)
    assert [divisor(size) for size in (n * 196, n * 8 * m + 12 * m, (n * 8) // 2, 10)] == [196, 4, 1, 10]
    assert is_multiple(n * 64, 32)
    assert not is_multiple(n, 3)
    assert may_exceed(n, 100)
    assert not may_exceed(1, 1)
    assert not trace.guards


def test_a_question_becomes_a_guard():
    trace = Trace()
    n = trace.extent("n", 5)
    assert n > 3
    assert n != 1
    assert min(n, 8) is n
    assert holds(trace, [5])
    assert holds(trace, [4])
    assert not holds(trace, [3])
    assert not holds(trace, [9])


@pytest.mark.parametrize("use", [int, float, hash, range])
def test_the_number_itself_is_pinned(use):
    trace = Trace()
    use(trace.extent("n", 5))
    assert holds(trace, [5])
    assert not holds(trace, [6])


def test_equality_of_shapes_is_a_guard():
    trace = Trace()
    shapes = [(trace.extent("a", 3), 1), (trace.extent("b", 3), 1)]
    assert shapes[0] == shapes[1]
    assert holds(trace, [4, 4])
    assert not holds(trace, [4, 5])


def test_in_expressions_it_is_the_argument():
    trace = Trace()
    n, i = trace.extent("n", 5), Var("i")
    (argument,) = trace.arguments
    assert as_expr(n) is argument
    assert (i + n).b is argument
    assert (n - i).a is argument
    assert (i < n).b is argument
    assert as_expr(n, as_expr(1.0).dtype).dtype == "float32"
    assert n * 1 is n
    assert n + 0 is n
    assert isinstance(as_expr(4), Const)
    assert not trace.guards
