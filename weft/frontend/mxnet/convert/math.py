"""Converters of arithmetic, comparisons, logic, activations and the outputs of training graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from ....base.dtype import BOOL, DTYPES, FLOAT32, is_float
from ....base.errors import FormatError, Unsupported
from ...building import in_float32
from ...elements import COMPARISONS, LOGIC, quotient, softmax_from, two_slopes
from ...emitter import Value
from ..call import Call
from ..registry import converter


@converter(
    "_copy",
    "BlockGrad",
    "MakeLoss",
    "make_loss",
    "_CrossDeviceCopy",
    "LinearRegressionOutput",
    "MAERegressionOutput",
    "SVMOutput",
    "IdentityAttachKLSparseReg",
    "cast_storage",
    "_identity_with_attr_like_rhs",
    "_contrib_gradientmultiplier",
)
def identity(call: Call) -> Value:
    """What only matters to gradients; a label is not read."""
    call.ignore("grad_scale", "valid_thresh", "normalization", "margin", "use_linear", "stype")
    call.ignore("regularization_coefficient", "sparseness_target", "penalty", "scalar", 1)
    return call[0]


@converter("LogisticRegressionOutput")
def logistic_output(call: Call) -> Value:
    call.ignore("grad_scale", 1)
    return call.op("sigmoid", call[0])


@converter("Dropout")
def dropout(call: Call) -> Value:
    """Nothing is dropped at inference."""
    call.ignore("p", "axes")
    call.only_first_output()
    if call.attr("mode") == "always":
        raise Unsupported("Dropout that also drops at inference is not supported")
    return call[0]


@converter("Cast", "amp_cast")
def cast(call: Call) -> Value:
    return call.cast(call[0], call.required_dtype())


@converter("amp_multicast")
def cast_alike(call: Call) -> list[Value]:
    """All to the widest of their dtypes, or to the narrowest."""
    call.ignore("num_outputs")
    dtypes = sorted((call.dtype(value) for value in call.all()), key=lambda d: d.itemsize)
    wanted = dtypes[0] if call.attr("cast_narrow") else dtypes[-1]
    return [call.cast(value, wanted) for value in call.all()]


# Arithmetic with a number. On integers the number is one too, unless it has a fraction.

SCALAR_FORMS = {
    "plus": "__add_scalar__",
    "minus": "__sub_scalar__",
    "rminus": "__rsub_scalar__",
    "mul": "__mul_scalar__",
    "rdiv": "__rdiv_scalar__",
    "power": "__pow_scalar__",
    "rpower": "__rpow_scalar__",
}


def whole_beside(call: Call, value: Value) -> float:
    """The number beside a tensor; integers beside one with a fraction would be cut, in a way that depends on MXNet's
    version."""
    number: float = call.attr("scalar")
    if not is_float(call.dtype(value)) and number != math.floor(number):
        raise Unsupported(f"{call.op_type} of {call.dtype(value)} and {number} is not supported")
    return number


def by_number(op: str) -> Callable[[Call], Value]:
    return lambda call: call.op(op, call[0], scalar=whole_beside(call, call[0]))


def _operands(call: Call) -> tuple[Value, Value]:
    """Two tensors, or one and a number."""
    if not call.op_type.endswith("_scalar"):
        return call[0], call[1]
    return call[0], call.make([whole_beside(call, call[0])], call.dtype(call[0]))


for _name, _op in SCALAR_FORMS.items():
    converter(f"_{_name}_scalar")(by_number(_op))


@converter("_div_scalar", "elemwise_div", "broadcast_div")
def divide(call: Call) -> Value:
    """Of integers, towards zero."""
    if call.op_type == "_div_scalar" and is_float(call.dtype(call[0])):
        return call.op("__div_scalar__", call[0], scalar=call.attr("scalar"))
    return quotient(call, *_operands(call))


@converter("broadcast_mod", "_mod", "_mod_scalar", "_rmod_scalar")
def modulo(call: Call) -> Value:
    """With the sign of the divisor; 0 where that is 0."""
    a, b = _operands(call)[:: -1 if call.op_type == "_rmod_scalar" else 1]
    return remainder(call, a, b)


def remainder(call: Call, a: Value, b: Value) -> Value:
    zero = call.op("broadcast_equal", b, call.make(0, call.dtype(b)))
    rest = call.op("broadcast_mod", a, call.op("broadcast_add", b, zero))
    return call.op("broadcast_where", zero, call.op("zeros_like", rest), rest)


@converter("_maximum_scalar", "_minimum_scalar")
def extreme_with_number(call: Call) -> Value:
    return call.op("broadcast_max" if call.op_type == "_maximum_scalar" else "broadcast_min", *_operands(call))


@converter("_hypot", "broadcast_hypot")
def hypotenuse(call: Call) -> Value:
    """sqrt(a^2 + b^2)"""
    return call.op("sqrt", call.op("broadcast_add", call.square(call[0]), call.square(call[1])))


@converter("_hypot_scalar")
def hypotenuse_with_number(call: Call) -> Value:
    return call.op("sqrt", call.shifted(call.square(call[0]), call.attr("scalar") ** 2))


@converter("add_n")
def add_n(call: Call) -> Value:
    values = call.all()
    return values[0] if len(values) == 1 else call.op("elemwise_sum", *values, num_args=len(values))


# Comparisons and logic: 0 and 1 in the dtype of the operands.


def _comparison(op: str, prepare: Callable[[Call, Value], Value]) -> Callable[[Call], Value]:
    def convert(call: Call) -> Value:
        outcome = call.op(op, *(prepare(call, value) for value in _operands(call)))
        return call.cast(outcome, call.dtype(call[0]))

    return convert


def _names(word: str) -> tuple[str, str, str]:
    return f"broadcast_{word}", f"_{word}", f"_{word}_scalar"


for _name, _op in COMPARISONS.items():
    converter(*_names(_name.replace("less", "lesser")))(_comparison(_op, lambda call, value: value))
for _name, _op in LOGIC.items():
    converter(*_names(f"logical_{_name}"))(_comparison(_op, Call.is_true))


@converter("logical_not")
def logical_not(call: Call) -> Value:
    false = call.op("broadcast_equal", call[0], call.make(0, call.dtype(call[0])))
    return call.cast(false, call.dtype(call[0]))


@converter("where")
def where(call: Call) -> Value:
    """A condition of one axis chooses whole rows; any number but 0 is true."""
    condition, x, y = call[0], call[1], call[2]
    chosen = call.cast(call.is_true(condition), BOOL)
    if call.rank(condition) == 1 and call.rank(x) > 1:
        chosen = call.reshape(chosen, (-1, *[1] * (call.rank(x) - 1)))
    return call.where(chosen, x, y)


# Functions of one number.


def _rounded(call: Call, x: Value) -> Value:
    """Halves go away from 0: sign(x) floor(|x| + 1/2)."""
    return call.op("elemwise_mul", call.op("sign", x), call.op("floor", call.shifted(call.op("abs", x), 0.5)))


def _cube_root(call: Call, x: Value) -> Value:
    """sign(x) |x|^(1/3)"""
    return call.op("elemwise_mul", call.op("sign", x), call.op("__pow_scalar__", call.op("abs", x), scalar=1 / 3))


_ONE: dict[str, Callable[[Call, Value], Value]] = {
    "round": _rounded,
    "_contrib_round_ste": _rounded,
    "rint": lambda call, x: call.op("ceil", call.shifted(x, -0.5)),  # halves go down
    "square": Call.square,
    "log2": lambda call, x: call.scaled(call.op("log", x), 1 / math.log(2)),
    "log10": lambda call, x: call.scaled(call.op("log", x), 1 / math.log(10)),
    "degrees": lambda call, x: call.scaled(x, 180 / math.pi),
    "radians": lambda call, x: call.scaled(x, math.pi / 180),
    "cbrt": _cube_root,
    "rcbrt": lambda call, x: call.op("__rdiv_scalar__", _cube_root(call, x), scalar=1.0),
}


def _on_first(function: Callable[[Call, Value], Value]) -> Callable[[Call], Value]:
    return lambda call: function(call, call[0])


for _name, _function in _ONE.items():
    converter(_name)(_on_first(_function))


@converter("smooth_l1")
@in_float32
def smooth_l1(call: Call) -> Value:
    """(s x)^2 / 2 where |x| < 1 / s^2, else |x| - 1 / (2 s^2)."""
    x, s2 = call[0], call.attr("scalar") ** 2
    size = call.op("abs", x)
    inner = call.scaled(call.square(x), 0.5 * s2)
    outer = call.op("__sub_scalar__", size, scalar=0.5 / s2)
    small = call.op("broadcast_less", size, call.make([1 / s2], call.dtype(x)))
    return call.op("where", call.cast(small, BOOL), inner, outer)


@converter("_contrib_quadratic")
@in_float32
def quadratic(call: Call) -> Value:
    """a x^2 + b x + c"""
    a, b, c = (call.attr(name) for name in "abc")
    line = call.shifted(call.scaled(call[0], a), b)
    return call.shifted(call.op("elemwise_mul", line, call[0]), c)


# Activations.

_ACTIVATIONS = {"relu": "relu", "sigmoid": "sigmoid", "tanh": "tanh", "softrelu": "softplus", "softsign": "softsign"}


@converter("Activation")
def activation(call: Call) -> Value:
    kind = call.attr("act_type")
    if kind not in _ACTIVATIONS:
        raise FormatError(f"unknown act_type {kind!r}")
    return call.op(_ACTIVATIONS[kind], call[0])


@converter("LeakyReLU")
def leaky_relu(call: Call) -> Value:
    """Two slopes, or an exponential below 0; rrelu is the middle of its range at inference."""
    kind, slope = call.attr("act_type"), call.attr("slope")
    bounds = call.attr("lower_bound"), call.attr("upper_bound")
    if kind == "prelu":
        return _prelu(call, call[0], call[1])
    if kind in ("leaky", "rrelu"):
        return two_slopes(call, call[0], slope if kind == "leaky" else sum(bounds) / 2)
    if kind == "elu":
        return call.op("elu", call[0], alpha=slope)
    if kind in ("selu", "gelu"):
        return call.op(kind, call[0])
    raise FormatError(f"unknown act_type {kind!r}")


def _prelu(call: Call, data: Value, gamma: Value) -> Value:
    """One slope a channel, or one for all."""
    shape = call.shape(gamma, "gamma")
    if math.prod(shape) != 1 and len(shape) == 1 and call.rank(data) > 1:
        return call.op("prelu", data, gamma, axis=1)
    if math.prod(shape) != 1 and len(shape) != call.rank(data):
        raise Unsupported(f"slopes of shape {shape} for data of shape {data.shape}")
    return two_slopes(call, data, call.reshape(gamma, (1,)) if math.prod(shape) == 1 else gamma)


# Softmax in all its names.


@converter("softmax", "softmin", "log_softmax")
def softmax(call: Call) -> Value:
    """softmax(x / temperature), along an axis of which `length` may say how much counts."""
    data, axis, temperature = call[0], call.attr("axis"), call.attr("temperature")
    dtype = call.dtype_attr()
    data = call.cast(data, FLOAT32) if not is_float(call.dtype(data)) else data
    data = call.cast(data, dtype) if dtype is not None else data
    dtype = call.dtype(data)
    if call.op_type == "softmin":
        data = call.op("negative", data)
    if temperature not in (None, 1.0):
        data = call.op("__div_scalar__", call.widened(data), scalar=temperature)
    if call.attr("use_length"):
        return call.cast(_softmax_of_lengths(call, data, axis), dtype)
    op = "log_softmax" if call.op_type == "log_softmax" else "softmax"
    return call.cast(call.op(op, data, axis=axis), dtype)


def _softmax_of_lengths(call: Call, data: Value, axis: int) -> Value:
    """What is beyond the length is far below everything else, and 0 in the end."""
    if call.op_type != "softmax":
        raise Unsupported(f"{call.op_type} with lengths is not supported")
    shape = call.shape(data)
    axis = axis % len(shape)
    places = call.positions(shape[axis], axis, len(shape), FLOAT32)
    lengths = call.op("expand_dims", call.cast(call[1], FLOAT32), axis=axis)
    counts = call.op("broadcast_less", places, lengths)
    mask = call.cast(call.broadcast_to(counts, shape), BOOL)
    lowest = call.op("full_like", data, fill_value=-6.0e4 if data.dtype == DTYPES["float16"] else -3.0e38)
    shares = call.op("softmax", call.op("where", mask, data, lowest), axis=axis)
    return call.op("where", mask, shares, call.op("zeros_like", data))


_TRAINING_ONLY = "grad_scale ignore_label use_ignore normalization out_grad smooth_alpha".split()


@converter("SoftmaxOutput")
def softmax_output(call: Call) -> Value:
    """Over axis 1 for multi_output, else over the last axis, or over all but the first where there
    are three, or more than four: as MXNet's own kernels do. The label is not read."""
    call.ignore(*_TRAINING_ONLY, 1)
    data, kept = call[0], call.attr("preserve_shape")
    if call.attr("multi_output"):
        return call.op("softmax", data, axis=1)
    if kept or data.rank in (None, 1, 2, 4):
        return call.op("softmax", data, axis=-1)
    return softmax_from(call, "softmax", data, 1)


