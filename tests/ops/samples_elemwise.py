"""Samples of the operators of one tensor, element by element."""

import numpy as np
from sample import SHAPES, SMALL_SHAPES, Sample, distinct, floats, integers, samples


def _unary(name, call, low=-2.0, high=2.0, gap=0.0, whole=False):
    """Floats of every shape; `whole` adds integers."""

    @samples(name)
    def make(rng, torch):
        for shape in SHAPES:
            yield Sample([floats(rng, shape, low, high, gap=gap)], {}, call(torch))
        yield Sample([floats(rng, (3, 3), low, high, "float64", gap)], {}, call(torch))
        if whole:
            yield Sample([integers(rng, (4, 3))], {}, call(torch))


_unary("floor", lambda t: t.floor, whole=True)
_unary("ceil", lambda t: t.ceil, whole=True)
_unary("trunc", lambda t: t.trunc, whole=True)
_unary("round", lambda t: t.round, whole=True)
_unary("sign", lambda t: t.sign, gap=0.01, whole=True)
_unary("abs", lambda t: t.abs, gap=0.01, whole=True)
_unary("sigmoid", lambda t: t.sigmoid, -30, 30)
_unary("tanh", lambda t: t.tanh, -5, 5)
_unary("exp", lambda t: t.exp)
_unary("log", lambda t: t.log, 0.1, 9)
_unary("sqrt", lambda t: t.sqrt, 0.1, 9)
_unary("erf", lambda t: t.erf)
_unary("sin", lambda t: t.sin, -9, 9)
_unary("cos", lambda t: t.cos, -9, 9)
_unary("relu", lambda t: t.relu, gap=0.01, whole=True)
_unary("negative", lambda t: t.neg, whole=True)
_unary("copy", lambda t: t.clone, whole=True)
_unary("log1p", lambda t: t.log1p, -0.9, 9)
_unary("expm1", lambda t: t.expm1)
_unary("tan", lambda t: t.tan, -1.4, 1.4)
_unary("asin", lambda t: t.asin, -0.9, 0.9)
_unary("acos", lambda t: t.acos, -0.9, 0.9)
_unary("atan", lambda t: t.atan)
_unary("sinh", lambda t: t.sinh)
_unary("cosh", lambda t: t.cosh)
_unary("asinh", lambda t: t.asinh)
_unary("acosh", lambda t: t.acosh, 1.1, 9)
_unary("atanh", lambda t: t.atanh, -0.9, 0.9)
_unary("reciprocal", lambda t: t.reciprocal, gap=0.1)
_unary("rsqrt", lambda t: t.rsqrt, 0.1, 9)
_unary("softplus", lambda t: t.nn.functional.softplus, -15, 15)
_unary("zeros_like", lambda t: t.zeros_like, whole=True)
_unary("ones_like", lambda t: t.ones_like, whole=True)


@samples("floor")
def halves(rng, torch):
    yield Sample([np.float32([-1.5, -0.5, 0.5, 1.5, 2.5, np.inf])], {}, torch.floor, False)


@samples("round")
def ties(rng, torch):
    values = np.float32([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, np.nan, -np.inf])
    yield Sample([values], {}, torch.round, False)


@samples("sign")
def special_signs(rng, numpy):
    values = np.float32([-0.0, 0.0, np.inf, -np.inf])
    yield Sample([values], {}, lambda x: torch_like_sign(x), False)
    yield Sample([np.uint8([0, 1, 255])], {}, lambda x: np.uint8([0, 1, 1]), False)


def torch_like_sign(x):
    return (np.asarray(x) > 0).astype(np.float32) - (np.asarray(x) < 0)


@samples("relu")
def special_relu(rng, torch):
    values = np.float32([np.nan, -np.inf, np.inf, -0.0])
    yield Sample([values], {}, torch.relu, False)


@samples("sigmoid")
def saturated(rng, torch):
    values = np.float32([-1000, 1000, np.nan, np.inf, -np.inf])
    yield Sample([values], {}, torch.sigmoid, False)


@samples("block_grad")
def block_grad(rng, torch):
    for shape in SMALL_SHAPES:
        yield Sample([floats(rng, shape)], {}, torch.detach, differentiable=False)


@samples("logical_not")
def logical_not(rng, torch):
    for dtype in ("int32", "uint8", "float32", "bool"):
        values = integers(rng, (3, 5), 0, 2).astype(dtype)
        yield Sample([values], {}, torch.logical_not, differentiable=False)


def _scalar(name, call, gap=0.0, low=-3.0, scalars=(2.5, -1.0, 3.0)):
    @samples(name)
    def make(rng, torch):
        for shape, scalar in zip(SHAPES, scalars * 3):
            x = floats(rng, shape, low, 3, gap=gap)
            yield Sample([x], {"scalar": scalar}, lambda x, s=scalar: call(x, s))
        for scalar in scalars:
            whole = int(scalar)
            x = integers(rng, (2, 5), -9 if low < 0 else 1)
            x = np.where(x == 0, 4, x).astype("int32")
            oracle = lambda x, s=whole: call(x, s)
            yield Sample([x], {"scalar": scalar}, oracle if whole >= 0 else None)


_scalar("__add_scalar__", lambda x, s: x + s)
_scalar("__sub_scalar__", lambda x, s: x - s)
_scalar("__rsub_scalar__", lambda x, s: s - x)
_scalar("__mul_scalar__", lambda x, s: x * s)


def _divide(a, b):
    """torch's / of floats, and its floor division of integers."""
    tensor = a if hasattr(a, "is_floating_point") else b
    return a / b if tensor.is_floating_point() else a // b


