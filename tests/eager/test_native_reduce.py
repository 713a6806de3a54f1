"""Reductions of large tensors: any axes of any strides, chunks, NaN and infinity, accuracy."""

import math

import numpy as np
import pytest
from oracles import oracle

import weft
from weft.core.op import Op
from weft.eager import native_generic, native_reduce
from weft.eager.derivative import params_of
from weft.eager.native_reduce import CHUNK
from weft.runtime import open_kernel

DTYPES = ("float32", "float64", "int32", "int64", "bool")
SPECIAL = (np.nan, np.inf, -np.inf)
REDUCTIONS = ("sum", "mean", "max", "min", "prod")


def run(name, x, **attrs):
    op = Op.get(name)
    return native_reduce.CALLS[name][1](op, params_of(op, attrs), [x])


def reference(name, x, **attrs):
    op = Op.get(name)
    with np.errstate(all="ignore"):
        return op.call_with(Op.reference[op], params_of(op, attrs), x)


def viewed(rng, x):
    """The same kind of array, as some view has it in memory."""
    way = rng.integers(4)
    if way == 1:
        return x.transpose(rng.permutation(x.ndim))
    if way == 2:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    return x[::-1] if way == 3 else x


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
        found = run(name, x, **attrs)
        if found is None:
            assert (name == "mean" and x.dtype.kind != "f") or (name == "prod")
            continue
        expected = reference(name, x, **attrs)
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        close(found, expected, magnitude(name, x, axes))


def magnitude(name, x, axes):
    """Of what is added up."""
    if x.dtype.kind != "f":
        return 0.0
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
def test_chunks_give_the_same_bits_for_any_number_of_threads(shape, monkeypatch):
    monkeypatch.setattr(open_kernel, "PARALLEL_WORK", 0.0)
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
    assert (ours <= exact * np.finfo("float32").eps / 2 * 1.001).all()  # rounded once, at the end


def test_few_kernels_serve_all_shapes(monkeypatch):
    monkeypatch.setattr(native_generic, "_calls", type(native_generic._calls)())
    monkeypatch.setattr(native_generic, "_programs", {})
    rng = np.random.default_rng(11)
    for _ in range(60):
        x = viewed(rng, rng.standard_normal(rng.integers(2, 20, rng.integers(1, 5))))
        axis = int(rng.integers(x.ndim))
        run("sum", x.astype("float32"), axis=(axis,))
    programs = native_generic._programs
    assert all(len(variants) == 1 for variants in programs.values())
    assert len(programs) <= 4  # (kept, reduced), (kept, reduced, kept), and without what is 1


def test_large_sums_run_natively_with_gradients():
    torch = oracle("torch")
    x = np.random.default_rng(13).standard_normal((300, 17, 40)).astype("float32")
    results = []
    for library in (weft, torch):
        t = library.from_numpy(x.copy()).requires_grad_()
        y = (
            (t.sum(0) * t.mean((0, 1))).sum()
            + t.amax(1).sum()
            + (t * t.sum(-1, keepdim=True)).sum()
        )
        y.backward()
        results.append((y.detach().numpy(), t.grad.numpy()))
    for ours, theirs in zip(*results):
        np.testing.assert_allclose(ours, theirs, atol=5e-5 * np.abs(theirs).max())
