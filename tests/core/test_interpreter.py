"""The reference interpreter: values, versions of mutated variables, errors."""

import numpy as np
import pytest
from core.core_ops import add, assign, fresh, parts, relu, scale

from weft.base.errors import InvalidType, NotFound, RunError
from weft.core.graph import Graph
from weft.core.interpret import evaluate, final_values, input_facts
from weft.core.symbol import Group, Variable

RNG = np.random.default_rng(7)


def test_values():
    a, b = RNG.standard_normal((2, 3)), RNG.standard_normal((2, 3))
    x, y = Variable("x"), Variable("y")
    first, second = evaluate(Group([add()(relu()(x), y), scale()(x, factor=3)]), {"x": a, "y": b})
    np.testing.assert_allclose(first, np.maximum(a, 0) + b)
    np.testing.assert_allclose(second, a * 3)


def test_several_outputs_and_a_variable_as_output():
    x = Variable("x")
    graph = Graph(Group([parts()(x, parts=3), x]).outputs)
    assert [float(v) for v in evaluate(graph, {"x": 1.0})] == [1.0, 2.0, 3.0, 1.0]


def test_reads_see_the_version_they_were_composed_with():
    w, x = Variable("w"), Variable("x")
    before = relu()(w)
    first = assign()(w, x)
    between = relu()(w)
    second = assign()(w, add()(w, w))
    after = relu()(w)
    values = {"w": np.array(1.0), "x": np.array(5.0)}
    for order in ([before, first, between, second, after], [after, between, before]):
        symbols = Group(order + [first, second])
        results = dict(zip(order, evaluate(symbols, values)))
        assert float(results[before]) == 1
        assert float(results[between]) == 5
        assert float(results[after]) == 10
        assert {n: float(v) for n, v in final_values(symbols, values).items()} == {"w": 10}


def test_a_version_that_nobody_in_the_graph_makes_is_what_the_variable_holds():
    w = Variable("w")
    first = assign()(w, Variable("x"))
    after = relu()(w)
    assert float(evaluate(after, {"w": 3.0})[0]) == 3
    assign()(w, Variable("y"))
    late = relu()(w)
    results = evaluate(Group([late, first]), {"w": 3.0, "x": 4.0})
    assert float(results[0]) == 4
    assert final_values(after, {"w": 3.0}) == {}


def test_a_node_that_reads_what_it_mutates():
    w = Variable("w")
    assert float(evaluate(assign()(w, w), {"w": 6.0})[0]) == 6


def test_missing_value():
    with pytest.raises(NotFound, match="no value for input 'x'"):
        evaluate(relu()(Variable("x")), {"y": 1})


def test_operator_without_reference():
    op = fresh("mute")
    with pytest.raises(InvalidType, match=f"operator {op.name} has no reference"):
        evaluate(op(Variable("x"), name="n"), {"x": 1})


def test_a_failing_reference_is_named():
    with pytest.raises(RunError, match="operator t_add failed") as caught:
        evaluate(add()(Variable("x"), Variable("y"), name="here"), {"x": np.ones(2), "y": np.ones(3)})
    assert "'here'" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_reference_with_the_wrong_number_of_results_is_named():
    op = fresh("short").set_num_outputs(3)
    op.reference = lambda x: (x, x)
    with pytest.raises(RunError, match="gave 2 values"):
        evaluate(op(Variable("x")), {"x": 1})


def test_input_facts():
    shapes, dtypes = input_facts({"x": np.ones((2, 3), "int8")})
    assert (shapes, dtypes) == ({"x": (2, 3)}, {"x": np.dtype("int8")})
