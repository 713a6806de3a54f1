"""Transpositions through registers: values are numpy's, for sizes around those of squares."""

import numpy as np
import pytest
from codegen.native import ISAS, target_of

import weft
from weft.lower.cpu.squares import transposed_lanes
from weft.te.build import KernelBuilder
from weft.te.expr import Ramp, as_expr
from weft.te.interpret import run_kernel

rng = np.random.default_rng(3)
SHAPES = [((3, 16, 16), (0, 2, 1)), ((2, 33, 47), (2, 1, 0)), ((5, 17, 64, 2), (2, 3, 1, 0)), ((40, 15), (1, 0))]


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_columns_of_a_square(lanes):
    b = KernelBuilder("square")
    x, y = b.arg("x", "float32", (lanes * lanes,)), b.arg("y", "float32", (lanes * lanes,))
    at = lambda first: Ramp(as_expr(first * lanes), as_expr(1), lanes)
    rows = [b.let("row", x[at(number)]) for number in range(lanes)]
    for number, column in enumerate(transposed_lanes(rows, lambda value: b.let("v", value))):
        b.store(y, at(number), column)
    given, made = rng.standard_normal(lanes * lanes).astype("f"), np.zeros(lanes * lanes, "f")
    run_kernel(b.finish(), [given, made])
    np.testing.assert_array_equal(made.reshape(lanes, lanes), given.reshape(lanes, lanes).T)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_transposes(shape, axes, isa):
    x = rng.standard_normal(shape).astype("f")
    model = weft.compile(
        weft.symbol.transpose(weft.symbol.Variable("x"), axes=axes), shape={"x": shape}, target=target_of(isa)
    )
    np.testing.assert_array_equal(model.run({"x": x})[0], x.transpose(axes))


@pytest.mark.parametrize(("shape", "axes"), SHAPES)
def test_with_what_is_done_to_elements(shape, axes):
    sym, made = weft.symbol, tuple(shape[axis] for axis in axes)
    x, y = rng.standard_normal(shape).astype("f"), rng.standard_normal(made).astype("f")
    turned = sym.transpose(sym.Variable("x"), axes=axes)
    symbol = sym.relu(turned) * sym.Variable("y") + turned
    models = [weft.compile(symbol, shape={"x": shape, "y": made}, threads=count) for count in (1, 2)]
    one, two = (model.run({"x": x, "y": y})[0] for model in models)
    expected = np.maximum(x, 0).transpose(axes).astype("d") * y + x.transpose(axes)
    np.testing.assert_allclose(one, expected, rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(one, two)
