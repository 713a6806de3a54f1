"""Converters of arithmetic, comparisons, logic, activations and the outputs of training graphs."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce

from ....base.dtype import BOOL, FLOAT32, is_float
from ....base.errors import FormatError, Unsupported
from ...building import in_float32
from ...emitter import Value
from ..call import Call
from ..registry import ALIKE, Alike, converter

for _name in (
    "abs ceil cos cosh erf exp expm1 floor log log1p negative reciprocal relu rsqrt sigmoid sign "
    "sin sinh softsign sqrt tan tanh trunc elemwise_add elemwise_sub elemwise_mul "
    "broadcast_add broadcast_sub broadcast_mul ones_like zeros_like"
).split():
    ALIKE[_name] = Alike(_name)

ALIKE.update(
    arccos=Alike("acos"),
    arccosh=Alike("acosh"),
    arcsin=Alike("asin"),
    arcsinh=Alike("asinh"),
    arctan=Alike("atan"),
    arctanh=Alike("atanh"),
    broadcast_maximum=Alike("broadcast_max"),
    broadcast_minimum=Alike("broadcast_min"),
    broadcast_power=Alike("broadcast_pow"),
    fix=Alike("trunc"),
    hard_sigmoid=Alike("hard_sigmoid", {"alpha": "alpha", "beta": "beta"}),
    _maximum=Alike("broadcast_max"),
    _minimum=Alike("broadcast_min"),
    _power=Alike("elemwise_pow"),
    _grad_add=Alike("elemwise_add"),
    gammaln=Alike("lgamma"),
    erfinv=Alike("erfinv"),
    _contrib_sign_ste=Alike("sign"),
)


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
    return call.cast(call[0], call.dtype_attr())


@converter("amp_multicast")
def cast_alike(call: Call) -> list[Value]:
    """All to the widest of their dtypes, or to the narrowest."""
    call.ignore("num_outputs")
    dtypes = sorted((call.dtype(value) for value in call.all()), key=lambda d: d.itemsize)
    wanted = dtypes[0] if call.attr("cast_narrow") else dtypes[-1]
    return [call.cast(value, wanted) for value in call.all()]


# Arithmetic with a number. On integers the number is one too, unless it has a fraction.


def _by_number(op: str) -> Callable[[Call], Value]:
    def convert(call: Call) -> Value:
        data, number = _wide_enough(call)
        return call.op(op, data, scalar=number)

    return convert


def _wide_enough(call: Call) -> tuple[Value, float]:
    """The operands; integers beside a number with a fraction would be cut, in a way that depends on
    MXNet's version."""
    data, number = call[0], call.attr("scalar")
    if not is_float(call.dtype(data)) and number != math.floor(number):
        raise Unsupported(f"{call.op_type} of integers and {number} is not supported")
    return data, number


for _name, _op in {
    "_plus_scalar": "__add_scalar__",
    "_minus_scalar": "__sub_scalar__",
    "_rminus_scalar": "__rsub_scalar__",
    "_mul_scalar": "__mul_scalar__",
    "_rdiv_scalar": "__rdiv_scalar__",
    "_power_scalar": "__pow_scalar__",
    "_rpower_scalar": "__rpow_scalar__",
}.items():
    converter(_name)(_by_number(_op))


@converter("_div_scalar")
def divide_by_number(call: Call) -> Value:
    data, number = _wide_enough(call)
    if is_float(call.dtype(data)):
        return call.op("__div_scalar__", data, scalar=number)
    return _quotient(call, data, call.make([number], call.dtype(data)))


@converter("elemwise_div", "broadcast_div")
def divide(call: Call) -> Value:
    if is_float(call.dtype(call[0])):
        return call.op(call.op_type, call[0], call[1])
    return _quotient(call, call[0], call[1])


def _quotient(call: Call, a: Value, b: Value) -> Value:
    """Of integers, towards zero: sign(a) sign(b) (|a| / |b|)."""
    if call.dtype(a).kind == "u":
        return call.op("broadcast_div", a, b)
    sizes = call.op("broadcast_div", call.op("abs", a), call.op("abs", b))
    signs = call.op("broadcast_mul", call.op("sign", a), call.op("sign", b))
    return call.op("broadcast_mul", sizes, signs)


@converter("broadcast_mod", "_mod")
def modulo(call: Call) -> Value:
    return _remainder(call, call[0], call[1])


