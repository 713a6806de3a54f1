"""Random numbers. The state of the generator is an input that every run moves on: 629 words, which
`Generator.graph_state` gives; the stream is that of `manual_seed`, and PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import draws
from ...base.bits import STATE_WORDS, MersenneTwister, from_state
from ...base.dtype import FLOAT32, INT64, DType, dtype_name, is_complex, is_float
from ...base.errors import DTypeError, InvalidValue, OutOfRange
from ...base.shape import unify
from ...core.op import Op
from ...core.schema import BOOL, DTYPE, FLOAT, INT, INTS, Params, attr, schema
from .. import _layouts as layouts
from .._families import Array, F, Inferred, Shapes, define, floating, no_flow
from .._kernels import Body
from ._twister import FLOAT64, UINT32, UINT64, Stream, Words, box_muller, draw, each, has_kept, keep, kept, pair, words

Specs = Sequence[tuple[tuple[int, ...], DType]]
STATE_DOC = "629 words of the generator (`Generator.graph_state`); moved on by each run"
_SHAPE = "the shape; () is a single number"


@schema
class UniformAttrs:
    shape: tuple[int, ...] = attr(INTS, _SHAPE, low=0)
    low: float = attr(FLOAT, "the least value", default=0.0)
    high: float = attr(FLOAT, "the end of the range, which is not part of it", default=1.0)
    dtype: DType = attr(DTYPE, "the dtype, a float", default=FLOAT32)


@schema
class NormalAttrs:
    shape: tuple[int, ...] = attr(INTS, _SHAPE, low=0)
    mean: float = attr(FLOAT, "the mean", default=0.0)
    std: float = attr(FLOAT, "the standard deviation", default=1.0, low=0)
    dtype: DType = attr(DTYPE, "the dtype, a float", default=FLOAT32)


@schema
class RandintAttrs:
    high: int = attr(INT, "the end of the range, which is not part of it")
    shape: tuple[int, ...] = attr(INTS, _SHAPE, low=0)
    low: int = attr(INT, "the least value", default=0)
    dtype: DType = attr(DTYPE, "the dtype, which has all values of the range", default=INT64)


@schema
class BernoulliAttrs:
    shape: tuple[int, ...] = attr(INTS, _SHAPE, low=0)
    p: float = attr(FLOAT, "the probability of 1", default=0.5, low=0, high=1)
    dtype: DType = attr(DTYPE, "the dtype", default=FLOAT32)


def _drawn_shape(params: Any, ins: Shapes, outs: Shapes) -> Inferred:
    return [(STATE_WORDS,)], [unify(params.shape, outs[0])]


def _any_dtype(params: Any, ins: Any, outs: Any) -> Inferred:
    if is_complex(params.dtype):
        raise DTypeError(f"random numbers of dtype {dtype_name(params.dtype)} in a graph")
    return [UINT32], [params.dtype]


def _float_dtype(params: Any, ins: Any, outs: Any) -> Inferred:
    if not is_float(params.dtype):
        raise DTypeError(f"dtype {dtype_name(params.dtype)} is no float")
    return _any_dtype(params, ins, outs)


Draw = Callable[[Any, MersenneTwister, int], Array]


def _operator(name: str, doc: str, attrs: type, drawn: Draw, **columns: Any) -> Op:
    """An operator that makes a tensor of a state; `drawn` is its meaning."""

    def reference(params: Any, state: Array) -> tuple[Array, Array]:
        source = from_state(state)
        made = drawn(params, source, math.prod(params.shape)).reshape(params.shape)
        return made, source.state()

    return define(
        name,
        doc,
        inputs={"state": STATE_DOC},
        attrs=attrs,
        shape=_drawn_shape,
        reference=reference,
        gradient=no_flow,
        mutates=[0],
        effect="random",
        **columns,
    )


Element = Callable[[Words, te.Expr], te.Expr]


def _each_drawn(body: Body, stream: Stream, element: Element) -> list[Any]:
    """Fills the first output, each element from words of its own."""
    shape, _ = body.specs[1]
    count = math.prod(shape)
    with body.kernel({**stream.views, 1: (count,)}, 20 * count) as (b, state, raw, out):
        each(b, count, lambda i: b.store(out, i, element(words(state, raw), i)))
    return body.kernels


# Evenly spread numbers.


def _check_range(params: UniformAttrs) -> None:
    if not params.low <= params.high or not params.high - params.low <= draws.largest(params.dtype):
        raise InvalidValue(f"random_uniform has the range [{params.low}, {params.high})")


def _uniform_dtype(params: UniformAttrs, ins: Any, outs: Any) -> Inferred:
    made = _float_dtype(params, ins, outs)
    _check_range(params)
    return made


def _uniform_drawn(params: UniformAttrs, source: MersenneTwister, count: int) -> Array:
    _check_range(params)
    return draws.uniform(source, count, params.dtype, params.low, params.high)


def _uniform_kernels(params: UniformAttrs, inputs: Specs, outputs: Specs) -> list[Any]:
    dtype = params.dtype
    wide = np.float64 if dtype == FLOAT64 else np.float32
    low, high = wide(params.low), wide(params.high)

    def element(words: Words, i: te.Expr) -> te.Expr:
        made = words.real(dtype, i)
        if (params.low, params.high) != (0, 1):
            made = te.fma(made, te.const(float(high - low), made.dtype), float(low))
        made = te.cast(made, dtype)
        if dtype.itemsize > 2:
            return made
        past = te.cast(made, FLOAT32) >= float(high)  # rounding may reach the end
        return te.select(past, te.cast(te.const(float(low), FLOAT32), dtype), made)

    body = Body("random_uniform", inputs, outputs)
    stream = draw(body, 0, math.prod(params.shape) * (2 if dtype == FLOAT64 else 1))
    return _each_drawn(body, stream, element)


random_uniform = _operator(
    "random_uniform",
    "Numbers evenly spread over [low, high): 24 bits of a word each, or 53 of two if float64.",
    UniformAttrs,
    _uniform_drawn,
    dtype=_uniform_dtype,
    kernels=_uniform_kernels,
)

# Normal numbers.


def _normal_kernels(params: NormalAttrs, inputs: Specs, outputs: Specs) -> list[Any]:
    body = Body("random_normal", inputs, outputs)
    few = math.prod(params.shape) < draws.BLOCK
    return (_normal_pairs if few else _normal_blocks)(params, body)


def _normal_pairs(params: NormalAttrs, body: Body) -> list[Any]:
    """One pair after the other, beginning with what is kept; an odd one is kept again."""
    count = math.prod(params.shape)
    pairs = (count + 1) // 2

    def needed(state: te.Buffer) -> te.Expr:
        return (count - has_kept(state) + 1) // 2 if count else te.const(0, INT64)

    stream = draw(body, 0, 4 * pairs, lambda state: needed(state) * 4)
    views = {**stream.views, 1: (count,), stream.moved: (STATE_WORDS,)}
    if not count:
        return body.kernels
    with body.kernel(views, 100 * pairs) as (b, state, raw, out, moved):
        made = b.alloc("made", FLOAT64, (2 * pairs,))
        with b.loop("i", pairs) as i:
            for half, value in enumerate(pair(words(state, raw), i)):
                b.store(made, i * 2 + half, value)
        old, known = b.let("old", kept(state)), b.let("known", has_kept(state))
        with b.loop("i", count) as i:
            place = te.max(i - known, te.const(0, INT64))
            value = te.select((known > 0) & (i < 1), old, made[place])
            value = te.fma(value, te.const(params.std, FLOAT64), params.mean)
            b.store(out, i, te.cast(value, params.dtype))
        taken = b.let("taken", count - known)
        spare = made[te.min(taken, te.const(2 * pairs - 1, INT64))]
        keep(b, moved, b.let("spare", spare), needed(state) * 2 > taken)
    return body.kernels


def _normal_blocks(params: NormalAttrs, body: Body) -> list[Any]:
    """Blocks of sixteen; where the count is no multiple, the last sixteen are drawn once more."""
    count, dtype = math.prod(params.shape), params.dtype
    wide = FLOAT64 if dtype == FLOAT64 else FLOAT32
    half, whole = draws.BLOCK // 2, count - count % draws.BLOCK
    first = draws.drawn_in_blocks(count, dtype)
    total = first + (draws.BLOCK if whole < count else 0)
    stream = draw(body, 0, total * (2 if wide == FLOAT64 else 1))
    views = {**stream.views, 1: (count,)}

    def block(b: te.KernelBuilder, source: Words, out: te.Buffer, at: Any, place: Any) -> None:
        with b.vector("lane", half) as lane:
            made = box_muller(lambda i: source.real(wide, i), wide, at + lane, half)
            for i, value in enumerate(made):
                value = te.fma(value, te.const(params.std, wide), params.mean)
                b.store(out, place + i * half + lane, te.cast(value, dtype))

    made = body.kernel(views, 60 * count)
    with made as (b, state, raw, out), b.parallel("block", whole // draws.BLOCK) as number:
        at = number * draws.BLOCK
        block(b, words(state, raw), out, at, at)
    if whole < count:
        with body.kernel(views, 60 * draws.BLOCK) as (b, state, raw, out):
            block(b, words(state, raw), out, te.as_expr(first), count - draws.BLOCK)
    return body.kernels


random_normal = _operator(
    "random_normal",
    "Numbers of a normal distribution, by Box and Muller's rule. Less than sixteen are made one "
    "pair after the other, an odd one being kept for the next draw; more in blocks of sixteen.",
    NormalAttrs,
    lambda p, source, count: draws.normal(source, count, p.dtype, p.mean, p.std),
    dtype=_float_dtype,
    kernels=_normal_kernels,
)

# Whole numbers.


def _randint_dtype(params: RandintAttrs, ins: Any, outs: Any) -> Inferred:
    made = _any_dtype(params, ins, outs)
    _check_bounds(params)
    return made


def _check_bounds(params: RandintAttrs) -> None:
    least, most = draws.whole_limits(params.dtype)
    if not least <= params.low < params.high <= most + 1:
        raise OutOfRange(
            f"random_randint has the range [{params.low}, {params.high})",
            why=f"dtype {dtype_name(params.dtype)} goes from {least} to {most}",
        )


def _randint_drawn(params: RandintAttrs, source: MersenneTwister, count: int) -> Array:
    _check_bounds(params)
    return draws.integer_elements(source, count, params.dtype, params.low, params.high)


def _randint_kernels(params: RandintAttrs, inputs: Specs, outputs: Specs) -> list[Any]:
    low, high = draws.reached(params.dtype, params.low, params.high)
    span, dtype = high - low, params.dtype
    double = span >= draws.DOUBLE_SPAN

    def element(words: Words, i: te.Expr) -> te.Expr:
        if not double:
            rest = te.cast(words(i) % te.const(span, UINT32), INT64)
            return _as_element(rest + te.const(low, INT64), dtype)
        rest = words.uint64(i)
        if span < 2**64:
            rest = rest % te.const(span, UINT64)
        return _as_element(rest + te.const(low % 2**64, UINT64), dtype)

    body = Body("random_randint", inputs, outputs)
    stream = draw(body, 0, math.prod(params.shape) * (2 if double else 1))
    return _each_drawn(body, stream, element)


def _as_element(value: te.Expr, dtype: DType) -> te.Expr:
    if is_float(dtype):
        value = te.cast(te.cast(value, INT64), FLOAT64)
    return te.cast(value, dtype)


random_randint = _operator(
    "random_randint",
    "Whole numbers of [low, high): low plus the rest of a word, of 64 bits from 2^28 values on.",
    RandintAttrs,
    _randint_drawn,
    dtype=_randint_dtype,
    kernels=_randint_kernels,
)

# Choices.


def _bernoulli_kernels(params: BernoulliAttrs, inputs: Specs, outputs: Specs) -> list[Any]:
    body = Body("random_bernoulli", inputs, outputs)
    stream = draw(body, 0, 2 * math.prod(params.shape))
    return _each_drawn(body, stream, lambda words, i: te.cast(words.float64(i) < params.p, params.dtype))


random_bernoulli = _operator(
    "random_bernoulli",
    "1 with probability p, else 0: whether 53 random bits, as a number of [0, 1), are below p.",
    BernoulliAttrs,
    lambda params, source, count: draws.bernoulli(source, count, params.p).astype(params.dtype),
    dtype=_any_dtype,
    kernels=_bernoulli_kernels,
)

# dropout


@schema
class DropoutAttrs:
    rate: float = attr(FLOAT, "the share of elements set to 0", default=0.5, low=0, high=1)
    training: bool = attr(BOOL, "false: the data is handed on", default=False)


def _dropout_shape(params: DropoutAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    shape = unify(unify(ins[0], outs[0]), outs[1])
    return [shape, (STATE_WORDS,)][: len(ins)], [shape, shape]


def _dropout_dtype(params: DropoutAttrs, ins: Any, outs: Any) -> Inferred:
    (dtype,), made = floating(params, ins[:1], outs)
    return [dtype, UINT32][: len(ins)], made


def _dropout_reference(params: DropoutAttrs, x: Array, *state: Array) -> tuple[Array, ...]:
    if not params.training:
        return x.copy(), np.ones_like(x)
    source = from_state(state[0])
    mask = draws.dropout_mask(source, x.size, x.dtype, params.rate).reshape(x.shape)
    return x * mask, mask, source.state()


def _dropout_kernels(params: DropoutAttrs, inputs: Specs, outputs: Specs) -> list[Any]:
    shape, dtype = inputs[0]
    count = math.prod(shape)
    body = Body("dropout", inputs, outputs)
    out, mask = len(inputs), len(inputs) + 1
    known = 1.0 if not params.training else {0.0: 1.0, 1.0: 0.0}.get(params.rate)
    views: dict[int, tuple[int, ...]] = {0: (count,), out: (count,), mask: (count,)}
    if params.training:
        stream = draw(body, 1, 2 * count if known is None else 0)
        views |= stream.views
    with body.kernel(views, 20 * count) as (b, x, y, kept, *drawn):

        def write(i: te.Expr) -> None:
            value = te.const(known, dtype) if known is not None else _kept(params, dtype, drawn, i)
            value = b.let("value", value)
            b.store(kept, i, value)
            b.store(y, i, x[i] * value)

        each(b, count, write)
    return body.kernels


def _kept(params: DropoutAttrs, dtype: DType, drawn: list[te.Buffer], i: te.Expr) -> te.Expr:
    scale = te.const(float(draws.keep_scale(dtype, params.rate)), dtype)
    return te.select(words(*drawn).float64(i) < 1 - params.rate, scale, te.const(0, dtype))


def _dropout_layout(params: DropoutAttrs, ins: Any, last: Any, outs: Any) -> Any:
    """What is drawn belongs to elements in the order in which the model has them."""
    return (layouts.fixed_copy if params.training else layouts.first)(params, ins, last, outs)


def _dropout_gradient(ctx: Any, g: Any, *_: Any) -> list[Any]:
    """dx = g mask"""
    if not ctx.params.training:
        return [g]
    return [F.elemwise_mul(g, ctx.outputs[1]), None]


_DROPOUT_INPUTS = {"data": "the input", "state": f"when training: {STATE_DOC}"}
dropout = define(
    "dropout",
    "data mask, where mask is 0 for a random share `rate`, else 1 / (1 - rate). An element stays "
    "if 53 random bits, as a number of [0, 1), are below 1 - rate; at a rate of 0 or 1 nothing is "
    "drawn.",
    level=1,
    inputs=_DROPOUT_INPUTS,
    named=False,
    attrs=DropoutAttrs,
    shape=_dropout_shape,
    dtype=_dropout_dtype,
    reference=_dropout_reference,
    kernels=_dropout_kernels,
    gradient=_dropout_gradient,
    visible_outputs=1,
    output_names=["output", "mask"],
    layout=_dropout_layout,
)


def _dropout_inputs(params: Params) -> int:
    return 2 if params.training else 1


dropout.set_num_inputs(_dropout_inputs).set_num_outputs(2)
dropout.input_names = lambda params: list(_DROPOUT_INPUTS)[: _dropout_inputs(params)]
dropout.mutates = lambda params: [1] if params.training else []
dropout.effect = lambda params: "random" if params.training else "pure"
