"""Samples of the special functions."""

import numpy as np
from sample import SHAPES, Sample, floats, integers, samples


def _unary(name, call, low=-2.0, high=2.0, gap=0.0, rtol=1e-5, atol=1e-6):
    @samples(name)
    def make(rng, torch):
        for shape in SHAPES:
            x = floats(rng, shape, low, high, gap=gap)
            yield Sample([x], {}, call(torch), rtol=rtol, atol=atol)
        wide = floats(rng, (3, 7), low, high, "float64", gap)
        yield Sample([wide], {}, call(torch), rtol=1e-12, atol=1e-13)


_unary("exp2", lambda t: t.exp2)
_unary("log2", lambda t: t.log2, 0.1, 9)
_unary("log10", lambda t: t.log10, 0.1, 9)
_unary("erfc", lambda t: t.erfc, -3, 3)
_unary("erfcx", lambda t: t.special.erfcx, -2, 5)
_unary("erfinv", lambda t: t.erfinv, -0.9, 0.9)
_unary("lgamma", lambda t: t.lgamma, 0.1, 20)
_unary("digamma", lambda t: t.digamma, 0.1, 20)
_unary("i0", lambda t: t.special.i0, -5, 5)
_unary("i1", lambda t: t.special.i1, -5, 5, 0.01)
_unary("i0e", lambda t: t.special.i0e, -5, 5, 0.01)
_unary("i1e", lambda t: t.special.i1e, -5, 5, 0.01)


def _points(name, values, call, rtol=1e-13):
    """Fixed numbers in float64, compared with scipy."""

    @samples(name, system="scipy.special")
    def make(rng, scipy):
        x = np.asarray(values, np.float64)
        yield Sample([x], {}, call(scipy), False, rtol=rtol, atol=1e-300)


_points("erfc", [-6, -0.0, 0.5, 2, 5, 10, 20, 26, np.inf, -np.inf], lambda s: s.erfc)
_points("erfcx", [-5, -0.5, 0, 3, 30, 1e10, np.inf, -np.inf], lambda s: s.erfcx, 1e-12)
_points("erfinv", [-1, 1, 0, 1e-9, 0.999999, 1 - 1e-12, -0.5, 2], lambda s: s.erfinv, 1e-12)
_points("lgamma", [-1.5, -7.25, 1e-8, 1e5, 1e300, 0, -3, np.inf], lambda s: s.gammaln, 1e-12)
_points("digamma", [-0.5, -7.25, 1e-8, 1e5, 7.5, 1e300], lambda s: s.digamma, 1e-12)
_points("i0", [0, 19.9, 20.1, 100, -700], lambda s: s.i0, 1e-12)
_points("i1", [0, 19.9, 20.1, 100, -700], lambda s: s.i1, 1e-12)
_points("i0e", [0, 19.9, 20.1, 1e6, -700], lambda s: s.i0e, 1e-12)
_points("i1e", [0, 19.9, 20.1, 1e6, -700], lambda s: s.i1e, 1e-12)


@samples("polygamma", system="scipy.special")
def polygamma(rng, scipy):
    for n in (1, 2, 5):
        for shape in [(), (5,), (3, 4), (0,)]:
            x = floats(rng, shape, 0.5, 9)
            yield Sample([x], {"n": n}, lambda x, n=n: scipy.polygamma(n, x), rtol=2e-5)
        wide = floats(rng, (7,), 0.1, 50, "float64")
        yield Sample([wide], {"n": n}, lambda x, n=n: scipy.polygamma(n, x), rtol=1e-12, atol=0)


@samples("polygamma")
def trigamma_of_negatives(rng, torch):
    x = np.float64([-0.5, -1.3, -7.75])
    yield Sample([x], {"n": 1}, lambda x: torch.polygamma(1, x), rtol=1e-12)
    yield Sample([x], {"n": 3}, lambda x: torch.polygamma(3, x), rtol=1e-12)


@samples("isfinite")
def isfinite(rng, torch):
    for shape in SHAPES:
        x = floats(rng, shape)
        special = np.float32([np.nan, np.inf, -np.inf, 1])[rng.integers(0, 4, shape)]
        yield Sample([np.where(x > 0, special, x)], {}, torch.isfinite, False)
    yield Sample([integers(rng, (3, 4))], {}, torch.isfinite, False)


@samples("signbit")
def signbit(rng, torch):
    for shape in SHAPES:
        x = floats(rng, shape)
        special = np.float32([-0.0, 0.0, np.inf, -np.inf])[rng.integers(0, 4, shape)]
        yield Sample([np.where(x > 0, special, x)], {}, torch.signbit, False)
    yield Sample([integers(rng, (3, 4))], {}, torch.signbit, False)
    yield Sample([np.uint8([0, 255])], {}, torch.signbit, False)
