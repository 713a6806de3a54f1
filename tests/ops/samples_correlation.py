"""Samples of the correlation of images: PyTorch slices and shifts are the oracle."""

import math

import numpy as np
from sample import Sample, floats, samples

CASES = [
    {},
    {"max_displacement": 2, "stride2": 2, "pad_size": 2},
    {"kernel_size": 3, "max_displacement": 1, "pad_size": 2, "stride1": 2},
    {"max_displacement": 3, "stride2": 2, "pad_size": 3, "is_multiply": False},
]


def _correlation(torch, a, b, kernel_size=1, max_displacement=1, stride1=1, stride2=1, pad_size=0, is_multiply=True):
    """One shifted product a move, summed over patches by a convolution with ones."""
    pad = torch.nn.functional.pad
    reach = max_displacement // stride2
    border = max_displacement + (kernel_size - 1) // 2
    sizes = [math.ceil((n + 2 * pad_size - 2 * border) / stride1) for n in a.shape[2:]]
    far = kernel_size + stride1
    edge = (pad_size, pad_size + far) * 2
    first = pad(a, edge)
    made = []
    for down in range(-reach, reach + 1):
        for across in range(-reach, reach + 1):
            wide = pad(b, (pad_size + max_displacement, pad_size + max_displacement + far) * 2)
            y, x = max_displacement + down * stride2, max_displacement + across * stride2
            moved = wide[:, :, y : y + first.shape[2], x : x + first.shape[3]]
            joint = first * moved if is_multiply else (first - moved).abs()
            joint = joint[:, :, max_displacement:, max_displacement:].mean(1, keepdim=True)
            ones = torch.ones((1, 1, kernel_size, kernel_size), dtype=a.dtype)
            total = torch.nn.functional.conv2d(joint, ones, stride=stride1) / kernel_size**2
            made.append(total[:, :, : sizes[0], : sizes[1]])
    return torch.cat(made, 1)


@samples("correlation")
def correlation(rng, torch):
    for attrs in CASES:
        inputs = [floats(rng, (2, 3, 5, 6)), floats(rng, (2, 3, 5, 6))]
        yield Sample(inputs, attrs, lambda a, b, kw=attrs: _correlation(torch, a, b, **kw))
    none = np.zeros((0, 2, 4, 4), "float32")
    yield Sample([none, none], {})


@samples("_correlation_grad")
def correlation_grad(rng, torch):
    for attrs in CASES:
        inputs = [floats(rng, (2, 3, 5, 6)), floats(rng, (2, 3, 5, 6))]

        def gradient(g, a, b, kw=attrs):
            a, b = (x.clone().requires_grad_() for x in (a, b))
            return torch.autograd.grad(_correlation(torch, a, b, **kw), [a, b], g)

        shape = _correlation(torch, *map(torch.from_numpy, inputs), **attrs).shape
        yield Sample([floats(rng, shape), *inputs], attrs, gradient, differentiable=False)
    none = np.zeros((0, 2, 4, 4), "float32")
    yield Sample([np.zeros((0, 9, 2, 2), "float32"), none, none], {}, differentiable=False)