@converter("SoftmaxActivation")
def softmax_activation(call: Call) -> Value:
    return call.op("softmax", call[0], axis=1 if call.attr("mode") == "channel" else -1)


@converter("broadcast_like")
def broadcast_like(call: Call) -> Value:
    """To the other's shape, or to some of its axes."""
    data, like = call[0], call[1]
    mine, others = call.attr("lhs_axes"), call.attr("rhs_axes")
    shape = list(call.shape(data))
    target = call.shape(like)
    if mine is None and others is None:
        return call.broadcast_to(data, target)
    if mine is None or others is None or len(mine) != len(others):
        raise FormatError("lhs_axes and rhs_axes differ in number")
    for axis, other in zip(mine, others):
        shape[axis] = target[other]
    return call.broadcast_to(data, tuple(shape))


@converter("khatri_rao")
def khatri_rao(call: Call) -> Value:
    """Kronecker products of columns."""
    return reduce(lambda a, b: _columns_product(call, a, b), call.all())


def _columns_product(call: Call, a: Value, b: Value) -> Value:
    (m, k), (n, _) = call.shape(a), call.shape(b)
    products = call.op("broadcast_mul", call.reshape(a, (m, 1, k)), call.reshape(b, (1, n, k)))
    return call.reshape(products, (m * n, k))
