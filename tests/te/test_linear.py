"""Linear forms: what a sum is as coefficients, and the arithmetic of them against numbers."""

from __future__ import annotations

import pytest

from weft.te.expr import Broadcast, Ramp, Var, as_expr, cast
from weft.te.linear import MAX_TERMS, Linear, LinearForms, expression
from weft.te.visit import same

I, J = Var("i"), Var("j")


@pytest.mark.parametrize(
    ("expr", "constant", "terms"),
    [
        ((I * 4 + J - 3) * 2 - I, -6, {I: 7, J: 2}),
        (3 * (J - I), 0, {J: 3, I: -3}),
        (-(I + 1), -1, {I: -1}),
        (I - I, 0, {}),
        (I * (as_expr(2) + 3), 0, {I: 5}),
        (I * 2**62 * 2 + 5, 5, {I: -(2**63)}),
        (I * 2**62 * 4 + 5, 5, {}),
    ],
)
def test_sums_of_variables(expr, constant, terms):
    form = LinearForms().of(expr)
    assert (form.base.constant, form.base.terms, form.lanes) == (constant, terms, 1)


def test_what_is_no_sum_is_a_term():
    quotient, product = I // 3, I * J
    assert LinearForms().of(quotient * 5 + 1).base == (1, {quotient: 5})
    assert LinearForms().of(product - J).base == (0, {product: 1, J: -1})
    long = sum((Var(f"v{n}") for n in range(MAX_TERMS)), as_expr(0)) + I
    assert LinearForms().of(long).base == (0, {long: 1})


def test_vectors_are_evenly_spaced_or_have_no_form():
    forms = LinearForms()
    vector = Ramp(I, as_expr(2), 8) * Broadcast(as_expr(3), 8) + Broadcast(J, 8)
    assert forms.of(vector) == ((0, {I: 3, J: 1}), (6, {}), 8)
    assert forms.of(Ramp(I, J, 8)) is None
    assert forms.of(Ramp(I, as_expr(1), 8) * Ramp(I, as_expr(1), 8)) is None
    assert forms.of(cast(I, "int32")) is None


def test_places_are_the_sum_of_indices_times_strides():
    forms = LinearForms()
    assert forms.flat((I, J + 1), (as_expr(10), as_expr(3))).base == (3, {I: 10, J: 3})
    assert forms.flat((I, J), (Var("n"), as_expr(1))) is None


def test_deep_sums_do_not_recurse():
    total = I
    for _ in range(20_000):
        total = total + I
    assert LinearForms().of(total).base == (0, {I: 20_001})


def test_arithmetic():
    form = Linear(7, {"a": 6, "b": -4})
    assert form.plus(Linear(1, {"b": 2, "c": 1}), 2) == (9, {"a": 6, "c": 2})
    assert (form.times(0), form.times(-1)) == ((0, {}), (-7, {"a": -6, "b": 4}))
    assert form.substitute([Linear(1, {"x": 2}), Linear(2, {"x": 3})]) == (5, {})
    assert form.split(4) == ((1, {"b": -1}), (3, {"a": 6}))
    assert (form.divisor(), form.times(2).divisor(), Linear(0, {}).divisor()) == (1, 2, 0)


def test_the_expression_of_a_form():
    assert same(expression(Linear(-3, {I: -2, J: 1})), J - I * 2 - 3)
    assert same(expression(Linear(4, {})), as_expr(4))
    assert same(expression(Linear(0, {I: -(2**63)})), I * -(2**63))
