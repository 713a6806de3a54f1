"""Transformed kernels do what the original ones do, bit for bit, under the interpreter."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from te.marking import marked, split_loop

from weft import te
from weft.base.errors import InvalidValue
from weft.te import transform
from weft.te.expr import Expr, Load, Ramp
from weft.te.interpret import run_kernel
from weft.te.loops import For, If, Kernel, Let, Seq, Store
from weft.te.simplify_loops import simplify_statement, statements
from weft.te.visit import loads, postorder

DTYPES = ["float32", "float64", "int32", "int64"]


def random_value(rng, x, w, row, col, rows, cols, depth=0):
    """A value of the element (row, col): loads in bounds, guarded ones, and arithmetic."""
    pick = int(rng.integers(0, 4 if depth > 3 else 8))
    inner = lambda: random_value(rng, x, w, row, col, rows, cols, depth + 1)
    if pick == 0:
        return x[row, col]
    if pick == 1:
        return w[col]
    if pick == 2:
        return x[rows - 1 - row, (col * 3 + row) % cols]
    if pick == 3:
        shift = int(rng.integers(-3, 4))
        at = col + shift
        return te.read_or(x, (row, at), (at >= 0) & (at < cols), int(rng.integers(0, 9)))
    if pick == 4:
        return te.select(inner() < inner(), inner(), inner())
    return te.binary(str(rng.choice(["add", "sub", "mul", "min", "max"])), inner(), inner())


def random_kernel(seed: int) -> tuple[Kernel, list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    rows, cols = (int(n) for n in rng.integers(1, 12, 2))
    dtype = str(rng.choice(DTYPES))
    b = te.KernelBuilder("random")
    x, w = b.arg("x", dtype, (rows, cols)), b.arg("w", dtype, (cols,))
    y, s = b.arg("y", dtype, (rows, cols)), b.arg("s", dtype, (rows,))
    with b.loop("i", rows) as row:
        with b.loop("j", cols) as col:
            acc = b.alloc("acc", dtype, (), scope="register")
            tmp = b.alloc("tmp", dtype, (3,))
            b.store(acc, (), random_value(rng, x, w, row, col, rows, cols))
            with b.loop("k", 3) as k:
                b.store(tmp, k, w[col] * 2 + te.cast(k, dtype))
                b.store(acc, (), acc[()] + tmp[k])
            bound = b.let("bound", random_value(rng, x, w, row, col, rows, cols))
            with b.when(bound < acc[()]):
                b.store(y, (row, col), bound + acc[()])
                b.store(acc, (), 1)
            with b.otherwise():
                b.store(y, (row, col), acc[()])
            b.store(y, (row, col), y[row, col] + acc[()])
        b.store(s, row, y[row, 0])
    arrays = [rng.integers(-8, 9, shape).astype(dtype) for shape in ((rows, cols), (cols,), (rows, cols), (rows,))]
    return b.finish(), arrays


def outcome(kernel: Kernel, arrays: list[np.ndarray]) -> list[np.ndarray]:
    copies = [array.copy() for array in arrays]
    run_kernel(kernel, copies)
    return copies


def assert_same(kernel: Kernel, other: Kernel, arrays: list[np.ndarray]) -> None:
    for expected, found in zip(outcome(kernel, arrays), outcome(other, arrays)):
        np.testing.assert_array_equal(found, expected)


seeds = st.integers(0, 2**32)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 6), st.sampled_from("ijk"))
def test_split(seed, factor, loop):
    kernel, arrays = random_kernel(seed)
    cut = split_loop(kernel, loop, factor)
    assert_same(kernel, cut, arrays)
    assert_same(kernel, simplify_statement(cut), arrays)


@settings(max_examples=60, deadline=None)
@given(seeds, st.sampled_from([2, 4, 8]))
def test_split_and_vectorise(seed, lanes):
    kernel, arrays = random_kernel(seed)
    lowered = transform.lower_vectors(split_loop(kernel, "j", lanes, "vector"))
    assert all(s.kind == "serial" for s in statements(lowered.body) if isinstance(s, For))
    assert_same(kernel, lowered, arrays)


@settings(max_examples=30, deadline=None)
@given(seeds, st.integers(1, 4))
def test_vectorise_rows_and_unroll_columns(seed, factor):
    kernel, arrays = random_kernel(seed)
    changed = marked(marked(kernel, "k", "unroll"), "i", "vector")
    lowered = transform.legalise(split_loop(changed, "j", factor, "unroll"))
    assert all(s.kind == "serial" for s in statements(lowered.body) if isinstance(s, For))
    assert_same(kernel, lowered, arrays)


def test_symbolic_extents_split():
    b = te.KernelBuilder("symbolic")
    n = b.scalar("n")
    x = b.arg("x", "float32", (n,))
    with b.loop("i", n) as i:
        b.store(x, i, x[i] * 2 + 1)
    lowered = transform.lower_vectors(split_loop(b.finish(), "i", 8, "vector"))
    for size in range(20):
        data = np.arange(size, dtype="float32")
        run_kernel(lowered, [data], [size])
        np.testing.assert_array_equal(data, np.arange(size, dtype="float32") * 2 + 1)


def test_consecutive_elements_become_unit_ramps():
    b = te.KernelBuilder("k")
    x, y = b.arg("x", "float32", (4, 32)), b.arg("y", "float32", (4, 32))
    with b.loop("i", 4) as i, b.loop("j", 32) as j:
        flat = b.let("flat", i * 32 + j)
        b.store(y, (flat // 32, flat % 32), te.exp(x[i, j]))
    lowered = transform.lower_vectors(split_loop(b.finish(), "j", 8, "vector"))
    (store,) = [s for s in statements(lowered.body) if isinstance(s, Store)]
    assert store.mask is None
    for indices in (store.indices, loads(store.value)[0].indices):
        assert indices[0].lanes == 1
        assert isinstance(indices[1], Ramp)
        assert te.show(indices[1]) == "ramp(j_o * 8, 1, x8)"


def test_a_guard_becomes_a_mask_on_loads_and_stores():
    b = te.KernelBuilder("k")
    x, y = b.arg("x", "float32", (10,)), b.arg("y", "float32", (10,))
    w = b.arg("w", "float32", (1,))
    with b.loop("i", 10) as i:
        b.store(y, i, x[i] + w[0])
    lowered = transform.lower_vectors(split_loop(b.finish(), "i", 4, "vector"))
    (store,) = [s for s in statements(lowered.body) if isinstance(s, Store)]
    assert not [s for s in statements(lowered.body) if isinstance(s, If)]
    assert store.mask is not None
    by_name = {load.source.name: load for load in loads(store.value)}
    assert by_name["x"].mask is not None
    assert (by_name["w"].mask, by_name["w"].lanes) == (None, 1)  # in bounds for certain


def test_an_accumulator_outside_the_vector_loop_is_refused():
    b = te.KernelBuilder("k")
    x = b.arg("x", "float32", (8,))
    acc = b.alloc("acc", "float32", (1,), scope="register")
    with b.vector("i", 8) as i:
        b.store(acc, 0, acc[0] + x[i])
    with pytest.raises(InvalidValue, match="same element of acc"):
        transform.lower_vectors(b.finish())


def test_unrolling_makes_register_indices_constant():
    b = te.KernelBuilder("k")
    x = b.arg("x", "float32", (6,))
    acc = b.alloc("acc", "float32", (2, 3), scope="register")
    with b.unrolled("r", 2) as r, b.unrolled("c", 3) as c:
        b.store(acc, (r, c), x[r * 3 + c])
    with b.unrolled("r", 2) as r, b.unrolled("c", 3) as c:
        b.store(x, r * 3 + c, acc[1 - r, 2 - c])
    kernel = transform.expand_unrolled(b.finish())
    accesses = [n for n in postorder((kernel.body,)) if isinstance(n, (Load, Store))]
    assert len(accesses) == 24
    assert all(not isinstance(i, Expr) or te.show(i).isdigit() for n in accesses for i in n.indices)
    data = np.arange(6, dtype="float32")
    run_kernel(kernel, [data])
    assert data.tolist() == [5, 4, 3, 2, 1, 0]


def test_lets_in_unrolled_loops_become_constants():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (8,))
    acc = b.alloc("acc", "int64", (8,), scope="register")
    with b.unrolled("u", 4) as u:
        at = b.let("at", u * 2)
        b.store(acc, at, u)
        b.store(acc, at + 1, -u)
    with b.loop("i", 8) as i:
        b.store(x, i, acc[i])
    kernel = transform.expand_unrolled(b.finish())
    text = te.show(kernel)
    assert "let" not in text
    assert "acc[7] = -3" in text
    data = np.zeros(8, "int64")
    run_kernel(kernel, [data])
    assert data.tolist() == [0, 0, 1, -1, 2, -2, 3, -3]


def test_a_variable_bound_twice_keeps_its_loops():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (5,))
    with b.loop("i", 4) as i:
        b.store(x, i, x[i] + i)
    with b.loop("v", 1):
        v = b.let("v", 3)
        b.store(x, 4, v)
    first, second = b.finish().body.body
    once = For(first.var, te.as_expr(1), Store(x, (first.var + 4,), first.var + 9))
    again = Let(second.body.var, te.as_expr(4), Store(x, (second.body.var,), x[4] * 2))
    kernel = simplify_statement(Kernel("k", (x,), Seq((first, second, once, again))))
    data = np.zeros(5, "int64")
    run_kernel(kernel, [data])
    assert data.tolist() == [0, 1, 2, 3, 18]


def test_a_long_chain_of_lets_is_vectorised():
    b = te.KernelBuilder("deep")
    x = b.arg("x", "float32", (16,))
    with b.loop("i", 16) as i:
        value = b.let("v", x[i])
        for _ in range(3000):
            value = b.let("v", value + 1)
        b.store(x, i, value)
    lowered = transform.legalise(split_loop(b.finish(), "i", 4, "vector"))
    data = np.zeros(16, "float32")
    run_kernel(lowered, [data])
    assert (data == 3000).all()
    assert "v_3000" in te.show(lowered)
