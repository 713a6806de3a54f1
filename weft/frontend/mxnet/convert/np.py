"""Converters of MXNet's numpy operators (`_np_*`, `_npi_*`, `_npx_*`), which know scalars, bools
and true division."""

from __future__ import annotations

import math
from collections.abc import Callable

from ....base.dtype import BOOL, FLOAT32, INT64, DType, is_float
from ....base.errors import Unsupported
from ....base.shape import normalize_axis
from ...elements import COMPARISONS
from ...emitter import Value
from ..call import MxnetCall
from ..registry import TABLE, converter
from .math import SCALAR_FORMS, by_number, operands, remainder

# Functions of one number that are the same on floats, by the names of the older operators.
_ONE = (
    "negative reciprocal sign ceil floor trunc fix square sqrt cbrt exp log log10 log2 log1p expm1 sin cos tan arcsin "
    "arccos arctan sinh cosh tanh arcsinh arccosh arctanh degrees radians rint"
).split()


def _like(name: str) -> Callable[[MxnetCall], list[Value | None]]:
    """The converter of an older operator, on floats."""

    rule = TABLE.find(name)
    assert rule is not None

    def convert(call: MxnetCall) -> list[Value | None]:
        _check_float(call, call[0])
        call.op_type = name
        return rule.values(call)

    return convert


def _check_float(call: MxnetCall, value: Value) -> None:
    if not is_float(call.dtype(value)):
        raise Unsupported(f"{call.op_type} of {call.dtype(value)} is not supported")


for _name in _ONE:
    converter(f"_npi_{_name}")(_like(_name))
converter("_npi_absolute")(_like("abs"))


@converter("_npi_around")
def rounded(call: MxnetCall) -> Value:
    """To some decimals; halves go to the even neighbour."""
    _check_float(call, call[0])
    scale = 10.0 ** call.attr("decimals")
    whole = call.op("round", call.scaled(call[0], scale))
    return call.op("__div_scalar__", whole, scalar=scale)


# Two tensors: broadcast, in the wider dtype where one is floating.


def alike(call: MxnetCall, a: Value, b: Value) -> tuple[Value, Value]:
    """Two values in one dtype."""
    kinds = call.dtype(a), call.dtype(b)
    if kinds[0] == kinds[1]:
        return a, b
    floating = [kind for kind in kinds if is_float(kind)]
    if not floating:
        raise Unsupported(f"{call.op_type} of {kinds[0]} and {kinds[1]} is not supported")
    wanted = max(floating, key=lambda kind: kind.itemsize)
    return call.cast(a, wanted), call.cast(b, wanted)


def _real(call: MxnetCall, value: Value) -> Value:
    return value if is_float(call.dtype(value)) else call.cast(value, FLOAT32)


def _of_two(op: str) -> Callable[[MxnetCall], Value]:
    return lambda call: call.op(op, *alike(call, *operands(call)))


for _name, _op in {"add": "add", "subtract": "sub", "multiply": "mul", "power": "pow"}.items():
    converter(f"_npi_{_name}")(_of_two(f"broadcast_{_op}"))


@converter("_npi_true_divide")
def true_divide(call: MxnetCall) -> Value:
    a, b = alike(call, _real(call, call[0]), _real(call, call[1]))
    return call.op("broadcast_div", a, b)


@converter("_npi_mod", "_npi_mod_scalar", "_npi_rmod_scalar")
def modulo(call: MxnetCall) -> Value:
    return remainder(call, *alike(call, *operands(call)))


# A tensor and a number.


for _name, _op in {
    "add": "plus",
    "subtract": "minus",
    "rsubtract": "rminus",
    "multiply": "mul",
    "power": "power",
    "rpower": "rpower",
}.items():
    converter(f"_npi_{_name}_scalar")(by_number(SCALAR_FORMS[_op]))


@converter("_npi_true_divide_scalar", "_npi_rtrue_divide_scalar")
def true_divide_by_number(call: MxnetCall) -> Value:
    op = "__rdiv_scalar__" if "_rtrue" in call.op_type else "__div_scalar__"
    return call.op(op, _real(call, call[0]), scalar=call.attr("scalar"))


