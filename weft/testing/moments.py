"""Batch-norm statistics that fit: a network and its parameters come in; moving means and variances
near those of the activations are written into the parameters.

One number, the mean square, is followed through the graph: weights that are independent and have
mean zero multiply it by (number of inputs) x (mean square of a weight).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..core.ir import Node, topo_order
from ..core.symbol import Symbol

Params = dict[str, np.ndarray]


def settle_statistics(net: Symbol, params: Params, rng: np.random.Generator) -> None:
    """Sets `moving_mean` and `moving_var` of every batch_norm of the network, in place."""
    squares: dict[Node, float] = {}
    for node in topo_order(net.outputs):
        if node.op is None:
            value = params.get(node.name)
            squares[node] = 1.0 if value is None else _mean_square(value)
            continue
        ins = [squares[entry.node] for entry in node.inputs]
        if node.op.name == "batch_norm":
            squares[node] = _settle_batch_norm(node, ins, params, rng)
        else:
            squares[node] = _RULES.get(node.op.name, _unchanged)(node, ins, params)


def _mean_square(value: np.ndarray) -> float:
    return float(np.mean(np.square(value, dtype=np.float64))) if value.size else 0.0


def _settle_batch_norm(node: Node, ins: list[float], params: Params, rng: np.random.Generator) -> float:
    mean, var = (params.get(node.inputs[i].node.name) for i in (3, 4))
    if mean is not None and var is not None:
        mean[...] = 0.1 * np.sqrt(ins[0]) * rng.standard_normal(mean.shape)
        var[...] = ins[0] * rng.uniform(0.8, 1.25, var.shape)
    return ins[1] + ins[2]


def _unchanged(node: Node, ins: list[float], params: Params) -> float:
    return ins[0] if ins else 1.0


def _of_weights(fan_in: Callable[[Any, tuple[int, ...]], float]) -> Any:
    def rule(node: Node, ins: list[float], params: Params) -> float:
        weight = params.get(node.inputs[1].node.name)
        if weight is None:
            return ins[0]
        products = ins[0] * fan_in(node.params, weight.shape) * ins[1]
        return products + (ins[2] if len(ins) > 2 else 0.0)

    return rule


def _transposed_fan_in(params: Any, shape: tuple[int, ...]) -> float:
    return shape[0] * math.prod(shape[2:]) / float(np.prod(params.strides))


_RULES = {
    "conv2d": _of_weights(lambda params, shape: float(np.prod(shape[1:]))),
    "dense": _of_weights(lambda params, shape: shape[1]),
    "conv2d_transpose": _of_weights(_transposed_fan_in),
    "relu": lambda node, ins, params: ins[0] / 2,
    "clip": lambda node, ins, params: ins[0] / 2,
    "leaky_relu": lambda node, ins, params: ins[0] / 2,
    "tanh": lambda node, ins, params: min(ins[0], 0.6),
    "sigmoid": lambda node, ins, params: 0.3,
    "global_avg_pool2d": lambda node, ins, params: 0.6 * ins[0],
    "max_pool2d": lambda node, ins, params: 1.5 * ins[0],
    "elemwise_add": lambda node, ins, params: sum(ins),
    "broadcast_add": lambda node, ins, params: sum(ins),
    "concatenate": lambda node, ins, params: float(np.mean(ins)),
}
