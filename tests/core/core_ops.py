"""Small operators for the tests of core, registered when a test first asks for them, and names for
operators that a test registers itself."""

import itertools
from functools import cache

import numpy as np

from weft.base.shape import unify
from weft.core.op import VARIADIC, Op
from weft.core.schema import FLOAT, INT, INTS, attr, schema

_numbers = itertools.count()


def fresh_name(stem: str = "op") -> str:
    return f"t_{stem}_{next(_numbers)}"


def fresh(stem: str = "op") -> Op:
    """A new operator."""
    return Op.register(fresh_name(stem))


def same_shape(params, ins, outs):
    shape = None
    for known in (*ins, *outs):
        shape = unify(shape, known)
    return [shape] * len(ins), [shape] * len(outs)


@schema
class ScaleAttrs:
    factor: float = attr(FLOAT, "what to multiply with", default=2.0, low=-10, high=10)


@schema
class PartsAttrs:
    parts: int = attr(INT, "how many outputs", low=1, high=64)
    axes: tuple[int, ...] = attr(INTS, "axes", default=())


@cache
def relu() -> Op:
    op = Op.register("t_relu")
    op.shape, op.reference = same_shape, lambda x: np.maximum(x, 0)
    return op


@cache
def add() -> Op:
    op = Op.register("t_add").set_num_inputs(2)
    op.shape, op.reference = same_shape, lambda x, y: x + y
    return op


@cache
def scale() -> Op:
    op = Op.register("t_scale").set_attr_parser(ScaleAttrs)
    op.shape, op.reference = same_shape, lambda p, x: (x * p.factor).astype(x.dtype)
    return op


@cache
def parts() -> Op:
    """Copies of its input, as many as an attribute says."""
    op = Op.register("t_parts").set_attr_parser(PartsAttrs).set_num_outputs(lambda p: p.parts)
    op.shape, op.reference = same_shape, lambda p, x: tuple(x + i for i in range(p.parts))
    return op


@cache
def total() -> Op:
    op = Op.register("t_total").set_num_inputs(VARIADIC)
    op.shape, op.reference = same_shape, lambda *xs: sum(xs)
    return op


@cache
def assign() -> Op:
    op = Op.register("t_assign").set_num_inputs(2)
    op.mutates, op.shape, op.reference = [0], same_shape, lambda ref, value: (value, value)
    return op


@cache
def linear() -> Op:
    """x times weight plus bias, all element-wise; its inputs have names."""
    op = Op.register("t_linear").set_num_inputs(3).set_attr_parser(ScaleAttrs)
    op.input_names, op.shape = ["data", "weight", "bias"], same_shape
    op.reference = lambda p, x, w, b: x * w + b
    return op
