"""Samples of products with levels, and of attention over a cache: numpy in loops, and PyTorch."""

from __future__ import annotations

import numpy as np
from sample import Sample, floats, samples

CASES = (  # leading axes, products, units, bits, group
    ((3,), 40, 5, 8, 8),
    ((2, 3), 70, 33, 8, 32),
    ((), 64, 7, 4, 16),
    ((1,), 33, 20, 4, 32),
    ((5,), 130, 3, 4, 128),
)


def _halves(levels):
    """Levels of 4 bits, two in a byte."""
    wide = np.concatenate([levels, np.zeros((len(levels), levels.shape[1] % 2), np.int8)], 1) + 8
    return (wide[:, ::2] + 16 * wide[:, 1::2]).astype(np.uint8)


def _weights(rng, depth, units, bits, group, dtype):
    """Levels, what stands for them, and scales."""
    low, high = ((-128, 128), (-8, 8))[bits == 4]
    levels = rng.integers(low, high, (units, depth)).astype(np.int8)
    scale = rng.uniform(0.01, 0.1, (units, -(-depth // group))).astype(dtype)
    return levels, levels if bits == 8 else _halves(levels), scale


def _matrix(levels, scale, group):
    exact = np.empty(levels.shape)
    for n, k in np.ndindex(*levels.shape):
        exact[n, k] = float(levels[n, k]) * float(scale[n, k // group])
    return exact


@samples("dense_levels", system="numpy")
def dense_levels(rng, _):
    for number, (leading, depth, units, bits, group) in enumerate(CASES):
        levels, weight, scale = _weights(rng, depth, units, bits, group, ("float16", "float32")[number % 2])
        matrix = _matrix(levels, scale, group)

        def product(x, w, s, matrix=matrix):
            return (x.astype(np.float64) @ matrix.T).astype(np.float32)

        inputs = [floats(rng, (*leading, depth), -2, 2), weight, scale]
        attrs = {"units": units, "bits": bits, "group": group}
        yield Sample(inputs, attrs, product, differentiable=False, rtol=1e-4, atol=1e-4)


def _panels(levels, bits, group, lanes):
    """Panels, byte by byte."""
    units, depth = levels.shape
    each = 8 // bits
    steps = -(-depth // group) * group // (4 * each)
    zero = {8: 128, 4: 8}[bits]
    panels = np.full((-(-units // lanes), steps, lanes, 4), zero if bits == 8 else zero + 16 * zero, np.uint8)
    for n, k in np.ndindex(*levels.shape):
        at = (n // lanes, k // (4 * each), n % lanes, k % 4)
        level = int(levels[n, k]) + zero
        if bits == 8:
            panels[at] = level
        elif k // 4 % 2:
            panels[at] = panels[at] % 16 + 16 * level
        else:
            panels[at] = panels[at] // 16 * 16 + level
    return panels


@samples("_level_panels", system="numpy")
def level_panels(rng, _):
    for (_, depth, units, bits, group), lanes in zip(CASES, (16, 32, 4, 64, 16)):
        levels, weight, _ = _weights(rng, depth, units, bits, group, "float32")
        attrs = {"bits": bits, "group": group, "depth": depth, "lanes": lanes}
        yield Sample([weight], attrs, lambda w, v=levels, a=attrs: _panels(v, a["bits"], a["group"], a["lanes"]))


def _row_levels(x, group):
    """Levels of 16 bits as bytes, factors and sums, number by number."""
    *leading, depth = x.shape
    groups = -(-depth // group)
    bytes_ = np.zeros((*leading, 2, groups * group), np.int8)
    factors, sums = np.zeros((*leading, groups), np.float32), np.zeros((*leading, groups), np.int32)
    for *at, part in np.ndindex(*leading, groups):
        numbers = x[(*at, slice(part * group, (part + 1) * group))]
        largest = np.abs(numbers).max()
        factors[(*at, part)] = largest * np.float32(1 / 32512) if np.isfinite(largest) else np.nan
        if not largest > 1e-30 or not np.isfinite(largest):
            continue
        for k, number in enumerate(numbers, part * group):
            level = round(float(number * (np.float32(32512) / largest)))
            low = (level + 128) % 256 - 128
            bytes_[(*at, 0, k)], bytes_[(*at, 1, k)] = (level - low) // 256, low
            sums[(*at, part)] += level
    return bytes_, factors, sums


@samples("_row_levels", system="numpy")
def row_levels(rng, _):
    for shape, group in (((3, 40), 8), ((2, 3, 70), 32), ((64,), 16), ((1, 600), 32)):
        x = floats(rng, shape, -3, 3) * np.exp(3 * rng.standard_normal((*shape[:-1], 1))).astype(np.float32)
        x.reshape(-1)[:group] = 0
        yield Sample([x], {"group": group}, lambda x, g=group: _row_levels(x, g), differentiable=False)
    special = floats(rng, (4, 24), -1, 1)
    special[0, 3], special[1, 9], special[2, 20] = np.nan, np.inf, -np.inf
    yield Sample([special], {"group": 8}, lambda x: _row_levels(x, 8), differentiable=False)


@samples("_level_matmul", system="numpy")
def level_matmul(rng, _):
    for (leading, depth, units, bits, group), lanes in zip(CASES, (16, 64, 4, 64, 32)):
        levels, _, scale = _weights(rng, depth, units, bits, group, "float16" if units % 2 else "float32")
        x = floats(rng, (*leading, depth), -2, 2)
        wide = np.zeros((scale.shape[1], -(-units // lanes) * lanes), scale.dtype)
        wide[:, :units] = scale.T
        scales = np.ascontiguousarray(wide.reshape(len(wide), -1, lanes).swapaxes(0, 1))
        matrix = _matrix(levels, scale, group)

        def product(*_, x=x, matrix=matrix):
            return (x.astype(np.float64) @ matrix.T).astype(np.float32)

        inputs = [*_row_levels(x, group), _panels(levels, bits, group, lanes), scales]
        attrs = {"units": units, "bits": bits, "group": group}
        yield Sample(inputs, attrs, product, differentiable=False, rtol=1e-4, atol=2e-4 * float(np.abs(matrix).max()))


@samples("cached_attention")
def cached_attention(rng, torch):
    for rows, heads, shared, width, layers, blocks, past, layer, window in (
        (1, 4, 4, 16, 2, 3, 40, 1, None),
        (5, 6, 2, 24, 1, 12, 150, 0, None),
        (3, 2, 1, 7, 2, 1, 0, 0, None),
        (18, 3, 3, 8, 1, 2, 16, 0, None),
        (1, 4, 2, 16, 2, 2, 77, 1, 33),
        (20, 2, 1, 8, 1, 1, 50, 0, 5),
        (7, 3, 3, 24, 1, 12, 1000, 0, 180),
        (6, 2, 2, 8, 2, 2, 9, 1, 24),
        (2, 2, 1, 8, 1, 1, 31, 0, 1),
    ):

        def attention(q, k, v, keys, values, count, number, width=width, shared=shared, heads=heads, window=window):
            past = int(count)
            sees = window or past + len(q)
            places = torch.arange(max(past + 1 - sees, 0), past) % (16 * len(keys))  # of a ring, if there is a window
            old = keys[:, int(number)].permute(1, 0, 3, 2).reshape(shared, -1, width)[:, places]
            kept = values[:, int(number)].transpose(0, 1).reshape(shared, -1, width)[:, places]
            new = [x.reshape(len(x), -1, width).transpose(0, 1) for x in (q, k, v)]
            k, v = (
                torch.cat(pair, 1).repeat_interleave(heads // shared, 0) for pair in ((old, new[1]), (kept, new[2]))
            )
            seen = torch.ones(len(q), len(places) + len(q), dtype=torch.bool).tril(len(places))
            seen = seen & ~seen.tril(len(places) - sees)
            made = torch.nn.functional.scaled_dot_product_attention(new[0], k, v, attn_mask=seen)
            return made.transpose(0, 1).reshape(q.shape)

        new = [floats(rng, (rows, n * width), -2, 2) for n in (heads, shared, shared)]
        caches = [floats(rng, (blocks, layers, shared, *end), -2, 2) for end in ((width, 16), (16, width))]
        numbers = [np.array([past], np.int64), np.array([layer], np.int64)]
        attrs = {} if window is None else {"window": window}
        yield Sample([*new, *caches, *numbers], attrs, attention, differentiable=False, rtol=1e-4, atol=1e-5)
