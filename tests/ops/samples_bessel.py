"""Samples of Bessel and Airy functions, zeta, incomplete gamma functions, polynomials."""

import numpy as np
from sample import SHAPES, Sample, floats, samples

KINDS = {
    "bessel_j0": ("j0", -30, 30),
    "bessel_j1": ("j1", -30, 30),
    "bessel_y0": ("y0", 0.1, 30),
    "bessel_y1": ("y1", 0.1, 30),
    "bessel_k0": ("k0", 0.1, 9),
    "bessel_k1": ("k1", 0.1, 9),
    "scaled_bessel_k0": ("k0e", 0.1, 30),
    "scaled_bessel_k1": ("k1e", 0.1, 30),
}
EDGES = [0, 1e-9, 1.999, 2, 2.001, 7.999, 8, 8.001, 25, 300, np.inf, np.nan]


def _of_one(name, call, low, high, edges=EDGES, differentiable=True):
    @samples(name, system="scipy.special")
    def make(rng, scipy):
        for shape in SHAPES:
            x = floats(rng, shape, low, high, gap=0.01)
            run = lambda x: np.asarray(call(scipy)(x.astype("float64"))).astype("float32")
            yield Sample([x], {}, run, differentiable, rtol=1e-5, atol=1e-6)
        wide = floats(rng, (3, 70), low, high, "float64")
        yield Sample([wide], {}, call(scipy), differentiable, rtol=1e-11, atol=1e-14)
        yield Sample([np.float64(edges)], {}, call(scipy), False, rtol=1e-12, atol=1e-15)


for _name, (_other, _low, _high) in KINDS.items():
    _of_one(_name, lambda s, other=_other: getattr(s, other), _low, _high)
_AROUND = [-9.3, -4.001, -4, -3.999, 0, 1.999, 2, 2.001, 9, 60, 1000, np.nan]
_of_one("airy_ai", lambda s: lambda x: s.airy(x)[0], -9, 9, _AROUND, differentiable=False)
for _order in (0, 1):
    _call = lambda s, n=_order: lambda x: s.spherical_jn(n, x)
    _of_one(f"spherical_bessel_j{_order}", _call, -9, 9, [0, 1e-9, 0.999, 1, 1.001, 1e4, np.nan])


PAIRS = [((), ()), ((5,), (5,)), ((3, 4), (3, 4)), ((3, 1), (4,)), ((2, 1, 5), (3, 1)), ((0,), (1,))]


@samples("zeta", system="scipy.special")
def zeta(rng, scipy):
    for first, second in PAIRS:
        s, q = floats(rng, first, 1.5, 9), floats(rng, second, 0.5, 9)
        yield Sample([s, q], {}, scipy.zeta, (1,), rtol=2e-5)
    s, q = floats(rng, (60,), 1.01, 40, "float64"), floats(rng, (60,), 0.01, 90, "float64")
    yield Sample([s, q], {}, scipy.zeta, False, rtol=1e-13, atol=0)


@samples("zeta")
def zeta_below_zero(rng, torch):
    s = np.float64([2, 3, 7, 2.5, 2, 1, 0.5, 4, np.nan, 2])
    q = np.float64([-0.5, -7.25, -20.75, -1.5, -3, 2, 2, 0, 1, np.nan])
    yield Sample([s, q], {}, torch.special.zeta, False, rtol=1e-12)


def _incomplete(name, other):
    @samples(name, system="scipy.special")
    def make(rng, scipy):
        run = getattr(scipy, other)
        for first, second in PAIRS:
            a, x = floats(rng, first, 0.3, 9), floats(rng, second, 0.3, 9)
            yield Sample([a, x], {}, run, (1,), rtol=2e-5)
        a = np.concatenate([rng.uniform(0, 2, 50), rng.uniform(2, 300, 50)])
        for share in (0.1, 0.9, 1.0, 1.1, 3):
            yield Sample([a, a * share], {}, run, False, rtol=2e-12, atol=1e-290)
        small = np.float64([1e-12, 1e-5, 0.2, 0.26, 3])
        yield Sample([small[:, None], small * 0.4], {}, run, False, rtol=1e-12, atol=0)
        a = np.float64([0, 1, 0, np.inf, 1, -1, 1, np.nan])
        x = np.float64([1, 0, 0, 1, np.inf, 1, -1, 1])
        yield Sample([a, x], {}, run, False)


_incomplete("igamma", "gammainc")
_incomplete("igammac", "gammaincc")

FAMILIES = {
    "chebyshev_t": "eval_chebyt",
    "chebyshev_u": "eval_chebyu",
    "hermite_h": "eval_hermite",
    "hermite_he": "eval_hermitenorm",
    "laguerre_l": "eval_laguerre",
    "legendre_p": "eval_legendre",
}


@samples("orthogonal_polynomial", system="scipy.special")
def orthogonal_polynomial(rng, scipy):
    for family, call in FAMILIES.items():
        run = lambda x, n, call=call: getattr(scipy, call)(n.astype("int64"), x)
        for first, second in PAIRS:
            n = np.asarray(rng.integers(0, 9, second)).astype("float32")
            x = floats(rng, first, -1.5, 1.5)
            yield Sample([x, n], {"family": family}, run, (0,), rtol=1e-4, atol=1e-4)
        x, n = floats(rng, (9, 1), -1, 1, "float64"), np.float64([0, 1, 2, 7, 30])
        yield Sample([x, n], {"family": family}, run, False, rtol=1e-10, atol=1e-10)


@samples("orthogonal_polynomial")
def others(rng, torch):
    for letter in "tuvw":
        run = getattr(torch.special, f"chebyshev_polynomial_{letter}")
        x, n = floats(rng, (7, 1), -2, 2, "float64"), np.float64([-3, -0.5, 0, 1, 2.9, 6, 15])
        yield Sample([x, n], {"family": f"chebyshev_{letter}"}, run, False, rtol=1e-11)


@samples("orthogonal_polynomial", system="numpy.polynomial")
def derivatives(rng, polynomial):
    classes = {
        "chebyshev_t": polynomial.Chebyshev,
        "hermite_h": polynomial.Hermite,
        "hermite_he": polynomial.HermiteE,
        "laguerre_l": polynomial.Laguerre,
        "legendre_p": polynomial.Legendre,
    }
    for family, of in classes.items():
        for order in (1, 3):
            run = lambda x, n, of=of, d=order: np.stack([of.basis(int(k)).deriv(d)(x[..., 0]) for k in n], -1)
            x, n = floats(rng, (5, 1), -2, 2, "float64"), np.float64([0, 1, 3, 6])
            attrs = {"family": family, "derivative": order}
            yield Sample([x, n], attrs, run, (0,), rtol=1e-9, atol=1e-9)
