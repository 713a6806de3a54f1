"""Reductions of large tensors: any axes of any strides, chunks, NaN and infinity, accuracy."""

import math

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.compiler.open import programs as open_programs
from weft.core.op import Op
from weft.eager.autograd.derivative import params_of
from weft.eager.dispatch import kernel_of
from weft.eager.native import reduce as native_reduce
from weft.eager.native.calls import Declined
from weft.lower.chunks import LONG

CHUNK = LONG // 8

DTYPES = ("float32", "float64", "int32", "int64", "bool")
SPECIAL = (np.nan, np.inf, -np.inf)
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


def run(name, x, **attrs):
    op = Op.get(name)
    return kernel_of(op).native(params_of(op, attrs), [x])


def reference(name, x, **attrs):
    op = Op.get(name)
    with np.errstate(all="ignore"):
        return op.call_with(Op.reference[op], params_of(op, attrs), x)


def viewed(rng, x):
    """The same kind of array, as some view has it in memory."""
    way = rng.integers(5)
    if way == 1:
        return x.transpose(rng.permutation(x.ndim))
    if way == 2:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if way == 3:
        return np.pad(x, 1)[(slice(1, -1),) * x.ndim]
    return x[::-1] if way == 4 else x


def random_array(rng, dtype):
    shape = rng.choice([1, 2, 3, 17, 33, 64], rng.integers(1, 5))
    if rng.random() < 0.3:
        shape = [*shape[:1], int(rng.choice([3 * CHUNK, 2 * CHUNK + 77, 5 * CHUNK - 1]))]
        rng.shuffle(shape)
    while math.prod(shape) > 1 << 20:
        shape = shape[:-1]
    x = (rng.standard_normal([int(n) for n in shape]) * 3).astype(dtype)
    if dtype.startswith("float") and rng.random() < 0.3:
        x[rng.random(x.shape) < 0.01] = rng.choice(SPECIAL)
    return viewed(rng, x)


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_axes_of_any_array(name, dtype):
    rng = np.random.default_rng([REDUCTIONS.index(name), DTYPES.index(dtype)])
    for _ in range(25):
        x = random_array(rng, dtype)
        count = int(rng.integers(1, x.ndim + 1))
        axes = tuple(sorted(int(a) for a in rng.choice(x.ndim, count, replace=False)))
        attrs = {"axis": axes, "keepdims": bool(rng.integers(2))}
        if name == "mean" and x.dtype.kind != "f":
            with pytest.raises(Declined, match="dtype"):
                run(name, x, **attrs)
            continue
        found = run(name, x, **attrs)
        expected = reference(name, x, **attrs)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        close(found, expected, magnitude(name, x, axes, expected))


def magnitude(name, x, axes, expected):
    """Of what is added up."""
    if x.dtype.kind != "f":
        return 0.0
    if name == "prod":
        return np.abs(np.where(np.isfinite(expected), expected, 0)).max()
    total = np.abs(np.where(np.isfinite(x), x, 0)).sum(axes, dtype="float64").max()
    return total / (math.prod(x.shape[a] for a in axes) if name == "mean" else 1)


def close(found, expected, scale):
    finite = np.isfinite(expected) if expected.dtype.kind == "f" else np.ones(expected.shape, bool)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    assert np.isfinite(found[finite]).all()
    error = np.abs(found[finite].astype("float64") - expected[finite]).max(initial=0)
    assert error <= 2e-6 * scale


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_equal_elements_and_nan(name):
    rng = np.random.default_rng(7)
    for shape, axis in (((40, 33), 0), ((5, 17, 33), 1), ((3, 65, 2), 1), ((9, 4, 5, 3), 2)):
        x = rng.integers(0, 4, shape).astype("float32")
        x[rng.random(shape) < 0.02] = np.nan
        found = run(name, x, axis=(axis,), dtype="int64")
        np.testing.assert_array_equal(found, getattr(np, name)(x, axis))


@pytest.mark.parametrize("shape", [(CHUNK * 9 + 5,), (CHUNK * 4, 3), (2, CHUNK * 3 + 1)])
def test_chunks_give_the_same_bits_for_any_number_of_threads(shape):
    x = np.random.default_rng(3).standard_normal(shape).astype("float32")
    before, results = weft.get_num_threads(), []
    for threads in (1, 2, 3):
        weft.set_num_threads(threads)
        results.append([run("sum", x, axis=axis) for axis in ((), (0,), (-1,))])
    weft.set_num_threads(before)
    for one, two, three in zip(*results):
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((3_000_001,), ()),
        ((1500, 2000), (0,)),
        ((1500, 2000), (1,)),
        ((64, 300, 50), (0, 2)),
        ((17, 5 << 14), (1,)),
        ((3, 5120, 40), (1,)),
        ((100_003, 3), (0,)),
        ((64, 3000), (0,)),
        ((1023, 900), (0,)),
        ((7, 1021, 300), (1,)),
        ((20, 200_003), (1,)),
    ],
)
def test_sums_are_as_exact_as_pytorchs(shape, axis):
    torch = oracle("torch")
    x = np.random.default_rng(5).random(shape).astype("float32")  # all of one sign
    exact = x.astype("float64").sum(axis or None)
    ours = np.abs(run("sum", x, axis=axis).reshape(exact.shape) - exact)
    theirs = np.abs(torch.from_numpy(x).sum(axis or None).numpy() - exact)
    assert ours.mean() <= theirs.mean()
    assert (ours <= exact * np.finfo("float32").eps).all()


