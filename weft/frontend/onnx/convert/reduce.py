"""Converters of reductions, softmaxes and scans."""

from __future__ import annotations

from ....base.dtype import FLOAT64, INT64, is_float
from ....base.errors import Unsupported
from ....base.shape import normalize_axis, numel
from ...building import in_float32
from ...elements import quotient, softmax_from
from ...emitter import Value
from ..call import OnnxCall
from ..registry import converter

_AXES_INPUT_SINCE = {"ReduceSum": 13}  # the others: 18


def _axes(call: OnnxCall) -> tuple[int, ...]:
    """The axes to reduce: all if there are none, unless noop_with_empty_axes says none."""
    as_input = call.opset >= _AXES_INPUT_SINCE.get(call.op_type, 18)
    axes = call.optional_ints(1, "the axes") if as_input else call.attr("axes")
    keeps_all = call.attr("noop_with_empty_axes", 0)
    return () if keeps_all and not axes else call.axes(axes or None, call[0])


def _reduced(call: OnnxCall, op: str, value: Value) -> Value:
    return call.reduced(op, value, _axes(call), bool(call.attr("keepdims")))


@converter("ReduceMax", "ReduceMin", decides=(1,))
def reduce_plain(call: OnnxCall) -> Value:
    op = call.op_type.removeprefix("Reduce").lower()
    return _reduced(call, op, call[0])


converter("ReduceSum", "ReduceProd", decides=(1,))(in_float32(reduce_plain))


@converter("ReduceMean", decides=(1,))
@in_float32
def reduce_mean(call: OnnxCall) -> Value:
    """Of integers, rounded towards zero."""
    if is_float(call.dtype(call[0])):
        return _reduced(call, "mean", call[0])
    count = numel([call.shape(call[0])[axis] for axis in _axes(call)])
    return quotient(call, _reduced(call, "sum", call[0]), call.make(count, call.dtype(call[0])))


@converter("ReduceL1", decides=(1,))
@in_float32
def reduce_l1(call: OnnxCall) -> Value:
    return _reduced(call, "sum", call.op("abs", call[0]))


@converter("ReduceSumSquare", decides=(1,))
@in_float32
def reduce_sum_square(call: OnnxCall) -> Value:
    return _reduced(call, "sum", call.square(call[0]))


def _in_floats(call: OnnxCall, value: Value) -> Value:
    """What has a function of floats: integers go through float64, and lose the fraction of the result."""
    return value if is_float(call.dtype(value)) else call.cast(value, FLOAT64)


@converter("ReduceL2", decides=(1,))
@in_float32
def reduce_l2(call: OnnxCall) -> Value:
    return call.cast(call.op("sqrt", _in_floats(call, reduce_sum_square(call))), call.dtype(call[0]))


@converter("ReduceLogSum", decides=(1,))
@in_float32
def reduce_log_sum(call: OnnxCall) -> Value:
    return call.cast(call.op("log", _in_floats(call, _reduced(call, "sum", call[0]))), call.dtype(call[0]))


@converter("ReduceLogSumExp", decides=(1,))
@in_float32
def reduce_log_sum_exp(call: OnnxCall) -> Value:
    return call.cast(_reduced(call, "logsumexp", _in_floats(call, call[0])), call.dtype(call[0]))


@converter("ArgMax", "ArgMin")
def arg_extreme(call: OnnxCall) -> Value:
    """The first of equal ones; the last where asked for, by looking from the other end."""
    data, axis = call[0], normalize_axis(call.attr("axis"), call.rank(call[0]))
    last = bool(call.attr("select_last_index", 0))
    if last:
        data = call.op("flip", data, axis=axis)
    place = call.op(call.op_type.lower(), data, axis=axis, keepdims=bool(call.attr("keepdims")), dtype="int64")
    if last:
        place = call.op("__rsub_scalar__", place, scalar=call.extent(data, axis) - 1)
    whole = call.rank(data) == 1 and not call.attr("keepdims")
    return call.reshape(place, ()) if whole else place


_SOFTMAXES = {"Softmax": "softmax", "LogSoftmax": "log_softmax"}


@converter(*_SOFTMAXES, since=13)
@in_float32
def softmax(call: OnnxCall) -> Value:
    return call.op(_SOFTMAXES[call.op_type], call[0], axis=call.attr("axis"))


@converter(*_SOFTMAXES, since=1)
@in_float32
def softmax_of_the_rest(call: OnnxCall) -> Value:
    """Until opset 12 the axis starts all the axes that are one distribution."""
    rank, axis = call.rank(call[0]), call.attr("axis")
    axis = rank if axis == rank else normalize_axis(axis, rank)
    return softmax_from(call, _SOFTMAXES[call.op_type], call[0], axis)


@converter("Hardmax", since=13)
def hardmax(call: OnnxCall) -> Value:
    return _peaks(call, call[0], normalize_axis(call.attr("axis"), call.rank(call[0])))


@converter("Hardmax")
def hardmax_of_the_rest(call: OnnxCall) -> Value:
    """Until opset 12 the axis starts all the axes of which one element is chosen."""
    shape, axis = call.shape(call[0]), call.attr("axis")
    axis = axis if axis == len(shape) else normalize_axis(axis, len(shape))
    flat = call.reshape(call[0], (numel(shape[:axis]), numel(shape[axis:])))
    return call.reshape(_peaks(call, flat, 1), shape)


def _peaks(call: OnnxCall, data: Value, axis: int) -> Value:
    """1 at the first largest element along an axis."""
    shape = call.shape(data)
    if 0 in shape:
        return data
    index = call.op("argmax", data, axis=axis, keepdims=True, dtype="int64")
    places = call.positions(shape[axis], axis, len(shape), INT64)
    return call.cast(call.op("broadcast_equal", index, places), call.dtype(data))


@converter("CumSum", since=11, decides=(1,))
@in_float32
def cumulative_sum(call: OnnxCall) -> Value:
    axis = call.axis(int(call.number(1, "the axis")), call[0])
    return call.op("cumsum", call[0], axis=axis, **call.attrs("exclusive reverse"))


@converter("LpNormalization")
@in_float32
def lp_normalization(call: OnnxCall) -> Value:
    """x / ||x||, and 0 where the norm is 0."""
    data, axis, p = call[0], call.attr("axis"), call.attr("p")
    if p not in (1, 2) or not is_float(call.dtype(data)):
        raise Unsupported(f"LpNormalization with p={p} is not supported")
    inner = call.op("abs", data) if p == 1 else call.square(data)
    norm = call.op("sum", inner, axis=normalize_axis(axis, call.rank(data)), keepdims=True)
    norm = call.op("sqrt", norm) if p == 2 else norm
    zero = call.op("broadcast_equal", norm, call.make(0, call.dtype(data)))
    return call.op("broadcast_div", data, call.op("elemwise_add", norm, zero))
