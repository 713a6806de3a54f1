"""weft.special against scipy, in float64, at random points and at the edges."""

import numpy as np
import pytest
import scipy.special

import weft

CASES = {
    "erf": (-4, 4), "erfc": (-4, 20), "erfcx": (-4, 50), "erfinv": (-1, 1), "digamma": (-5, 40),
    "gammaln": (-5, 200), "i0": (-60, 60), "i0e": (-60, 60), "i1": (-60, 60), "i1e": (-60, 60),
    "ndtr": (-9, 9), "ndtri": (0, 1), "log_ndtr": (-30, 9), "entr": (-1, 3), "expit": (-30, 30),
    "logit": (0, 1), "exp2": (-9, 9), "log1p": (-1, 9), "expm1": (-9, 9),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_function(name):
    low, high = CASES[name]
    rng = np.random.default_rng(len(name))
    x = np.concatenate([rng.uniform(low, high, 500), [low, high, 0.0]])
    with np.errstate(all="ignore"):
        expected = getattr(scipy.special, name)(x)
    got = getattr(weft.special, name)(weft.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("n", range(6))
def test_polygamma(n):
    rng = np.random.default_rng(n)
    x = rng.uniform(0.05, 30, 300)
    got = weft.special.polygamma(n, weft.from_numpy(x)).numpy()
    np.testing.assert_allclose(got, scipy.special.polygamma(n, x), rtol=1e-11)


@pytest.mark.parametrize("p", range(1, 5))
def test_multigammaln(p):
    x = np.random.default_rng(p).uniform(p, 30, 50)
    got = weft.special.multigammaln(weft.from_numpy(x), p).numpy()
    expected = [scipy.special.multigammaln(value, p) for value in x]
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py"])
def test_products_with_logarithms(name):
    rng = np.random.default_rng(5)
    x = np.concatenate([rng.uniform(-3, 3, 50), np.zeros(4)])
    y = np.concatenate([rng.uniform(0.1, 9, 50), [0.0, -1.0, np.inf, np.nan]])
    got = getattr(weft.special, name)(weft.from_numpy(x), weft.from_numpy(y)).numpy()
    with np.errstate(all="ignore"):
        expected = getattr(scipy.special, name)(x, y)
    np.testing.assert_allclose(got, expected, rtol=1e-12)
