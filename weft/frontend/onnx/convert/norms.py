"""Converters of normalisations by the moments of each item: of layers, of groups of channels, by root mean squares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...building import Building, in_float32
from ...emitter import Value
from ...shapes import one_a_channel
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of


@converter("LayerNormalization")
def layer_normalization(call: OnnxCall) -> list[Value]:
    """Over the last axes from `axis` on; the mean and 1 / deviation only where they are used. Files of ONNX Runtime
    have it in opsets before 17, too, where there is no schema."""
    call.assume(axis=-1, epsilon=1e-5, stash_type=1)
    stash = dtype_of(call.attr("stash_type"), "attribute 'stash_type'")
    axis, epsilon = call.axis(call.attr("axis"), call[0]), call.attr("epsilon")
    normalised = layer_norm(call, call[0], call[1], call.get(2), axis, epsilon)
    if not call.wanted - {0}:
        return [normalised]
    return [normalised, *(call.cast(value, stash) for value in moments(call, call[0], axis, epsilon))]


def layer_norm(call: Building, data: Value, scale: Value, bias: Value | None, axis: int, epsilon: float) -> Value:
    """(x - mean) / deviation scale + bias over the axes from `axis` on, rounded once."""
    dtype = call.dtype(data)
    data, scale = call.widened(data), call.widened(scale)
    bias = call.make(0, call.dtype(scale)) if bias is None else call.widened(bias)
    shape = call.trailing(data, axis)
    if all(_fits(call, value, shape) for value in (scale, bias)):
        parts = [call.broadcast_to(value, shape) for value in (scale, bias)]
        return call.cast(call.op("layer_norm", data, *parts, axis=axis, epsilon=epsilon), dtype)
    unit = [call.make(np.full(shape, number), call.dtype(data)) for number in (1, 0)]
    plain = call.op("layer_norm", data, *unit, axis=axis, epsilon=epsilon)
    return call.cast(call.op("broadcast_add", call.op("broadcast_mul", plain, scale), bias), dtype)


def rms_norm(call: Building, data: Value, scale: Value, axis: int, epsilon: float) -> Value:
    """x / root of the mean square, scaled, over the axes from `axis` on; in the dtype of the scale."""
    dtype, shape, result = call.dtype(data), call.trailing(data, axis), call.dtype(scale)
    wide = call.widened(data)
    if dtype == result and _fits(call, scale, shape):
        scale = call.broadcast_to(call.widened(scale), shape)
        return call.cast(call.op("rms_norm", wide, scale, axis=axis, epsilon=epsilon), result)
    unit = call.make(np.ones(shape), call.dtype(wide))
    plain = call.cast(call.op("rms_norm", wide, unit, axis=axis, epsilon=epsilon), dtype)
    return call.op("broadcast_mul", call.cast(plain, result), scale)


def _fits(call: Building, value: Value, shape: Sequence[int]) -> bool:
    """Whether a scale goes over the normalised axes alone, so that one operator serves."""
    own = call.shape(value)
    return len(own) <= len(shape) and all(dim in (1, whole) for dim, whole in zip(own[::-1], shape[::-1]))


def moments(call: Building, data: Value, axis: int, epsilon: float) -> list[Value]:
    """The mean and 1 / deviation over the axes from `axis` on, which stay as 1."""
    axes = tuple(range(axis, call.rank(data)))
    mean, centred = call.centred(call.widened(data), axes)
    var = call.op("mean", call.square(centred), axis=axes, keepdims=True)
    return [mean, call.op("__pow_scalar__", call.shifted(var, epsilon), scalar=-0.5)]


@converter("RMSNormalization", since=23)
def rms_normalization(call: OnnxCall) -> Value:
    call.ignore("stash_type")
    return rms_norm(call, call[0], call[1], call.axis(call.attr("axis"), call[0]), call.attr("epsilon"))


@converter("GroupNormalization", since=18)
@in_float32
def group_normalization(call: OnnxCall) -> Value:
    """Scale and bias are one number a group in opset 18, one a channel since 21."""
    call.ignore("stash_type")
    channels, groups = call.shape(call[0])[1], call.attr("num_groups")
    scale, bias = call[1], call[2]
    if call.opset < 21:
        scale, bias = (one_a_channel(call, value, groups, channels) for value in (scale, bias))
    return call.op("group_norm", call[0], scale, bias, num_groups=groups, epsilon=call.attr("epsilon"))
