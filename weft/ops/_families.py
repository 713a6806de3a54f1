"""The families that operators belong to: what members share is said here, once.

A member is a few lines in its family's file: a call of one of these, then its own columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import te
from ..base.dtype import BOOL, FLOAT32, DType, dtype_name, is_complex, is_float, is_integer
from ..base.errors import DTypeError, NotFound, ShapeError
from ..base.quiet import quietly
from ..base.shape import Shape, broadcast, normalize_axis, show, unify
from ..core.infer import dtype_hint, same_dtype
from ..core.op import Op, Rule, list_op_names
from ..core.pattern import OpPattern
from ..core.schema import FLOAT, Params, attr, fields_of, schema
from . import _layouts as layouts

ELEM_WISE, BROADCAST, INJECTIVE = OpPattern.ELEM_WISE, OpPattern.BROADCAST, OpPattern.INJECTIVE
COMM_REDUCE, OPAQUE = OpPattern.COMM_REDUCE, OpPattern.OPAQUE
OUT_FUSABLE = OpPattern.OUT_ELEMWISE_FUSABLE

# What rules take and give.
Array = NDArray[Any]
Shapes = Sequence[Shape]
Dtypes = Sequence[DType | None]
Inferred = tuple[list[Any], list[Any]]  # shapes or dtypes, of the inputs and of the outputs
Joined = tuple[Params, list[tuple[int, ...]]]  # params, and shapes of the inputs, with fewer axes
ShapeRule = Callable[[Params, Shapes, Shapes], Inferred]
DtypeRule = Callable[[Params, Dtypes, Dtypes], Inferred]

EARLIER = frozenset(list_op_names())  # of users, who registered them before weft's own were there


class _ByName:
    """`F.relu(x)`: any operator by name, so that gradients may use those of other files."""

    def __getattr__(self, name: str) -> Op:
        try:
            return Op.get(name)
        except NotFound as error:  # what Python looks for when it asks whether there is one
            raise AttributeError(str(error)) from None


F = _ByName()


def define(
    name: str,
    doc: str,
    *,
    level: int = 10,
    inputs: Mapping[str, str] | None = None,
    attrs: type | None = None,
    pattern: int = OPAQUE,
    layout: Rule = layouts.fixed_unknown,
    named: bool = True,
    aliases: Sequence[str] = (),
    **columns: Any,
) -> Op:
    """Registers an operator. `inputs` maps names to docs; `named=False` makes them positional. Without
    a layout rule it takes inputs as they were written.

    Other keywords are columns of Op: shape, dtype, layout, reference, gradient, ...
    """
    inputs = {"data": "the input"} if inputs is None else inputs
    op = Op.register(name).describe(doc).set_support_level(level).set_num_inputs(len(inputs))
    op.add_arguments([(key, "Tensor", text) for key, text in inputs.items()])
    if attrs is not None:
        op.set_attr_parser(attrs)
    if named and list(inputs) != ["data"] and inputs:
        op.input_names = list(inputs)
    op.pattern, op.layout = pattern, layout
    for alias in aliases:
        op.add_alias(alias)
    for key, value in columns.items():
        setattr(op, key, value)
    if isinstance(op.output_names, list):
        op.set_num_outputs(len(op.output_names))
    return op


def pointwise(body: Callable[..., Any]) -> Callable[..., te.Tensor]:
    """A compute rule from a scalar body: `pointwise(lambda x, y: x + y)`.

    The body of an operator with attributes takes params first, as the rule does.
    """

    def rule(*args: Any) -> te.Tensor:
        tensors = [arg for arg in args if isinstance(arg, te.Tensor)]
        params = [arg for arg in args if not isinstance(arg, te.Tensor)]
        shape = _stretched(tuple(tensor.shape for tensor in tensors))
        return te.compute(shape, lambda *i: body(*params, *(_at(t, i) for t in tensors)))

    return rule


def _stretched(shapes: tuple[Any, ...]) -> tuple[Any, ...]:
    """What shapes broadcast to; extents may be arguments of a kernel."""
    rank = max(map(len, shapes))
    extents: list[Any] = [1] * rank
    for shape in shapes:
        for axis, extent in enumerate(shape, rank - len(shape)):
            if type(extent) is int and extent == 1:
                continue
            if type(extents[axis]) is int and extents[axis] == 1:
                extents[axis] = extent
            elif extents[axis] != extent:
                raise ShapeError(f"shapes {', '.join(map(show, shapes))} do not broadcast")
    return tuple(extents)


def _at(tensor: te.Tensor, indices: Sequence[Any]) -> Any:
    """Reads a tensor where an output of larger or equal rank has these indices."""
    inner = indices[len(indices) - len(tensor.shape) :]
    return tensor[tuple(0 if dim == 1 else i for i, dim in zip(inner, tensor.shape))]


# Inference rules that many operators share.


def same_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    """All inputs and outputs have one shape."""
    shape: Shape = None
    for known in (*ins, *outs):
        shape = unify(shape, known)
    return [shape] * len(ins), [shape] * len(outs)


def axis_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    """All have one shape, which has the attribute's axis, or axes."""
    _, (shape, *_) = inferred = same_shape(params, ins, outs)
    for axis in params.axis if isinstance(params.axis, tuple) else (params.axis,):
        if shape is not None:
            normalize_axis(axis, len(shape))
    return inferred


