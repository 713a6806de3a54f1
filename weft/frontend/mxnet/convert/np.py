"""Converters of MXNet's numpy operators (`_np_*`, `_npi_*`, `_npx_*`), which know scalars, bools
and true division."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ....base.dtype import BOOL, FLOAT32, INT64, DType, is_float
from ....base.errors import Unsupported
from ....base.shape import normalize_axis
from ...emitter import Value
from ..call import Call
from ..registry import ALIKE, CONVERTERS, Alike, converter

# Functions of one number that are the same on floats, by the names of the older operators.
_ONE = {
    "absolute": "abs",
    **{
        name: name
        for name in (
            "negative reciprocal sign ceil floor trunc fix square sqrt cbrt exp log log10 log2 log1p "
            "expm1 sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees "
            "radians rint"
        ).split()
    },
}


def _like(name: str) -> Callable[[Call], Value]:
    """The converter of an older operator, on floats."""

    def convert(call: Call) -> Value:
        _check_float(call, call[0])
        how = ALIKE.get(name)
        if how is not None:
            return call.op(how.op, call[0])
        call.op_type = name
        return CONVERTERS[name](call)

    return convert


def _check_float(call: Call, value: Value) -> None:
    if not is_float(call.dtype(value)):
        raise Unsupported(f"{call.op_type} of {call.dtype(value)} is not supported")


for _name, _old in _ONE.items():
    converter(f"_npi_{_name}")(_like(_old))
for _name in ("relu", "sigmoid"):
    ALIKE[f"_npx_{_name}"] = Alike(_name)


@converter("_npi_around")
def rounded(call: Call) -> Value:
    """To some decimals; halves go to the even neighbour."""
    _check_float(call, call[0])
    scale = 10.0 ** call.attr("decimals")
    made = call.op("round", call.op("__mul_scalar__", call[0], scalar=scale))
    return call.op("__div_scalar__", made, scalar=scale)


@converter("_np_copy")
def copy(call: Call) -> Value:
    return call[0]


# Two tensors: broadcast, in the wider dtype where one is floating.


def alike(call: Call, a: Value, b: Value) -> tuple[Value, Value]:
    kinds = call.dtype(a), call.dtype(b)
    if kinds[0] == kinds[1]:
        return a, b
    floating = [kind for kind in kinds if is_float(kind)]
    if not floating:
        raise Unsupported(f"{call.op_type} of {kinds[0]} and {kinds[1]} is not supported")
    wanted = max(floating, key=lambda kind: kind.itemsize)
    return call.cast(a, wanted), call.cast(b, wanted)


def _real(call: Call, value: Value) -> Value:
    return value if is_float(call.dtype(value)) else call.cast(value, FLOAT32)


_TWO = {"add": "broadcast_add", "subtract": "broadcast_sub", "multiply": "broadcast_mul", "power": "broadcast_pow"}


def _pair(op: str) -> Callable[[Call], Value]:
    return lambda call: call.op(op, *alike(call, call[0], call[1]))


for _name, _op in _TWO.items():
    converter(f"_npi_{_name}")(_pair(_op))


@converter("_npi_true_divide")
def true_divide(call: Call) -> Value:
    a, b = alike(call, _real(call, call[0]), _real(call, call[1]))
    return call.op("broadcast_div", a, b)


@converter("_npi_mod")
def modulo(call: Call) -> Value:
    call.inputs = list(alike(call, call[0], call[1]))
    return CONVERTERS["broadcast_mod"](call)


# A tensor and a number.


def _number(call: Call, value: Value) -> float:
    """The number; beside integers it must be whole."""
    scalar = call.attr("scalar")
    if not is_float(call.dtype(value)) and scalar != math.floor(scalar):
        raise Unsupported(f"{call.op_type} of {call.dtype(value)} and {scalar} is not supported")
    return scalar


def _with_number(op: str, real: bool) -> Callable[[Call], Value]:
    def convert(call: Call) -> Value:
        data = _real(call, call[0]) if real else call[0]
        return call.op(op, data, scalar=_number(call, data))

    return convert


for _name, _op in {
    "add": "__add_scalar__",
    "subtract": "__sub_scalar__",
    "rsubtract": "__rsub_scalar__",
    "multiply": "__mul_scalar__",
    "true_divide": "__div_scalar__",
    "rtrue_divide": "__rdiv_scalar__",
    "power": "__pow_scalar__",
    "rpower": "__rpow_scalar__",
}.items():
    converter(f"_npi_{_name}_scalar")(_with_number(_op, "divide" in _name))


@converter("_npi_mod_scalar", "_npi_rmod_scalar")
def modulo_by_number(call: Call) -> Value:
    call.op_type = call.op_type.removeprefix("_npi")
    return CONVERTERS[call.op_type](call)


# Comparisons and tests give bools.

_COMPARED = {
    "equal": "broadcast_equal",
    "not_equal": "broadcast_not_equal",
    "greater": "broadcast_greater",
    "greater_equal": "broadcast_greater_equal",
    "less": "broadcast_less",
    "less_equal": "broadcast_less_equal",
}


def _compared(op: str, scalar: bool) -> Callable[[Call], Value]:
    def convert(call: Call) -> Value:
        if scalar:
            pair = call[0], call.make(_number(call, call[0]), call.dtype(call[0]))
        else:
            pair = alike(call, call[0], call[1])
        return call.cast(call.op(op, *pair), BOOL)

    return convert


for _name, _op in _COMPARED.items():
    converter(f"_npi_{_name}")(_compared(_op, scalar=False))
    converter(f"_npi_{_name}_scalar")(_compared(_op, scalar=True))


@converter("_npi_logical_not")
def logical_not(call: Call) -> Value:
    zero = call.make(0, call.dtype(call[0]))
    return call.cast(call.op("broadcast_equal", call[0], zero), BOOL)


@converter("_npi_isnan", "_npi_isinf", "_npi_isfinite")
def tested(call: Call) -> Value:
    _check_float(call, call[0])
    return call.cast(call.op(call.op_type.removeprefix("_npi_"), call[0]), BOOL)


@converter("_npi_where", "_npi_where_lscalar", "_npi_where_rscalar", "_npi_where_scalar2")
def where(call: Call) -> Value:
    """The first where the condition is not 0, broadcast."""
    condition = call[0]
    if call.op_type == "_npi_where":
        x, y = alike(call, call[1], call[2])
    elif call.op_type == "_npi_where_scalar2":
        x, y = (call.make(call.attr(name), FLOAT32) for name in ("x", "y"))
    else:
        x = call[1]
        y = call.make(call.attr("scalar"), call.dtype(x))
        x, y = (y, x) if call.op_type == "_npi_where_lscalar" else (x, y)
    shape = np.broadcast_shapes(*(call.shape(value) for value in (condition, x, y)))
    chosen = call.op("broadcast_not_equal", condition, call.make(0, call.dtype(condition)))
    parts = [call.cast(chosen, BOOL), x, y]
    return call.op("where", *(call.broadcast_to(part, shape) for part in parts))


# Reductions: over all axes they leave a scalar.


def _reduced(call: Call, op: str, value: Value, axes: Sequence[int] | None, keep: bool) -> Value:
    shape = call.shape(value)
    chosen = range(len(shape)) if axes is None else axes
    chosen = tuple(sorted({normalize_axis(axis, len(shape)) for axis in chosen}))
    made = call.op(op, value, axis=chosen, keepdims=True) if chosen else value
    if keep:
        return made
    return call.reshape(made, [dim for axis, dim in enumerate(shape) if axis not in chosen])


def _prepared(call: Call) -> Value:
    """The data in the dtype that is asked for."""
    dtype: DType | None = call.dtype_attr() if call.has("dtype") else None
    call.ignore("dtype")
    data = call[0] if dtype is None else call.cast(call[0], dtype)
    _check_float(call, data)
    return data


def _check_initial(call: Call) -> None:
    if call.attr("initial") is not None:
        raise Unsupported(f"{call.op_type} that starts from a value is not supported")


@converter("_np_sum", "_np_prod", "_npi_mean")
def accumulated(call: Call) -> Value:
    _check_initial(call)
    name = call.op_type.rpartition("_")[2]
    return _reduced(call, name, _prepared(call), call.attr("axis"), call.attr("keepdims"))


@converter("_np_max", "_np_min")
def extreme(call: Call) -> Value:
    _check_initial(call)
    name = call.op_type.rpartition("_")[2]
    return _reduced(call, name, call[0], call.attr("axis"), call.attr("keepdims"))


@converter("_npi_var", "_npi_std")
def spread(call: Call) -> Value:
    """The mean square distance from the mean; ddof is taken off the number of elements."""
    axes, keep = call.attr("axis"), call.attr("keepdims")
    prepared = _prepared(call)
    data = call.widened(prepared)
    centred = call.op("broadcast_sub", data, _reduced(call, "mean", data, axes, True))
    square = call.op("elemwise_mul", centred, centred)
    made = _reduced(call, "mean", square, axes, keep)
    if call.attr("ddof"):
        shape = call.shape(data)
        chosen = range(len(shape)) if axes is None else axes
        count = math.prod(shape[axis] for axis in chosen)
        scale = count / (count - call.attr("ddof"))
        made = call.op("__mul_scalar__", made, scalar=scale)
    made = made if call.op_type == "_npi_var" else call.op("sqrt", made)
    return call.cast(made, call.dtype(prepared))


@converter("_npi_argmax", "_npi_argmin")
def arg_extreme(call: Call) -> Value:
    data, axis, keep = call[0], call.attr("axis"), call.attr("keepdims")
    shape, op = call.shape(data), call.op_type.removeprefix("_npi_")
    if axis is None:
        made = call.op(op, call.reshape(data, (math.prod(shape),)), axis=0, dtype=INT64)
        return call.reshape(made, [1] * len(shape) if keep else [])
    axis = normalize_axis(axis, len(shape))
    made = call.op(op, data, axis=axis, keepdims=True, dtype=INT64)
    return made if keep else call.reshape(made, (*shape[:axis], *shape[axis + 1 :]))


@converter("_np_any", "_np_all")
def truth(call: Call) -> Value:
    """Whether one, or every one, is not 0."""
    some = call.op("broadcast_not_equal", call[0], call.make(0, call.dtype(call[0])))
    op = "max" if call.op_type == "_np_any" else "min"
    return call.cast(_reduced(call, op, some, call.attr("axis"), call.attr("keepdims")), BOOL)


@converter("_np_cumsum")
def running_sum(call: Call) -> Value:
    data, axis = _prepared(call), call.attr("axis")
    if axis is None:
        data, axis = call.reshape(data, (math.prod(call.shape(data)),)), 0
    return call.op("cumsum", data, axis=axis)
