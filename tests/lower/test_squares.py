"""Transpositions through registers: values are numpy's, for sizes around those of squares."""

import numpy as np
import pytest
from codegen.native import ISAS, target_of
from lower.open_programs import Programs

import weft
from weft import te
from weft.compiler.open.calls import lower_compute
from weft.lower.cpu.squares import transposed_lanes
from weft.te.build import KernelBuilder
from weft.te.expr import Ramp, Shuffle, as_expr
from weft.te.interpret import run_kernel
from weft.te.visit import postorder

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
@pytest.mark.parametrize("isa", ISAS)
def test_of_open_sizes(shape, axes, isa):
    """One program for all sizes, with work on elements as well, at guard pages."""

    def turned(x):
        return te.compute([x.shape[axis] for axis in axes], lambda *i: x[tuple(i[place] for place in back)])

    def worked(x, y):
        return te.compute(y.shape, lambda *i: te.max(turned(x)[i] * y[i], 0.25) + turned(x)[i])

    back = np.argsort(axes)
    for dtype in ("float32", "float64"):
        copies, programs = (Programs("turn", target_of(isa), compute) for compute in (turned, worked))
        for more in (0, 1, 9):
            x = rng.standard_normal([extent + more for extent in shape]).astype(dtype)
            expected = np.ascontiguousarray(x.transpose(axes))
            y = rng.standard_normal(expected.shape).astype(dtype)
            np.testing.assert_array_equal(copies.run(x)[0], expected)
            expected = np.maximum(expected * y, 0.25) + expected
            np.testing.assert_allclose(programs.run(x, y)[0], expected, rtol=1e-6, atol=1e-6)
        assert len(copies.made) == len(programs.made) == 1
        (lowered,) = lower_compute("turn", turned, [(shape, np.dtype(dtype))], target_of(isa)).kernels
        assert any(isinstance(node, Shuffle) for node in postorder((lowered.kernel.body,)))


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
