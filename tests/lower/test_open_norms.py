"""Kernels of gradients of normalisations, on every instruction set this machine has, with
arrays that end at guard pages."""

import numpy as np
import pytest
from codegen.guard import guarded
from lower.accuracy import agrees, targets

from weft.base.dtype import FLOAT32, FLOAT64
from weft.compiler.kernels import kernel_cache
from weft.lower.cpu.row_wise.norm_grads import norm_grad_kernel, row_norm_grad_kernel
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
    backward = loaded(row_norm_grad_kernel(centred, dtype, target), target)
    for items, groups, length in ((1, 1, 3), (7, 1, 33), (3, 4, 16), (20, 1, 1029), (9, 2, 70)):
        shape, own = (items, groups, length), (groups, length)
        x, g, gamma = floats(rng, dtype, shape, shape, own)
        rows, block = items * groups, 4 * groups
        blocks = -(-rows // block)
        made = blank(dtype, shape, (blocks, *own), (blocks, *own))
        run(backward, [g, x, gamma], made, [rows, length, groups, block], blocks)
        data, unit = gradient(g, x, gamma, (2,), centred)
        agrees(made[0], data)
        agrees(made[1].sum(0), (g * unit).sum(0))
        if centred:
            agrees(made[2].sum(0), g.sum(0))


@on_every_isa
@dtypes
def test_parts(target, dtype):
    rng = np.random.default_rng(1)
    backward = loaded(norm_grad_kernel(dtype, target), target)
    for n, channels, inner, groups in ((2, 6, 9, 3), (3, 4, 64, 1), (1, 2, 300, 2), (5, 3, 1, 1)):
        shape = (n, groups, channels // groups, inner)
        x, g, gamma = floats(rng, dtype, shape, shape, shape[1:3])
        data, unit = gradient(g, x, gamma[..., None], (2, 3))
        grads = blank(dtype, shape, shape[:3], shape[:3])
        run(backward, [g, x, gamma], grads, [n * groups, groups, channels // groups, inner], n * groups)
        agrees(grads[0], data)
        agrees(grads[1], (g * unit).sum(3))
        agrees(grads[2], g.astype("float64").sum(3))
