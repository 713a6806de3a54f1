"""weft.special against scipy, in float64, at random points and at the edges."""

import mpmath
import numpy as np
import pytest
import scipy.special
from oracles import oracle

import weft

CASES = {
    "erf": (-4, 4),
    "erfc": (-4, 20),
    "erfcx": (-4, 50),
    "erfinv": (-1, 1),
    "digamma": (-5, 40),
    "gammaln": (-5, 200),
    "i0": (-60, 60),
    "i0e": (-60, 60),
    "i1": (-60, 60),
    "i1e": (-60, 60),
    "ndtr": (-9, 9),
    "ndtri": (0, 1),
    "log_ndtr": (-30, 9),
    "entr": (-1, 3),
    "expit": (-30, 30),
    "logit": (0, 1),
    "exp2": (-9, 9),
    "log1p": (-1, 9),
    "expm1": (-9, 9),
}


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


BESSEL = {
    "bessel_j0": ("j0", -60, 60),
    "bessel_j1": ("j1", -60, 60),
    "bessel_y0": ("y0", 0, 60),
    "bessel_y1": ("y1", 0, 60),
    "modified_bessel_i0": ("i0", -60, 60),
    "modified_bessel_i1": ("i1", -60, 60),
    "modified_bessel_k0": ("k0", 0, 60),
    "modified_bessel_k1": ("k1", 0, 60),
    "scaled_modified_bessel_k0": ("k0e", 0, 60),
    "scaled_modified_bessel_k1": ("k1e", 0, 60),
}


def _relative(got, expected, rtol, atol=0.0):
    np.testing.assert_allclose(got, np.asarray(expected), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", BESSEL)
def test_bessel(name):
    other, low, high = BESSEL[name]
    rng = np.random.default_rng(len(name))
    x = np.concatenate([rng.uniform(low, high, 500), rng.uniform(max(low, -9), 9, 500)])
    expected = getattr(scipy.special, other)(x)
    _relative(getattr(weft.special, name)(weft.from_numpy(x)).numpy(), expected, 2e-12, 2e-15)
    narrow = x.astype("float32")
    got = getattr(weft.special, name)(weft.from_numpy(narrow)).numpy()
    expected = getattr(scipy.special, other)(narrow.astype("float64"))
    _relative(got, expected, 2e-7, 1e-8)


def test_bessel_of_the_second_kind_at_its_edges():
    x = weft.tensor([0.0, -1.0, float("nan")], dtype=weft.float64)
    for name in ("bessel_y0", "bessel_y1"):
        got = getattr(weft.special, name)(x).tolist()
        assert got[0] == -np.inf
        assert np.isnan(got[1:]).all()
    for name in ("modified_bessel_k0", "scaled_modified_bessel_k1"):
        got = getattr(weft.special, name)(x).tolist()
        assert got[0] == np.inf
        assert np.isnan(got[1:]).all()


def test_airy():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-30, 0, 300), [-4.0, 2.0, 0.0]])
    got = weft.special.airy_ai(weft.from_numpy(x)).numpy()
    _relative(got, scipy.special.airy(x)[0], 1e-12, 2e-14)
    x = rng.uniform(0, 100, 300)
    got = weft.special.airy_ai(weft.from_numpy(x)).numpy()
    _relative(got, [float(mpmath.airyai(value)) for value in x], 2e-12, 0)


def test_spherical_bessel():
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(-30, 30, 300), 10.0 ** -np.arange(12), [0.0]])
    got = weft.special.spherical_bessel_j0(weft.from_numpy(x)).numpy()
    _relative(got, scipy.special.spherical_jn(0, x), 1e-12, 1e-16)


@pytest.mark.parametrize("name", [n for n in BESSEL if "scaled" not in n])
def test_slope_of_bessel(name):
    x = np.random.default_rng(1).uniform(0.2, 20, 60)
    tensor = weft.from_numpy(x).requires_grad_()
    getattr(weft.special, name)(tensor).sum().backward()
    derivative = {"j": scipy.special.jvp, "y": scipy.special.yvp, "i": scipy.special.ivp, "k": scipy.special.kvp}[
        name[-2]
    ]
    _relative(tensor.grad.numpy(), derivative(int(name[-1]), x), 1e-10, 1e-13)


