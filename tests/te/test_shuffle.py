"""Shuffle: lanes of two vectors in any order, interpreted, printed and native."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.native import ISAS, native

from weft.base.errors import DTypeError, InvalidValue
from weft.te.build import KernelBuilder
from weft.te.expr import Ramp, Shuffle, as_expr, const
from weft.te.interpret import run_kernel
from weft.te.printer import show
from weft.te.simplify_loops import simplify_statement

rng = np.random.default_rng(0)


def run_of(buffer, first, lanes):
    return buffer[Ramp(as_expr(first), as_expr(1), lanes)]


def shuffling(dtype, lanes, order):
    """y = some lanes of x[:lanes] and x[lanes:]."""
    b = KernelBuilder("shuffling")
    x, y = b.arg("x", dtype, (2 * lanes,)), b.arg("y", dtype, (len(order),))
    value = Shuffle(run_of(x, 0, lanes), run_of(x, lanes, lanes), tuple(order))
    b.store(y, Ramp(as_expr(0), as_expr(1), len(order)), value)
    return b.finish()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("isa", ISAS)
def test_lanes_in_any_order(isa, dtype):
    for _ in range(3):
        lanes, made = (int(2 ** rng.integers(1, 5)) for _ in range(2))
        order = [int(lane) for lane in rng.integers(2 * lanes, size=made)]
        x = rng.integers(-1000, 1000, 2 * lanes).astype(dtype)
        kernel = shuffling(dtype, lanes, order)
        for run in (run_kernel, lambda k, arrays: native(k, isa)(arrays)):
            for form in (kernel, simplify_statement(kernel)):
                y = np.zeros(made, dtype)
                run(form, [x, y])
                np.testing.assert_array_equal(y, x[order])


def test_printing():
    kernel = shuffling("float32", 2, [1, 2])
    assert "shuffle(x[ramp(0, 1, x2)], x[ramp(2, 1, x2)], [1, 2])" in show(kernel)


def test_what_cannot_be_shuffled():
    b = KernelBuilder("k")
    x, y = b.arg("x", "float32", (8,)), b.arg("y", "float64", (8,))
    with pytest.raises(InvalidValue, match="lanes"):
        Shuffle(run_of(x, 0, 4), run_of(x, 4, 4), (0, 8))
    with pytest.raises(InvalidValue, match="lanes"):
        Shuffle(run_of(x, 0, 4), run_of(x, 4, 4), ())
    with pytest.raises(DTypeError):
        Shuffle(run_of(x, 0, 4), run_of(y, 4, 4), (0, 1))
    with pytest.raises(DTypeError):
        Shuffle(run_of(x, 0, 4), const(1, "float32"), (0, 1))
