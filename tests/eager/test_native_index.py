"""Reads, writes and sums at indices by native code, against numpy."""

import numpy as np
import pytest
from codegen.guard import guarded

import weft
from weft.core.op import Op
from weft.eager.native import index as native_index
from weft.eager.native import native_call
from weft.ops.shape.index import GatherAttrs, TakeAttrs

RNG = np.random.default_rng(0)


def native(name, params, arrays):
    (made,) = native_call(Op.get(name))(params, arrays)
    return made


def grid(indices, axis):
    places = list(np.indices(indices.shape, sparse=True))
    places[axis] = indices
    return tuple(places)


def elements(shape, where, axis, dtype="float32"):
    x = (RNG.standard_normal(shape) * 50).astype(dtype)
    return x, RNG.integers(0, shape[axis], where)


CASES = [
    ((7,), (20,), 0),
    ((30, 40), (30, 11), 1),
    ((30, 40), (9, 40), 0),
    ((30, 40), (5, 8), 1),
    ((4, 5, 6), (4, 9, 6), 1),
    ((4, 5, 6), (3, 5, 2), 2),
    ((2, 3, 4, 5), (9, 3, 4, 5), 0),
]


@pytest.mark.parametrize(("shape", "where", "axis"), CASES)
@pytest.mark.parametrize("dtype", ["bool", "int16", "float32", "float64"])
def test_elements_are_read(shape, where, axis, dtype):
    x, indices = elements(shape, where, axis, dtype)
    for front in (False, True):
        given = [guarded(x, front), guarded(indices, front)]
        made = native("gather_elements", GatherAttrs(axis=axis), given)
        np.testing.assert_array_equal(made, x[grid(indices, axis)])


@pytest.mark.parametrize(("shape", "where", "axis"), CASES)
@pytest.mark.parametrize("dtype", ["int64", "float32", "float64"])
def test_elements_are_added_and_put(shape, where, axis, dtype):
    x, indices = elements(shape, where, axis, dtype)
    y = RNG.integers(-9, 9, where).astype(dtype)  # whose sums are exact
    expected = x.copy()
    np.add.at(expected, grid(indices, axis), y)
    made = guarded(x.copy())
    assert native_index.add_elements(made, axis, indices, guarded(y))
    np.testing.assert_array_equal(made, expected)
    for place in np.ndindex(where):  # in order: the last one stays
        at = list(place)
        at[axis] = indices[place]
        expected[tuple(at)] = y[place]
    assert native_index.put_elements(made, axis, indices, y)
    np.testing.assert_array_equal(made, expected)


def test_any_strides():
    base = RNG.standard_normal((60, 80)).astype("float32")
    indices = RNG.integers(0, 20, (25, 15))[:, ::-1]
    for x in (base[::2, ::4].T[::-1], np.broadcast_to(base[:1, :30], (20, 30)), base.T[:20, :30]):
        made = native("gather_elements", GatherAttrs(axis=0), [x, indices[:, :]])
        np.testing.assert_array_equal(made, x[indices, np.arange(15)])


def test_indices_from_the_end_and_outside():
    x = RNG.standard_normal((5, 6)).astype("float32")
    indices = np.array([[-1, -5, 99, -99, 4, 0]] * 2)
    made = native("gather_elements", GatherAttrs(axis=0), [x, indices])
    np.testing.assert_array_equal(made, x[np.array([[4, 0, 4, 0, 4, 0]] * 2), np.arange(6)])


@pytest.mark.parametrize(
    ("shape", "where", "axis"),
    [
        ((9, 40), (30,), 0),
        ((6, 20, 33), (4, 5), 1),
        ((50, 1), (7,), 0),
        ((8, 30), (11,), 1),
        ((3, 700), (5,), 0),
        ((9,), (40,), 0),
        ((5, 6, 1030), (3,), 1),
    ],
)
def test_rows_are_added(shape, where, axis):
    indices = RNG.integers(0, shape[axis], where)
    whole = (*shape[:axis], *where, *shape[axis + 1 :])
    dense = RNG.integers(-9, 9, whole).astype("float32")
    same = np.broadcast_to(np.float32(3), whole)
    mirrored = RNG.integers(-9, 9, whole[::-1]).astype("float32").T
    for y in (dense, same, mirrored):
        expected = np.zeros(shape, "float32")
        np.add.at(expected, (slice(None),) * axis + (indices,), y)
        made = guarded(np.zeros(shape, "float32"))
        assert native_index.add_rows(made, axis, guarded(indices), y)
        np.testing.assert_array_equal(made, expected)
        got = native("_take_grad", TakeAttrs(axis=axis), [y, expected, indices])
        np.testing.assert_array_equal(got, expected)


def test_short_slices_and_views_are_taken():
    x = RNG.standard_normal((12, 30, 2)).astype("float32")
    indices = RNG.integers(-30, 30, (4, 5))
    for data in (x, x[:, ::-1], x.transpose(2, 1, 0)):
        made = native("take", TakeAttrs(axis=1), [data, indices])
        np.testing.assert_array_equal(made, np.take(data, indices, 1))


@pytest.mark.parametrize("shape", [(1,), (50,), (7, 9), (300, 40), (3, 4, 5), (2, 1, 4, 5), (4, 0)])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_places_that_are_not_zero(shape, share):
    mask = RNG.random(shape) < share
    for array in (mask, mask * 3.0, guarded(mask), mask[::-1]):
        np.testing.assert_array_equal(native_index.nonzero(array), np.argwhere(array))
        apart = native_index.nonzero(array, True)
        np.testing.assert_array_equal(apart, np.array(np.nonzero(array)).reshape(apart.shape))


@pytest.mark.parametrize("call", ["scatter_add", "index_add", "gather_grad"])
def test_threads_give_the_same_sums(call):
    x = RNG.standard_normal((64, 3000)).astype("float32")
    y, indices = RNG.standard_normal((64, 5000)).astype("float32"), RNG.integers(0, 64, (64, 5000))
    before, made = weft.get_num_threads(), []
    for count in (1, 2):
        weft.set_num_threads(count)
        target, source = weft.from_numpy(x.copy()), weft.from_numpy(y)
        if call == "scatter_add":
            target.scatter_add_(1, weft.from_numpy(indices), source)
        elif call == "index_add":
            target.index_add_(0, weft.from_numpy(indices[0, :64]), weft.from_numpy(y[:, :3000].copy()))
        else:
            leaf = target.requires_grad_()
            leaf.gather(1, weft.from_numpy(indices)).backward(source)
            target = leaf.grad
        made.append(target.detach().numpy())
    weft.set_num_threads(before)
    np.testing.assert_array_equal(*made)


def test_writing_in_place_what_is_read():
    x = weft.arange(12.0).reshape(3, 4)
    x.index_add_(0, weft.tensor([1, 0]), x[:2])
    np.testing.assert_array_equal(x.numpy(), [[4, 6, 8, 10], [4, 6, 8, 10], [8, 9, 10, 11]])
    y = weft.arange(5.0)
    y.scatter_(0, weft.tensor([1, 2, 3, 4]), y[:4])
    np.testing.assert_array_equal(y.numpy(), [0, 0, 1, 2, 3])
