"""Tensors, computes and the expressions of their bodies: types, lanes and what is refused."""

import numpy as np
import pytest

from weft import te
from weft.base.errors import DTypeError, Error, InvalidType, InvalidValue, OutOfRange, ShapeError
from weft.te.expr import INTRINSICS, Load, Ramp, Reduce, Select, Var
from weft.te.visit import Interner, postorder, rewrite, substitute


def test_indices_are_the_parameters_of_the_function():
    x = te.placeholder((2, 3), "float32", "x")
    assert [axis.name for axis in te.compute((2, 3), lambda row, col: x[row, col]).axes] == ["row", "col"]
    assert [axis.name for axis in te.compute((2, 3), lambda *i: x[i]).axes] == ["i0", "i1"]
    bound = te.compute((2,), lambda i, t=x: t[i, 0])
    assert [axis.name for axis in bound.axes] == ["i"]


def test_rank_zero_and_zero_extent():
    x = te.placeholder((), "float64", "x")
    y = te.compute((), lambda: x[()] + 1)
    assert (y.shape, y.rank, y.dtype) == ((), 0, np.dtype("float64"))
    assert te.compute((0, 4), lambda i, j: i * j).shape == (0, 4)


def test_inputs_are_listed_once_in_order():
    x, y = te.placeholder((2,), name="x"), te.placeholder((2,), name="y")
    z = te.compute((2,), lambda i: y[i] + x[i] * y[i])
    assert z.inputs() == [y, x]


def test_literals_take_the_dtype_beside_them():
    x = te.placeholder((2,), "int8", "x")
    assert (x[0] + 1).dtype == np.dtype("int8")
    assert (2 - te.placeholder((1,), "float16")[0]).dtype == np.dtype("float16")
    for wrong in (0.5, 300, float("nan"), float("inf")):
        with pytest.raises(DTypeError):
            x[0] + wrong
    with pytest.raises(InvalidType):
        te.as_expr("3")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, y: x[0] + y[0],
        lambda x, y: te.select(x[0], y[0], y[0]),
        lambda x, y: y[x[0]],
        lambda x, y: te.sum(x[0] < 1, te.reduce_axis(2)),
        lambda x, y: te.any(x[0], te.reduce_axis(2)),
    ],
)
def test_mixed_types_are_refused(wrong):
    with pytest.raises(DTypeError):
        wrong(te.placeholder((2,), "float32", "x"), te.placeholder((2,), "int32", "y"))


def test_wrong_indices_are_refused():
    x = te.placeholder((2, 3), "float32", "x")
    with pytest.raises(OutOfRange, match="axis 1"):
        x[0, 3]
    with pytest.raises(OutOfRange):
        x[-1, 0]
    with pytest.raises(InvalidValue, match="1 indices into x"):
        x[0]
    with pytest.raises(ShapeError):
        te.placeholder((2, -1))


def test_a_reduction_is_the_root():
    x, k = te.placeholder((4,), name="x"), te.reduce_axis(4)
    with pytest.raises(InvalidValue, match="inside an expression"):
        te.compute((), lambda: te.sum(x[k.var], k) / 4)
    assert isinstance(te.compute((), lambda: te.sum(x[k.var], k)).body, Reduce)
    with pytest.raises(InvalidValue, match="unknown reduction"):
        te.reduce("mean", x[k.var], k)


def test_the_truth_of_an_expression_is_refused():
    with pytest.raises(InvalidValue, match="not known"):
        bool(Var("i") < 3)


def test_read_or_is_a_select_over_a_masked_load():
    x = te.placeholder((4,), "float32", "x")
    i = Var("i")
    made = te.read_or(x, (i - 1,), i > 0, -3)
    assert isinstance(made, Select)
    assert isinstance(made.a, Load)
    assert made.a.mask is made.condition


def test_every_intrinsic_has_a_name_in_te():
    for name, count in INTRINSICS.items():
        made = getattr(te, name)(*(te.const(1, "float32") for _ in range(count)))
        assert made.name == name
    with pytest.raises(InvalidValue):
        te.call("nothing", te.const(1, "float32"))


def test_compute_with_a_dtype_casts():
    x, k = te.placeholder((4,), "int8", "x"), te.reduce_axis(4)
    assert te.compute((4,), lambda i: x[i], dtype="float32").dtype == np.dtype("float32")
    assert te.compute((), lambda: te.sum(x[k.var], k), dtype="int32").is_reduction
    assert te.compute((4,), lambda i: 0, dtype="float32").dtype == np.dtype("float32")


def test_lanes_spread_and_must_agree():
    lane, i = Ramp(te.as_expr(0), te.as_expr(1), 4), Var("i")
    x = te.placeholder((9, 9), "float32", "x")
    assert (x[i, lane + i] * 2).lanes == 4
    assert te.select(lane < i, x[i, i], 0.0).lanes == 4
    with pytest.raises(Error):
        x[lane, Ramp(te.as_expr(0), te.as_expr(1), 8)]
    with pytest.raises(DTypeError):
        lane + Ramp(te.as_expr(0), te.as_expr(1), 8)


def test_same_compares_structure():
    i, j = Var("i"), Var("i")
    assert te.same(te.exp(te.cast(i, "float32")) + 1, te.exp(te.cast(i, "float32")) + 1)
    assert not te.same(i + 1, j + 1)
    assert not te.same(te.const(0.0, "float32"), te.const(-0.0, "float32"))
    assert te.same(te.const(float("nan"), "float32"), te.const(float("nan"), "float32"))
    assert not te.same(te.const(1, "int64"), te.const(1, "int32"))


def test_walks_are_linear_in_shared_parts_and_do_not_recurse():
    i, j = Var("i"), Var("j")
    tall = wide = i + 0
    for _ in range(60):
        wide = wide * wide
    for _ in range(20000):
        tall = tall + 1
    assert sum(1 for _ in postorder((wide,))) == 62 + 1
    swapped = substitute(wide, {i: j})
    assert j in set(postorder((swapped,)))
    assert i not in set(postorder((swapped,)))
    assert te.same(substitute(swapped, {j: i}), wide)
    assert rewrite(tall, lambda node: node) is tall
    assert Interner()(tall) is not None
    assert len(te.show(wide)) < 5000
    assert te.show(tall).count("+") == 20001
    assert len(repr(wide)) < 50
