"""Graphs as steps to walk, by hand-written results."""

import numpy as np
import pytest

import weft.ops  # noqa: F401  operators
from weft import te
from weft.base.errors import GraphError
from weft.core.op import Op
from weft.core.plan import planned
from weft.core.symbol import Variable


def run(plan, *arrays):
    """The results by the operators' references."""
    values = list(arrays)
    for op, params, places, count in plan.steps:
        made = op.call_with(Op.reference[op], params, *[values[place] for place in places])
        values += made[:count] if isinstance(made, (tuple, list)) else [made]
    return [None if place is None else values[place] for place in plan.results]


def entry(symbol, index=0):
    return symbol.outputs[index]


def test_steps_run_after_what_they_read():
    x, y = Variable("x"), Variable("y")
    product = Op.get("elemwise_mul")(x, y)
    total = Op.get("elemwise_add")(product, x)
    plan = planned([entry(x), entry(y)], [entry(total), None, entry(product), entry(y)])
    assert [(step.op.name, step.params, step.arguments) for step in plan.steps] == [
        ("elemwise_mul", None, (0, 1)),
        ("elemwise_add", None, (2, 0)),
    ]
    assert plan.results == (3, None, 2, 1)
    a, b = np.float32([1, 2]), np.float32([3, 5])
    found = run(plan, a, b)
    assert [value if value is None else value.tolist() for value in found] == [[4, 12], None, [3, 10], [3, 5]]


def test_outputs_that_nobody_asks_for_have_places():
    x = Variable("x")
    parts = Op.get("split")(x, indices_or_sections=3, axis=0)
    plan = planned([entry(x)], [entry(parts, 2), entry(Op.get("negative")(parts[1]))])
    assert [step.outputs for step in plan.steps] == [3, 1]
    assert [value.tolist() for value in run(plan, np.float32([1, 2, 3]))] == [[3], [-2]]


def test_equal_graphs_have_equal_plans():
    def made(name, axis=0):
        x = Variable(name)
        return planned([entry(x)], [entry(Op.get("softmax")(Op.get("exp")(x), axis=axis))])

    assert made("x") == made("y")
    assert hash(made("x")) == hash(made("y"))
    assert made("x") != made("x", axis=1)
    names = made("x").keyed(lambda op, params: op.name)
    assert names == (("exp", (0,), 1), ("softmax", (1,), 1), (2,))


def test_computes_are_tensor_expressions():
    x = Variable("x")
    doubled = Op.get("elemwise_add")(x, x)
    data = te.placeholder((4,), "float32", "x")
    one = planned([entry(x)], [entry(doubled)]).compute(data)
    assert one.shape == (4,)
    assert len(planned([entry(x)], [entry(doubled), None, entry(x)]).compute(data)) == 2


def test_what_has_no_value_is_named():
    x, y = Variable("x"), Variable("nobody")
    with pytest.raises(GraphError, match="nobody"):
        planned([entry(x)], [entry(Op.get("elemwise_add")(x, y))])