@converter("_mod_scalar", "_rmod_scalar")
def modulo_by_number(call: Call) -> Value:
    data, number = _wide_enough(call)
    other = call.make([number], call.dtype(data))
    pair = (data, other) if call.op_type == "_mod_scalar" else (other, data)
    return _remainder(call, *pair)


def _remainder(call: Call, a: Value, b: Value) -> Value:
    """With the sign of b; 0 where b is 0."""
    zero = call.op("broadcast_equal", b, call.make([0], call.dtype(b)))
    divisor = call.op("broadcast_add", b, zero)
    made = call.op("broadcast_mod", a, divisor)
    return call.op("broadcast_where", zero, call.op("zeros_like", made), made)


@converter("_maximum_scalar", "_minimum_scalar")
def extreme_with_number(call: Call) -> Value:
    data, number = _wide_enough(call)
    op = "broadcast_max" if call.op_type == "_maximum_scalar" else "broadcast_min"
    return call.op(op, data, call.make([number], call.dtype(data)))


@converter("_hypot", "broadcast_hypot", "_hypot_scalar")
def hypotenuse(call: Call) -> Value:
    """sqrt(a^2 + b^2)"""
    a = call[0]
    scalar = call.op_type == "_hypot_scalar"
    b = call.make([call.attr("scalar")], call.dtype(a)) if scalar else call[1]
    total = call.op("broadcast_add", _square(call, a), _square(call, b))
    return call.op("sqrt", total)


def _square(call: Call, value: Value) -> Value:
    return call.op("elemwise_mul", value, value)


@converter("add_n")
def add_n(call: Call) -> Value:
    values = call.all()
    return values[0] if len(values) == 1 else call.op("elemwise_sum", *values, num_args=len(values))


# Comparisons and logic: 0 and 1 in the dtype of the operands.

_COMPARED = {
    "equal": "broadcast_equal",
    "not_equal": "broadcast_not_equal",
    "greater": "broadcast_greater",
    "greater_equal": "broadcast_greater_equal",
    "lesser": "broadcast_less",
    "lesser_equal": "broadcast_less_equal",
}


def _comparison(op: str, prepare: Callable[[Call, Value], Value]) -> Callable[[Call], Value]:
    def convert(call: Call) -> Value:
        data = call[0]
        if call.op_type.endswith("_scalar"):
            other = call.make([_wide_enough(call)[1]], call.dtype(data))
        else:
            other = call[1]
        made = call.op(op, prepare(call, data), prepare(call, other))
        return call.cast(made, call.dtype(data))

    return convert


def _is_true(call: Call, value: Value) -> Value:
    return call.op("broadcast_not_equal", value, call.make([0], call.dtype(value)))


for _name, _op in _COMPARED.items():
    converter(f"broadcast_{_name}", f"_{_name}", f"_{_name}_scalar")(_comparison(_op, lambda call, value: value))
for _name, _op in {
    "logical_and": "broadcast_min",
    "logical_or": "broadcast_max",
    "logical_xor": "broadcast_not_equal",
}.items():
    converter(f"broadcast_{_name}", f"_{_name}", f"_{_name}_scalar")(_comparison(_op, _is_true))


@converter("logical_not")
def logical_not(call: Call) -> Value:
    made = call.op("broadcast_equal", call[0], call.make([0], call.dtype(call[0])))
    return call.cast(made, call.dtype(call[0]))


@converter("where")
def where(call: Call) -> Value:
    """A condition of one axis chooses whole rows; any number but 0 is true."""
    condition, x, y = call[0], call[1], call[2]
    chosen = call.cast(_is_true(call, condition), BOOL)
    if call.rank(condition) == 1 and call.rank(x) > 1:
        shape = call.shape(x)
        chosen = call.broadcast_to(call.reshape(chosen, (-1, *[1] * (len(shape) - 1))), shape)
    return call.op("where", chosen, x, y)


# Functions of one number.


@converter("round", "_contrib_round_ste")
def round_away(call: Call) -> Value:
    """Halves go away from 0: sign(x) floor(|x| + 1/2)."""
    up = call.op("floor", call.op("__add_scalar__", call.op("abs", call[0]), scalar=0.5))
    return call.op("elemwise_mul", call.op("sign", call[0]), up)


@converter("rint")
def round_down(call: Call) -> Value:
    """Halves go down: ceil(x - 1/2)."""
    return call.op("ceil", call.op("__sub_scalar__", call[0], scalar=0.5))


