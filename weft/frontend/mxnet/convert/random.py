"""Converters of what draws random numbers. Each node has a generator of its own, whose state is a
parameter that runs move on; the numbers are those of weft's stream, not of MXNet's."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ....base.dtype import FLOAT32, FLOAT64, INT32, DType
from ....base.errors import Unsupported
from ...emitter import Value
from ..call import Call
from ..registry import converter


def _shape(call: Call) -> tuple[int, ...]:
    shape = tuple(call.attr("shape") or (1,))
    if 0 in shape:
        raise Unsupported(
            f"{call.op_type} of shape {shape}, in which 0 is a size that is not known",
            hint="export the model with a fixed batch size",
        )
    return shape


def _drawn(call: Call, law: str, shape: Sequence[int], dtype: DType, **attrs: float) -> Value:
    return call.op(f"random_{law}", call.random_state(), shape=tuple(shape), dtype=dtype, **attrs)


def _exponential(call: Call, shape: Sequence[int], dtype: DType) -> Value:
    """-log(1 - u), with u of [0, 1)"""
    wide = FLOAT64 if dtype == FLOAT64 else FLOAT32
    rest = call.op("__rsub_scalar__", _drawn(call, "uniform", shape, wide), scalar=1.0)
    return call.cast(call.op("negative", call.op("log", rest)), dtype)


def _place(call: Call) -> tuple[tuple[int, ...], DType]:
    """Shape and dtype, which may be those of an input."""
    if call.op_type.endswith("_like"):
        return call.shape(call[0]), call.dtype(call[0])
    return _shape(call), call.dtype_attr() or FLOAT32


@converter("_random_uniform", "_random_uniform_like")
def uniform(call: Call) -> Value:
    return _drawn(call, "uniform", *_place(call), low=call.attr("low"), high=call.attr("high"))


@converter("_random_normal", "_random_normal_like")
def normal(call: Call) -> Value:
    return _drawn(call, "normal", *_place(call), mean=call.attr("loc"), std=call.attr("scale"))


@converter("_random_exponential", "_random_exponential_like")
def exponential(call: Call) -> Value:
    return call.scaled(_exponential(call, *_place(call)), 1 / call.attr("lam"))


@converter("_random_randint")
def randint(call: Call) -> Value:
    limits = {"low": call.attr("low"), "high": call.attr("high")}
    return _drawn(call, "randint", _shape(call), call.dtype_attr() or INT32, **limits)


# Distributions whose parameters are inputs: some numbers for each of them.


def _each(call: Call) -> tuple[list[Value], tuple[int, ...], DType]:
    """The parameters with axes for the numbers drawn, and shape and dtype of the result."""
    shape, more = call.shape(call[0]), tuple(call.attr("shape"))
    dtype = call.dtype_attr() or call.dtype(call[0])
    reshaped = [call.cast(call.reshape(value, (*shape, *[1] * len(more))), dtype) for value in call.all()]
    return reshaped, (*shape, *more), dtype


@converter("_sample_uniform")
def sample_uniform(call: Call) -> Value:
    (low, high), shape, dtype = _each(call)
    span = call.op("broadcast_sub", high, low)
    return call.op("broadcast_add", call.op("broadcast_mul", _drawn(call, "uniform", shape, dtype), span), low)


@converter("_sample_normal")
def sample_normal(call: Call) -> Value:
    (mean, std), shape, dtype = _each(call)
    return call.op("broadcast_add", call.op("broadcast_mul", _drawn(call, "normal", shape, dtype), std), mean)


@converter("_sample_exponential")
def sample_exponential(call: Call) -> Value:
    (rate,), shape, dtype = _each(call)
    return call.op("broadcast_div", _exponential(call, shape, dtype), rate)


@converter("_sample_multinomial")
def sample_multinomial(call: Call) -> Value:
    """The first class whose sum of probabilities up to it is above a number of [0, 1)."""
    call.only_first_output()
    call.ignore("get_prob")
    (*lead, classes), more = call.shape(call[0]), tuple(call.attr("shape"))
    wide = call.cast(call[0], FLOAT64)
    sums = call.reshape(call.op("cumsum", wide, axis=-1), (*lead, 1, classes))
    drawn = _drawn(call, "uniform", (*lead, prod(more), 1), FLOAT64)
    passed = call.op("broadcast_less_equal", sums, drawn)
    number = call.op("sum", passed, axis=(-1,))
    number = call.op("clip", number, a_min=0.0, a_max=float(classes - 1))
    return call.reshape(call.cast(number, call.dtype_attr() or INT32), (*lead, *more) or (1,))