def _share(a, x, lower):
    ends = (0, x) if lower else (x, mpmath.inf)
    return float(mpmath.gammainc(a, *ends, regularized=True))


@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_gamma(name):
    rng = np.random.default_rng(len(name))
    a = np.concatenate([10 ** rng.uniform(-10, 0, 40), rng.uniform(0, 150, 80)])
    x = np.abs(a + rng.uniform(-4, 4, a.shape) * np.sqrt(a)) + 1e-9
    expected = [_share(*pair, name == "gammainc") for pair in zip(a, x)]
    got = getattr(weft.special, name)(weft.from_numpy(a), weft.from_numpy(x)).numpy()
    _relative(got, expected, 5e-13)


@pytest.mark.parametrize("size", [1e4, 1e6, 1e8])
def test_incomplete_gamma_near_a_high_peak(size):
    """Close to the normal distribution, with the first terms of its expansion in 1 / sqrt(a)."""
    z = np.linspace(-6, 6, 25)
    x = weft.from_numpy(size + z * np.sqrt(size))
    got = weft.igamma(weft.tensor(size, dtype=weft.float64), x).numpy()
    bell = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    expected = scipy.special.ndtr(z) - bell * (z * z - 1) / (3 * np.sqrt(size))
    np.testing.assert_allclose(got, expected, atol=2 / size)


def test_incomplete_gamma_at_its_edges():
    a = weft.tensor([0.0, 1, 0, float("inf"), 1, -1, 1], dtype=weft.float64)
    x = weft.tensor([1.0, 0, 0, 1, float("inf"), 1, -1], dtype=weft.float64)
    np.testing.assert_array_equal(weft.igamma(a, x).numpy(), [1, 0, *[np.nan], 0, 1, *[np.nan] * 2])
    np.testing.assert_array_equal(weft.igammac(a, x).numpy(), [0, 1, np.nan, 1, 0, *[np.nan] * 2])


@pytest.mark.parametrize("name", ["igamma", "igammac"])
def test_slope_of_incomplete_gamma(name):
    torch = oracle("torch")
    rng = np.random.default_rng(3)
    a, x = rng.uniform(0.2, 9, (3, 1)), rng.uniform(0.2, 9, 5)
    ours, theirs = weft.from_numpy(x).requires_grad_(), torch.from_numpy(x).requires_grad_()
    getattr(weft, name)(weft.from_numpy(a), ours).sum().backward()
    getattr(torch, name)(torch.from_numpy(a), theirs).sum().backward()
    _relative(ours.grad.numpy(), theirs.grad.numpy(), 1e-11)
    first = weft.from_numpy(a).requires_grad_()
    with pytest.raises(NotImplementedError):
        getattr(weft, name)(first, weft.from_numpy(x)).sum().backward()


def test_incomplete_gamma_of_integers():
    with pytest.raises(NotImplementedError):
        weft.igamma(weft.tensor([1]), weft.tensor([2]))


def test_zeta():
    rng = np.random.default_rng(0)
    s, q = 1 + 10 ** rng.uniform(-3, 2, 60), 10 ** rng.uniform(-2, 3, 60)
    got = weft.special.zeta(weft.from_numpy(s), weft.from_numpy(q)).numpy()
    _relative(got, scipy.special.zeta(s, q), 1e-12)
    s, q = rng.integers(2, 9, 60).astype(float), rng.uniform(-30, 0, 60)
    got = weft.special.zeta(weft.from_numpy(s), weft.from_numpy(q)).numpy()
    expected = [sum(float(b + k) ** -float(a) for k in range(31)) + scipy.special.zeta(a, b + 31) for a, b in zip(s, q)]
    _relative(got, expected, 1e-11)
    assert weft.special.zeta(2, weft.tensor([1.0])).item() == pytest.approx(np.pi**2 / 6)


