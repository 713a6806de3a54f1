"""Kernels of rows of softmax and of the gradients of pools, on every instruction set this machine
has, with arrays that end at guard pages."""

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import agrees, targets

from weft.base.dtype import FLOAT32, FLOAT64
from weft.compiler.kernels import kernel_cache
from weft.lower.cpu.open.pool_grad import first_largest_kernel, shares_kernel
from weft.lower.cpu.open.softmax import (
    cross_entropy_grad_kernel,
    cross_entropy_kernel,
    probabilities_kernel,
    softmax_grad_kernel,
    softmax_kernel,
)
from weft.runtime.cpu.open_kernel import OpenKernel

on_every_isa = pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
dtypes = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)


def loaded(kernel, target):
    return OpenKernel(kernel_cache.compiled(kernel, target))


def probabilities(scores, factor, mask, causal):
    """By numpy, in float64."""
    scores = scores.astype("float64") * factor
    if causal is not None:
        seen = np.arange(scores.shape[-1]) <= np.arange(scores.shape[-2])[:, None] + causal
        scores = np.where(seen, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


@on_every_isa
@dtypes
@pytest.mark.parametrize("mask", ["none", "boolean", "additive"])
def test_probabilities(target, dtype, mask):
    rng = np.random.default_rng(len(mask))
    for causal in (None, 3):
        kernel = loaded(probabilities_kernel(mask, causal is not None, dtype, target), target)
        for count, queries, keys in ((1, 1, 1), (2, 3, 17), (3, 5, 64), (2, 9, 33), (1, 4, 129)):
            scores = rng.standard_normal((count, queries, keys)).astype(dtype)
            own = rng.standard_normal((queries, keys))  # the same for all matrices
            given = {"none": None, "boolean": own > 0.3, "additive": own.astype(dtype)}[mask]
            made = guarded(scores)
            arrays = [made, np.array([0.7], dtype), np.zeros(count, "int64"), made if given is None else guarded(given)]
            scalars = [count * queries, keys, queries, causal or 0, keys]
            kernel.run(arrays, scalars, count * queries, 0.0)
            agrees(made, probabilities(scores, np.array(0.7, dtype), given, causal))


ROWS = ((1, 1), (7, 16), (3, 33), (5, 200), (2, 1037))


@on_every_isa
@dtypes
def test_gradient_of_softmax(target, dtype):
    rng = np.random.default_rng(1)
    kernel = loaded(softmax_grad_kernel(dtype, target), target)
    for rows, length in ROWS:
        y, g = (rng.random((rows, length)).astype(dtype) for _ in range(2))
        made, wide = guarded(g), y.astype("float64")
        kernel.run([made, guarded(y), made], [rows, length], rows, 0.0)
        agrees(made, wide * (g - (g * wide).sum(-1, keepdims=True)))


@on_every_isa
@dtypes
def test_softmax(target, dtype):
    rng = np.random.default_rng(2)
    for logarithm in (False, True):
        kernel = loaded(softmax_kernel(logarithm, dtype, target), target)
        for rows, length in ROWS:
            x = (rng.standard_normal((rows, length)) * 5).astype(dtype)
            made = guarded(np.full((rows, length), np.nan, dtype))
            kernel.run([guarded(x), made], [rows, length], rows, 0.0)
            want = probabilities(x, 1.0, None, None)
            agrees(made, np.log(want) if logarithm else want)


@on_every_isa
@dtypes
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(target, dtype, smoothing):
    rng = np.random.default_rng(3)
    forward = loaded(cross_entropy_kernel(smoothing > 0, dtype, target), target)
    backward = loaded(cross_entropy_grad_kernel(dtype, target), target)
    for rows, length in ROWS:
        x = (rng.standard_normal((rows, length)) * 5 + 100).astype(dtype)
        classes, shares = (rng.integers(-1, length, rows), np.array([1 - smoothing, smoothing / length]))
        losses, g = np.full(rows, np.nan, dtype), rng.standard_normal(rows).astype(dtype)
        made, kept = guarded(np.full((rows, length), np.nan, dtype)), guarded(losses)
        given = [*map(guarded, (x, classes, shares))]
        forward.run([*given, kept], [rows, length], rows, 0.0)
        backward.run([guarded(g), *given, made], [rows, length], rows, 0.0)
        p, counts = probabilities(x, 1.0, None, None), classes >= 0
        right = (classes[:, None] == np.arange(length)) * shares[0] + shares[1]
        agrees(kept, np.where(counts, -(np.log(p) * right).sum(-1), 0))
        agrees(made, np.where(counts[:, None], (p - right) * g[:, None], 0))


# images, then for height and width: extent, size, stride, before, after, dilation
POOLS = [
    (3, (8, 2, 2, 0, 0, 1), (9, 2, 2, 0, 0, 1)),
    (2, (7, 3, 2, 1, 1, 1), (40, 3, 2, 1, 1, 1)),
    (1, (5, 3, 1, 1, 2, 1), (35, 2, 1, 0, 1, 2)),
    (2, (6, 2, 3, 1, 0, 2), (1, 1, 1, 0, 0, 1)),
]


def windows(extent, size, stride, before, after, dilation):
    """For every window the places of its taps, which may be outside."""
    count = (extent + before + after - (size - 1) * dilation - 1) // stride + 1
    return np.arange(count)[:, None] * stride + np.arange(size) * dilation - before


def scalars(images, *axes):
    made = [images]
    for axis in axes:
        extent, size, stride, before, _, dilation = axis
        made += [extent, len(windows(*axis)), size, stride, before, dilation]
    return made


def inside(places, extent):
    return [(tap, int(place)) for tap, place in enumerate(places) if 0 <= place < extent]


@on_every_isa
@dtypes
@pytest.mark.parametrize(("images", "high", "wide"), POOLS)
def test_shares_of_windows(target, dtype, images, high, wide):
    down, across = windows(*high), windows(*wide)
    given = np.random.default_rng(2).random((images, len(down), len(across))).astype(dtype)
    expected = np.zeros((images, high[0], wide[0]))
    for i, rows in enumerate(down):
        for j, columns in enumerate(across):
            for _, y in inside(rows, high[0]):
                for _, x in inside(columns, wide[0]):
                    expected[:, y, x] += given[:, i, j]
    made = guarded(np.full(expected.shape, np.nan, dtype))
    kernel = loaded(shares_kernel(dtype, target), target)
    kernel.run([guarded(given), made], scalars(images, high, wide), images, 0.0)
    agrees(made, expected)


@on_every_isa
@dtypes
@pytest.mark.parametrize(("images", "high", "wide"), POOLS)
def test_first_largest_of_windows(target, dtype, images, high, wide):
    rng = np.random.default_rng(3)
    data = rng.integers(0, 5, (images, high[0], wide[0])).astype(dtype)  # with equal elements
    data[rng.random(data.shape) < 0.05] = np.nan
    down, across = windows(*high), windows(*wide)
    given = rng.random((images, len(down), len(across))).astype(dtype)
    tops, expected = np.empty_like(given), np.zeros(data.shape)
    for n, i, j in np.ndindex(given.shape):
        seen = [(y, x) for _, y in inside(down[i], high[0]) for _, x in inside(across[j], wide[0])]
        values = np.array([data[n, y, x] for y, x in seen])
        chosen = int(values.argmax())
        tops[n, i, j] = values[chosen]
        expected[n][seen[chosen]] += given[n, i, j]
    made = guarded(np.full(data.shape, np.nan, dtype))
    kernel = loaded(first_largest_kernel(dtype, target), target)
    arrays = [guarded(given), guarded(data), guarded(tops), made]
    kernel.run(arrays, scalars(images, high, wide), images, 0.0)
    agrees(made, expected)
