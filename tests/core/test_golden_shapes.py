"""Shapes, dtypes and errors that NNVM itself gave, through the API of its names."""

import pytest

import weft
from weft import symbol as sym
from weft.base.errors import DTypeError, InvalidValue, OutOfRange, ShapeError
from weft.compiler.graph_util import infer_dtype, infer_shape


def x():
    return sym.Variable("x")


def y():
    return sym.Variable("y")


ONE_INPUT = [
    # sum: () reduces everything to (1,)
    (lambda: sym.sum(x()), (2, 3), [1]),
    (lambda: sym.sum(x(), axis=-1), (2, 3), [2]),
    (lambda: sym.sum(x(), axis=(2, 0)), (2, 3, 4), [3]),
    (lambda: sym.sum(x(), axis=1, exclude=True), (2, 3, 4), [3]),
    (lambda: sym.sum(x(), axis=(0, 1), exclude=True), (2, 3), [2, 3]),
    (lambda: sym.max(x(), keepdims=True), (2, 3), [1, 1]),
    (lambda: sym.argmax(x(), axis=1), (3, 5), [3]),
    (lambda: sym.reshape(x(), shape=(0, -1)), (2, 3, 4), [2, 12]),
    (lambda: sym.reshape(x(), shape="(2L, 3L)"), (6,), [2, 3]),
    (lambda: sym.squeeze(x()), (1, 1), [1]),
    (lambda: sym.squeeze(x()), (1, 4, 1), [4]),
    (lambda: sym.expand_dims(x(), axis=-3), (2, 3), [1, 2, 3]),
    (lambda: sym.flatten(x()), (5,), [5, 1]),
    (lambda: sym.flatten(x()), (0, 5, 2), [0, 10]),
    (lambda: sym.strided_slice(x(), begin=(0,), end=(2,)), (4, 5), [2, 5]),
    (lambda: sym.strided_slice(x(), begin=(3,), end=(0,), stride=(-2,)), (4, 5), [2, 5]),
    (lambda: sym.transpose(x(), axes=(1, 2, 0)), (2, 3, 4), [3, 4, 2]),
    (lambda: sym.broadcast_to(x(), shape=(0, 5)), (3, 1), [3, 5]),
    (lambda: sym.concatenate(x(), axis=0), (2, 3), [2, 3]),
]


@pytest.mark.parametrize(("make", "given", "expected"), ONE_INPUT)
def test_output_shape(make, given, expected):
    assert infer_shape(make(), x=given) == ([list(given)], [expected])


TWO_INPUTS = [
    (lambda: sym.concatenate(x(), y(), axis=-1), (2, 1), (2, 5), [2, 6]),
    (lambda: sym.take(x(), y(), axis=1), (3, 4), (2, 2), [3, 2, 2]),
    (lambda: sym.take(x(), y()), (3, 4), (2, 2), [2, 2]),
    (lambda: sym.slice_like(x(), y(), axis=(-1,)), (3, 4), (2, 2), [3, 2]),
    (lambda: sym.gather_nd(x(), y()), (3, 4, 5), (2, 7), [7, 5]),
    (lambda: sym.matmul(x(), y()), (2, 3), (3, 4), [2, 4]),
    (lambda: sym.matmul(x(), y(), transpose_a=True, transpose_b=True), (3, 2), (4, 3), [2, 4]),
    (lambda: sym.collapse_sum(x(), y()), (5,), (1,), [1]),
    (lambda: x() + y(), (2, 1, 3), (4, 1), [2, 4, 3]),
]


@pytest.mark.parametrize(("make", "a", "b", "expected"), TWO_INPUTS)
def test_output_shape_of_two(make, a, b, expected):
    assert infer_shape(make(), x=a, y=b) == ([list(a), list(b)], [expected])


def test_split_shapes():
    outs = infer_shape(sym.split(x(), indices_or_sections=2), x=(4, 2))[1]
    assert outs == [[4, 1], [4, 1]]
    outs = infer_shape(sym.split(x(), indices_or_sections=(1, 3), axis=0), x=(4, 2))[1]
    assert outs == [[1, 2], [2, 2], [1, 2]]


