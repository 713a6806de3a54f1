"""The order of elements, against numpy's stable sort."""

import numpy as np
import pytest

from weft.ops.shape.sort import order_of

FLOATS = ["float16", "float32", "float64"]
KINDS = [*FLOATS, "bool", "int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]


def made_up(shape, dtype):
    rng = np.random.default_rng(0)
    x = np.abs((rng.standard_normal(shape) * 3).round())
    if dtype[0] != "u":
        x *= rng.choice([-1.0, 1.0], shape)
    if dtype in FLOATS:
        special = rng.random(shape)
        for number, value in enumerate((np.nan, -np.nan, np.inf, -np.inf, -0.0, 1e-7)):
            x[(special > number * 0.03) & (special < (number + 1) * 0.03)] = value
    return x.astype(dtype)


def expected(x, axis, descending):
    """Elements as pairs of a rank and the place, so that none are equal."""
    rows = np.moveaxis(x, axis, -1)
    ranks = np.unique(rows, return_inverse=True)[1].reshape(rows.shape)  # NaN is the greatest
    order = np.argsort(-ranks if descending else ranks, -1, kind="stable")
    return np.moveaxis(order, -1, axis)


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("descending", [False, True])
def test_order(dtype, descending):
    for shape, axis in [((1000,), 0), ((50, 60), 1), ((50, 60), 0), ((5, 90, 3), 1), ((7,), 0)]:
        x = made_up(shape, dtype)
        made = order_of(x, axis, descending)
        assert made.dtype == np.int64
        np.testing.assert_array_equal(made, expected(x, axis, descending))


@pytest.mark.parametrize("descending", [False, True])
def test_numbers_at_the_ends_of_their_range(descending):
    ends = np.iinfo(np.int64)
    for numbers in ([ends.max, ends.min, 0, -1], [ends.max, ends.max - 1], [ends.min, ends.min + 2]):
        x = np.array(numbers * 200)
        np.testing.assert_array_equal(order_of(x, 0, descending), expected(x, 0, descending))
    x = np.array([2**64 - 1, 2**64 - 3, 2**64 - 2] * 200, np.uint64)
    np.testing.assert_array_equal(order_of(x, 0, descending), expected(x, 0, descending))
