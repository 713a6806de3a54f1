"""Errors of the vector math in units in the last place, against mpmath; edge values against C99."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from codegen.native import elementwise
from scipy import special

from weft.base.dtype import DTYPES
from weft.codegen import coefficients
from weft.codegen.math import FUNCTIONS, ULP_BOUNDS
from weft.te.expr import INTRINSICS, call

SAMPLES = 1024
rng = np.random.default_rng(0)

EXACT = {
    "exp": mp.exp,
    "exp2": lambda x: mp.mpf(2) ** x,
    "log": mp.log,
    "log2": lambda x: mp.log(x, 2),
    "log10": mp.log10,
    "log1p": mp.log1p,
    "expm1": mp.expm1,
    "rsqrt": lambda x: 1 / mp.sqrt(x),
    "tanh": mp.tanh,
    "sigmoid": lambda x: 1 / (1 + mp.exp(-x)),
    "erf": mp.erf,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "asin": mp.asin,
    "acos": mp.acos,
    "atan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "asinh": mp.asinh,
    "acosh": mp.acosh,
    "atanh": mp.atanh,
    "pow": mp.power,
    "atan2": mp.atan2,
}


def uniform(low: float, high: float) -> np.ndarray:
    return rng.uniform(low, high, SAMPLES)


def powers(low: float, high: float, signed: bool = True) -> np.ndarray:
    sign = rng.choice([-1.0, 1.0], SAMPLES) if signed else 1.0
    return sign * np.exp2(rng.uniform(low, high, SAMPLES))


def around(low: float, high: float) -> np.ndarray:
    """Spread over an interval, and over all magnitudes near zero."""
    return np.concatenate([uniform(low, high), powers(-40, np.log2(min(-low, high)))])


def angles() -> np.ndarray:
    quarters = rng.integers(1, 2**26, SAMPLES) * (np.pi / 2)
    return np.concatenate([around(-10, 10), uniform(-1e8, 1e8), quarters, powers(20, 127)])


POSITIVE = lambda: np.concatenate([powers(-149, 128, False), uniform(0.5, 2)])
DOMAIN = {
    "exp": lambda: around(-103.9, 88.72),
    "exp2": lambda: around(-149, 127.99),
    "log": POSITIVE,
    "log2": POSITIVE,
    "log10": POSITIVE,
    "log1p": lambda: np.concatenate([around(-0.99999, 20), powers(-60, 120, False)]),
    "expm1": lambda: around(-30, 88.7),
    "rsqrt": POSITIVE,
    "tanh": lambda: around(-12, 12),
    "sigmoid": lambda: around(-103, 103),
    "erf": lambda: around(-5, 5),
    "sin": angles,
    "cos": angles,
    "tan": angles,
    "asin": lambda: around(-1, 1),
    "acos": lambda: np.concatenate([around(-1, 1), 1 - powers(-23, -2, False)]),
    "atan": lambda: np.concatenate([around(-3, 3), powers(-60, 100)]),
    "sinh": lambda: around(-88.7, 88.7),
    "cosh": lambda: around(-88.7, 88.7),
    "asinh": lambda: np.concatenate([around(-3, 3), powers(-60, 120)]),
    "acosh": lambda: np.concatenate([1 + powers(-22, 3, False), powers(0, 120, False)]),
    "atanh": lambda: np.concatenate([around(-0.999, 0.999), 1 - powers(-23, -2, False)]),
}


def arguments(name: str, kind: type) -> list[np.ndarray]:
    if name == "pow":
        base = powers(-20, 20, False)
        return [base.astype(kind), (uniform(-120, 120) / np.abs(np.log2(base))).astype(kind)]
    if name == "atan2":
        return [powers(-60, 60).astype(kind), powers(-60, 60).astype(kind)]
    return [DOMAIN[name]().astype(kind)]


def worst_error(name: str, args: list[np.ndarray], got: np.ndarray) -> tuple[float, tuple]:
    worst, where = 0.0, ()
    with mp.workprec(250):
        for value, point in zip(got, zip(*args)):
            exact = EXACT[name](*(mp.mpf(float(part)) for part in point))
            with np.errstate(over="ignore"):
                nearest = got.dtype.type(float(exact))
            if not np.isfinite(nearest):
                continue
            unit = mp.mpf(float(np.spacing(np.abs(nearest))))
            error = float(abs(mp.mpf(float(value)) - exact) / unit) if np.isfinite(value) else np.inf
            if not error <= worst:
                worst, where = error, point
    return worst, where


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("isa", "lanes"), [("sse", 4), ("avx2", 1), ("avx2", 8), ("avx512", 16)])
def test_float32_errors(name, isa, lanes):
    args = arguments(name, np.float32)
    got = elementwise(lambda *a: call(name, *a), args, "float32", isa, lanes)
    worst, where = worst_error(name, args, got)
    assert worst <= ULP_BOUNDS[name][0], where


@pytest.mark.parametrize("name", ["sigmoid", "tanh", "erf"])
@pytest.mark.parametrize("lanes", [1, 2, 8, 32])
def test_bits_do_not_depend_on_the_lanes_beside(name, lanes):
    """Tables stand in registers of 16 lanes: shorter and longer vectors go through those."""
    args = arguments(name, np.float32)
    args[0][:4] = np.nan, np.inf, -np.inf, -0.0
    got, whole = (elementwise(lambda x: call(name, x), args, "float32", "avx512", n) for n in (lanes, 16))
    assert np.array_equal(got.view("uint32"), whole.view("uint32"))
    worst, where = worst_error(name, args, got)
    assert worst <= ULP_BOUNDS[name][0], where


# Where sweeps over all numbers of the critical intervals found the largest errors.
HARDEST = {
    "expm1": [17.0885009765625, 17.084035873413086, -0.31131505966186523, 0.4047844111919403],
    "log1p": [0.43105074763298035, -0.2566694915294647, 3e38, 6.380290323285675e37],
    "log2": [1.414527416229248, 1.437010407447815, 0.7166082859039307, 1e-43],
    "log10": [1.3328535556793213, 1.3209565877914429, 1.5249119997024536, 1e-43],
    "atan": [1.0224473476409912, 0.9959128499031067, 1.1916797161102295, 3e38],
    "asin": [0.502853512763977, 0.5051166415214539, 0.8392198085784912, -0.99],
    "sigmoid": [-3.4436230659484863, -5.542266368865967, -2.719525814056396],
    "erf": [0.13317871, 0.13321594893932343],
    "tanh": [0.5997649431228638],
    "acos": [0.9999934434890747, 0.9997038245201111, -0.2857370674610138, -0.99],
}


@pytest.mark.parametrize("name", HARDEST)
@pytest.mark.parametrize(("isa", "lanes"), [("sse", 4), ("avx2", 8), ("avx512", 16)])
def test_float32_errors_where_they_are_largest(name, isa, lanes):
    points = np.array(HARDEST[name], np.float32)
    near = (points.view(np.int32)[:, None] + np.arange(-64, 65, dtype=np.int32)).view(np.float32)
    args = [near.ravel()]
    got = elementwise(lambda a: call(name, a), args, "float32", isa, lanes)
    worst, where = worst_error(name, args, got)
    assert worst <= ULP_BOUNDS[name][0], where


# How far apart the numbers are around which the functions with tables have a polynomial each, and how many.
APART = {
    "erf": (coefficients.ERF_INTERVAL, 16),
    "tanh": (coefficients.TANH_INTERVAL, 32),
    "sigmoid": (np.log(2) / 16, 500),
}


@pytest.mark.parametrize("name", APART)
def test_float32_errors_where_one_polynomial_ends(name):
    interval, count = APART[name]
    middle = ((np.arange(count) + 0.5) * interval).astype(np.float32)
    near = (middle.view(np.int32)[:, None] + np.arange(-8, 9, dtype=np.int32)).view(np.float32).ravel()
    args = [np.concatenate([near, -near])]
    got = elementwise(lambda x: call(name, x), args, "float32", "avx512", 16)
    worst, where = worst_error(name, args, got)
    assert worst <= ULP_BOUNDS[name][0], where


@pytest.mark.parametrize(("isa", "lanes"), [("sse", 4), ("avx2", 1), ("avx512", 16)])
def test_powers_that_are_float32_numbers_are_exact(isa, lanes):
    whole = [(n, e) for n in range(1, 4096) for e in range(25) if n**e < 2**24]
    roots = [(n * n, 0.5) for n in range(1, 4096)]
    x, y = np.array([*whole, *roots], np.float32).T.copy()
    got = elementwise(lambda a, b: call("pow", a, b), [x, y], "float32", isa, lanes)
    wanted = [float(n**e) for n, e in whole] + [float(n) for n in range(1, 4096)]
    np.testing.assert_array_equal(got, np.array(wanted, np.float32))


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize(("isa", "lanes"), [("sse", 2), ("avx2", 1), ("avx512", 8)])
def test_float64_errors(name, isa, lanes):
    args = arguments(name, np.float64)
    got = elementwise(lambda *a: call(name, *a), args, "float64", isa, lanes)
    worst, where = worst_error(name, args, got)
    assert worst <= ULP_BOUNDS[name][1], where


def test_the_table_of_bounds_is_complete():
    plain = {"sqrt", "abs", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite", "tf32_rest"}
    assert set(ULP_BOUNDS) == set(FUNCTIONS) == set(INTRINSICS) - plain - {"fmod", "fma", "dot_bytes", "dot_pairs"}


TINY = float(np.float32(1e-45))
EDGES = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0]
EDGES += [TINY, -TINY, 1e-39, -1e-39, 1e-20, -1e-20, 3.4028235e38, -3.4028235e38, 1e10, -1e10]
IN_NUMPY = {
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "atan2": np.arctan2,
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": special.erf,
}


def same_edges(got: np.ndarray, wanted: np.ndarray) -> None:
    """The same NaNs, infinities and signs of zero; the numbers between are close."""
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1.5e-45)
    zero = wanted == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(wanted[zero]))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if INTRINSICS[name] == 1])
@pytest.mark.parametrize(("isa", "lanes"), [("sse", 4), ("avx2", 1), ("avx512", 16)])
def test_float32_edges(name, isa, lanes):
    x = np.array(EDGES, np.float32)
    got = elementwise(lambda a: call(name, a), [x], "float32", isa, lanes)
    oracle = IN_NUMPY[name] if name in IN_NUMPY else getattr(np, name)
    with np.errstate(all="ignore"):
        same_edges(got, oracle(x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("name", ["pow", "atan2"])
@pytest.mark.parametrize(("isa", "lanes"), [("sse", 4), ("avx2", 1), ("avx512", 16)])
def test_float32_edges_of_two_arguments(name, isa, lanes):
    x, y = (grid.ravel() for grid in np.meshgrid(np.array(EDGES, np.float32), EDGES))
    y = y.astype(np.float32)
    got = elementwise(lambda a, b: call(name, a, b), [x, y], "float32", isa, lanes)
    with np.errstate(all="ignore"):
        wanted = IN_NUMPY[name](x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
    same_edges(got, wanted)


@pytest.mark.parametrize("name", ["exp", "log", "sigmoid", "rsqrt"])
def test_float64_edges_of_our_own(name):
    x = np.array([*EDGES, 5e-324, 1e-310, 1e308, -745.0, -746.0, 709.7, 710.0])
    got = elementwise(lambda a: call(name, a), [x], "float64", "avx512", 8)
    oracle = IN_NUMPY[name] if name in IN_NUMPY else getattr(np, name)
    with np.errstate(all="ignore"):
        wanted = oracle(x)
    if name == "sigmoid":
        wanted = np.where(x < -700, np.exp(np.clip(x, -800, 0)), wanted)
    np.testing.assert_allclose(got, wanted, rtol=1e-14, atol=1e-323)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_16_bit_floats_go_through_float32(dtype):
    x = uniform(-4, 4).astype(DTYPES[dtype])
    for name in ("exp", "tanh", "erf", "sin"):
        got = elementwise(lambda a, name=name: call(name, a), [x], DTYPES[dtype], "avx2", 8)
        exact = np.array([float(EXACT[name](float(v))) for v in x]).astype(DTYPES[dtype])
        step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
        wide = got.astype(np.float64)
        np.testing.assert_allclose(wide, exact.astype(np.float64), rtol=step, atol=1e-12)
