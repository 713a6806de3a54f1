import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.base import shape as sh
from weft.base.errors import OutOfRange, ShapeError
from weft.base.extents import evaluate

extents = st.integers(0, 4)
dims = st.one_of(extents, st.none(), st.sampled_from(["n", "m"]))
static_shapes = st.lists(extents, max_size=5).map(tuple)
shapes = st.one_of(st.none(), st.lists(dims, max_size=4).map(tuple))


@given(st.lists(static_shapes, min_size=1, max_size=4))
def test_broadcast_is_numpys(given_shapes):
    try:
        expected = np.broadcast_shapes(*given_shapes)
    except ValueError:
        with pytest.raises(ShapeError, match="could not be broadcast"):
            sh.broadcast(*given_shapes)
    else:
        assert sh.broadcast(*given_shapes) == expected


@given(st.lists(dims, max_size=4), st.lists(dims, max_size=4), st.data())
def test_broadcast_of_unknowns_is_what_any_filling_gives(a, b, data):
    symbols = {"n": data.draw(extents), "m": data.draw(extents)}

    def fill(shape):
        return tuple(data.draw(extents) if dim is None else symbols.get(dim, dim) for dim in shape)

    try:
        result = sh.broadcast(tuple(a), tuple(b))
    except ShapeError:
        with pytest.raises(ValueError, match="mismatch"):
            np.broadcast_shapes(fill(a), fill(b))
        return
    try:
        filled = np.broadcast_shapes(fill(a), fill(b))
    except ValueError:
        return
    known = [(dim, got) for dim, got in zip(result, filled) if dim is not None]
    assert all(evaluate(dim, symbols) == got for dim, got in known)
    assert len(result) == len(filled)


def test_broadcast_needs_ranks():
    assert sh.broadcast((2,), None) is None
    assert sh.broadcast() == ()


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [("n", 5, 5), (5, "n", 5), ("n", None, None), ("n", "m", "max(m, n)*min(1, m, n)"), (None, 0, 0), ("n", 1, "n")],
)
def test_broadcast_dim(a, b, result):
    assert sh.broadcast_dim(a, b) == result


def _meet(function, *args):
    try:
        return function(*args)
    except ShapeError:
        return "conflict"


@given(static_shapes, static_shapes)
def test_unify_of_static_shapes_is_equality(a, b):
    assert _meet(sh.unify, a, b) == (a if a == b else "conflict")


@given(shapes)
def test_unify_has_none_on_top_and_is_idempotent(a):
    assert sh.unify(a, None) == sh.unify(None, a) == sh.unify(a, a) == a


@given(static_shapes, st.lists(st.booleans(), min_size=5, max_size=5))
def test_unify_fills_what_is_masked(full, mask):
    left = tuple(dim if keep else None for dim, keep in zip(full, mask))
    right = tuple(None if keep else dim for dim, keep in zip(full, mask))
    assert sh.unify(left, right) == sh.unify(right, left) == full


def test_unify_prefers_numbers_and_names_ranks():
    assert sh.unify(("n", 3), (2, "m")) == (2, 3)
    assert sh.unify(("n + 1",), ("m",)) == ("n + 1",)
    with pytest.raises(ShapeError, match=r"dimension n \+ 1 is not dimension n"):
        sh.unify(("n + 1",), ("n",))
    with pytest.raises(ShapeError, match=r"dimension n \+ 4 is not dimension 3"):
        sh.unify(("n + 4",), (3,))
    with pytest.raises(ShapeError, match="one has 2 dimensions, the other 1"):
        sh.unify((2, 3), (2,))
    with pytest.raises(ShapeError, match="dimension 3 is not dimension 4"):
        sh.unify((2, 3), (None, 4))


@given(static_shapes)
def test_strides_and_numel_are_numpys(shape):
    array = np.empty(shape, np.int8)
    assert sh.numel(shape) == array.size
    if array.size:
        assert sh.row_major_strides(shape) == array.strides


@given(st.lists(st.integers(0, 9), max_size=5))
def test_sums_and_products(numbers):
    assert sh.add_dims(*numbers) == sum(numbers)
    assert sh.mul_dims(*numbers) == int(np.prod(numbers, dtype=np.int64))


@pytest.mark.parametrize(
    ("function", "dims", "result"),
    [
        (sh.add_dims, ("n", 0), "n"),
        (sh.add_dims, ("n", 1), "n + 1"),
        (sh.add_dims, (None, 0), None),
        (sh.mul_dims, ("n", 1), "n"),
        (sh.mul_dims, ("n", 0), 0),
        (sh.mul_dims, ("n", "n"), "n*n"),
        (sh.mul_dims, ("n", None), None),
        (sh.sub_dims, ("n + 1", "n"), 1),
        (sh.floor_div_dims, ("n", 0.5), None),
        (sh.ceil_div_dims, ("n", 2), "(n + 1)//2"),
        (sh.min_dims, ("n", 4, None), None),
        (sh.max_dims, (3, 2), 3),
    ],
)
def test_arithmetic_of_unknowns(function, dims, result):
    assert function(*dims) == result


def test_known_and_static():
    assert sh.is_known((1, "n"))
    assert not sh.is_known((1, None))
    assert not sh.is_known(None)
    assert sh.is_static((0, 2))
    assert not sh.is_static((0, "n"))
    assert not sh.is_static(None)


@given(st.integers(1, 6), st.integers(-9, 9))
def test_normalize_axis_is_list_indexing(rank, axis):
    try:
        expected = list(range(rank))[axis]
    except IndexError:
        with pytest.raises(OutOfRange, match=f"axis {axis} is outside a tensor of {rank}"):
            sh.normalize_axis(axis, rank)
    else:
        assert sh.normalize_axis(axis, rank) == expected


def test_a_scalar_has_no_axis():
    with pytest.raises(OutOfRange, match="the tensor is a scalar"):
        sh.normalize_axis(0, 0)
