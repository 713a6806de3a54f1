"""Samples of reading images at places that are computed; PyTorch's grid_sample is the oracle."""

import numpy as np
from sample import Sample, floats, samples

CASES = [
    {},
    {"align_corners": True},
    {"padding": "border"},
    {"padding": "border", "align_corners": True},
    {"padding": "reflection"},
    {"padding": "reflection", "align_corners": True},
    {"mode": "nearest"},
    {"mode": "nearest", "padding": "border", "align_corners": True},
    {"mode": "nearest", "padding": "reflection"},
    *(
        {"mode": "bicubic", "padding": padding, "align_corners": align_corners}
        for padding in ("zeros", "border", "reflection")
        for align_corners in (False, True)
    ),
]
VOLUMES = [
    {},
    {"padding": "border", "align_corners": True},
    {"padding": "reflection"},
    {"mode": "nearest", "align_corners": True},
]


def _grid_sample(torch, x, grid, mode="bilinear", padding="zeros", align_corners=False):
    return torch.nn.functional.grid_sample(x, grid, mode, padding, align_corners)


def _inputs(rng):
    return [floats(rng, (2, 3, 4, 5)), floats(rng, (2, 3, 4, 2), -2.8, 2.8)]


def _volumes(rng):
    return [floats(rng, (2, 3, 4, 5, 3)), floats(rng, (2, 3, 2, 4, 3), -2.8, 2.8)]


@samples("grid_sample")
def grid_sample(rng, torch):
    for cases, make in ((CASES, _inputs), (VOLUMES, _volumes)):
        for attrs in cases:
            yield Sample(make(rng), attrs, lambda x, g, a=attrs: _grid_sample(torch, x, g, **a))
    yield Sample([floats(rng, (0, 2, 3, 3)), np.zeros((0, 2, 2, 2), "float32")], CASES[0])


def _backward(torch, number, attrs):
    def gradient(head, x, grid):
        inputs = [x.clone().requires_grad_(), grid.clone().requires_grad_()]
        made = _grid_sample(torch, *inputs, **attrs)
        return torch.autograd.grad(made, inputs[number], head)[0]

    return gradient


def _gradients(rng, torch, number):
    for cases, make in ((CASES, _inputs), (VOLUMES, _volumes)):
        for attrs in cases:
            data, grid = make(rng)
            head = floats(rng, (*data.shape[:2], *grid.shape[1:-1]))
            wanted = _backward(torch, number, attrs)
            # The cubic weights of sixteen elements add up to little.
            rounding = {"rtol": 1e-4, "atol": 2e-5} if attrs.get("mode") == "bicubic" else {}
            yield Sample([head, data, grid], attrs, wanted, differentiable=False, **rounding)
    none = [np.zeros((0, 2, 2, 2), "float32"), floats(rng, (0, 2, 3, 3)), np.zeros((0, 2, 2, 2), "float32")]
    yield Sample(none, CASES[0], differentiable=False)


@samples("_grid_sample_grad")
def grid_sample_grad(rng, torch):
    yield from _gradients(rng, torch, 0)


@samples("_grid_sample_grad_grid")
def grid_sample_grad_grid(rng, torch):
    yield from _gradients(rng, torch, 1)
