"""Batch norm in training on a GPU, as AlterOpLayout is told: sums over rows of channels, which go in chunks where they
are long, and work on each element, which joins what follows it.

All vectors are float32 where pictures are short floats: the moments that the gradient reads are those that were
computed, before they were rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ...base.cuda_target import CudaTarget
from ...base.dtype import FLOAT32, dtype_name
from ...base.shape import is_static
from ...core.ir import Fact
from ...core.op import Op
from ...core.symbol import Group, Symbol
from ...ops.channels_last import channels  # noqa: F401  the operators used here
from ...ops.math import elemwise  # noqa: F401  the operators used here
from .pictures import as_stored, nameless, stored_last
from .product import KINDS


def norm_of_batch(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CudaTarget) -> Symbol | None:
    """_batch_norm_moments: (x - mean) gamma / sqrt(var + epsilon) + beta; None where data is no picture in NCHW."""
    if not _are_pictures(params, facts[0]):
        return None
    data, gamma, beta = inputs
    shape = _last(facts[0].shape)
    pictures = as_stored(data, shape)
    mean, var = Op.get("_channel_moments")(_rows(pictures, shape))
    shift = _vector(beta, facts[2]) if params.center else Op.get("zeros")(shape=shape[-1:])
    made = Op.get("_channel_scaled")(pictures, mean, _factor(params, _spread(params, var), gamma, facts[1]), shift)
    return Group([stored_last(made), *(_short(each, facts[0]) for each in (mean, var))])


def gradient_of_norm(params: Any, inputs: Symbol, facts: Sequence[Fact], target: CudaTarget) -> Symbol | None:
    """_batch_norm_grad: with s = 1 / sqrt(var + epsilon), f = gamma s, a = sum g (x - mean) and b = sum g over n rows

    dx = f g + (x - mean) (2 dvar - a f s^2) / n + (dmean - b f) / n,  dgamma = a s,  dbeta = b
    """
    if not _are_pictures(params, facts[0]):
        return None
    g, data, gamma, *vectors = inputs
    shape = _last(facts[0].shape)
    mean, var, to_mean, to_var = (_vector(*pair) for pair in zip(vectors, facts[3:]))
    pictures = [as_stored(side, shape) for side in (g, data)]
    along, plain = Op.get("_channel_slopes")(*(_rows(side, shape) for side in pictures), mean)
    spread = _spread(params, var)
    factor = _factor(params, spread, gamma, facts[2])
    slope = (to_var * 2 - along * factor * spread * spread) / prod(shape[:3])
    shift = (to_mean - plain * factor) / prod(shape[:3])
    made = Op.get("_channel_tilted")(*pictures, mean, factor, slope, shift)
    return Group([stored_last(made), *(_short(each, facts[0]) for each in (along * spread, plain))])


def _are_pictures(params: Any, fact: Fact) -> bool:
    """Whether others call the data's axes NCHW: what is normed alone stays as it is."""
    shape = fact.shape
    known = is_static(shape) and len(shape) == 4 and prod(shape) > 0
    return known and params.axis == 1 and fact.layout.name == "NCHW" and fact.dtype in KINDS


def _last(shape: Any) -> tuple[int, ...]:
    return (shape[0], *shape[2:], shape[1])


def _rows(pictures: Symbol, shape: Sequence[int]) -> Symbol:
    return Op.get("reshape")(pictures, shape=(prod(shape[:3]), shape[3]))


def _wide(value: Symbol) -> Symbol:
    return Op.get("cast")(value, dtype=dtype_name(FLOAT32))


def _vector(value: Symbol, fact: Fact) -> Symbol:
    """A number for each channel in float32: what it was rounded from, if that was computed."""
    node = value.outputs[0].node
    if node.op_name == "cast" and node.inputs[0].node.op is not None:
        value = Symbol([node.inputs[0]])
    return _wide(nameless(value, fact.shape))  # type: ignore[arg-type]


def _short(value: Symbol, fact: Fact) -> Symbol:
    assert fact.dtype is not None
    return Op.get("cast")(value, dtype=dtype_name(fact.dtype))


def _spread(params: Any, var: Symbol) -> Symbol:
    return Op.get("rsqrt")(var + params.epsilon)


def _factor(params: Any, spread: Symbol, gamma: Symbol, fact: Fact) -> Symbol:
    return spread * _vector(gamma, fact) if params.scale else spread