@converter("square")
def square(call: Call) -> Value:
    return _square(call, call[0])


@converter("log2", "log10")
def logarithm(call: Call) -> Value:
    base = math.log(2 if call.op_type == "log2" else 10)
    return call.op("__mul_scalar__", call.op("log", call[0]), scalar=1 / base)


@converter("degrees", "radians")
def angle(call: Call) -> Value:
    factor = 180 / math.pi if call.op_type == "degrees" else math.pi / 180
    return call.op("__mul_scalar__", call[0], scalar=factor)


@converter("cbrt", "rcbrt")
def cube_root(call: Call) -> Value:
    """sign(x) |x|^(1/3), or 1 over it."""
    root = call.op("__pow_scalar__", call.op("abs", call[0]), scalar=1 / 3)
    root = call.op("elemwise_mul", call.op("sign", call[0]), root)
    return root if call.op_type == "cbrt" else call.op("__rdiv_scalar__", root, scalar=1.0)


@converter("smooth_l1")
@in_float32
def smooth_l1(call: Call) -> Value:
    """(s x)^2 / 2 where |x| < 1 / s^2, else |x| - 1 / (2 s^2)."""
    x, s2 = call[0], call.attr("scalar") ** 2
    size = call.op("abs", x)
    inner = call.op("__mul_scalar__", _square(call, x), scalar=0.5 * s2)
    outer = call.op("__sub_scalar__", size, scalar=0.5 / s2)
    small = call.op("broadcast_less", size, call.make([1 / s2], call.dtype(x)))
    return call.op("where", call.cast(small, BOOL), inner, outer)


@converter("_contrib_quadratic")
@in_float32
def quadratic(call: Call) -> Value:
    """a x^2 + b x + c"""
    a, b, c = (call.attr(name) for name in "abc")
    made = call.op("__add_scalar__", call.op("__mul_scalar__", call[0], scalar=a), scalar=b)
    return call.op("__add_scalar__", call.op("elemwise_mul", made, call[0]), scalar=c)


@converter("clip")
def clip(call: Call) -> Value:
    return call.op("clip", call[0], a_min=call.attr("a_min"), a_max=call.attr("a_max"))


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
        return _two_slopes(call, slope if kind == "leaky" else sum(bounds) / 2)
    if kind == "elu":
        return call.op("elu", call[0], alpha=slope)
    if kind in ("selu", "gelu"):
        return call.op(kind, call[0])
    raise FormatError(f"unknown act_type {kind!r}")


def _two_slopes(call: Call, slope: float) -> Value:
    """leaky_relu, which takes no negative slope: max(x, 0) + slope min(x, 0)."""
    if slope >= 0:
        return call.op("leaky_relu", call[0], alpha=slope)
    below = call.op("clip", call[0], a_min=-math.inf, a_max=0.0)
    return call.op("elemwise_add", call.op("relu", call[0]), call.op("__mul_scalar__", below, scalar=slope))


def _prelu(call: Call, data: Value, gamma: Value) -> Value:
    """One slope a channel, or one for all."""
    shape = call.shape(gamma, "gamma")
    if math.prod(shape) != 1 and len(shape) == 1 and call.rank(data) > 1:
        return call.op("prelu", data, gamma, axis=1)
    if math.prod(shape) != 1 and len(shape) != call.rank(data):
        raise Unsupported(f"slopes of shape {shape} for data of shape {data.shape}")
    slope = call.reshape(gamma, (1,)) if math.prod(shape) == 1 else gamma
    below = call.op("broadcast_mul", call.op("clip", data, a_min=-math.inf, a_max=0.0), slope)
    return call.op("elemwise_add", call.op("relu", data), below)


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
    lowest = call.op("full_like", data, fill_value=-3.0e38 if _is_wide(call, data) else -6.0e4)
    made = call.op("softmax", call.op("where", mask, data, lowest), axis=axis)
    return call.op("where", mask, made, call.op("zeros_like", data))


def _is_wide(call: Call, value: Value) -> bool:
    return call.dtype(value) != "float16"


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
    shape = call.shape(data)
    flat = call.reshape(data, (shape[0], math.prod(shape[1:])))
    return call.reshape(call.op("softmax", flat, axis=-1), shape)


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
    made = call.op("broadcast_mul", call.reshape(a, (m, 1, k)), call.reshape(b, (1, n, k)))
    return call.reshape(made, (m * n, k))