# Comparisons and tests give bools.


def _compared(op: str) -> Callable[[MxnetCall], Value]:
    return lambda call: call.cast(_of_two(op)(call), BOOL)


for _name, _op in COMPARISONS.items():
    converter(f"_npi_{_name}", f"_npi_{_name}_scalar")(_compared(_op))


@converter("_npi_logical_not")
def logical_not(call: MxnetCall) -> Value:
    zero = call.make(0, call.dtype(call[0]))
    return call.cast(call.op("broadcast_equal", call[0], zero), BOOL)


@converter("_npi_isnan", "_npi_isinf", "_npi_isfinite")
def tested(call: MxnetCall) -> Value:
    _check_float(call, call[0])
    return call.cast(call.op(call.op_type.removeprefix("_npi_"), call[0]), BOOL)


@converter("_npi_where", "_npi_where_lscalar", "_npi_where_rscalar", "_npi_where_scalar2")
def where(call: MxnetCall) -> Value:
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
    return call.where(call.is_true(condition), x, y)


# Reductions: over all axes they leave a scalar.


def _reduced(call: MxnetCall, op: str, value: Value) -> Value:
    return call.reduced(op, value, call.axes(call.attr("axis"), value), call.attr("keepdims"))


def _prepared(call: MxnetCall) -> Value:
    """The data in the dtype that is asked for."""
    dtype: DType | None = call.dtype_attr() if call.has("dtype") else None
    call.ignore("dtype")
    data = call[0] if dtype is None else call.cast(call[0], dtype)
    _check_float(call, data)
    return data


def _check_initial(call: MxnetCall) -> None:
    if call.attr("initial") is not None:
        raise Unsupported(f"{call.op_type} that starts from a value is not supported")


@converter("_np_sum", "_np_prod", "_npi_mean")
def accumulated(call: MxnetCall) -> Value:
    _check_initial(call)
    return _reduced(call, call.op_type.rpartition("_")[2], _prepared(call))


@converter("_np_max", "_np_min")
def extreme(call: MxnetCall) -> Value:
    _check_initial(call)
    return _reduced(call, call.op_type.rpartition("_")[2], call[0])


@converter("_npi_var", "_npi_std")
def spread(call: MxnetCall) -> Value:
    """The mean square distance from the mean; ddof is taken off the number of elements."""
    prepared = _prepared(call)
    data = call.widened(prepared)
    axes = call.axes(call.attr("axis"), data)
    _, centred = call.centred(data, axes)
    variance = _reduced(call, "mean", call.square(centred))
    if call.attr("ddof"):
        count = math.prod(call.extent(data, axis) for axis in axes)
        variance = call.scaled(variance, count / (count - call.attr("ddof")))
    root = variance if call.op_type == "_npi_var" else call.op("sqrt", variance)
    return call.cast(root, call.dtype(prepared))


@converter("_npi_argmax", "_npi_argmin")
def arg_extreme(call: MxnetCall) -> Value:
    data, axis, keep = call[0], call.attr("axis"), call.attr("keepdims")
    shape, op = call.shape(data), call.op_type.removeprefix("_npi_")
    if axis is None:
        place = call.op(op, call.flat(data), axis=0, dtype=INT64)
        return call.reshape(place, [1] * len(shape) if keep else [])
    axis = normalize_axis(axis, len(shape))
    place = call.op(op, data, axis=axis, keepdims=True, dtype=INT64)
    return place if keep else call.reshape(place, (*shape[:axis], *shape[axis + 1 :]))


@converter("_np_any", "_np_all")
def truth(call: MxnetCall) -> Value:
    """Whether one, or every one, is not 0."""
    op = "max" if call.op_type == "_np_any" else "min"
    return call.cast(_reduced(call, op, call.is_true(call[0])), BOOL)


@converter("_np_cumsum")
def running_sum(call: MxnetCall) -> Value:
    data, axis = _prepared(call), call.attr("axis")
    if axis is None:
        data, axis = call.flat(data), 0
    return call.op("cumsum", data, axis=axis)
