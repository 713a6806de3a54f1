"""Kernels of rows of softmax, on every instruction set this machine has, with arrays that end at
guard pages."""

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import agrees, targets

from weft.base.dtype import FLOAT32, FLOAT64
from weft.compiler.kernels import kernel_cache
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
