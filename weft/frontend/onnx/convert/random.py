"""Converters of what draws random numbers. Each node has a generator of its own: its state is a
parameter that runs move on, and begins at the node's seed."""

from __future__ import annotations

import numpy as np

from ....base.dtype import BOOL, FLOAT32, FLOAT64, DType
from ....base.errors import FormatError, Unsupported
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter
from ..tensors import dtype_of


def _state(call: OnnxCall) -> Value:
    seed = call.attr("seed")
    if seed is not None and not np.isfinite(seed):
        raise FormatError(f"{call.op_type} has the seed {seed}")
    return call.random_state(None if seed is None else int(seed))


def _dtype(call: OnnxCall, otherwise: DType | None = None) -> DType:
    code = call.attr("dtype")
    if code is None and otherwise is not None:
        return otherwise
    return dtype_of(code, "attribute 'dtype'")


def _distribution(call: OnnxCall) -> tuple[str, dict[str, float]]:
    if call.op_type.startswith("RandomUniform"):
        return "random_uniform", call.attrs("low high")
    return "random_normal", call.attrs("mean scale=std")


@converter("RandomUniform", "RandomNormal")
def drawn(call: OnnxCall) -> Value:
    name, attrs = _distribution(call)
    shape = tuple(call.attr("shape"))
    return call.op(name, _state(call), shape=shape, dtype=_dtype(call), **attrs)


@converter("RandomUniformLike", "RandomNormalLike")
def drawn_like(call: OnnxCall) -> Value:
    name, attrs = _distribution(call)
    dtype = _dtype(call, call.dtype(call[0]))
    return call.op(name, _state(call), shape=call.shape(call[0]), dtype=dtype, **attrs)


@converter("Bernoulli", since=15)
def bernoulli(call: OnnxCall) -> Value:
    """1 where a number of [0, 1) is below the probability."""
    chance = call[0]
    wide = FLOAT64 if chance.dtype == FLOAT64 else FLOAT32
    number = call.op("random_uniform", _state(call), shape=call.shape(chance), dtype=wide)
    below = call.op("less", number, call.cast(chance, wide))
    return call.cast(below, _dtype(call, call.dtype(chance)))


@converter("Multinomial", since=7)
def multinomial(call: OnnxCall) -> Value:
    """The class c for which a number of (0, 1], times the sum of all weights, is above the sum of
    those before c and not above that with c: so one of weight 0 never is chosen."""
    logits = call.cast(call[0], FLOAT64)
    shape, count = call.shape(logits), call.attr("sample_size")
    if len(shape) != 2 or not shape[1] or count < 0:
        raise FormatError(f"{count} samples by weights of shape {shape}")
    peak = call.op("max", logits, axis=1, keepdims=True)
    sums = call.op("cumsum", call.op("exp", call.op("broadcast_sub", logits, peak)), axis=1)
    total = call.sliced(sums, {1: (shape[1] - 1, shape[1], 1)})
    number = call.op("random_uniform", _state(call), shape=(shape[0], count), dtype=FLOAT64)
    place = call.op("broadcast_mul", call.op("__rsub_scalar__", number, scalar=1), total)
    before = call.op("broadcast_less", call.op("expand_dims", sums, axis=1), call.op("expand_dims", place, axis=2))
    return call.op("sum", call.cast(before, _dtype(call)), axis=2)


@converter("Dropout", since=7, decides=(1, 2))
def dropout(call: OnnxCall) -> list[Value]:
    if call.number(2, "training_mode", 0):
        return _dropped(call, call.number(1, "the ratio", 0.5))
    call.ignore("ratio", "seed", 1)
    return _undropped(call)


@converter("Dropout")
def dropout_but_in_tests(call: OnnxCall) -> list[Value]:
    """Until opset 6 it drops unless an attribute says that this is a test."""
    call.ignore("consumed_inputs")
    rate = call.attr("ratio")
    return _undropped(call) if call.attr("is_test") else _dropped(call, rate)


def _mask_dtype(call: OnnxCall) -> DType:
    return BOOL if call.opset >= 10 else call.dtype(call[0])


def _undropped(call: OnnxCall) -> list[Value]:
    """Nothing is dropped at inference, and the mask is all true."""
    if 1 not in call.wanted:
        return [call[0]]
    return [call[0], call.op("ones", shape=call.shape(call[0]), dtype=_mask_dtype(call))]


def _dropped(call: OnnxCall, rate: float) -> list[Value]:
    data = call[0]
    if not 0 <= rate < 1:
        raise Unsupported(f"Dropout with the ratio {rate}")
    if 1 not in call.wanted:
        return [call.op("dropout", data, _state(call), rate=rate, training=True)]
    shape, dtype = call.shape(data), call.dtype(data)
    kept = call.op("random_bernoulli", _state(call), p=1 - rate, shape=shape, dtype=dtype)
    scaled = call.scaled(kept, 1 / (1 - rate))
    return [call.op("elemwise_mul", data, scaled), call.cast(kept, _mask_dtype(call))]
