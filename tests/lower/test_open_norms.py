"""Gradients of normalisations whose sizes are arguments, on every instruction set this machine has, with arrays that
end at guard pages, against float64 formulas in numpy."""

import numpy as np
import pytest
from lower.accuracy import agrees, targets
from lower.open_programs import Programs

from weft.base.dtype import FLOAT32, FLOAT64

on_every_isa = pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
dtypes = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)
EPSILON = 1e-3


def floats(rng, dtype, *shapes):
    return [rng.standard_normal(shape).astype(dtype) + dtype.type(2) for shape in shapes]


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
    name = "_layer_norm_grad" if centred else "_rms_norm_grad"
    backward = Programs.of(name, target, kernels=2, axis=1, epsilon=EPSILON)
    for rows, length in ((2, 3), (7, 33), (12, 16), (20, 1029), (300, 70), (1500, 9)):
        x, g, gamma = floats(rng, dtype, (rows, length), (rows, length), length)
        data, unit = gradient(g, x, gamma, (1,), centred)
        for made, wanted in zip(backward.run(g, x, gamma), (data, (g * unit).sum(0), g.astype("float64").sum(0))):
            agrees(made, wanted)
    assert len(backward.made) == 1


@on_every_isa
@dtypes
@pytest.mark.parametrize("name", ["group", "instance"])
def test_parts(target, dtype, name):
    rng = np.random.default_rng(1)
    attrs = {"num_groups": 3} if name == "group" else {}
    backward = Programs.of(f"_{name}_norm_grad", target, kernels=2, epsilon=EPSILON, **attrs)
    for n, channels, inner in ((2, 6, 9), (3, 12, 64), (8, 9, 300), (5, 6, 17)):
        groups, shape = 3 if name == "group" else channels, (n, channels, inner)
        x, g, gamma = floats(rng, dtype, shape, shape, channels)
        split = [a.reshape(n, groups, channels // groups, inner) for a in (g, x)]
        data, unit = gradient(*split, gamma.reshape(groups, -1, 1), (2, 3))
        sums = [(g * unit.reshape(shape)).sum((0, 2)), g.astype("float64").sum((0, 2))]
        for made, wanted in zip(backward.run(g, x, gamma), (data.reshape(shape), *sums), strict=True):
            agrees(made, wanted)
    assert len(backward.made) <= 2
