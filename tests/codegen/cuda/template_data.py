"""Random operands for kernels of tensor cores, in the order of their buffers, and what comes out in float64."""

from __future__ import annotations

from math import erf

import ml_dtypes
import numpy as np

from weft.testing.tensor_cores import ConvolutionCase, HeadsCase

NUMPY = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
# Shares of the largest result. Those of 16 bits are rounded to it, probabilities before products; tf32 reads 11 bits.
PRODUCT_BOUNDS = {"fp16": 6e-4, "bf16": 5e-3, "tf32": 6e-4}
ATTENTION_BOUNDS = {"fp16": 2e-3, "bf16": 1.5e-2, "tf32": 2e-3}
EXACT = 2e-6  # float32 that stays float32


def data_of(case, seed):
    """Arrays with a NaN for every result, and the results."""
    rng = np.random.default_rng(seed)
    made = heads if isinstance(case, HeadsCase) else windows if isinstance(case, ConvolutionCase) else operands
    return made(case, rng)


def error_of(got, wanted):
    """As a share of the largest result; NaN where a result is."""
    return np.abs(got.astype(np.float64) - wanted).max() / np.abs(wanted).max()


def bound_of(case, tile):
    if tile.exact:
        return EXACT
    return (ATTENTION_BOUNDS if isinstance(case, HeadsCase) else PRODUCT_BOUNDS)[case.kind]


def drawn(rng, shape, dtype):
    return rng.standard_normal(shape).astype(NUMPY[dtype])


def activated(name, x):
    if name == "gelu":
        return 0.5 * x * (1 + np.vectorize(erf)(x * 0.5**0.5))
    return np.maximum(x, 0) if name == "relu" else x


def operands(case, rng):
    """Arrays as the kernel has them, and the result in float64."""
    a = drawn(rng, (case.batch, case.rows, case.depth), case.dtype)
    b = drawn(rng, (1 if case.shared_b else case.batch, case.columns, case.depth), case.dtype)
    arrays = [np.ascontiguousarray(x.swapaxes(1, 2) if turned else x) for x, turned in zip((a, b), case.turned)]
    wanted = a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2)
    if case.bias:
        arrays.append(drawn(rng, case.columns, case.dtype))
        wanted = wanted + arrays[-1].astype(np.float64)
    if case.other:
        arrays.append(drawn(rng, wanted.shape, case.out_dtype))
        wanted = wanted + arrays[-1].astype(np.float64)
    return [*arrays, np.full(wanted.shape, np.nan, NUMPY[case.out_dtype])], activated(case.activation, wanted)


def windows(case, rng):
    """The same of a convolution: a sum over taps of padded pictures."""
    count, channels = case.pictures[0], case.pictures[3]
    x, f = drawn(rng, case.pictures, case.dtype), drawn(rng, (case.out_channels, *case.filter, channels), case.dtype)
    bias = drawn(rng, case.out_channels, case.dtype)
    other = drawn(rng, (count, *case.image, case.out_channels), case.dtype)
    (above, left, below, right), (down, across) = case.pads, case.image
    padded = np.pad(x.astype(np.float64), ((0, 0), (above, below), (left, right), (0, 0)))
    wanted = bias.astype(np.float64) + (other.astype(np.float64) if case.other else 0)
    for r in range(case.filter[0]):
        for s in range(case.filter[1]):
            rows = slice(r * case.dilation[0], r * case.dilation[0] + (down - 1) * case.strides[0] + 1, case.strides[0])
            first = s * case.dilation[1]
            part = padded[:, rows, first : first + (across - 1) * case.strides[1] + 1 : case.strides[1]]
            wanted = wanted + part @ f[:, r, s].astype(np.float64).T
    arrays = [x, f, bias, *([other] if case.other else [])]
    return [*arrays, np.full(wanted.shape, np.nan, NUMPY[case.dtype])], activated(case.activation, wanted)


def heads(case, rng):
    """Arrays as the kernel has them, a NaN for every result, and the results in float64."""
    q, k, v = (rng.standard_normal(shape).astype(NUMPY[case.dtype]) for shape in case.shapes[:3])
    arrays, wide = [q, k, v], [x.astype(np.float64) for x in (q, k, v)]
    wide[1:] = [np.repeat(x, case.each, 1) for x in wide[1:]]
    scores = wide[0] @ wide[1].swapaxes(-1, -2) * case.width**-0.5
    if case.masked:
        mask = rng.standard_normal((case.batch, case.queries, case.keys)).astype(NUMPY[case.dtype])
        mask[rng.random(mask.shape) < 0.3] = -np.inf
        if case.unseen != "nan":
            mask[0, 2] = -np.inf
        arrays.append(mask)
        scores = scores + mask.astype(np.float64)[:, None]
    if case.causal:
        scores = np.where(np.tri(case.queries, case.keys, dtype=bool), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(-1, keepdims=True)
    wanted = weights / np.where(total == 0, 1, total) @ wide[2]
    return [*arrays, np.full(case.shapes[3], np.nan, NUMPY[case.dtype])], wanted
