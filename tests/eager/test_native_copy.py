"""Copies in which other axes are fast, and triangles, against numpy."""

import numpy as np
import pytest
from codegen.guard import guarded

import weft
from weft.core.op import Op
from weft.eager.dispatch import kernel_of
from weft.eager.native.copy import _copied, copy_into, dense, ordered_copy
from weft.ops.linalg.lapack import TriangleAttrs

DTYPES = ["bool", "int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64"]
DTYPES += ["complex64", "complex128"]


def made_up(shape, dtype):
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) * 100).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype(dtype):
    x = made_up((70, 150), dtype).T
    made = ordered_copy(x)
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, x.copy())


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((97, 131), (1, 0)),
        ((5, 33, 65), (0, 2, 1)),
        ((33, 5, 65), (2, 1, 0)),
        ((9, 20, 8, 31), (0, 2, 3, 1)),
        ((9, 20, 8, 31), (3, 1, 0, 2)),
        ((64, 8, 32), (2, 0, 1)),
        ((2, 3, 4, 17, 41), (4, 1, 2, 0, 3)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_any_order_of_axes(shape, axes, dtype):
    x = made_up(shape, dtype).transpose(axes)
    np.testing.assert_array_equal(ordered_copy(x), x.copy())


def test_reversed_stepped_and_repeated_axes():
    x = made_up((120, 200), "float32")
    for view in (x.T[::-1], x.T[:, ::-1], x[::2].T, x[:, ::2].T, x[::-3, ::-1].T):
        np.testing.assert_array_equal(ordered_copy(view), view.copy())
    repeated = np.broadcast_to(x[:, None], (120, 7, 200)).transpose(2, 1, 0)
    np.testing.assert_array_equal(ordered_copy(repeated), repeated.copy())


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16"])
@pytest.mark.parametrize("columns", [16, 17, 33, 700])
def test_rows_backwards_and_of_one_element(columns, dtype):
    for front in (False, True):
        x = guarded(made_up((90, columns), dtype), front)
        for view in (x[:, ::-1], x[::-1, ::-1], x.reshape(9, 10, columns)[:, ::3, ::-1]):
            out = guarded(np.zeros(view.shape, dtype), front)
            copy_into(out, view)
            np.testing.assert_array_equal(out, view)
        one = guarded(x[:, 0], front)[:, None]
        out = guarded(np.zeros((90, 500), dtype), front)
        copy_into(out, np.broadcast_to(one, (90, 500)))
        np.testing.assert_array_equal(out, np.tile(one, 500))


def test_writes_into_a_part_of_other_memory():
    x, whole = made_up((100, 140), "float32"), np.full((142, 103), 7, "float32")
    copy_into(whole[1:-1, 2:-1], x.T)
    np.testing.assert_array_equal(whole[1:-1, 2:-1], x.T)
    whole[1:-1, 2:-1] = 7
    assert (whole == 7).all()


def test_memory_that_overlaps():
    x = made_up((120, 120), "float32")
    expected = x.T.copy()
    copy_into(x, x.T)
    np.testing.assert_array_equal(x, expected)


@pytest.mark.parametrize("rows", [8, 9, 63, 64, 65, 100])
@pytest.mark.parametrize("columns", [8, 15, 16, 17, 131])
def test_no_memory_but_its_own_is_touched(rows, columns):
    for dtype in ("float32", "float64"):
        x = made_up((rows, columns), dtype)
        for front in (False, True):
            out = guarded(np.zeros((columns, rows), dtype), front)
            assert _copied(out, guarded(x, front).T)
            np.testing.assert_array_equal(out, x.T)


def test_empty_and_single():
    for array in (np.zeros((0, 5), "float32").T, np.float32(3).reshape(()), np.ones((1, 1)).T):
        np.testing.assert_array_equal(dense(array), array)


def test_threads_make_the_same_copy():
    x = weft.from_numpy(made_up((700, 900), "float32")).t()
    before = weft.get_num_threads()
    copies = []
    for count in (1, 2):
        weft.set_num_threads(count)
        copies.append(x.contiguous().numpy())
    weft.set_num_threads(before)
    np.testing.assert_array_equal(*copies)


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("shape", [(1, 1), (40, 17), (17, 40), (3, 2, 33, 33), (5, 1), (1, 50)])
def test_triangles(lower, shape):
    cut = np.tril if lower else np.triu
    for diagonal in (-100, -3, 0, 1, 16, 100):
        for x in (made_up(shape, "float32"), made_up(shape[:-2] + shape[:-3:-1], "int64").swapaxes(-1, -2)):
            params = TriangleAttrs(lower=lower, diagonal=diagonal)
            (made,) = kernel_of(Op.get("triangle")).native(params, [x])
            np.testing.assert_array_equal(made, cut(x, diagonal))