def broadcast_shape(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    """The output is what the inputs broadcast to."""
    return [None] * len(ins), [broadcast(*ins)]


def comparison_dtype(params: Params, ins: Dtypes, outs: Dtypes) -> Inferred:
    """A mask of 0 and 1 in float32, whatever the inputs are."""
    return [None] * len(ins), [FLOAT32]


def shape_of_second(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
    """The output has the shape of the second input, as the gradient of an input has."""
    shape = unify(ins[1], outs[0])
    return [None, shape, *[None] * (len(ins) - 2)], [shape]


def backward_shape(forward: ShapeRule, own: int = 1, order: Sequence[int] = (1, 2, 3)) -> ShapeRule:
    """The rule of a gradient, whose inputs are ograd and those of an operator, which stand at the
    places of `order`: ograd has the shape that the operator gives, the result that of input `own`.
    """

    def rule(params: Params, ins: Shapes, outs: Shapes) -> Inferred:
        shapes = list(ins)
        shapes[own] = unify(shapes[own], outs[0])
        places = [place for place in order if place < len(ins)]
        inputs, (ograd,) = forward(params, [shapes[place] for place in places], [shapes[0]])
        for place, shape in zip(places, inputs):
            shapes[place] = unify(shapes[place], shape)
        return [unify(shapes[0], ograd), *shapes[1:]], [shapes[own]]

    return rule


def changed(items: Sequence[Any], axis: int, item: Any) -> tuple[Any, ...]:
    """A shape or an index with another item at one axis."""
    return (*items[:axis], item, *items[axis + 1 :])


def _only(allowed: Callable[[DType], bool], kind: str, hint: str) -> DtypeRule:
    """All inputs and outputs have one dtype, of a kind."""

    def rule(params: Params, ins: Dtypes, outs: Dtypes) -> Inferred:
        for dtype in (*ins, *outs):
            if dtype is not None and not allowed(dtype):
                raise DTypeError(f"dtype {dtype_name(dtype)} is no {kind} one", hint=hint)
        return same_dtype(params, list(ins), list(outs))

    return rule


floating = _only(is_float, "floating", "cast the input to float32")
single = _only(lambda dtype: dtype == FLOAT32, "float32", "cast the input to float32")
numeric = _only(lambda dtype: dtype != BOOL, "numeric", "cast the input to int32 or float32")
integral = _only(is_integer, "integer", "cast the input to int32")


def first_dtype(params: Params, ins: Dtypes, outs: Dtypes) -> Inferred:
    """Outputs have the dtype of the first input; those of the others are free."""
    dtype = ins[0]
    for known_dtype in outs:
        dtype = dtype if dtype is not None else known_dtype
    return [dtype, *[None] * (len(ins) - 1)], [dtype] * len(outs)


def full_dtype(params: Params, ins: Dtypes, outs: Dtypes) -> Inferred:
    """The output has the dtype of the attribute; those of the inputs are free."""
    return [None] * len(ins), [params.dtype] * len(outs)


def no_flow(ctx: Any, *grads: Any) -> list[None]:
    """The gradient of what is constant almost everywhere."""
    return [None] * len(ctx.inputs)


def square(x: Any) -> Any:
    """x^2, in gradients."""
    return F.elemwise_mul(x, x)


# Gradients of complex tensors.


def conj(x: Any) -> Any:
    """The conjugate of an input or output that a gradient reads; a real one itself."""
    dtype = dtype_hint(x.outputs[0].node)
    return F.conj(x) if dtype is not None and is_complex(dtype) else x


def holomorphic(ctx: Any, *grads: Any) -> list[Any]:
    """dz = g times the conjugate of f'(z): the rule for real numbers, on conjugates of what it
    reads. For operators with f(conj z) = conj f(z), as those of a real power series."""
    inputs, outputs = ([conj(x) for x in values] for values in (ctx.inputs, ctx.outputs))
    return ctx.rule(ctx._replace(inputs=inputs, outputs=outputs), *grads)


def as_written(ctx: Any, *grads: Any) -> list[Any]:
    """The rule for real numbers, which holds for complex ones, too."""
    return ctx.rule(ctx, *grads)


def attributes(params: Params) -> dict[str, Any]:
    """The attributes of parsed params, to hand on to another: `F.op(x, **attributes(p))`."""
    return {field.name: getattr(params, field.name) for field in fields_of(type(params))}


def ranked(shape: Shape, rank: int, what: str) -> Any:
    """The dimensions of a shape that may be unknown."""
    if shape is None:
        return (None,) * rank
    if len(shape) != rank:
        raise ShapeError(f"{what} has {rank} dimensions, not {show(shape)}")
    return shape


def known(*shapes: Shape) -> bool:
    """Whether all ranks are known."""
    return all(shape is not None for shape in shapes)


# Numbers given as attributes, and arithmetic whose meaning depends on the dtype.


def number(value: float, dtype: DType) -> Any:
    """A float attribute as a value of a dtype: to an integer it is truncated, and wraps."""
    if is_integer(dtype):
        limits = np.iinfo(dtype)
        if not np.isfinite(value):
            return clamped(value, dtype)
        whole = int(value)
        return (whole - int(limits.min)) % (2**limits.bits) + int(limits.min)
    return bool(value) if dtype == BOOL else float(value)


def clamped(value: float, dtype: DType) -> Any:
    """A float attribute as the nearest value of a dtype; NaN gives 0 among integers."""
    if not is_integer(dtype):
        return number(value, dtype)
    limits = np.iinfo(dtype)
    if value != value:
        return 0
    return int(min(max(value, int(limits.min)), int(limits.max)))


def divide(a: Any, b: Any) -> Any:
    """a / b of arrays or expressions: exact of floats, rounded down of integers."""
    dtype = a.dtype if hasattr(a, "dtype") else b.dtype
    return a // b if is_integer(dtype) else a / b


def power(a: Any, b: Any) -> Any:
    """a to the power b of arrays; an integer to a negative power is truncated towards zero."""
    if not is_integer(a.dtype):
        return np.power(a, b)
    whole = np.power(a, np.maximum(b, 0))
    odd = 1 - 2 * (b & 1)
    inverse = np.where(a == 1, 1, np.where(a == -1, odd, 0))
    return np.where(b < 0, inverse, whole).astype(a.dtype)


def widened(x: Array) -> Array:
    """An array in a dtype that is safe to sum in."""
    return x.astype(np.float32) if is_float(x.dtype) and x.dtype.itemsize < 4 else x


def in_float32(compute: Rule) -> Rule:
    """A compute that takes 16-bit floats through float32: a sum that is divided or whose root is
    taken may be far beyond their range."""

    def wide(params: Any, *tensors: te.Tensor) -> Any:
        dtype = tensors[0].dtype
        if not (is_float(dtype) and dtype.itemsize == 2 and {t.dtype for t in tensors} == {dtype}):
            return compute(params, *tensors)
        results = compute(params, *(_cast_to(FLOAT32, tensor) for tensor in tensors))
        several = isinstance(results, tuple)
        back = [_cast_to(dtype, tensor) for tensor in (results if several else (results,))]
        return tuple(back) if several else back[0]

    return wide


def _cast_to(dtype: DType, x: te.Tensor) -> te.Tensor:
    return te.compute(x.shape, lambda *i: te.cast(x[i], dtype), name=x.name)


def in_dtype(body: Rule) -> Rule:
    """A reference whose result is cast back to the dtype of its first array.

    numpy would turn int32 * 2.5 into float64; an operator of the graph keeps int32.
    """

    def reference(*args: Any) -> Any:
        first = args[0]
        dtype = (first if isinstance(first, np.ndarray) else args[1]).dtype  # params come first
        result = quietly(body, *args)
        if type(result) is np.ndarray and result.dtype == dtype:
            for arg in args:
                if result is arg:
                    return result.copy()
            return result
        return np.asarray(result).astype(dtype)

    if isinstance(body, np.ufunc):
        reference.ufunc = body  # type: ignore[attr-defined]  # all it takes where dtypes are equal
    return reference


# The families.


def unary(name: str, doc: str, *, level: int, pattern: int = ELEM_WISE, **columns: Any) -> Op:
    """One input, one output of the same shape and dtype, element by element."""
    return define(
        name,
        doc,
        level=level,
        pattern=pattern,
        shape=same_shape,
        inplace=[(0, 0)],
        **{"layout": layouts.arbitrary, **columns},
    )


@schema
class ScalarAttrs:
    scalar: float = attr(FLOAT, "the number; it is cast to the tensor's dtype")


def scalar(name: str, doc: str, *, level: int = 3, **columns: Any) -> Op:
    """One input and a number."""
    return unary(name, doc, level=level, attrs=ScalarAttrs, **columns)


OGRAD = {"ograd": "the gradient of the output"}


def backward(name: str, doc: str, **columns: Any) -> Op:
    """A gradient whose inputs are that of the output, and data of which only the shape is used."""
    inputs = {"ograd": "the gradient", "data": "has the wanted shape"}
    return define(name, doc, inputs=inputs, named=False, ignored_inputs=[1], **columns)


LHS_RHS = {"lhs": "the left operand", "rhs": "the right operand"}


def binary(name: str, doc: str, *, level: int, pattern: int = BROADCAST, **columns: Any) -> Op:
    """Two inputs of one shape, element by element."""
    return define(
        name,
        doc,
        level=level,
        inputs=LHS_RHS,
        named=False,
        pattern=pattern,
        shape=same_shape,
        layout=layouts.keep_left,
        inplace=[(0, 0), (1, 0)],
        **columns,
    )


def broadcasting(name: str, doc: str, *aliases: str, **columns: Any) -> Op:
    """Two inputs that broadcast as numpy's do."""
    return define(
        name,
        doc,
        inputs=LHS_RHS,
        named=False,
        pattern=BROADCAST,
        aliases=aliases,
        shape=broadcast_shape,
        layout=layouts.broadcast_pair,
        inplace=[(0, 0), (1, 0)],
        **columns,
    )
