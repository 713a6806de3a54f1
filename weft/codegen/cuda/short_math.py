"""Functions of 16-bit floats on GPUs: by the machine's own approximations, whose errors are far below what such a float
holds (2**-11 of fp16). What is computed in float32 has the functions of `codegen/math.py`."""

from __future__ import annotations

from collections.abc import Callable

from ..builder import Builder, Value

LOG2_E = 1.4426950408889634
# 1 - (a1 t + ... + a5 t**5) exp(-x**2), t = 1 / (1 + p x), is erf(x) within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
_ERF_P = 0.3275911
_ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
_NEAR = 0.05  # below which tanh(x) is x - x**3 / 3 within 5e-7 of x


def _of_lanes(b: Builder, word: str, x: Value) -> Value:
    """An instruction of one float, in every lane."""
    call = 'call float asm "{0} $0, $1;", "=f,f"(float {1})'
    made = [b.pure("float", 1, call.format(word, lane.ref), (lane,)) for lane in _lanes(b, x)]
    if x.lanes == 1:
        return made[0]
    whole = b.poison("float", x.lanes)
    for number, lane in enumerate(made):
        whole = b.insert(whole, lane, number)
    return whole


def _lanes(b: Builder, x: Value) -> list[Value]:
    if not x.ref.startswith("%"):
        return [b.extract(b.add(x, b.like(x, 0.0)), lane) for lane in range(x.lanes)]
    return [b.extract(x, lane) for lane in range(x.lanes)]


def _exp2(b: Builder, x: Value) -> Value:
    return _of_lanes(b, "ex2.approx.ftz.f32", x)


def _reciprocal(b: Builder, x: Value) -> Value:
    return _of_lanes(b, "rcp.approx.ftz.f32", x)


def _exp(b: Builder, x: Value) -> Value:
    return _exp2(b, b.mul(x, b.like(x, LOG2_E)))


def _sigmoid(b: Builder, x: Value) -> Value:
    """1 / (1 + exp(-x))"""
    return _reciprocal(b, b.add(_exp2(b, b.mul(x, b.like(x, -LOG2_E))), b.like(x, 1.0)))


def _tanh(b: Builder, x: Value) -> Value:
    """1 - 2 / (1 + exp(2 x)), but x - x**3 / 3 near zero, where that would be a difference of neighbours."""
    twice = _exp2(b, b.mul(x, b.like(x, 2 * LOG2_E)))
    one = b.like(x, 1.0)
    far = b.fma(b.like(x, -2.0), _reciprocal(b, b.add(twice, one)), one)
    near = b.fma(b.mul(b.mul(x, x), x), b.like(x, -1 / 3), x)
    return b.select(b.compare("olt", b.fabs(x), b.like(x, _NEAR)), near, far)


def _erf(b: Builder, x: Value) -> Value:
    size, one = b.fabs(x), b.like(x, 1.0)
    t = _reciprocal(b, b.fma(size, b.like(x, _ERF_P), one))
    decay = _exp2(b, b.mul(b.mul(x, x), b.like(x, -LOG2_E)))
    rest = b.mul(b.mul(b.horner(t, _ERF), t), decay)
    return b.copysign(b.sub(one, rest), x)


SHORT_FUNCTIONS: dict[str, Callable[..., Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
    "rsqrt": lambda b, x: _of_lanes(b, "rsqrt.approx.ftz.f32", x),
}
