"""The interpreter of loop IR, against numpy and scipy on whole arrays and against Python itself."""

import math

import ml_dtypes
import numpy as np
import pytest
from scipy import special

from weft import te
from weft.base.errors import Error, InvalidValue, OutOfRange, RunError
from weft.te.expr import Broadcast, Ramp
from weft.te.interpret import run_kernel
from weft.te.loops import Alloc, Kernel, Store, buffer


def map_kernel(dtypes, body, out, size):
    """y[i] = body(x0[i], x1[i], ...)."""
    b = te.KernelBuilder("map")
    args = [b.arg(f"x{n}", dtype, (size,)) for n, dtype in enumerate(dtypes)]
    y = b.arg("y", out, (size,))
    with b.loop("i", size) as i:
        b.store(y, i, body(*(x[i] for x in args)))
    return b.finish()


def apply(body, arrays, out):
    size = len(arrays[0])
    y = np.zeros(size, out)
    kernel = map_kernel([a.dtype for a in arrays], body, out, size)
    run_kernel(kernel, [*arrays, y])
    return y


rng = np.random.default_rng(0)
INTRINSIC_ORACLES = {
    **{n: getattr(np, n) for n in "exp exp2 expm1 sin cos tan sinh cosh tanh abs".split()},
    **{n: getattr(np, n) for n in "floor ceil trunc isnan isinf isfinite".split()},
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "atanh": np.arctanh,
    "erf": special.erf,
    "sigmoid": special.expit,
    "round": np.round,
}
POSITIVE_ORACLES = {
    **{n: getattr(np, n) for n in "log log2 log10 log1p sqrt".split()},
    "rsqrt": lambda x: x**-0.5,
    "acosh": lambda x: np.arccosh(x),
}


@pytest.mark.parametrize("name", sorted(INTRINSIC_ORACLES))
def test_intrinsics(name):
    x = rng.uniform(-0.99, 0.99, 40)
    found = apply(lambda v: te.call(name, v), [x], te.call(name, te.const(0, "float64")).dtype)
    np.testing.assert_allclose(found, INTRINSIC_ORACLES[name](x), rtol=1e-12)


@pytest.mark.parametrize("name", sorted(POSITIVE_ORACLES))
def test_intrinsics_of_positive_numbers(name):
    x = rng.uniform(1.0, 50.0, 40)
    found = apply(lambda v: te.call(name, v), [x], "float64")
    np.testing.assert_allclose(found, POSITIVE_ORACLES[name](x), rtol=1e-12)


