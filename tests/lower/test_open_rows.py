"""Kernels of rows whose sizes are arguments: softmax, normalisations, cross entropy and their gradients, on every
instruction set this machine has, with arrays that end at guard pages, against float64 formulas in numpy."""

import numpy as np
import pytest
from lower.accuracy import agrees, targets
from lower.open_programs import Programs

from weft.base.dtype import FLOAT32, FLOAT64
from weft.core.op import Op
from weft.ops.nn.attention import te_softmax, te_softmax_grad

on_every_isa = pytest.mark.parametrize("target", targets(), ids=lambda target: target.isa)
dtypes = pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64], ids=str)


def probabilities(scores, factor, mask, causal):
    """By numpy, in float64."""
    scores = scores.astype("float64") * factor
    if causal:
        seen = np.arange(scores.shape[-1]) <= np.arange(scores.shape[-2])[:, None]
        scores = np.where(seen, scores, -np.inf)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    top = scores.max(-1, keepdims=True)
    powers = np.exp(scores - np.where(np.isinf(top), 0, top))
    total = powers.sum(-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


SEVERAL = ((7, 16), (3, 33), (5, 200), (2, 1037), (40, 2))


@on_every_isa
@dtypes
@pytest.mark.parametrize("mask", ["none", "boolean", "additive"])
def test_probabilities(target, dtype, mask):
    rng = np.random.default_rng(len(mask))
    for causal in (False, True):
        params = Op.get("scaled_dot_product_attention").parser(mask=mask, is_causal=causal)
        compute = lambda x, c, *m, params=params: te_softmax(params, x, c[0], *m)
        masked = Programs("softmax", target, compute)
        for count, queries, keys in ((2, 3, 17), (3, 5, 64), (2, 9, 33), (4, 7, 129)):
            scores = rng.standard_normal((count, queries, keys)).astype(dtype)
            own = rng.standard_normal((1, queries, keys))  # the same for all matrices
            given = {"none": None, "boolean": own > 0.3, "additive": own.astype(dtype)}[mask]
            arrays = [scores, np.array([0.7], dtype), *([] if given is None else [given])]
            want = probabilities(scores, np.array(0.7, dtype), given, causal)
            for in_place in (False, True):
                agrees(masked.run(*arrays, in_place=in_place)[0], want)


@on_every_isa
@dtypes
def test_gradient_of_softmax(target, dtype):
    rng = np.random.default_rng(1)
    programs = Programs("softmax_grad", target, lambda g, y: te_softmax_grad(y, g))
    for rows, length in SEVERAL:
        y, g = (rng.random((rows, length)).astype(dtype) for _ in range(2))
        wide = y.astype("float64")
        for in_place in (False, True):
            agrees(programs.run(g, y, in_place=in_place)[0], wide * (g - (g * wide).sum(-1, keepdims=True)))


def floats(rng, dtype, *shapes):
    return [(rng.standard_normal(shape) * 2 + 1).astype(dtype) for shape in shapes]


def unit(x, axes):
    """(x - mean) / std in float64, and the moments."""
    wide = x.astype("float64")
    mean, variance = wide.mean(axes, keepdims=True), wide.var(axes, keepdims=True)
    return (wide - mean) / np.sqrt(variance + 1e-3), mean, variance


@on_every_isa
@dtypes
def test_softmax(target, dtype):
    rng = np.random.default_rng(2)
    rows_of, logarithms, columns = (Programs.of(name, target, axis=1) for name in ("softmax", "log_softmax", "softmax"))
    for rows, length in SEVERAL:
        x = (rng.standard_normal((rows, length)) * 5).astype(dtype)
        want = probabilities(x, 1.0, None, None)
        agrees(rows_of.run(x)[0], want)
        agrees(logarithms.run(x)[0], np.log(want))
        beside = np.ascontiguousarray(np.stack([x, x * 2, x - 3], 2))
        agrees(columns.run(beside)[0][..., 0], want)
    assert len(rows_of.made) == len(logarithms.made) == 2  # few rows might be worth chunks
    assert len(columns.made) == 1


@on_every_isa
@dtypes
def test_norms_of_rows(target, dtype):
    rng = np.random.default_rng(4)
    layer, rms = (Programs.of(name, target, axis=1, epsilon=1e-3) for name in ("layer_norm", "rms_norm"))
    for rows, length in SEVERAL:
        x, gamma, beta = floats(rng, dtype, (rows, length), length, length)
        agrees(layer.run(x, gamma, beta)[0], unit(x, 1)[0] * gamma + beta)
        root = np.sqrt(np.square(x.astype("float64")).mean(1, keepdims=True) + 1e-3)
        agrees(rms.run(x, gamma)[0], x / root * gamma)
    assert len(layer.made) == len(rms.made) == 2


@on_every_isa
@dtypes
def test_norms_of_groups(target, dtype):
    rng = np.random.default_rng(5)
    group, instance = (
        Programs.of("group_norm", target, num_groups=3, epsilon=1e-3),
        Programs.of("instance_norm", target, epsilon=1e-3),
    )
    for n, channels, inner in ((2, 6, 9), (3, 12, 64), (4, 6, 300), (5, 9, 17)):
        x, gamma, beta = floats(rng, dtype, (n, channels, inner), channels, channels)
        wide = [vector.reshape(1, -1, 1) for vector in (gamma, beta)]
        split = unit(x.reshape(n, 3, channels // 3, inner), (2, 3))[0].reshape(x.shape)
        agrees(group.run(x, gamma, beta)[0], split * wide[0] + wide[1])
        agrees(instance.run(x, gamma, beta)[0], unit(x, 2)[0] * wide[0] + wide[1])


@on_every_isa
@dtypes
@pytest.mark.parametrize("shapes", [((3, 5, 40), (17, 2, 9), (2, 30, 200)), ((30, 5), (7, 33), (200, 47))])
def test_norms_of_channels_and_their_gradients(target, dtype, shapes):
    rng = np.random.default_rng(6)
    forward = Programs.of("_batch_norm_moments", target, axis=1, epsilon=1e-3, training=True)
    backward = Programs.of("_batch_norm_grad", target, axis=1, epsilon=1e-3, training=True)
    for shape in shapes:
        channels, axes = shape[1], (0, *range(2, len(shape)))
        x, g, gamma, beta, to_mean, to_variance = floats(rng, dtype, shape, shape, *[channels] * 4)
        wide = [v.astype("float64").reshape(1, -1, *shape[2:] and (1,)) for v in (gamma, beta, to_mean, to_variance)]
        normed, mean, variance = unit(x, axes)
        made = forward.run(x, gamma, beta)
        for found, wanted in zip(made, (normed * wide[0] + wide[1], mean.reshape(-1), variance.reshape(-1))):
            agrees(found, wanted)
        inner, count = g * wide[0], x.size // channels
        rest = inner - inner.mean(axes, keepdims=True) - normed * (inner * normed).mean(axes, keepdims=True)
        data = rest / np.sqrt(variance + 1e-3) + (wide[2] + 2 * wide[3] * (x - mean)) / count
        grads = backward.run(g, x, gamma, *made[1:], to_mean, to_variance)
        for found, wanted in zip(grads, (data, (g * normed).sum(axes), g.astype("float64").sum(axes))):
            agrees(found, wanted)


@on_every_isa
@dtypes
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(target, dtype, smoothing):
    rng = np.random.default_rng(3)
    attrs = {"axis": 1, "smoothing": smoothing, "reduction": "none"}
    forward = Programs.of("softmax_cross_entropy", target, **attrs)
    backward = Programs.of("_softmax_cross_entropy_grad", target, **attrs)
    for rows, length in ((20, 16), (33, 33), (50, 200), (40, 1037), (40, 2)):
        x = (rng.standard_normal((rows, length)) * 5 + 100).astype(dtype)
        classes, g = rng.integers(-1, length, rows), rng.standard_normal(rows).astype(dtype)
        (losses,), (made,) = forward.run(x, classes), backward.run(g, x, classes)
        p, counts = probabilities(x, 1.0, None, None), classes >= 0
        right = (classes[:, None] == np.arange(length)) * (1 - smoothing) + smoothing / length
        agrees(losses, np.where(counts, -(np.log(p) * right).sum(-1), 0))
        agrees(made, np.where(counts[:, None], (p - right) * g[:, None], 0))
    assert len(forward.made) == len(backward.made) == 1