def test_slope_of_zeta():
    q = weft.tensor([0.5, 2.0, 7.0], dtype=weft.float64).requires_grad_()
    weft.special.zeta(3.0, q).sum().backward()
    expected = [-3 * scipy.special.zeta(4, value) for value in (0.5, 2.0, 7.0)]
    _relative(q.grad.numpy(), expected, 1e-12)
    with pytest.raises(NotImplementedError):
        weft.special.zeta(q, 2.0).sum().backward()


POLYNOMIALS = {
    "chebyshev_polynomial_t": "eval_chebyt",
    "chebyshev_polynomial_u": "eval_chebyu",
    "hermite_polynomial_h": "eval_hermite",
    "hermite_polynomial_he": "eval_hermitenorm",
    "laguerre_polynomial_l": "eval_laguerre",
    "legendre_polynomial_p": "eval_legendre",
    "shifted_chebyshev_polynomial_t": "eval_sh_chebyt",
    "shifted_chebyshev_polynomial_u": "eval_sh_chebyu",
}


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name):
    x = np.random.default_rng(len(name)).uniform(-1, 1, (9, 1))
    n = np.arange(12)
    got = getattr(weft.special, name)(weft.from_numpy(x), weft.from_numpy(n)).numpy()
    expected = getattr(scipy.special, POLYNOMIALS[name])(n, x)
    _relative(got / np.abs(expected).max(), expected / np.abs(expected).max(), 1e-9, 1e-14)
    one = getattr(weft.special, name)(0.25, weft.tensor([3.0], dtype=weft.float64)).item()
    assert one == pytest.approx(getattr(scipy.special, POLYNOMIALS[name])(3, 0.25))


@pytest.mark.parametrize(("letter", "sign"), [("v", -1), ("w", 1)])
def test_chebyshev_polynomials_of_half_angles(letter, sign):
    """V_n = U_n - U_n-1 and W_n = U_n + U_n-1"""
    x, n = np.linspace(-1.5, 1.5, 7)[:, None], np.arange(1, 9)
    of_u = scipy.special.eval_chebyu
    call = getattr(weft.special, f"chebyshev_polynomial_{letter}")
    got = call(weft.from_numpy(x), weft.from_numpy(n)).numpy()
    _relative(got, of_u(n, x) + sign * of_u(n - 1, x), 1e-10, 1e-10)
    shifted = getattr(weft.special, f"shifted_chebyshev_polynomial_{letter}")
    _relative(shifted(weft.from_numpy((x + 1) / 2), weft.from_numpy(n)).numpy(), got, 1e-9, 1e-9)


def test_slope_of_polynomials():
    x = weft.tensor([-1.0, 0.3, 1.0], dtype=weft.float64).requires_grad_()
    (first,) = weft.autograd.grad(weft.special.legendre_polynomial_p(x, 5).sum(), x, create_graph=True)
    (second,) = weft.autograd.grad(first.sum(), x)
    basis = np.polynomial.Legendre.basis(5)
    _relative(first.detach().numpy(), basis.deriv(1)(x.detach().numpy()), 1e-12)
    _relative(second.numpy(), basis.deriv(2)(x.detach().numpy()), 1e-12)


def test_polynomials_need_a_tensor():
    with pytest.raises(TypeError):
        weft.special.legendre_polynomial_p(0.5, 2)


def test_names_of_other_modules():
    x = np.random.default_rng(0).uniform(0.1, 5, (3, 4))
    tensor = weft.from_numpy(x)
    _relative(weft.special.psi(tensor).numpy(), scipy.special.psi(x), 1e-11, 1e-13)
    _relative(weft.special.sinc(tensor).numpy(), np.sinc(x), 1e-12, 1e-15)
    _relative(weft.special.round(tensor, decimals=1).numpy(), np.round(x, 1), 1e-12)
    _relative(weft.special.logsumexp(tensor, 1).numpy(), scipy.special.logsumexp(x, 1), 1e-12)