INTEGERS = "int8 uint8 int16 int32 int64".split()


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_follows_the_documented_rounding(dtype):
    limits = np.iinfo(dtype)
    a = np.array([rng.integers(limits.min, limits.max) for _ in range(60)], dtype)
    b = np.array([int(rng.integers(max(limits.min, -5), 6)) for _ in range(60)], dtype)
    a[:2], b[:2] = [7, 100], [0, 3]
    width = 8 * a.itemsize

    def wrap(value: int) -> int:
        value %= 2**width
        return value - 2**width if limits.min < 0 and value >= 2 ** (width - 1) else value

    pairs = [(int(p), int(q)) for p, q in zip(a, b)]
    floor = [wrap(p // q) if q else 0 for p, q in pairs]
    trunc = [wrap(abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)) if q else 0 for p, q in pairs]
    mod = [wrap(p % q) if q else 0 for p, q in pairs]
    assert apply(lambda p, q: p // q, [a, b], dtype).tolist() == floor
    assert apply(lambda p, q: p / q, [a, b], dtype).tolist() == trunc
    assert apply(lambda p, q: p % q, [a, b], dtype).tolist() == mod
    assert apply(lambda p, q: p * q - p, [a, b], dtype).tolist() == [wrap(p * q - p) for p, q in pairs]


def test_integer_powers():
    a = rng.integers(-3, 4, 50)
    b = rng.integers(-3, 6, 50)
    expected = [0 if p == 0 and q < 0 else math.trunc(float(p) ** int(q)) for p, q in zip(a, b)]
    assert apply(te.pow, [a, b], "int64").tolist() == expected


def test_min_and_max_propagate_nan():
    a, b = np.array([1.0, np.nan, 3.0]), np.array([np.nan, 2.0, 2.0])
    assert np.array_equal(apply(te.max, [a, b], "float64"), [np.nan, np.nan, 3], equal_nan=True)
    assert np.array_equal(apply(te.min, [a, b], "float64"), [np.nan, np.nan, 2], equal_nan=True)


@pytest.mark.parametrize("dtype", [np.dtype("float16"), np.dtype(ml_dtypes.bfloat16)])
def test_half_floats_round_after_every_operation(dtype):
    a, b = (rng.normal(size=30).astype("float32").astype(dtype) for _ in range(2))
    found = apply(lambda p, q: te.exp(p * q + p), [a, b], dtype)
    product = (a.astype("float32") * b.astype("float32")).astype(dtype)
    total = (product.astype("float32") + a.astype("float32")).astype(dtype)
    expected = np.exp(total.astype("float32")).astype(dtype)
    assert found.tobytes() == expected.tobytes()


def test_casts():
    x = np.array([-1.7, 0.0, 2.9, 100.2])
    assert apply(lambda v: te.cast(v, "int32"), [x], "int32").tolist() == [-1, 0, 2, 100]
    assert apply(lambda v: te.cast(v, "bool"), [x], "bool").tolist() == [True, False, True, True]


def test_vectors_masks_and_register_lanes():
    b = te.KernelBuilder("v")
    x, y = b.arg("x", "float32", (6,)), b.arg("y", "float32", (6,))
    acc = b.alloc("acc", "float32", (2,), scope="register", lanes=4)
    lane = Ramp(te.as_expr(0), te.as_expr(1), 4)
    b.store(acc, 0, 10)
    b.store(acc, 1, te.read_or(x, (lane + 4,), lane + 4 < 6, -1) + acc[0])
    b.store(y, lane + 2, x[Ramp(te.as_expr(3), te.as_expr(-1), 4)])
    b.store(y, lane + 4, acc[1], mask=lane < 2)
    x0, y0 = np.arange(6, dtype="float32"), np.full(6, -7, "float32")
    run_kernel(b.finish(), [x0, y0])
    assert y0.tolist() == [-7, -7, 3, 2, 14, 15]


def test_masked_lanes_touch_no_memory():
    b = te.KernelBuilder("v")
    x = b.arg("x", "int32", (2,))
    lane = Ramp(te.as_expr(-1), te.as_expr(1), 4)
    inside = (lane >= 0) & (lane < 2)
    b.store(x, lane, te.read_or(x, (lane,), inside, 5) + 1, mask=inside)
    data = np.array([3, 4], "int32")
    run_kernel(b.finish(), [data])
    assert data.tolist() == [4, 5]


def test_out_of_bounds_is_named():
    b = te.KernelBuilder("walker")
    x = b.arg("x", "float32", (4, 3))
    with b.loop("i", 4) as i:
        b.store(x, (i, i), 1)
    with pytest.raises(OutOfRange, match=r"index \(3, 3\) of buffer x") as caught:
        run_kernel(b.finish(), [np.zeros((4, 3), "float32")])
    assert "walker" in str(caught.value)
    assert "(4, 3)" in str(caught.value)


def test_negative_indices_do_not_wrap_around():
    b = te.KernelBuilder("k")
    x = b.arg("x", "float32", (4,))
    i = b.let("i", te.as_expr(0))
    b.store(x, 0, x[i - 1])
    with pytest.raises(OutOfRange):
        run_kernel(b.finish(), [np.zeros(4, "float32")])


def test_memory_is_poisoned_until_written():
    b = te.KernelBuilder("k")
    x = b.arg("x", "float32", (1,))
    t = b.alloc("t", "float32", (1,))
    b.store(x, 0, t[0])
    data = np.zeros(1, "float32")
    run_kernel(b.finish(), [data])
    assert np.isnan(data[0])


def test_a_buffer_outside_its_alloc_is_an_error():
    t, x = buffer("t", "float32", (1,), scope="scratch"), buffer("x", "float32", (1,))
    store = Store(x, (te.as_expr(0),), t[0])
    with pytest.raises(RunError, match="buffer t"):
        run_kernel(Kernel("k", (x,), store), [np.zeros(1, "float32")])
    run_kernel(Kernel("k", (x,), Alloc(t, store)), [np.zeros(1, "float32")])


def test_strides_address_flat_memory():
    b = te.KernelBuilder("k")
    x = b.arg("x", "int64", (3, 2), strides=(4, 1))
    with b.loop("i", 3) as i, b.loop("j", 2) as j:
        b.store(x, (i, j), i * 10 + j)
    memory = np.zeros(10, "int64")
    run_kernel(b.finish(), [memory])
    assert memory.tolist() == [0, 1, 0, 0, 10, 11, 0, 0, 20, 21]
    wide = np.zeros((3, 4), "int64")
    run_kernel(b.finish(), [wide[:, :2]])
    assert wide[2].tolist() == [20, 21, 0, 0]
    with pytest.raises(InvalidValue):
        run_kernel(b.finish(), [np.zeros(9, "int64")])
    with pytest.raises(InvalidValue):
        run_kernel(b.finish(), [np.zeros((3, 2), "int64")])


def test_parallel_ranges():
    b = te.KernelBuilder("k")
    n = b.scalar("n")
    x = b.arg("x", "int64", (n,))
    with b.parallel("i", n) as i:
        b.store(x, i, x[i] + i)
    kernel, data = b.finish(), np.zeros(9, "int64")
    run_kernel(kernel, [data], [9], 2, 5)
    assert data.tolist() == [0, 0, 2, 3, 4, 0, 0, 0, 0]
    run_kernel(kernel, [data], [9])
    assert data.tolist() == [0, 1, 4, 6, 8, 5, 6, 7, 8]
    with pytest.raises(OutOfRange):
        run_kernel(kernel, [data], [9], 0, 10)
    with pytest.raises(Error):
        run_kernel(kernel, [data])


def insertion_sort(size):
    b = te.KernelBuilder("sort")
    x = b.arg("x", "int32", (size,))
    with b.loop("i", size) as i:
        at = b.alloc("at", "int64", ())
        b.store(at, (), i)
        key = b.let("key", x[i])
        spot = at[()]
        before = te.select(spot > 0, spot - 1, 0)
        with b.repeat_while((spot > 0) & (x[before] > key)):
            b.store(x, at[()], x[at[()] - 1])
            b.store(at, (), at[()] - 1)
        b.store(x, at[()], key)
    return b.finish()


def test_while_re_evaluates_its_condition():
    data = rng.integers(-50, 50, 25).astype("int32")
    expected = sorted(data.tolist())
    run_kernel(insertion_sort(25), [data])
    assert data.tolist() == expected


def test_deep_nests_do_not_recurse():
    b = te.KernelBuilder("deep")
    x = b.arg("x", "int64", (1,))
    blocks = [b.loop(f"i{n}", 1) if n % 2 else b.when(x[0] >= 0) for n in range(800)]
    for block in blocks:
        block.__enter__()
    value = x[0]
    for _ in range(5000):
        value = value + 1
    b.store(x, 0, value)
    for block in reversed(blocks):
        block.__exit__(None, None, None)
    data = np.zeros(1, "int64")
    run_kernel(b.finish(), [data])
    assert data[0] == 5000


def test_shared_parts_are_evaluated_once():
    b = te.KernelBuilder("doubling")
    x = b.arg("x", "int64", (1,))
    value = x[0]
    for _ in range(60):
        value = value + value
    b.store(x, 0, value)
    data = np.ones(1, "int64")
    run_kernel(b.finish(), [data])
    assert data[0] == 2**60


def test_zero_extents_and_rank_zero():
    b = te.KernelBuilder("k")
    x, y = b.arg("x", "float32", (0, 3)), b.arg("y", "float32", ())
    with b.loop("i", 0) as i:
        b.store(x, (i, 0), 1)
    b.store(y, (), y[()] + 1)
    out = np.zeros((), "float32")
    run_kernel(b.finish(), [np.zeros((0, 3), "float32"), out])
    assert out[()] == 1


def test_broadcast_vectors():
    b = te.KernelBuilder("k")
    x = b.arg("x", "float32", (4,))
    b.store(x, Ramp(te.as_expr(0), te.as_expr(1), 4), Broadcast(x[3], 4) * 2)
    data = np.arange(4, dtype="float32")
    run_kernel(b.finish(), [data])
    assert data.tolist() == [6, 6, 6, 6]
