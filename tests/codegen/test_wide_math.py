"""float64 functions as machines without a C library compute them, run on this CPU, against mpmath; the exact remainder
against numpy's."""

from __future__ import annotations

import numpy as np
import pytest
from codegen.native import elementwise
from codegen.test_vector_math import DOMAIN, EXACT, powers, uniform, worst_error

from weft.codegen.builder import Builder
from weft.codegen.math_wide import WIDE_FUNCTIONS, WIDE_ULP_BOUNDS
from weft.te.expr import call

rng = np.random.default_rng(1)
ANGLES = lambda: np.concatenate([uniform(-10, 10), uniform(-1e8, 1e8), powers(20, 45), powers(-40, 0)])
WIDE_DOMAIN = {
    **DOMAIN,
    **dict.fromkeys(("sin", "cos", "tan"), ANGLES),
    "exp2": lambda: uniform(-1022, 1023),
    "expm1": lambda: np.concatenate([uniform(-40, 709), powers(-60, 4)]),
    "sinh": lambda: np.concatenate([uniform(-710, 710), powers(-60, 4)]),
    "cosh": lambda: uniform(-710, 710),
    "erf": lambda: np.concatenate([uniform(-6, 6), powers(-60, 1)]),
    "log1p": lambda: np.concatenate([uniform(-0.99999, 20), powers(-60, 900, False)]),
}


@pytest.fixture
def without_library(monkeypatch):
    monkeypatch.setattr(Builder, "has_library", False)


def arguments(name):
    if name == "pow":
        base = powers(-20, 20, False)
        return [base, uniform(-1000, 1000) / np.abs(np.log2(base))]
    if name == "atan2":
        return [powers(-60, 60), powers(-60, 60)]
    return [WIDE_DOMAIN[name]().astype(np.float64)]


@pytest.mark.parametrize("name", WIDE_FUNCTIONS)
def test_errors(without_library, name):
    args = [np.ascontiguousarray(x[:: max(len(x) // 512, 1)]) for x in arguments(name)]
    got = elementwise(lambda *a: call(name, *a), args, "float64", "avx2", 4)
    worst, where = worst_error(name, args, got)
    assert worst <= WIDE_ULP_BOUNDS[name], (worst, where)


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_huge_angles(without_library, name):
    """Reduced to 2**-80: where the result is not tiny, that is in no last place."""
    x = powers(45, 1000)
    got = elementwise(lambda a: call(name, a), [x], "float64", "avx2", 1)
    worst, where = worst_error(name, [x[np.abs(got) > 1e-3]], got[np.abs(got) > 1e-3])
    assert worst <= WIDE_ULP_BOUNDS[name], (worst, where)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, 3.0, -3.0, np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-310])


@pytest.mark.parametrize("name", [n for n in WIDE_FUNCTIONS if n not in ("pow", "atan2", "erf")])
def test_special_values_as_numpy_has_them(without_library, name):
    ours = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh"}
    ours["atanh"] = "arctanh"
    got = elementwise(lambda a: call(name, a), [SPECIAL], "float64", "avx2", 1)
    with np.errstate(all="ignore"):
        expected = getattr(np, ours.get(name, name))(SPECIAL)
    huge = np.abs(SPECIAL) == 1e300
    skipped = huge if name in ("sin", "cos", "tan") else np.zeros_like(huge)  # among multiples of pi, see above
    np.testing.assert_allclose(got[~skipped], expected[~skipped], rtol=1e-15, atol=0)
    exact = (expected == 0) & ~skipped
    np.testing.assert_array_equal(np.signbit(got[exact]), np.signbit(expected[exact]))


@pytest.mark.parametrize(("name", "numpy_name"), [("pow", "power"), ("atan2", "arctan2")])
def test_special_pairs_as_numpy_has_them(without_library, name, numpy_name):
    x, y = (part.reshape(-1) for part in np.meshgrid(SPECIAL, SPECIAL))
    got = elementwise(lambda a, b: call(name, a, b), [x, y], "float64", "avx2", 1)
    with np.errstate(all="ignore"):
        expected = getattr(np, numpy_name)(x, y)
    np.testing.assert_allclose(got, expected, rtol=1e-15, atol=0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainders_are_exact(without_library, dtype):
    top = 120 if dtype == "float32" else 1000
    special = np.where(np.abs(SPECIAL) == 1e300, 1e30, SPECIAL)
    x = np.concatenate([powers(-top, top), uniform(-1e6, 1e6), np.repeat(special, len(special))]).astype(dtype)
    y = np.concatenate([powers(-top, top), uniform(-10, 10), np.tile(special, len(special))]).astype(dtype)
    got = elementwise(lambda a, b: call("fmod", a, b), [x, y], dtype, "avx2", 1)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(got, np.fmod(x, y))


def test_every_function_of_the_library_has_one():
    assert set(WIDE_FUNCTIONS) | {"exp", "log", "sigmoid", "rsqrt"} == set(EXACT)
