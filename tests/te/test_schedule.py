"""Computes turned into loops, against numpy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import te
from weft.base.errors import InvalidValue
from weft.te.interpret import run_kernel
from weft.te.loops import For, Let, Store, buffer
from weft.te.schedule import inline, loop_kernel, loop_nest
from weft.te.simplify_loops import statements
from weft.te.visit import masked_load, postorder

rng = np.random.default_rng(0)
small = st.integers(0, 5)


def run(inputs, outputs, arrays):
    made = [np.full(t.shape, 77).astype(t.dtype) for t in outputs]
    run_kernel(loop_kernel("k", inputs, outputs), [*arrays, *made])
    return made


@settings(max_examples=25, deadline=None)
@given(small, small, small)
def test_matmul_with_an_epilogue(rows, deep, cols):
    a, b = (te.placeholder((rows, deep), "float64", "a"), te.placeholder((deep, cols), "float64", "b"))
    bias, k = te.placeholder((cols,), "float64", "bias"), te.reduce_axis(deep)
    dot = te.compute((rows, cols), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], k), "dot")
    out = te.compute((rows, cols), lambda i, j: te.max(dot[i, j] + bias[j], 0), "out")
    arrays = [rng.normal(size=t.shape) for t in (a, b, bias)]
    (found,) = run([a, b, bias], [out], arrays)
    expected = np.maximum(arrays[0] @ arrays[1] + arrays[2], 0)
    np.testing.assert_allclose(found, expected, atol=1e-12)


REDUCTIONS = [
    (te.sum, np.sum, "float32"),
    (te.sum, np.sum, "int32"),
    (te.prod, np.prod, "float64"),
    (te.max_of, np.max, "float32"),
    (te.min_of, np.min, "int8"),
]


@pytest.mark.parametrize(("reducer", "oracle", "dtype"), REDUCTIONS)
def test_reductions(reducer, oracle, dtype):
    x = te.placeholder((3, 4, 5), dtype, "x")
    k, m = te.reduce_axis(3), te.reduce_axis(5, "m")
    y = te.compute((4,), lambda i: reducer(x[k.var, i, m.var], (k, m)), "y")
    data = rng.integers(-3, 4, (3, 4, 5)).astype(dtype)
    (found,) = run([x], [y], [data])
    np.testing.assert_array_equal(found, oracle(data, axis=(0, 2)))


def test_any_and_all_and_empty_reductions():
    x = te.placeholder((4, 3), "bool", "x")
    k = te.reduce_axis(3)
    data = rng.integers(0, 2, (4, 3)).astype(bool)
    some = te.compute((4,), lambda i: te.any(x[i, k.var], k), "some")
    every = te.compute((4,), lambda i: te.all(x[i, k.var], k), "every")
    found = run([x], [some, every], [data])
    np.testing.assert_array_equal(found[0], data.any(1))
    np.testing.assert_array_equal(found[1], data.all(1))
    empty, none = te.placeholder((2, 0), "int8", "e"), te.reduce_axis(0)
    for reducer, value in ((te.sum, 0), (te.prod, 1), (te.max_of, -128), (te.min_of, 127)):
        y = te.compute((2,), lambda i, r=reducer: r(empty[i, none.var], none), "y")
        assert run([empty], [y], [np.zeros((2, 0), "int8")])[0].tolist() == [value] * 2


def test_half_sums_are_kept_in_float32():
    x, k = te.placeholder((4096,), "float16", "x"), te.reduce_axis(4096)
    y = te.compute((), lambda: te.sum(x[k.var], k), "y")
    (found,) = run([x], [y], [np.ones(4096, "float16")])
    assert found[()] == 4096  # in float16 the sum would stop at 2048


def test_padding_reads_nothing_outside():
    size, pad = 5, 2
    x = te.placeholder((size,), "float32", "x")
    inner = te.compute((size,), lambda i: te.exp(x[i]), "inner")
    y = te.compute((size + 2 * pad,), lambda i: te.read_or(inner, (i - pad,), (i >= pad) & (i < size + pad), -1), "y")
    data = rng.normal(size=size).astype("float32")
    (found,) = run([x], [y], [data])
    np.testing.assert_array_equal(found, np.pad(np.exp(data), pad, constant_values=-1))


def test_a_padded_reduction():
    x, k = te.placeholder((3, 0), "float32", "x"), te.reduce_axis(0)
    top = te.compute((3,), lambda i: te.max_of(x[i, k.var], k), "top")
    y = te.compute((5,), lambda i: te.read_or(top, (i - 1,), (i >= 1) & (i < 4), 9) + 1, "y")
    (found,) = run([x], [y], [np.zeros((3, 0), "float32")])
    assert found.tolist() == [10, -np.inf, -np.inf, -np.inf, 10]


def test_a_masked_read_of_a_reduction_gives_zero():
    x, k = te.placeholder((3, 0), "float32", "x"), te.reduce_axis(0)
    top = te.compute((3,), lambda i: te.max_of(x[i, k.var], k), "top")
    y = te.compute((5,), lambda i: masked_load(top, (i,), i < 3), "y")
    (found,) = run([x], [y], [np.zeros((3, 0), "float32")])
    assert found.tolist() == [-np.inf] * 3 + [0, 0]


def test_inlining_a_producer_read_many_times_stays_linear():
    x = te.placeholder((3,), "float64", "x")
    chain = [x]
    for _ in range(200):
        last = chain[-1]
        chain.append(te.compute((3,), lambda i, t=last: t[i] * t[i] - te.sin(t[i]) * 0.5))
    whole = inline(chain[-1], chain[1:-1])
    assert sum(1 for _ in postorder((whole.body,))) < 200 * 12
    kernel = loop_kernel("k", [x], [chain[-1]])
    assert sum(isinstance(s, Let) for s in statements(kernel.body)) >= 199
    data, out = rng.uniform(0, 0.5, 3), np.zeros(3)
    run_kernel(kernel, [data, out])
    expected = data
    for _ in range(200):
        expected = expected * expected - np.sin(expected) * 0.5
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-300)


def test_a_chain_of_thousands_does_not_recurse():
    last = x = te.placeholder((2,), "float64", "x")
    for _ in range(3000):
        last = te.compute((2,), lambda i, t=last: t[1 - i] + 1)
    (found,) = run([x], [last], [np.array([1.0, 2.0])])
    assert found.tolist() == [3001, 3002]


def test_outputs_of_one_shape_share_a_nest_unless_they_read_each_other():
    x = te.placeholder((4, 3), "float32", "x")
    shared = te.compute((4, 3), lambda i, j: te.exp(x[i, j]), "shared")
    a = te.compute((4, 3), lambda i, j: shared[i, j] + 1, "a")
    b = te.compute((4, 3), lambda r, c: shared[r, c] * 2, "b")
    c = te.compute((4, 3), lambda i, j: a[i, 2 - j], "c")
    kernel = loop_kernel("k", [x], [a, b, c])
    loops = [s.var.name for s in statements(kernel.body) if isinstance(s, For)]
    assert loops == ["i", "j", "i", "j"]
    assert te.show(kernel).count("exp(") == 1
    data = rng.normal(size=(4, 3)).astype("float32")
    found = run([x], [a, b, c], [data])
    np.testing.assert_array_equal(found[0], np.exp(data) + 1)
    np.testing.assert_array_equal(found[1], np.exp(data) * 2)
    np.testing.assert_array_equal(found[2], (np.exp(data) + 1)[:, ::-1])


def test_softmax_with_materialised_reductions():
    x, k = te.placeholder((3, 7), "float64", "x"), te.reduce_axis(7)
    top = te.compute((3,), lambda i: te.max_of(x[i, k.var], k), "top")
    e = te.compute((3, 7), lambda i, j: te.exp(x[i, j] - top[i]), "e")
    total = te.compute((3,), lambda i: te.sum(e[i, k.var], k), "total")
    y = te.compute((3, 7), lambda i, j: e[i, j] / total[i], "y")
    data = rng.normal(size=(3, 7))
    *_, found = run([x], [top, total, y], [data])
    shifted = np.exp(data - data.max(1, keepdims=True))
    np.testing.assert_allclose(found, shifted / shifted.sum(1, keepdims=True), rtol=1e-12)
    with pytest.raises(InvalidValue, match="reads reduction top"):
        loop_kernel("k", [x], [y])


def test_loops_carry_the_axes_of_the_output():
    x = te.placeholder((4, 3), "float32", "x")
    y = te.compute((3, 4), lambda i, j: x[j, i], "y")
    buffers = {t: buffer(t.name, t.dtype, t.shape) for t in (x, y)}
    nest = loop_nest([y], buffers)
    assert tuple(s.var for s in statements(nest) if isinstance(s, For)) == y.axes
    (store,) = [s for s in statements(nest) if isinstance(s, Store)]
    assert store.buffer is buffers[y]


def test_what_cannot_be_lowered_is_an_error():
    x, k = te.placeholder((4,), "float32", "x"), te.reduce_axis(4)
    total = te.compute((), lambda: te.sum(x[k.var], k), "total")
    with pytest.raises(InvalidValue, match="cannot be inlined"):
        inline(te.compute((2,), lambda i: total[()] + 1), [total])
    y = te.compute((4,), lambda i: x[i])
    with pytest.raises(InvalidValue, match="no buffer"):
        loop_nest([y], {})
    with pytest.raises(InvalidValue, match="inputs x"):
        loop_nest([y], {y: buffer("y", "float32", (4,))})
    with pytest.raises(InvalidValue, match="no body"):
        loop_nest([x], {x: buffer("x", "float32", (4,))})
