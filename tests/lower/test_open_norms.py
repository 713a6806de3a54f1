"""Kernels of normalisations and their gradients, on every instruction set this machine has, with
arrays that end at guard pages."""

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import agrees, targets

from weft.base.dtype import FLOAT32, FLOAT64
from weft.compiler.kernels import kernel_cache
from weft.lower.cpu.open.norms import norm_grad_kernel, norm_kernel, row_norm_grad_kernel, row_norm_kernel
from weft.runtime.cpu.open_kernel import OpenKernel

on_every_isa = pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
dtypes = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
EPSILON = 1e-3


def loaded(kernel, target):
    return OpenKernel(kernel_cache.compiled(kernel, target))


def floats(rng, dtype, *shapes):
    return [rng.standard_normal(shape).astype(dtype) + dtype.type(2) for shape in shapes]


def blank(dtype, *shapes):
    return [guarded(np.full(shape, np.nan, dtype)) for shape in shapes]


def run(kernel, given, made, scalars, turns):
    small = np.array([EPSILON])
    kernel.run([*map(guarded, given), guarded(small), *made], scalars, turns, 0.0)


def moments(x, axes, centred=True):
    wide = x.astype("float64")
    mean = wide.mean(axes, keepdims=True) if centred else 0.0
    return mean, np.square(wide - mean).mean(axes, keepdims=True)


def gradient(g, x, gamma, axes, centred=True):
    """dx, and n = (x - mean) / std, in float64."""
    mean, variance = moments(x, axes, centred)
    scale = 1 / np.sqrt(variance + EPSILON)
    unit, inner = (x - mean) * scale, g.astype("float64") * gamma
    rest = inner - inner.mean(axes, keepdims=True) if centred else inner
    return (rest - unit * (inner * unit).mean(axes, keepdims=True)) * scale, unit


@on_every_isa
@dtypes
@pytest.mark.parametrize("centred", [True, False])
def test_rows(target, dtype, centred):
    rng = np.random.default_rng(0)
    forward = loaded(row_norm_kernel(centred, dtype, target), target)
    backward = loaded(row_norm_grad_kernel(centred, dtype, target), target)
    for items, groups, length in ((1, 1, 3), (7, 1, 33), (3, 4, 16), (20, 1, 1029), (9, 2, 70)):
        shape, own = (items, groups, length), (groups, length)
        x, g, gamma, beta = floats(rng, dtype, shape, shape, own, own)
        rows, block = items * groups, 4 * groups
        blocks = -(-rows // block)
        (y,) = blank(dtype, shape)
        run(forward, [x, gamma, beta], [y], [rows, length, groups], rows)
        mean, variance = moments(x, (2,), centred)
        wanted = (x - mean) / np.sqrt(variance + EPSILON) * gamma
        agrees(y, wanted + beta if centred else wanted)
        made = blank(dtype, shape, (blocks, *own), (blocks, *own))
        run(backward, [g, x, gamma], made, [rows, length, groups, block], blocks)
        data, unit = gradient(g, x, gamma, (2,), centred)
        agrees(made[0], data)
        agrees(made[1].sum(0), (g * unit).sum(0))
        if centred:
            agrees(made[2].sum(0), g.sum(0))


def parts_of(kind, n, channels, inner, groups):
    """Scalars of sets, and the shape and axes in which numpy sees them."""
    if kind == "batch":
        step = channels * inner
        scalars = [channels, channels, 1, n, inner, n, inner, 0, inner, 0, step]
        return scalars, (n, channels, 1, inner), (0, 2, 3)
    size = channels // groups
    whole = size * inner
    scalars = [n * groups, groups, size, 1, inner, 1, whole, channels * inner, whole, inner, 0]
    return scalars, (n, groups, size, inner), (2, 3)


@on_every_isa
@dtypes
@pytest.mark.parametrize("kind", ["batch", "group"])
def test_parts(target, dtype, kind):
    rng = np.random.default_rng(1)
    forward = loaded(norm_kernel(False, dtype, target), target)
    backward = loaded(norm_grad_kernel(False, kind == "batch", dtype, target), target)
    for n, channels, inner, groups in ((2, 6, 9, 3), (3, 4, 64, 1), (1, 2, 300, 2), (5, 3, 1, 1)):
        scalars, shape, axes = parts_of(kind, n, channels, inner, groups)
        x, g, gamma, beta = floats(rng, dtype, shape, shape, shape[1:3], shape[1:3])
        sets, (mean, variance) = scalars[0], moments(x, axes)
        made = blank(dtype, shape, (sets,), (sets,))
        run(forward, [x, gamma, beta], made, scalars, sets)
        agrees(made[0], (x - mean) / np.sqrt(variance + EPSILON) * gamma[..., None] + beta[..., None])
        agrees(made[1], mean.reshape(-1))
        agrees(made[2], variance.reshape(-1))
        data, unit = gradient(g, x, gamma[..., None], axes)
        parts = (sets, shape[2])
        grads = blank(dtype, shape, parts, parts)
        extra = []
        if kind == "batch":
            to_mean, to_variance = floats(rng, dtype, (sets,), (sets,))
            extra = [*map(guarded, (made[1], made[2], to_mean, to_variance))]
            wide = [v.reshape(1, -1, 1, 1) for v in (to_mean, to_variance)]
            data = data + (wide[0] + 2 * wide[1] * (x - mean)) / (n * inner)
        run(backward, [g, x, gamma], [*grads, *extra], scalars, sets)
        agrees(grads[0], data)
        over = (0, 3) if kind == "batch" else (3,)
        agrees(grads[1], (g * unit).sum(over).reshape(parts))
        agrees(grads[2], g.astype("float64").sum(over).reshape(parts))


@on_every_isa
@dtypes
def test_columns(target, dtype):
    rng = np.random.default_rng(2)
    lanes = target.lanes(dtype)
    forward = loaded(norm_kernel(True, dtype, target), target)
    backward = loaded(norm_grad_kernel(True, True, dtype, target), target)
    for rows, columns in ((1, lanes), (7, lanes + 1), (200, 3 * lanes - 1), (65, 2 * lanes)):
        shape, turns = (rows, columns), -(-columns // lanes)
        own = [(columns,)] * 4
        x, g, gamma, beta, to_mean, to_variance = floats(rng, dtype, shape, shape, *own)
        mean, variance = moments(x, (0,))
        made = blank(dtype, shape, *own[:2])
        run(forward, [x, gamma, beta], made, [rows, columns], turns)
        agrees(made[0], (x - mean) / np.sqrt(variance + EPSILON) * gamma + beta)
        agrees(made[1], mean[0])
        agrees(made[2], variance[0])
        data, unit = gradient(g, x, gamma, (0,))
        grads = blank(dtype, shape, *own[:2])
        extra = [*map(guarded, (made[1], made[2], to_mean, to_variance))]
        run(backward, [g, x, gamma], [*grads, *extra], [rows, columns], turns)
        agrees(grads[0], data + (to_mean + 2 * to_variance * (x - mean)) / rows)
        agrees(grads[1], (g * unit).sum(0))
        agrees(grads[2], g.astype("float64").sum(0))