_scalar("__div_scalar__", _divide)
_scalar("__rdiv_scalar__", lambda x, s: _divide(s, x), gap=0.2)
_scalar("__pow_scalar__", lambda x, s: x**s, low=0.1)
_scalar("__rpow_scalar__", lambda x, s: s**x, low=0.1, scalars=(2.5, 0.5, 3.0))


@samples("__pow_scalar__")
def powers_of_negatives(rng, torch):
    x = floats(rng, (4, 3), gap=0.1)
    for scalar in (0.0, 1.0, 2.0, -3.0):
        yield Sample([x], {"scalar": scalar}, lambda x, s=scalar: x**s)
    yield Sample([np.float32([0, -1, 2])], {"scalar": 0}, lambda x: x**0)
    reciprocals = np.array([0, 0, -1, 0, 1, 0, 0])
    yield Sample([np.arange(-3, 4).astype("int32")], {"scalar": -3}, lambda x: reciprocals)


@samples("__div_scalar__")
def division_by_zero(rng, numpy):
    yield Sample([integers(rng, (5,))], {"scalar": 0}, lambda x: np.zeros(5, int))


def _shift(name, call):
    @samples(name)
    def make(rng, torch):
        for dtype in ("int32", "uint8", "int64"):
            x = integers(rng, (3, 4), 0 if dtype == "uint8" else -99, 100, dtype)
            yield Sample([x], {"scalar": 3}, lambda x: call(x, 3))


_shift("__lshift_scalar__", lambda x, s: x << s)
_shift("__rshift_scalar__", lambda x, s: x >> s)


@samples("clip")
def clip(rng, torch):
    for shape in SHAPES:
        bounds = {"a_min": -0.62, "a_max": 0.91}
        yield Sample([distinct(rng, shape)], bounds, lambda x: x.clamp(-0.62, 0.91))
    bounds = {"a_min": -3, "a_max": 4}
    yield Sample([integers(rng, (4, 5))], bounds, lambda x: x.clamp(-3, 4))
    open_end = {"a_min": 0, "a_max": "inf"}
    yield Sample([integers(rng, (4, 5), dtype="int64")], open_end, lambda x: x.clamp(min=0))
    yield Sample([np.uint8([0, 3, 255])], {"a_min": -5, "a_max": 99}, lambda x: x.clamp(max=99))
    yield Sample([np.float32([np.nan, np.inf])], bounds, lambda x: x.clamp(-3, 4), False)


@samples("_hard_tanh")
def hard_tanh(rng, torch):
    bounds = {"a_min": -0.62, "a_max": 0.91}
    limited = lambda x: torch.nn.functional.hardtanh(x, -0.62, 0.91)
    for shape in SMALL_SHAPES:
        yield Sample([distinct(rng, shape)], bounds, limited)


@samples("_keep_between")
def keep_between(rng, torch):
    bounds = {"a_min": -0.12, "a_max": 0.21}
    inside = lambda g, x: torch.where((x >= -0.12) & (x <= 0.21), g, torch.zeros_like(g))
    for shape in SMALL_SHAPES:
        yield Sample([floats(rng, shape), distinct(rng, shape)], bounds, inside)
    g, x = np.float32([1, np.inf, np.nan, 2, np.inf]), np.float32([0, 1, 2, -np.inf, np.nan])
    above = lambda g, x: g.masked_fill(x <= 1, 0)
    yield Sample([g, x], {"a_min": 1, "a_max": np.inf, "strict": True}, above, False)
    below = lambda g, x: g.masked_fill(x >= 1, 0)
    yield Sample([g, x], {"a_min": -np.inf, "a_max": 1, "strict": True}, below, False)


@samples("isnan")
def isnan(rng, torch):
    yield Sample([np.float32([0, np.nan, np.inf, -np.inf])], {}, torch.isnan, False)
    yield Sample([np.float64([[np.nan], [1]])], {}, torch.isnan, False)
    yield Sample([integers(rng, (3,))], {}, torch.isnan)


@samples("isinf")
def isinf(rng, torch):
    yield Sample([np.float32([0, np.nan, np.inf, -np.inf])], {}, torch.isinf, False)
    yield Sample([integers(rng, (2, 0))], {}, torch.isinf)


@samples("cast")
def cast(rng, torch):
    for shape in SMALL_SHAPES:
        x = floats(rng, shape, -9, 9)
        yield Sample([x], {"dtype": "float64"}, torch.Tensor.double)
        yield Sample([x], {"dtype": "int32"}, torch.Tensor.int, differentiable=False)
        yield Sample([x], {"dtype": "bool"}, torch.Tensor.bool, differentiable=False)
        yield Sample([x], {"dtype": "float16"}, torch.Tensor.half, False)
    yield Sample([integers(rng, (9,), -500, 500)], {"dtype": "int8"}, torch.Tensor.char)
    yield Sample([integers(rng, (9,), 0, 2, "bool")], {"dtype": "float32"}, torch.Tensor.float)


@samples("cast_like")
def cast_like(rng, torch):
    for shape in SMALL_SHAPES:
        like = np.zeros((2, 2), "float64")
        yield Sample([floats(rng, shape), like], {}, lambda x, y: x.to(y.dtype))
    like = np.zeros((), "int64")
    yield Sample([floats(rng, (3, 2), -9, 9), like], {}, lambda x, y: x.to(y.dtype), False)


@samples("bitcast")
def bitcast(rng, torch):
    for shape in SMALL_SHAPES:
        yield Sample([floats(rng, shape).astype("float64")], {"dtype": "int64"}, lambda x: x.view(torch.int64), False)
    yield Sample([integers(rng, (2, 3))], {"dtype": "float32"}, lambda x: x.view(torch.float32), False)
    yield Sample([floats(rng, (4,)).astype("float16")], {"dtype": "int16"}, lambda x: x.view(torch.int16), False)