def test_both_directions():
    ins, outs = infer_shape(sym.elemwise_add(x(), y()), x=(0, 3), y=(2, 0))
    assert (ins, outs) == ([[2, 3], [2, 3]], [[2, 3]])
    total = sym.elemwise_sum(x(), y(), sym.Variable("z"), num_args=3)
    assert infer_shape(total, y=(4, 5)) == ([[4, 5]] * 3, [[4, 5]])
    assert infer_shape(sym._assign(x(), y()), x=(1, 12))[0] == [[1, 12], [1, 12]]


def test_unknown_parts_of_concatenate():
    """The other dimensions are carried over; the joined one stays unknown while a part of it is."""
    ins, outs = infer_shape(sym.concatenate(x(), y(), axis=0), x=(2, 4))
    assert (ins, outs) == ([[2, 4], [0, 4]], [[0, 4]])


def test_zeros_take_the_shape_they_need():
    made = sym.elemwise_add(x(), sym.zeros())
    assert infer_shape(made, x=(2, 3)) == ([[2, 3]], [[2, 3]])
    assert infer_shape(sym.zeros(shape=(2, 3))) == ([], [[2, 3]])


def test_nothing_known():
    assert infer_shape(sym.relu(x())) == ([[]], [[]])
    assert infer_dtype(sym.relu(x())) == ([None], [None])


ERRORS = [
    (lambda: sym.sum(x(), axis=3), (2, 3), OutOfRange, "reduction axis 3"),
    (lambda: sym.reshape(x(), shape=(-1, -1)), (2, 3), InvalidValue, "one and only one dim"),
    (lambda: sym.reshape(x(), shape=(5,)), (2, 3), ShapeError, "target shape size is different"),
    (lambda: sym.squeeze(x(), axis=0), (2, 1), ShapeError, "axis 0"),
    (lambda: sym.expand_dims(x(), axis=4), (2, 3), OutOfRange, "axis 4"),
    (lambda: sym.split(x(), indices_or_sections=3, axis=0), (4,), ShapeError, "3 equal parts"),
    (lambda: sym.split(x(), indices_or_sections=(3, 2), axis=0), (4,), InvalidValue, "ascending"),
    (lambda: sym.split(x(), indices_or_sections=(4,), axis=0), (4,), ShapeError, "sum of sections"),
    (lambda: sym.transpose(x(), axes=(0, 0)), (2, 3), InvalidValue, "twice"),
    (lambda: sym.flip(x(), axis=2), (2, 3), OutOfRange, "axis 2"),
    (lambda: sym.broadcast_to(x(), shape=(4, 4)), (3, 4), ShapeError, "does not broadcast"),
    (lambda: sym.gather_nd(sym.Variable("d"), x()), (3,), ShapeError, "gather_nd"),
    (
        lambda: sym.concatenate(x(), sym.Variable("z", shape=(2, 5)), axis=0),
        (2, 1),
        ShapeError,
        "only axis 0 may differ",
    ),
    (lambda: x() + sym.Variable("z", shape=(4,)), (3,), ShapeError, "could not be broadcast"),
    (lambda: sym.slice_like(x(), sym.Variable("z", shape=(4,))), (3,), ShapeError, "cut"),
]


@pytest.mark.parametrize(("make", "given", "error", "text"), ERRORS)
def test_errors(make, given, error, text):
    with pytest.raises(error) as caught:
        infer_shape(make(), x=given)
    assert isinstance(caught.value, weft.Error)
    assert text in str(caught.value)


def test_the_error_names_the_operator_and_the_node():
    with pytest.raises(ShapeError, match=r"operator reshape, node 'r'"):
        infer_shape(sym.reshape(x(), shape=(5,), name="r"), x=(2, 3))


def test_dtypes():
    assert infer_dtype(sym.argmax(x()), x="float32")[1] == ["int32"]
    assert infer_dtype(sym.greater(x(), y()), x="int32") == (["int32", None], ["float32"])
    assert infer_dtype(sym.broadcast_greater(x(), y()), x="int32")[1] == ["int32"]
    assert infer_dtype(sym.cast(x(), dtype="int8"), x="float32") == (["float32"], ["int8"])
    with pytest.raises(DTypeError, match="indices are float32"):
        infer_dtype(sym.take(x(), y()), x="float32", y="float32")


def test_symbol_names_of_aliases():
    with weft.name.NameManager():
        assert (x() + y()).attr("name") == "__add_symbol__0"
        assert (x() ** y()).attr("name") == "__pow_symbol__0"
        assert (x() + y()).attr("name") == "__add_symbol__1"
    assert (x() / y()).attr("op_name") == "broadcast_div"
