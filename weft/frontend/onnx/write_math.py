"""Writers of arithmetic, comparisons, activations and reductions."""

from __future__ import annotations

import math

from ...base.dtype import BOOL, is_float
from .writing import ALIKE, AlikeOp, Writing, writes

ALIKE.update(
    abs=AlikeOp("Abs"),
    ceil=AlikeOp("Ceil"),
    floor=AlikeOp("Floor"),
    round=AlikeOp("Round"),
    sign=AlikeOp("Sign"),
    negative=AlikeOp("Neg"),
    exp=AlikeOp("Exp"),
    log=AlikeOp("Log"),
    sqrt=AlikeOp("Sqrt"),
    erf=AlikeOp("Erf"),
    sin=AlikeOp("Sin"),
    cos=AlikeOp("Cos"),
    relu=AlikeOp("Relu"),
    sigmoid=AlikeOp("Sigmoid"),
    tanh=AlikeOp("Tanh"),
    softplus=AlikeOp("Softplus"),
    softsign=AlikeOp("Softsign"),
    hard_swish=AlikeOp("HardSwish"),
    hard_sigmoid=AlikeOp("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    leaky_relu=AlikeOp("LeakyRelu", {"alpha": "alpha"}),
    elu=AlikeOp("Elu", {"alpha": "alpha"}),
    softmax=AlikeOp("Softmax", {"axis": "axis"}),
    log_softmax=AlikeOp("LogSoftmax", {"axis": "axis"}),
    copy=AlikeOp("Identity"),
    block_grad=AlikeOp("Identity"),
    dropout=AlikeOp("Identity"),
    elemwise_add=AlikeOp("Add"),
    elemwise_sub=AlikeOp("Sub"),
    elemwise_mul=AlikeOp("Mul"),
    elemwise_pow=AlikeOp("Pow"),
    elemwise_sum=AlikeOp("Sum"),
    broadcast_add=AlikeOp("Add"),
    broadcast_sub=AlikeOp("Sub"),
    broadcast_mul=AlikeOp("Mul"),
    broadcast_pow=AlikeOp("Pow"),
    broadcast_max=AlikeOp("Max"),
    broadcast_min=AlikeOp("Min"),
)


@writes("elemwise_div", "broadcast_div")
def divide(w: Writing) -> None:
    w.require(is_float(w.dtype), "integers, which it rounds down,")
    w.give("Div", *w.inputs)


_SCALARS = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow"}


@writes(*(f"__{name}_scalar__" for name in _SCALARS))
def with_number(w: Writing) -> None:
    op = w.op_name.strip("_").removesuffix("_scalar")
    w.require(op != "div" or is_float(w.dtype), "integers, which it rounds down,")
    w.give(_SCALARS[op], w.inputs[0], w.constant(w.params.scalar))


@writes(*(f"__r{name}_scalar__" for name in ("sub", "div", "pow")))
def number_first(w: Writing) -> None:
    op = w.op_name.strip("_").removesuffix("_scalar").removeprefix("r")
    w.require(op != "div" or is_float(w.dtype), "integers, which it rounds down,")
    w.give(_SCALARS[op], w.constant(w.params.scalar), w.inputs[0])


_COMPARISONS = {
    "broadcast_equal": "Equal",
    "broadcast_greater": "Greater",
    "broadcast_less": "Less",
    "broadcast_greater_equal": "GreaterOrEqual",
    "broadcast_less_equal": "LessOrEqual",
    "greater": "Greater",
    "less": "Less",
}


@writes(*_COMPARISONS)
def compare(w: Writing) -> None:
    """Bool in ONNX; 0 and 1 of a dtype here."""
    w.give_cast(w.node(_COMPARISONS[w.op_name], *w.inputs))


@writes("broadcast_not_equal")
def not_equal(w: Writing) -> None:
    w.give_cast(w.node("Not", w.node("Equal", *w.inputs)))


@writes("logical_not", "logical_and", "logical_or")
def logic(w: Writing) -> None:
    op = {"logical_not": "Not", "logical_and": "And", "logical_or": "Or"}[w.op_name]
    w.give_cast(w.node(op, *(w.cast(name, BOOL) for name in w.inputs)))


@writes("cast", "cast_like")
def cast(w: Writing) -> None:
    w.give_cast(w.inputs[0])


@writes("where")
def where(w: Writing) -> None:
    condition, rank = w.cast(w.inputs[0], BOOL), len(w.outs[0].shape)
    if len(w.ins[0].shape) < rank:
        shape = w.ins[0].shape + (1,) * (rank - len(w.ins[0].shape))
        condition = w.node("Reshape", condition, w.ints(shape))
    w.give("Where", condition, *w.inputs[1:])


@writes("clip")
def clip(w: Writing) -> None:
    w.give("Clip", w.inputs[0], w.constant(w.params.a_min), w.constant(w.params.a_max))


@writes("trunc")
def truncate(w: Writing) -> None:
    """sign(x) floor(|x|)"""
    x = w.inputs[0]
    w.give("Mul", w.node("Sign", x), w.node("Floor", w.node("Abs", x)))


@writes("prelu")
def prelu(w: Writing) -> None:
    """Slopes with an axis for each that follows theirs."""
    rank = len(w.ins[0].shape)
    after = rank - 1 - w.params.axis % rank
    slopes = w.node("Reshape", w.inputs[1], w.ints((-1,) + (1,) * after))
    w.give("PRelu", w.inputs[0], slopes)


@writes("selu")
def selu(w: Writing) -> None:
    w.give("Selu", w.inputs[0])


@writes("silu")
def silu(w: Writing) -> None:
    w.give("Mul", w.inputs[0], w.node("Sigmoid", w.inputs[0]))


@writes("mish")
def mish(w: Writing) -> None:
    w.give("Mul", w.inputs[0], w.node("Tanh", w.node("Softplus", w.inputs[0])))


@writes("gelu")
def gelu(w: Writing) -> None:
    """x (1 + erf(x / sqrt(2))) / 2, or x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2"""
    x = w.inputs[0]
    if w.opset >= 20:
        w.give("Gelu", x, approximate=w.params.approximate)
        return
    if w.params.approximate == "tanh":
        cube = w.node("Mul", x, w.node("Mul", x, x))
        inner = w.node("Add", x, w.node("Mul", cube, w.constant(0.044715)))
        curve = w.node("Tanh", w.node("Mul", inner, w.constant(math.sqrt(2 / math.pi))))
    else:
        curve = w.node("Erf", w.node("Mul", x, w.constant(math.sqrt(0.5))))
    factor = w.node("Mul", w.node("Add", curve, w.constant(1)), w.constant(0.5))
    w.give("Mul", x, factor)


# Reductions.


def reduced_axes(w: Writing) -> list[int]:
    """The axes that are reduced, counted from the front."""
    rank = len(w.ins[0].shape)
    named = {axis % rank for axis in w.params.axis} if w.params.axis else set(range(rank))
    if w.params.exclude and w.params.axis:
        named = set(range(rank)) - named
    return sorted(named)


@writes("sum", "mean", "max", "min", "prod")
def reduce(w: Writing) -> None:
    """A full reduction has shape (1,) here, and none in ONNX."""
    axes, keep = reduced_axes(w), int(w.params.keepdims)
    op = "Reduce" + w.op_name.capitalize()
    if not axes:
        w.give("Identity", w.inputs[0])
        return
    by_input = w.opset >= 18 or op == "ReduceSum"
    inputs = [w.inputs[0], w.ints(axes)] if by_input else [w.inputs[0]]
    attrs = {"keepdims": keep} if by_input else {"keepdims": keep, "axes": axes}
    if keep or len(axes) < len(w.ins[0].shape):
        w.give(op, *inputs, **attrs)
    else:
        w.give("Reshape", w.node(op, *inputs, **attrs), w.ints(w.outs[0].shape))


@writes("argmax", "argmin")
def arg_extreme(w: Writing) -> None:
    axes = reduced_axes(w)
    w.require(len(axes) == 1, "several axes")
    op = "ArgMax" if w.op_name == "argmax" else "ArgMin"
    made = w.node(op, w.inputs[0], axis=axes[0], keepdims=1)
    w.give_cast(w.node("Reshape", made, w.ints(w.outs[0].shape)))


@writes("cumsum")
def cumulative_sum(w: Writing) -> None:
    rank = len(w.ins[0].shape)
    axis = w.ints(w.params.axis % rank)
    w.give("CumSum", w.inputs[0], axis, exclusive=w.params.exclusive, reverse=w.params.reverse)
