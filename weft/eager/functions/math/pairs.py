"""Rows: functions of two tensors beyond arithmetic, limits, and what is composed of comparisons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ....base.dtype import BOOL, is_complex, is_float, is_integer
from ....base.errors import InvalidType, RunError, Unsupported
from ....core.op import Op
from ....ops.math.elemwise import ClipAttrs
from ...dispatch import apply
from ...tensor.memory import array_of
from ...tensor.tensor import Tensor, wrap
from ...tensor.types import finfo
from ..fusion import fused
from ..operands import floating, must_be_real, must_be_tensors, must_fit, promoted, promoted_floats
from ..table import named, row, with_example
from .arithmetic import add, div, mul, sub
from .cast import clone
from .compare import choose, eq, ge, gt, le, lt, ne
from .complex import real
from .unary import exp, log, log1p, sin

_ATAN2, _HYPOT, _COPYSIGN, _LOGADDEXP = (Op.get(name) for name in ("atan2", "hypot", "copysign", "logaddexp"))
_SIGN, _SGN, _CLIP, _SIGNBIT = (Op.get(name) for name in ("sign", "sgn", "clip", "signbit"))


@row(inplace=True, out=True, elementwise=True, aliases=["arctan2"])
def atan2(input: Tensor, other: Tensor) -> Tensor:
    """the angle of the point (other, input)"""
    must_be_tensors("atan2", input=input, other=other)
    return apply(_ATAN2, None, promoted_floats(input, other))[0]


def _only_floats(name: str, input: Tensor, other: Tensor) -> list[Tensor]:
    must_be_tensors(name, input=input, other=other)
    values = promoted(input, other)
    if not is_float(values[0]._dtype):
        raise Unsupported(f'"{name}" not implemented for {values[0].dtype.title!r}')
    return values


@row(inplace=True, out=True, elementwise=True)
def hypot(input: Tensor, other: Tensor) -> Tensor:
    """sqrt(input**2 + other**2)"""
    return apply(_HYPOT, None, _only_floats("hypot", input, other))[0]


@row(inplace=True, out=True, elementwise=True)
def copysign(input: Tensor, other: Any) -> Tensor:
    """|input| with the sign of other"""
    must_be_tensors("copysign", input=input)
    return apply(_COPYSIGN, None, promoted_floats(input, other))[0]


@row(inplace=True, out=True, elementwise=True)
def nextafter(input: Tensor, other: Tensor) -> Tensor:
    """the next number after input towards other"""
    left, right = (array_of(value) for value in _only_floats("nextafter", input, other))
    return wrap(np.asarray(np.nextafter(left, right)))


def _larger_first(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Complex numbers by their real parts."""
    above = ge(real(left), real(right))
    return choose(above, left, right), choose(above, right, left)


@row(out=True, elementwise=True)
def logaddexp(input: Tensor, other: Tensor) -> Tensor:
    """log(exp(input) + exp(other))"""
    if is_complex(input._dtype) or is_complex(other._dtype):
        high, low = _larger_first(*promoted(input, other))
        return add(high, log1p(exp(sub(low, high))))
    return apply(_LOGADDEXP, None, _only_floats("logaddexp", input, other))[0]


@row(out=True, elementwise=True)
@fused
def logaddexp2(input: Tensor, other: Tensor) -> Tensor:
    """log2(2**input + 2**other)"""
    values = [mul(v, math.log(2)) for v in _only_floats("logaddexp2", input, other)]
    return div(apply(_LOGADDEXP, None, values)[0], math.log(2))


@fused
def _times_log(input: Tensor, other: Tensor, logarithm: Callable[[Tensor], Tensor], least: float) -> Tensor:
    """input * logarithm(other), which is 0 where input is 0 unless other is NaN."""
    outside = le(other, least) | eq(other, math.inf)
    safe = choose(eq(input, 0) & outside, 1.0, other)
    return mul(input, logarithm(safe))


@row(inplace=True, out=True, elementwise=True)
def xlogy(input: Any, other: Any) -> Tensor:
    """input * log(other), which is 0 where input is 0"""
    if not isinstance(other, Tensor):
        must_be_tensors("xlogy", input=input)
    factor, of = promoted_floats(input, other)
    return _times_log(factor, of, log, 0)


row(xlogy, space="weft.special", method=False, out=True, elementwise=True)


@row(space="weft.special", method=False, out=True, elementwise=True)
def xlog1py(input: Any, other: Any) -> Tensor:
    """input * log1p(other), which is 0 where input is 0"""
    if not isinstance(other, Tensor):
        must_be_tensors("xlog1py", input=input)
    factor, of = promoted_floats(input, other)
    return _times_log(factor, of, log1p, -1)


# Both are floats, or neither is a NaN.


def _but_nan(name: str, doc: str, before: Callable[[Tensor, Any], Tensor]) -> None:
    @fused
    def function(input: Tensor, other: Tensor) -> Tensor:
        must_be_tensors(name, input=input, other=other)
        left, right = promoted(input, other)
        return choose(before(left, right) | ne(right, right), left, right)

    row(named(function, name, f"{doc}, and the other one where one is NaN"), out=True, elementwise=True)


_but_nan("fmax", "the larger of both", ge)
_but_nan("fmin", "the smaller of both", le)


# Limits.


@row(inplace=True, out=True, elementwise=True, aliases=["clip"])
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """input limited to [min, max], which may be tensors

    >>> import weft
    >>> weft.clamp(weft.tensor([-2, 0, 5]), min=-1, max=3)
    tensor([-1,  0,  3])
    >>> weft.tensor([-2.0, 5.0]).clamp(min=0)
    tensor([0., 5.])
    """
    low, high = (-math.inf if min is None else min), (math.inf if max is None else max)
    if type(low) in _REAL and type(high) in _REAL and is_float(input._dtype):
        known = low == low and high == high  # a bound that is NaN makes everything NaN
        if known and not (min is None and max is None):
            return apply(_CLIP, ClipAttrs(a_min=float(low), a_max=float(high)), [input])[0]
    return _limited(input, min, max)


