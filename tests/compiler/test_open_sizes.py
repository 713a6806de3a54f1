"""Programs whose sizes are open, made from symbols: numpy has the answers."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
from codegen.native import ISAS, target_of

import weft
from weft.symbol import Variable


def compiled(symbol, **shapes):
    return weft.compile(symbol, shape=shapes)


def test_sizes_without_names_are_open_too():
    x, y = Variable("x"), Variable("y")
    model = compiled(weft.symbol.relu(x + y), x=(None, 3), y=(None, 3))
    rng = np.random.default_rng(0)
    for rows in (4, 1, 9):
        a, b = (rng.standard_normal((rows, 3)).astype("float32") for _ in range(2))
        assert np.array_equal(model.run({"x": a, "y": b})[0], np.maximum(a + b, 0))


@pytest.mark.parametrize("sizes", [(4, 4), (4, 1), (1, 4), (1, 1)])
def test_sizes_of_two_names_broadcast(sizes):
    x, y = Variable("x"), Variable("y")
    rng = np.random.default_rng(1)
    model = compiled(weft.symbol.broadcast_add(x, y), x=("n", 3), y=("m", 3))
    for n, m in ((4, 4), (7, 7), sizes, (5, 1), (1, 6), (3, 3)):
        a, b = rng.standard_normal((n, 3)).astype("float32"), rng.standard_normal((m, 3)).astype("float32")
        assert np.array_equal(model.run({"x": a, "y": b})[0], a + b)


def test_sizes_that_follow_from_others():
    x = Variable("x")
    model = compiled(weft.symbol.concatenate(x, x * 2, axis=0), x=("n", 5))
    rng = np.random.default_rng(2)
    for rows in (3, 1, 8):
        a = rng.standard_normal((rows, 5)).astype("float32")
        assert np.array_equal(model.run({"x": a})[0], np.concatenate([a, a * 2]))


def test_no_rows_at_all():
    x = Variable("x")
    model = compiled(weft.symbol.exp(x), x=("n", 5))
    for rows in (2, 0, 3):
        assert model.run({"x": np.zeros((rows, 5), "float32")})[0].shape == (rows, 5)


def test_threads_run_different_sizes_at_once():
    x, w = Variable("x"), np.random.default_rng(3).standard_normal((40, 30)).astype("float32")
    symbol = weft.symbol.dense(x, Variable("w"), units=40, use_bias=False)
    model = weft.compile((symbol, {"w": w}), shape={"x": ("n", 30)})
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            a = rng.standard_normal((int(rng.integers(1, 40)), 30)).astype("float32")
            if not np.allclose(model.run({"x": a})[0], a @ w.T, atol=1e-4):
                wrong.append(a.shape)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert model.compilations == 1


def test_copies_share_programs():
    model = compiled(weft.symbol.exp(Variable("x")), x=("n", 5))
    model.run({"x": np.zeros((2, 5), "float32")})
    again = copy.deepcopy(model)
    assert np.array_equal(again.run({"x": np.zeros((7, 5), "float32")})[0], np.ones((7, 5), "float32"))
    assert again.compilations == 1


@pytest.mark.sampled(3)
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 6, 7, 8, 13, 64, 65])
@pytest.mark.parametrize(("depth", "columns"), [(5, 3), (16, 16), (33, 70), (2000, 40)])
def test_products_of_any_number_of_rows(rows, depth, columns):
    rng = np.random.default_rng(rows)
    w = rng.standard_normal((columns, depth)).astype("float32")
    bias = rng.standard_normal(columns).astype("float32")
    symbol = weft.symbol.relu(weft.symbol.dense(Variable("x"), Variable("w"), Variable("b"), units=columns))
    model = weft.compile((symbol, {"w": w, "b": bias}), shape={"x": ("n", depth)})
    a = rng.standard_normal((rows, depth)).astype("float32")
    want = np.maximum(a.astype("float64") @ w.T.astype("float64") + bias, 0)
    assert np.abs(model.run({"x": a})[0] - want).max() <= 1e-5 * np.abs(want).max() + 1e-5


FORMS = [  # leading axes and turns of two factors, and what follows
    (("b",), ("b",), False, True, True),
    (("b", 3), (3,), False, False, True),
    ((), (), True, False, False),
    (("b", 1), ("b", 3), True, True, True),
]


@pytest.mark.parametrize("depth", [40, "k"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("left", "right", "ta", "tb", "follows"), FORMS)
def test_products_of_which_no_axis_is_known(left, right, ta, tb, follows, dtype, depth):
    """As those of queries and keys, with a scale and a mask of its own for each key."""
    rng = np.random.default_rng(5)
    shapes = {"x": (*left, depth, "m") if ta else (*left, "m", depth), "y": (*right, "n", depth)}
    shapes["y"] = shapes["y"] if tb else (*right, depth, "n")
    given = {name: Variable(name, dtype=dtype) for name in ("x", "y", "mask")}
    made = weft.symbol.batch_matmul(given["x"], given["y"], transpose_a=ta, transpose_b=tb)
    if follows:
        shapes["mask"] = ("m", "n")
        made = weft.symbol.tanh(weft.symbol.broadcast_add(made * 0.25, given["mask"]))
    model = weft.compile(made, shape=shapes)
    for m, n, k, batch in ((5, 7, 3, 2), (1, 1, 1, 1), (70, 49, 900, 3), (300, 16, 64, 1), (9, 200, 385, 2)):
        sizes = {"m": m, "n": n, "k": k, "b": batch}
        numbers = {name: [sizes.get(dim, dim) for dim in shape] for name, shape in shapes.items()}
        values = {name: rng.standard_normal(shape).astype(dtype) for name, shape in numbers.items()}
        values["x"] /= np.asarray((depth if depth == 40 else k) ** 0.5, dtype)
        x, y = (values[name].astype("float64") for name in "xy")
        want = (x.swapaxes(-1, -2) if ta else x) @ (y.swapaxes(-1, -2) if tb else y)
        want = np.tanh(want * 0.25 + values["mask"]) if follows else want
        found = model.run(values)[0]
        assert found.shape == want.shape
        assert np.abs(found - want).max() <= (1e-5 if dtype == "float32" else 1e-12) * max(np.abs(want).max(), 1)
    assert model.compilations == 1


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize(("turned", "swapped", "columns"), [(False, False, "n"), (True, True, "n"), (False, False, 1)])
def test_products_of_two_computed_matrices(turned, swapped, columns, dtype):
    x, y = weft.symbol.relu(Variable("x", dtype=dtype)), Variable("y", dtype=dtype) * 2
    shapes = {"x": ("k", "m") if turned else ("m", "k"), "y": (columns, "k") if swapped else ("k", columns)}
    model = weft.compile(weft.symbol.matmul(x, y, transpose_a=turned, transpose_b=swapped), shape=shapes)
    rng = np.random.default_rng(7)
    for sizes in ({"m": 5, "n": 7, "k": 33}, {"m": 1, "n": 1, "k": 1}, {"m": 40, "n": 3, "k": 200}):
        given = {k: (rng.standard_normal([sizes.get(d, d) for d in s]) * 9).astype(dtype) for k, s in shapes.items()}
        a, b = np.maximum(given["x"], 0).astype("d"), given["y"].astype("d") * 2
        want = (a.T if turned else a) @ (b.T if swapped else b)
        np.testing.assert_allclose(model.run(given)[0], want, rtol=1e-4, atol=1e-3)
    assert model.compilations == 1


@pytest.mark.parametrize("shape", [(3, 70, 50, 64), (2, 8, 33, 400), (5, 7, 9, 20), (2, 20, 9, 10), (2, 9, 0, 40)])
def test_products_of_known_sizes_whose_columns_are_apart(shape):
    batch, rows, columns, depth = shape
    rng = np.random.default_rng(6)
    x, y = (rng.standard_normal((batch, n, depth)).astype("float32") for n in (rows, columns))
    made = weft.symbol.batch_matmul(Variable("x"), Variable("y"), transpose_b=True)
    found = [weft.compile(made, shape={"x": x.shape, "y": y.shape}, threads=n).run({"x": x, "y": y})[0] for n in (1, 3)]
    want = x.astype("float64") @ y.swapaxes(1, 2).astype("float64")
    assert found[0].tobytes() == found[1].tobytes()
    assert np.abs(found[0] - want).max(initial=0) <= 1e-6 * np.abs(want).max(initial=0)


def test_sums_over_open_axes():
    """Of products of two computed tensors, as linear attention has them: (batch, n, 24) and (batch, n, 40)."""
    a, b = weft.symbol.exp(Variable("a")), weft.symbol.tanh(Variable("b"))
    made = weft.symbol.batch_matmul(weft.symbol.transpose(a, axes=(0, 2, 1)), b)
    model = compiled(made, a=("batch", "n", 24), b=("batch", "n", 40))
    rng = np.random.default_rng(5)
    for batch, n in ((2, 5), (1, 1), (3, 100), (1, 33)):
        x, y = (rng.standard_normal((batch, n, width)).astype("float32") for width in (24, 40))
        want = np.exp(x.astype("d")).swapaxes(1, 2) @ np.tanh(y.astype("d"))
        np.testing.assert_allclose(model.run({"a": x, "b": y})[0], want, rtol=1e-4, atol=1e-4)
    assert model.compilations == 1


def test_parts_of_larger_values_have_gaps():
    """What is concatenated is computed in its place, with strides that follow from sizes."""
    x = Variable("x")
    a = weft.symbol.conv2d_transpose(
        x, Variable("w"), name="t", channels=4, kernel_size=(2, 2), strides=(2, 2), use_bias=False
    )
    model = weft.compile(
        (weft.symbol.concatenate(a, weft.symbol.relu(a), axis=1), {"w": np.ones((1, 4, 2, 2), "float32")}),
        shape={"x": ("batch", 1, "h", 6)},
    )
    rng = np.random.default_rng(6)
    for batch, height in ((3, 5), (1, 2), (2, 9)):
        image = rng.standard_normal((batch, 1, height, 6)).astype("float32")
        whole = np.repeat(image.repeat(2, 2).repeat(2, 3), 4, 1)
        np.testing.assert_allclose(model.run({"x": image})[0], np.concatenate([whole, np.maximum(whole, 0)], 1))


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32"])
def test_the_dtype_that_a_user_gives(dtype):
    model = weft.compile(weft.symbol.Variable("x") * 3, shape={"x": ("n", 3)}, dtype={"x": dtype})
    rng = np.random.default_rng(1)
    for batch in (4, 7):
        x = (rng.random((batch, 3)) * 50).astype(dtype)
        (made,) = model(x)
        assert made.dtype == x.dtype
        np.testing.assert_array_equal(made, x * x.dtype.type(3))


@pytest.mark.parametrize("batch", [(), ("batch",)], ids=["matrices", "a batch"])
def test_what_follows_a_product_of_open_rows_and_columns_reads_its_own_elements(batch):
    """Rows and columns that are both open are not one axis to a product."""
    x, y, z = (weft.symbol.Variable(name) for name in "xyz")
    made = (weft.symbol.batch_matmul if batch else weft.symbol.matmul)(x, y) + z
    shape = {"x": (*batch, "rows", 24), "y": (*batch, 24, "columns"), "z": (*batch, "rows", "columns")}
    model = weft.compile(made, shape=shape, dtype=dict.fromkeys("xyz", "float32"))
    rng = np.random.default_rng(5)
    for rows, columns in ((3, 5), (20, 40), (7, 33)):
        a, b, c = (
            rng.standard_normal((*[2 for _ in batch], *dims)).astype("float32")
            for dims in ((rows, 24), (24, columns), (rows, columns))
        )
        np.testing.assert_allclose(model(a, b, c)[0], a @ b + c, rtol=1e-4, atol=1e-4)
    assert model.compilations == 1


PRODUCTS = {  # how it is computed, the shapes, by batch b, length l
    "scores": ({"transpose_b": True}, ("b", "l", 40), ("b", "l", 40)),
    "values": ({}, ("b", "l", "l"), ("b", "l", 24)),
    "turned": ({"transpose_a": True}, ("b", "l", 20), ("b", "l", "b")),
    "rows": ({}, ("b", 3, "l"), ("l", "b")),
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("form", PRODUCTS)
def test_products_of_open_sums_and_columns_are_one_program(form, dtype, isa):
    """Half floats are added up in float32, and rounded once: by numpy's float64, within half of their last bit."""
    attrs, *shapes = PRODUCTS[form]
    product = weft.symbol.matmul if form == "rows" else weft.symbol.batch_matmul
    symbol = weft.symbol.relu(product(Variable("x"), Variable("y"), **attrs))
    model = weft.compile(
        symbol, shape=dict(zip("xy", shapes)), dtype=dict.fromkeys("xy", dtype), target=str(target_of(isa))
    )
    rng = np.random.default_rng(7)
    for batch, length in ((2, 5), (9, 33), (3, 400), (17, 801)):
        known = {"b": batch, "l": length}
        x, y = (rng.standard_normal([known.get(n, n) for n in shape]).astype(dtype) for shape in shapes)
        (made,) = model.run({"x": x, "y": y})
        a = x.astype("float64").swapaxes(-1, -2) if "transpose_a" in attrs else x.astype("float64")
        b = y.astype("float64").swapaxes(-1, -2) if "transpose_b" in attrs else y.astype("float64")
        wanted = np.maximum(a @ b, 0)
        assert (made.dtype, made.shape) == (x.dtype, wanted.shape)
        rounded = 0 if dtype == "float32" else 0.5 * float(weft.finfo(getattr(weft, dtype)).eps)
        assert (np.abs(made - wanted) <= rounded * wanted + 2e-6 * (np.abs(a) @ np.abs(b))).all()
    assert model.compilations == 1
