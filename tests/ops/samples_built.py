"""Samples of the operators that a build puts in place of others: packed and Winograd products.

Their oracle is what they stand for, PyTorch's matmul, conv2d or pad, after undoing the packing."""

import numpy as np
from sample import Sample, floats, samples


@samples("_pack_panels")
def pack_panels(rng, torch):
    def panels(w, lanes, transposed):
        matrix = w.T if transposed else w
        missing = -matrix.shape[1] % lanes
        wide = torch.nn.functional.pad(matrix, (0, missing))
        return torch.stack(wide.split(lanes, dim=1))

    for shape, lanes, transposed in [
        ((3, 8), 4, False),
        ((5, 7), 4, False),
        ((7, 5), 4, True),
        ((1, 16), 16, False),
        ((16, 2), 8, True),
    ]:
        run = lambda w, n=lanes, t=transposed: panels(w, n, t)
        yield Sample([floats(rng, shape)], {"lanes": lanes, "transposed": transposed}, run)


@samples("_packed_matmul")
def packed_matmul(rng, torch):
    def product(x, panels, units):
        return x @ torch.cat(list(panels), dim=1)[:, :units]

    for rows, depth, units, lanes in [
        ((3,), 4, 8, 4),
        ((2, 5), 3, 7, 4),
        ((), 6, 5, 8),
        ((1,), 1, 1, 16),
        ((0,), 2, 3, 4),
    ]:
        panels = floats(rng, (-(-units // lanes), depth, lanes))
        run = lambda x, w, u=units: product(x, w, u)
        yield Sample([floats(rng, (*rows, depth)), panels], {"units": units}, run)


def _transformed(torch, w, matrix, lanes):
    """G g G^T by definition, in torch."""
    g = torch.tensor(matrix, dtype=torch.float64)
    made = g @ w.double() @ g.T  # (o, i, t, t)
    o, i, t, _ = made.shape
    return made.reshape(o // lanes, lanes, i, t * t).permute(3, 0, 2, 1).to(w.dtype)


def _toom_cook(points):
    """G at finite points and infinity: Lagrange's denominators under the powers of a point."""
    rows = [[p**k / np.prod([p - q for q in points if q != p]) for k in range(3)] for p in points]
    return [*rows, [0, 0, 1]]


MATRICES = {2: _toom_cook([0, 1, -1]), 4: _toom_cook([0, 5 / 8, -5 / 8, 3 / 2, -3 / 2])}


@samples("_winograd_weight")
def winograd_weight(rng, torch):
    for tile, lanes, shape in [(4, 4, (8, 3, 3, 3)), (2, 4, (4, 4, 3, 3)), (4, 2, (2, 1, 3, 3))]:
        run = lambda w, t=tile, n=lanes: _transformed(torch, w, MATRICES[t], n)
        yield Sample([floats(rng, shape)], {"tile": tile, "lanes": lanes}, run)
    turned = lambda w: _transformed(torch, w.swapaxes(0, 1).flip((2, 3)), MATRICES[4], 4)
    yield Sample([floats(rng, (3, 8, 3, 3))], {"tile": 4, "lanes": 4, "turned": True}, turned)


@samples("_winograd_conv2d")
def winograd_conv2d(rng, torch):
    """The oracle is an ordinary convolution by the filters that were transformed."""

    def conv(x, w, bias, pads, lanes):
        n, blocks, height, width, _ = x.shape
        data = x.permute(0, 1, 4, 2, 3).reshape(n, blocks * lanes, height, width)
        top, left, bottom, right = pads
        data = torch.nn.functional.pad(data, (left, right, top, bottom))
        out = torch.conv2d(data, w, None if bias is None else bias.reshape(-1))
        n, channels, height, width = out.shape
        return out.reshape(n, channels // lanes, lanes, height, width).permute(0, 1, 3, 4, 2)

    for tile, lanes, channels, depth, size, pads, use_bias in [
        (4, 4, 8, 4, (9, 7), (1, 1, 1, 1), True),
        (4, 8, 8, 16, (4, 4), (1, 1, 1, 1), False),
        (2, 4, 4, 4, (6, 5), (0, 1, 2, 0), True),
        (4, 8, 16, 8, (6, 10), (0, 0, 0, 0), True),
    ]:
        w = floats(rng, (channels, depth, 3, 3))
        filters = _transformed(torch, torch.from_numpy(w), MATRICES[tile], lanes).numpy()
        data = floats(rng, (2, depth // lanes, *size, lanes))
        bias = [floats(rng, (channels // lanes, lanes))] if use_bias else []
        attrs = {"channels": channels, "padding": pads, "tile": tile, "lanes": lanes}
        attrs["use_bias"] = use_bias
        first = torch.from_numpy(w)
        run = lambda x, u, *b, w=first, p=pads, n=lanes: conv(x, w, *(b or [None]), p, n)
        inputs = [data, np.ascontiguousarray(filters), *bias]
        yield Sample(inputs, attrs, run, rtol=1e-4, atol=1e-3)


@samples("_halo")
def halo(rng, torch):
    for shape, pads, fill in [
        ((2, 3, 4, 5), (1, 1, 1, 1), 0.0),
        ((1, 2, 3, 4), (0, 2, 1, 0), 1.0),
        ((1, 1, 1, 1), (0, 0, 0, 0), 1.0),
    ]:
        top, left, bottom, right = pads
        run = lambda x, p=(left, right, top, bottom), v=fill: torch.nn.functional.pad(x, p, value=v)
        yield Sample([floats(rng, shape)], {"pads": pads, "fill": fill}, run)


def _attended(torch, q, k, v, mask, scale, unseen):
    """Attention as PyTorch computes it, in float64; a row that is all -inf as the sample says."""
    scores = q.double() @ k.double().mT * scale
    if mask is not None:
        scores = scores + mask.double().mT
    p = torch.softmax(scores, -1)
    return (p if unseen == "nan" else torch.nan_to_num(p, nan=0.0)) @ v.double()


def _from_heads(torch, batch, queries, keys, heads, width, values, mask, unseen, heads_first):
    """Query, key and value side by side in the last axis, as one matrix product gives them."""
    row = heads * (2 * width + values)
    length = max(queries, keys)

    def run(x, _key, _value, *given):
        parts = torch.split(x, [heads * width, heads * width, heads * values], dim=-1)
        q, k, v = (part.reshape(batch, length, heads, -1).transpose(1, 2) for part in parts)
        args = q[:, :, :queries], k[:, :, :keys], v[:, :, :keys]
        out = _attended(torch, *args, given[0] if given else None, 0.25, unseen)
        return (out if heads_first else out.transpose(1, 2)).to(x.dtype)

    steps = (length * row, width, row, 1)
    attrs = {
        "batch": (batch, heads),
        "queries": queries,
        "keys": keys,
        "width": width,
        "values": values,
        "query": (0, *steps),
        "key": (heads * width, *steps),
        "value": (2 * heads * width, length * row, values, row, 1),
        "scale": 0.25,
        "out_axes": (0, 1, 2, 3) if heads_first else (0, 2, 1, 3),
        "masked": mask is not None,
        "unseen": unseen,
    }
    return (batch, length, row), attrs, run


@samples("_strided_attention")
def strided_attention(rng, torch):
    for case in [
        (1, 5, 5, 2, 4, 4, None, "nan", False),
        (2, 33, 37, 3, 7, 19, None, "nan", True),
        (1, 35, 13, 1, 8, 16, (13, 35), "nan", False),
        (2, 16, 3, 2, 5, 1, (2, 1, 3, 1), "zero", False),
        (1, 1, 40, 2, 3, 64, (1, 2, 40, 1), "clean", True),
    ]:
        shape, attrs, run = _from_heads(torch, *case)
        x = floats(rng, shape)
        mask = [] if case[6] is None else [floats(rng, case[6])]
        if mask:
            mask[0].reshape(-1)[0] = -np.inf
            if case[7] != "nan":
                mask[0][...] = np.where(rng.random(mask[0].shape[:2] + (1, 1)) < 0.5, -np.inf, mask[0])
        yield Sample([x, x, x, *mask], attrs, run)