_REAL = (float, int)


@fused
def _limited(input: Tensor, min: Any, max: Any) -> Tensor:
    if min is None and max is None:
        raise RunError("clamp: At least one of 'min' or 'max' must not be None")
    if isinstance(min, Tensor) != isinstance(max, Tensor) and None not in (min, max):
        raise InvalidType("clamp(): 'min' and 'max' must both be numbers or both be tensors")
    given = [value for value in (min, max) if value is not None]
    made = promoted(input, *given)
    must_fit(made[0]._dtype, *given)
    if is_complex(made[0]._dtype):
        raise Unsupported("clamp is not supported for complex types")
    if made[0]._dtype == BOOL and not isinstance(given[0], Tensor):
        raise Unsupported("\"clamp\" not implemented for 'Bool'")
    value, limits = made[0], made[1:]
    if min is not None:
        low = limits.pop(0)
        value = choose(ge(value, low) | ne(value, value), value, low)
    if max is not None:
        high = limits.pop(0)
        value = choose(le(value, high) | ne(value, value), value, high)
    return value


@row(inplace=True, out=True, elementwise=True)
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """input, but not less than min"""
    must_be_tensors("clamp_min", input=input)
    return clamp(input, min)


@row(inplace=True, out=True, elementwise=True)
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """input, but not more than max"""
    must_be_tensors("clamp_max", input=input)
    return clamp(input, None, max)


# What a number is.


@row(inplace=True, out=True, elementwise=True)
@fused
def sgn(input: Tensor) -> Tensor:
    """-1, 0 or 1, as x is negative, zero or positive; 0 of NaN; x / |x| of complex numbers"""
    kind = input._dtype
    if kind == BOOL:
        return clone(input)
    if is_complex(kind):
        return apply(_SGN, None, [input])[0]
    made = apply(_SIGN, None, [input])[0]
    return choose(ne(input, input), 0, made) if is_float(kind) else made


@row(inplace=True, out=True, elementwise=True)
def sign(input: Tensor) -> Tensor:
    """-1, 0 or 1, as x is negative, zero or positive; 0 of NaN

    >>> import weft
    >>> weft.sign(weft.tensor([-2.0, 0.0, 5.0]))
    tensor([-1.,  0.,  1.])
    """
    if is_complex(input._dtype):
        raise Unsupported("Unlike NumPy, sign() is not intended to support complex numbers.")
    return sgn(input)


def _test(name: str, doc: str, result: str) -> Callable[[Tensor], Tensor]:
    """A test of each number, and what it gives for 1, infinity and NaN."""
    op = Op.get(name)

    def function(input: Tensor) -> Tensor:
        return apply(op, None, [input])[0]

    given = f'>>> weft.{name}(weft.tensor([1.0, float("inf"), float("nan")]))'
    return row(named(function, name, with_example(doc, given, f"tensor([{result}])")))


isnan = _test("isnan", "where input is not a number", "False, False,  True")
isinf = _test("isinf", "where input is infinite", "False,  True, False")
isfinite = _test("isfinite", "where input is neither infinite nor NaN", " True, False, False")


@row(out=True, elementwise=True)
def signbit(input: Tensor) -> Tensor:
    """where input is negative, -0.0 included"""
    if is_complex(input._dtype):
        raise Unsupported("signbit is not implemented for complex tensors.")
    return apply(_SIGNBIT, None, [input])[0]


@row(out=True, elementwise=True)
@fused
def isposinf(input: Tensor) -> Tensor:
    """where input is positive infinity"""
    _must_be_ordered("isposinf", input)
    return isinf(input) & gt(input, 0)


@row(out=True, elementwise=True)
@fused
def isneginf(input: Tensor) -> Tensor:
    """where input is negative infinity"""
    _must_be_ordered("isneginf", input)
    return isinf(input) & lt(input, 0)


def _must_be_ordered(name: str, input: Tensor) -> None:
    if is_complex(input._dtype):
        raise Unsupported(f"{name} does not support complex inputs.")


@row(inplace=True, out=True, elementwise=True)
@fused
def nan_to_num(
    input: Tensor, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """input with numbers in the place of NaN and the infinities

    >>> import weft
    >>> weft.nan_to_num(weft.tensor([1.0, float("nan")]), nan=0.0)
    tensor([1., 0.])
    """
    must_be_real("nan_to_num", input)
    kind = input._dtype
    if is_integer(kind) or kind == BOOL:
        return clone(input)
    greatest = finfo(input.dtype).max
    made = choose(isnan(input), 0.0 if nan is None else nan, input)
    made = choose(eq(input, math.inf), greatest if posinf is None else posinf, made)
    return choose(eq(input, -math.inf), -greatest if neginf is None else neginf, made)


@row(inplace=True, out=True, elementwise=True)
@fused
def sinc(input: Tensor) -> Tensor:
    """sin(pi x) / (pi x), which is 1 at 0"""
    scaled = mul(floating(input), math.pi)
    zero = eq(scaled, 0)
    safe = choose(zero, 1.0, scaled)
    return choose(zero, 1.0, div(sin(safe), safe))


@row(inplace=True, out=True, elementwise=True)
@fused
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)); with eps, x is limited to [eps, 1 - eps]"""
    must_be_real("logit", input)
    value = floating(input)
    if eps is not None:
        value = clamp(value, eps, 1 - eps)
    return log(div(value, 1 - value))


row(logit, space="weft.special", method=False, out=True, elementwise=True)