def sequences(rng):
    """Inputs whose sums are hard in different ways."""
    n = 300_007
    yield rng.standard_normal(n)
    yield rng.random(n) + 1000
    yield rng.standard_normal(n) * 1e6 * (-1.0) ** np.arange(n)
    pairs = rng.standard_normal(n // 2) * 1e8
    yield np.concatenate([pairs, -pairs, rng.standard_normal(9)])
    yield np.full(n, 0.1)


@pytest.mark.parametrize("name", ["sum", "var", "std", "norm", "logsumexp"])
def test_errors_are_no_larger_than_pytorchs(name):
    torch = oracle("torch")
    for number, data in enumerate(sequences(np.random.default_rng(17))):
        for shape in ((-1,), (7, -1), (-1, 7)):
            if name == "logsumexp":
                data = np.clip(data, -80, 80)
            x = data[: data.size // 7 * 7].reshape(shape).astype("float32")
            exact = measured(name, x.astype("longdouble"))
            arguments = (0,) if name == "logsumexp" else ()
            along = {} if name == "logsumexp" else {"dim": 0}
            ours = getattr(weft.from_numpy(x), name)(*arguments, **along).numpy()
            theirs = getattr(torch.from_numpy(x), name)(*arguments, **along).numpy()
            error, other = (np.abs(made - exact).mean() for made in (ours, theirs))
            last = np.abs(exact).mean() * np.finfo("float32").eps
            assert error <= max(other, last), (number, shape, error, other)


def measured(name, x):
    """By numpy, in its widest dtype."""
    if name == "sum":
        return x.sum(0)
    if name == "norm":
        return np.sqrt(np.square(x).sum(0))
    if name == "logsumexp":
        return np.log(np.exp(x - x.max(0)).sum(0)) + x.max(0)
    variance = np.square(x - x.mean(0)).sum(0) / (len(x) - 1)
    return np.sqrt(variance) if name == "std" else variance


def test_the_variance_of_what_is_far_from_zero():
    rng = np.random.default_rng(19)
    for offset in (1e3, 1e6, 1e7):
        x = (offset + rng.integers(-2, 3, (50, 4000))).astype("float32")
        for axis in (0, 1):
            found = weft.from_numpy(x).var(axis).numpy()
            np.testing.assert_allclose(found, x.astype("float64").var(axis, ddof=1), rtol=1e-6)
        assert weft.from_numpy(np.full_like(x, offset + 0.1)).var().item() == 0


def test_repeated_elements_are_read_once_and_count_as_often():
    x = np.random.default_rng(23).standard_normal((1, 40, 1)).astype("float32")
    whole = np.broadcast_to(x, (50, 40, 30))
    for axis in ((), (0,), (1,), (2,), (0, 2), (1, 2)):
        for name in ("sum", "mean", "max", "min"):
            expected = reference(name, np.ascontiguousarray(whole), axis=axis)
            np.testing.assert_allclose(run(name, whole, axis=axis), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64"])
def test_sums_of_integers_are_in_int64(dtype):
    rng = np.random.default_rng(29)
    x = rng.integers(0, 2 if dtype == "bool" else 120, (30, 41, 17)).astype(dtype)
    for dim in (None, 0, 1, 2, (0, 2), (0, 1)):
        for array in (x, x.transpose(2, 0, 1), x[:, ::2], x[:3, :2, :2]):
            found = weft.from_numpy(array).sum(dim)
            assert found.dtype == weft.int64
            np.testing.assert_array_equal(found.numpy(), array.sum(dim, dtype="int64"))
    assert weft.from_numpy(x).sum(1, keepdim=True).shape == (30, 1, 17)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "norm", "amax", "prod"])
def test_reductions_of_everything_have_gradients_of_any_order(name):
    torch = oracle("torch")
    x = np.random.default_rng(31).random((5, 7)) + 0.5
    found = []
    for library in (weft, torch):
        t = library.from_numpy(x.copy()).requires_grad_()
        y = getattr(t, name)()
        assert y.shape == ()
        (slope,) = library.autograd.grad(y, t, create_graph=True)
        curve = (slope * slope).sum()
        if curve.requires_grad:
            curve.backward()
        grad = np.zeros_like(x) if t.grad is None else t.grad.numpy()
        found.append((slope.detach().numpy(), grad))
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, atol=1e-9 * max(np.abs(theirs).max(), 1))


def test_few_programs_serve_all_shapes(monkeypatch):
    monkeypatch.setattr(open_programs, "_programs", {})
    rng = np.random.default_rng(11)
    for _ in range(60):
        shape = rng.integers(2, 20, rng.integers(1, 5))
        x = viewed(rng, rng.standard_normal(shape).astype("float32"))
        native_reduce.reduced("sum", x, (int(rng.integers(x.ndim)),))
    kinds = [made for key, made in open_programs._programs.items() if key[0] != "copy_kernel"]
    assert 2 <= sum(map(len, kinds)) <= 10  # rows and columns, with or without an axis around them, short or long


def test_large_sums_run_natively_with_gradients():
    torch = oracle("torch")
    x = np.random.default_rng(13).standard_normal((300, 17, 40)).astype("float32")
    results = []
    for library in (weft, torch):
        t = library.from_numpy(x.copy()).requires_grad_()
        y = (t.sum(0) * t.mean((0, 1))).sum() + t.amax(1).sum() + (t * t.sum(-1, keepdim=True)).sum()
        y.backward()
        results.append((y.detach().numpy(), t.grad.numpy()))
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, atol=5e-5 * np.abs(theirs).max())
