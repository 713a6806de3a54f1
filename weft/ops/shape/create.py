"""Operators that make tensors from attributes alone, and the one that writes to a variable."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import BOOL, FLOAT32, DType, dtype_name, is_integer
from ...base.errors import DTypeError, InvalidValue, OutOfRange
from ...base.shape import Dim, StaticShape, ceil_div_dims, max_dims, mul_dims, sub_dims, unify
from ...core.infer import same_dtype
from ...core.op import Op, Rule, set_role
from ...core.schema import DTYPE, EXTENT, EXTENTS, FLOAT, INT, NUMBER, Params, attr, optional, schema
from ...core.symbolic import symbolic_names
from .. import _layouts as layouts
from .._families import (
    INJECTIVE,
    OUT_FUSABLE,
    Array,
    Dtypes,
    F,
    Inferred,
    Shapes,
    as_written,
    define,
    full_dtype,
    no_flow,
    number,
    unary,
)

_SHAPE = "the shape; () is a single number; left out, it is what the consumers need"


@schema
class InitAttrs:
    shape: tuple[int, ...] | None = attr(optional(EXTENTS), _SHAPE, default=None, low=0)
    dtype: DType = attr(DTYPE, "the dtype", default=FLOAT32)


@schema
class FullAttrs:
    shape: tuple[int, ...] | None = attr(optional(EXTENTS), _SHAPE, default=None, low=0)
    dtype: DType = attr(DTYPE, "the dtype", default=FLOAT32)
    fill_value: float = attr(NUMBER, "the value of every element")


@schema
class FullLikeAttrs:
    fill_value: float = attr(FLOAT, "the value of every element")


def _holds(value: float | str, dtype: DType | None) -> None:
    """Raises if an integer dtype has no such number."""
    if dtype is None or not is_integer(dtype) or isinstance(value, str):
        return
    limits = np.iinfo(dtype)
    if not limits.min <= value <= limits.max:
        raise DTypeError(
            f"{value} is no value of dtype {dtype_name(dtype)}", why=f"it goes from {limits.min} to {limits.max}"
        )


def _filled(value: float, shape: StaticShape, dtype: DType) -> Array:
    return np.full(shape, number(value, dtype), dtype)


def _filled_tensor(value: float, shape: StaticShape, dtype: DType) -> te.Tensor:
    constant = te.as_expr(value if te.is_open(value) else number(value, dtype), dtype)
    return te.compute(shape, lambda *i: constant)


def _source(name: str, doc: str, attrs: type, value: Rule) -> Op:
    """An operator without inputs; `value(params)` is what it is full of."""
    op = define(name, doc, level=4, inputs={}, attrs=attrs, pattern=OUT_FUSABLE, layout=layouts.no_inputs)
    op.shape = lambda params, ins, outs: ([], [unify(params.shape, outs[0])])
    op.dtype = full_dtype
    op.reference = lambda p: _filled(value(p), _own_shape(p, name), p.dtype)
    op.compute = lambda p: _filled_tensor(value(p), _own_shape(p, name), p.dtype)
    op.gradient = no_flow
    return op


def _own_shape(params: InitAttrs | FullAttrs, name: str) -> StaticShape:
    if params.shape is None:
        raise InvalidValue(
            f"{name} has no shape of its own",
            why="its attribute shape is left out, so it has one only inside a typed graph",
            hint=f"{name}(shape=...)",
        )
    return params.shape


zeros = _source("zeros", "A tensor of zeros.", InitAttrs, lambda p: 0)
ones = _source("ones", "A tensor of ones.", InitAttrs, lambda p: 1)
full = _source("full", "A tensor of one value.", FullAttrs, lambda p: p.fill_value)


def _full_dtype(params: FullAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    _holds(params.fill_value, params.dtype)
    return full_dtype(params, ins, outs)


full.set_attr("FInferType", _full_dtype, 11)


def _source_like(name: str, doc: str, attrs: type | None, value: Rule) -> Op:
    """One input, of which only shape and dtype matter."""
    op = unary(name, doc, level=4, ignored_inputs=[0], attrs=attrs)
    op.gradient = lambda ctx, g: [F.zeros_like(ctx.inputs[0])]
    op.complex_gradient = as_written
    op.reference = lambda *args: _filled(value(args[0]), args[-1].shape, args[-1].dtype)
    op.compute = lambda *args: _filled_tensor(value(args[0]), args[-1].shape, args[-1].dtype)
    return op


zeros_like = _source_like("zeros_like", "Zeros, of the shape and dtype of x.", None, lambda _: 0)
ones_like = _source_like("ones_like", "Ones, of the shape and dtype of x.", None, lambda _: 1)
full_like = _source_like("full_like", "One value, in the shape and dtype of x.", FullLikeAttrs, lambda p: p.fill_value)


def _full_like_dtype(params: FullLikeAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    for dtype in (*ins, *outs):
        _holds(params.fill_value, dtype)
    return same_dtype(params, ins, outs)


full_like.dtype = _full_like_dtype

for _name in "zeros ones zeros_like ones_like".split():
    set_role(_name, _name)


@schema
class ArangeAttrs:
    start: float = attr(NUMBER, "the first value", default=0.0)
    stop: float = attr(NUMBER, "the value before which the last one comes")
    step: float = attr(NUMBER, "from one value to the next", default=1.0)
    dtype: DType = attr(DTYPE, "the dtype", default=FLOAT32)


_LONGEST = 2**31


def _arange_length(params: ArangeAttrs) -> int:
    numbers = (params.start, params.stop, params.step)
    if params.step == 0 or not all(map(math.isfinite, numbers)):
        raise InvalidValue(
            f"no range goes from {params.start} to {params.stop} in steps of {params.step}",
            why="the step must not be 0, and all three must be finite",
        )
    count = (params.stop - params.start) / params.step
    if count > _LONGEST:
        raise OutOfRange(f"a range of {count:g} values", why=f"the most is {_LONGEST}")
    return max(0, math.ceil(count))


def _arange_extent(start: float | str, stop: float | str, step: float | str) -> Dim:
    """How many values there are, where a name is among the ends."""
    ends = [end if isinstance(end, str) else int(end) for end in (start, stop)]
    whole = all(isinstance(end, str) or end.is_integer() for end in (start, stop, step))
    if not whole or isinstance(step, str) or step == 0:
        return None
    way = 1 if step > 0 else -1
    return max_dims(0, ceil_div_dims(mul_dims(sub_dims(ends[1], ends[0]), way), abs(int(step))))


def _arange_shape(params: ArangeAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if symbolic_names(params):
        return [], [(_arange_extent(params.start, params.stop, params.step),)]
    return [], [(_arange_length(params),)]


def _arange_dtype(params: ArangeAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    if params.dtype == BOOL:
        raise DTypeError("a range of dtype bool", hint="use an integer dtype")
    return [], [params.dtype]


def _arange_reference(params: ArangeAttrs) -> Array:
    values = params.start + params.step * np.arange(_arange_length(params), dtype=np.float64)
    return values.astype(params.dtype)


def _open_range(params: ArangeAttrs) -> te.Tensor:
    """A range whose ends follow from sizes that are arguments: whole numbers, and so is the step."""
    ends: Any = (params.start, params.stop, params.step)
    start, stop, step = (end if te.is_open(end) else int(end) for end in ends)
    count = -((start - stop) // step)
    return te.compute((count,), lambda i: te.cast(te.as_expr(start) + i * step, params.dtype))


def _arange_compute(params: ArangeAttrs) -> te.Tensor:
    if te.is_open(params.start) or te.is_open(params.stop):
        return _open_range(params)
    whole = all(float(value).is_integer() for value in (params.start, params.step))
    kind = "int64" if whole else "float64"
    start, step = (te.const(number(v, np.dtype(kind)), kind) for v in (params.start, params.step))

    def value(i: te.Expr) -> te.Expr:
        return te.cast(start + te.cast(i, kind) * step, params.dtype)

    return te.compute((_arange_length(params),), value)


arange = define(
    "arange",
    "start, start + step, start + 2 step, ... before stop.",
    level=5,
    inputs={},
    attrs=ArangeAttrs,
    pattern=INJECTIVE,
    dtype=_arange_dtype,
    layout=layouts.no_inputs,
)
arange.shape = _arange_shape
arange.reference = _arange_reference
arange.compute = _arange_compute
arange.gradient = no_flow


@schema
class OneHotAttrs:
    depth: int = attr(EXTENT, "how many classes there are", low=0)
    on_value: float = attr(FLOAT, "where the class is the index", default=1.0)
    off_value: float = attr(FLOAT, "elsewhere", default=0.0)
    axis: int = attr(INT, "where the new axis goes", default=-1)
    dtype: DType = attr(DTYPE, "the dtype of the result", default=FLOAT32)


def _one_hot_axis(params: OneHotAttrs, rank: int) -> int:
    """The place of the new axis in an output of this rank."""
    if not -rank <= params.axis < rank:
        raise OutOfRange(
            f"axis {params.axis} of one_hot is outside its output of {rank} dimensions",
            hint=f"use {-rank} to {rank - 1}",
        )
    return params.axis % rank


def _one_hot_shape(params: OneHotAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    if ins[0] is None:
        if outs[0] is None:
            return [None], [None]
        axis = _one_hot_axis(params, max(len(outs[0]), 1))
        return [outs[0][:axis] + outs[0][axis + 1 :]], [None]
    axis = _one_hot_axis(params, len(ins[0]) + 1)
    return [None], [ins[0][:axis] + (params.depth,) + ins[0][axis:]]


def _one_hot_dtype(params: OneHotAttrs, ins: Dtypes, outs: Dtypes) -> Inferred:
    if ins[0] is not None and not is_integer(ins[0]):
        raise DTypeError(f"indices of one_hot are {dtype_name(ins[0])}", hint="cast to int32")
    return [None], [params.dtype]


def _one_hot_reference(params: OneHotAttrs, indices: Array) -> Array:
    axis = _one_hot_axis(params, indices.ndim + 1)
    wide = indices.astype(np.int64)
    wide = np.expand_dims(np.where(wide < 0, wide + params.depth, wide), axis)
    classes = np.arange(params.depth).reshape([-1] + [1] * (indices.ndim - axis))
    on, off = (number(v, params.dtype) for v in (params.on_value, params.off_value))
    return np.where(wide == classes, on, off).astype(params.dtype)


def _one_hot_compute(params: OneHotAttrs, indices: te.Tensor) -> te.Tensor:
    axis = _one_hot_axis(params, indices.rank + 1)
    shape = indices.shape[:axis] + (params.depth,) + indices.shape[axis:]
    on, off = (te.const(number(v, params.dtype), params.dtype) for v in (params.on_value, params.off_value))

    def value(*i: te.Expr) -> te.Expr:
        index = te.cast(indices[i[:axis] + i[axis + 1 :]], "int64")
        return te.select(index.equal(i[axis]) | (index + params.depth).equal(i[axis]), on, off)

    return te.compute(shape, value)


one_hot = define(
    "one_hot",
    "on_value where the position along a new axis is the index (negative ones count from the "
    "end), off_value elsewhere; an index outside has no on_value.",
    level=5,
    inputs={"indices": "which class"},
    attrs=OneHotAttrs,
    pattern=INJECTIVE,
    shape=_one_hot_shape,
    dtype=_one_hot_dtype,
)
one_hot.reference = _one_hot_reference
one_hot.compute = _one_hot_compute
one_hot.gradient = no_flow

# Writing to a variable.


def _assign_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    shape = None
    for fact in (*ins, *outs):
        shape = unify(shape, fact)
    return [shape, shape], [shape]


assign = define(
    "_assign",
    "Writes rhs to the variable lhs; the output is rhs.",
    inputs={"lhs": "the variable", "rhs": "its new value"},
    named=False,
    shape=_assign_shape,
    layout=layouts.keep_left,
    mutates=[0],
    effect="mutates",
    inplace=[(1, 0)],
)
assign.reference = lambda lhs, rhs: (rhs.copy(), rhs.copy())
assign.compute = lambda lhs, rhs: te.compute(rhs.shape, lambda *i: rhs[i])
assign.gradient = lambda ctx, g: [None, g]  # what the variable held does not matter

undef = define(
    "__undef__",
    "Stands where an output was removed; it has no value.",
    inputs={},
    layout=layouts.no_inputs,
    shape=lambda params, ins, outs: ([], list(outs)),
    dtype=lambda params, ins, outs: ([], list(outs)),
)
