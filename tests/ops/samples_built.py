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


F2 = [[1, 0, 0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0, 0, 1]]
F4 = [
    [1 / 4, 0, 0],
    [-1 / 6, -1 / 6, -1 / 6],
    [-1 / 6, 1 / 6, -1 / 6],
    [1 / 24, 1 / 12, 1 / 6],
    [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
]
MATRICES = {2: F2, 4: F4}


@samples("_winograd_weight")
def winograd_weight(rng, torch):
    for tile, lanes, shape in [(4, 4, (8, 3, 3, 3)), (2, 4, (4, 4, 3, 3)), (4, 2, (2, 1, 3, 3))]:
        run = lambda w, t=tile, n=lanes: _transformed(torch, w, MATRICES[t], n)
        yield Sample([floats(rng, shape)], {"tile": tile, "lanes": lanes}, run)


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
    for shape, pads in [
        ((2, 3, 4, 5), (1, 1, 1, 1)),
        ((1, 2, 3, 4), (0, 2, 1, 0)),
        ((1, 1, 1, 1), (0, 0, 0, 0)),
    ]:
        top, left, bottom, right = pads
        run = lambda x, p=(left, right, top, bottom): torch.nn.functional.pad(x, p)
        yield Sample([floats(rng, shape)], {"pads": pads}, run)
