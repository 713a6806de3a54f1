"""The checks of operators find what is wrong: each is shown an operator with one fault."""

import itertools

import numpy as np
import pytest

from weft import te
from weft.base.errors import InvalidValue, ShapeError
from weft.core.op import Op
from weft.core.schema import INT, attr, schema
from weft.ops._families import F, pointwise, unary
from weft.testing.op_check import Sample, check_attributes, check_op

_numbers = itertools.count()


def make(**columns):
    """2 x^3, correct but for the columns given."""
    right = {
        "reference": lambda x: (2 * x**3).astype(x.dtype),
        "compute": pointwise(lambda x: x * x * x * 2),
        "gradient": lambda ctx, g: [F.elemwise_mul(g, ctx.inputs[0] ** 2 * 6)],
    }
    merged = {**right, **columns}
    name = f"t_op_check_{next(_numbers)}"
    return unary(name, "2 x^3", level=10, **{k: v for k, v in merged.items() if v is not None})


def sample(seed=0):
    x = np.random.default_rng(seed).uniform(-2, 2, (3, 4)).astype("float32")
    return Sample([x], oracle=lambda x: x * x * x * 2)


def test_a_right_operator_passes():
    check_op(make().name, [sample(seed) for seed in range(3)])


def test_samples_can_be_left_out():
    check_op(make().name)
    with pytest.raises(AssertionError, match="compute"):
        check_op(make(compute=pointwise(lambda x: x * x * x)).name)


def test_samples_are_needed_where_attributes_are():
    with pytest.raises(InvalidValue, match="needs attributes"):
        check_op("expand_dims")


FAULTS = [
    ({"reference": lambda x: 2 * x**2}, "oracle"),
    ({"reference": lambda x: (2 * x**3)[:, :3]}, "shape"),
    ({"reference": lambda x: (2 * x**3).astype(np.float64)}, "inferred"),
    ({"reference": lambda x: x}, "returns its input"),
    ({"compute": pointwise(lambda x: x * x * x)}, "compute"),
    ({"compute": lambda x: te.compute(x.shape, lambda i, j: te.cast(x[i, j], "float64"))}, "dtype"),
    ({"gradient": lambda ctx, g: [F.elemwise_mul(g, ctx.inputs[0] ** 2 * 5)]}, "gradient"),
    ({"gradient": lambda ctx, g: [None]}, "gradient"),
    ({"gradient": lambda ctx, g: [g, g]}, "2 gradients"),
    ({"gradient": lambda ctx, g: [F.cast(g, dtype="float16")]}, "gradient is float16"),
    ({"gradient": None}, "no gradient"),
    ({"reference": None}, "no reference"),
    ({"compute": None}, "no body"),
]


@pytest.mark.parametrize(("columns", "text"), FAULTS)
def test_a_fault_is_found(columns, text):
    op = make(**columns)
    with pytest.raises(AssertionError, match=text) as caught:
        check_op(op.name, [sample()])
    assert op.name in str(caught.value)


def test_a_misleading_shape_rule_is_found():
    op = make()
    says_two = lambda params, ins, outs: ([None], [ins[0] or (2, 2)])
    op.set_attr("FInferShape", says_two, 11)
    with pytest.raises((AssertionError, ShapeError)):
        check_op(op.name, [sample()])


def test_a_layout_of_the_wrong_rank_is_found():
    op = make()
    op.set_attr("FCorrectLayout", lambda params, ins, last, outs: (ins, [*outs, *outs]), 11)
    with pytest.raises(AssertionError, match="layouts"):
        check_op(op.name, [sample()])


def test_an_operator_without_samples_is_found():
    with pytest.raises(AssertionError, match="no samples"):
        check_op(make().name, [])


def test_reads_out_of_bounds_are_found():
    shifted = lambda x: te.compute(x.shape, lambda i, j: x[i + 1, j])
    with pytest.raises(IndexError):
        check_op(make(compute=shifted).name, [sample()])


def test_a_parser_that_accepts_anything_is_found():
    @schema
    class Attrs:
        n: int = attr(INT._replace(parse=len), "a number", low=0)

    op = Op.register(f"t_op_check_{next(_numbers)}").set_attr_parser(Attrs)
    with pytest.raises(AssertionError, match="accepts"):
        check_attributes(op)
