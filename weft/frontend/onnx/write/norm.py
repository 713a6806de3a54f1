"""Writers of normalisations."""

from __future__ import annotations

import numpy as np

from ..writing import Writing, writes


@writes("batch_norm")
def batch_norm(w: Writing) -> None:
    """Channels go to axis 1 and back where they are elsewhere."""
    params = w.params
    w.require(not params.training, "training")
    data, gamma, beta, mean, var = w.inputs
    size = w.ins[1].shape
    gamma = gamma if params.scale else w.constant(np.ones(size))
    beta = beta if params.center else w.constant(np.zeros(size))
    order = list(range(w.rank))
    order.insert(1, order.pop(params.axis % w.rank))
    moved = order != list(range(w.rank))
    data = w.node("Transpose", data, perm=order) if moved else data
    inputs = (data, gamma, beta, mean, var)
    if not moved:
        w.give("BatchNormalization", *inputs, epsilon=params.epsilon)
        return
    normed = w.node("BatchNormalization", *inputs, epsilon=params.epsilon)
    w.give("Transpose", normed, perm=[int(axis) for axis in np.argsort(order)])


@writes("rms_norm")
def rms_norm(w: Writing) -> None:
    """x / sqrt(mean x^2 + epsilon) gamma"""
    x, gamma = w.inputs
    axes = range(w.params.axis % w.rank, w.rank)
    square = w.reduced("ReduceMean", w.node("Mul", x, x), list(axes))
    root = w.node("Sqrt", w.node("Add", square, w.constant(w.params.epsilon)))
    w.give("Mul", w.node("Div", x, root), gamma)


@writes("group_norm")
def group_norm(w: Writing) -> None:
    """Groups as the instances of a longer tensor, then a scale and shift for each channel."""
    data, gamma, beta = w.inputs
    groups, count = w.params.num_groups, w.rank - 2
    flat = w.node("Reshape", data, w.ints((w.shape[0], groups, -1)))
    ones, zeros = w.constant(np.ones(groups)), w.constant(np.zeros(groups))
    normed = w.node("InstanceNormalization", flat, ones, zeros, epsilon=w.params.epsilon)
    normed = w.node("Reshape", normed, w.ints(w.shape))
    scale, shift = (w.node("Reshape", v, w.ints((-1,) + (1,) * count)) for v in (gamma, beta))
    w.give("Add", w.node("Mul", normed, scale), shift)


@writes("lrn")
def local_response_norm(w: Writing) -> None:
    """x / (bias + alpha / size * sum of the neighbours' squares)^beta. Runtimes have LRN for images
    and an odd size; otherwise the squares are padded, and their slices summed."""
    params, x = w.params, w.inputs[0]
    axis = params.axis % w.rank
    if axis == 1 and w.rank == 4 and params.size % 2:
        w.give("LRN", x, size=params.size, alpha=params.alpha, beta=params.beta, bias=params.bias)
        return
    before = [0] * w.rank
    after = list(before)
    before[axis], after[axis] = params.size // 2, params.size - 1 - params.size // 2
    padded = w.node("Pad", w.node("Mul", x, x), w.ints(before + after))
    parts = [
        w.node("Slice", padded, w.ints([at]), w.ints([at + w.shape[axis]]), w.ints([axis])) for at in range(params.size)
    ]
    total = w.node("Mul", w.node("Sum", *parts), w.constant(params.alpha / params.size))
    total = w.node("Add", total, w.constant(params.bias))
    w.give("Div", x, w.node("Pow", total, w.constant(params.beta)))


@writes("l2_normalize")
def l2_normalize(w: Writing) -> None:
    """x / sqrt(max(sum x^2, eps))"""
    x = w.inputs[0]
    axes = list(w.params.axis) or list(range(w.rank))
    square = w.reduced("ReduceSum", w.node("Mul", x, x), axes)
    w.give("Div", x, w.node("Sqrt", w.node("Max", square, w.constant(w.params.eps))))
