"""Samples of the functions of two tensors that broadcast, and of bits."""

import numpy as np
from sample import Sample, distinct, floats, integers, samples

PAIRS = [((), ()), ((5,), (5,)), ((3, 4), (4,)), ((2, 1, 3), (4, 1)), ((0, 3), (3,)), ((3, 0), ())]


def _floats(name, call, gap=0.1, whole=False, slopes=True):
    @samples(name)
    def make(rng, torch):
        for left, right in PAIRS:
            x, y = floats(rng, left, gap=gap), floats(rng, right, gap=gap)
            yield Sample([x, y], {}, call(torch), slopes)
        wide = [floats(rng, (3, 4), dtype="float64", gap=gap) for _ in range(2)]
        yield Sample(wide, {}, call(torch), slopes, rtol=1e-12)
        if whole:
            x, y = integers(rng, (4, 3)), integers(rng, (3,))
            yield Sample([x, np.where(y == 0, 4, y)], {}, call(torch))


_floats("atan2", lambda t: t.atan2)
_floats("hypot", lambda t: t.hypot)
_floats("copysign", lambda t: t.copysign)
_floats("logaddexp", lambda t: t.logaddexp)
_floats("fmod", lambda t: t.fmod, whole=True, slopes=(0,))
_floats("floor_divide", lambda t: t.floor_divide, whole=True, slopes=False)


@samples("hypot")
def large_hypot(rng, torch):
    x = np.float32([3e30, np.inf, np.nan, 0])
    y = np.float32([4e30, np.nan, 1, 0])
    yield Sample([x, y], {}, torch.hypot, False)


@samples("logaddexp")
def special_logaddexp(rng, torch):
    x = np.float32([-np.inf, np.inf, 500, -np.inf, np.nan])
    y = np.float32([-np.inf, 1, -500, 2, 1])
    yield Sample([x, y], {}, torch.logaddexp, False)


@samples("copysign")
def signed_zeros(rng, torch):
    x, y = np.float32([1, -2, 0, 3]), np.float32([-0.0, 0.0, -1, np.inf])
    yield Sample([x, y], {}, torch.copysign, False)


@samples("floor_divide", system="numpy")
def near_integers(rng, numpy):
    x, y = np.float32([1, -1, 0.3, 6, -7, 0, 5]), np.float32([0.1, 0.1, 0.1, 2, 2, -3, np.inf])
    yield Sample([x, y], {}, numpy.floor_divide, False)
    yield Sample([np.float64(x), np.float64(y)], {}, numpy.floor_divide, False)


def _bits(name, call):
    @samples(name)
    def make(rng, torch):
        for left, right in PAIRS:
            for dtype in ("int32", "int64", "uint8"):
                x, y = (integers(rng, s, 0, 100, dtype) for s in (left, right))
                yield Sample([x, y], {}, call(torch))
        yield Sample([integers(rng, (9,)), integers(rng, (9,))], {}, call(torch))
        x, y = (integers(rng, (8,), 0, 2, "bool") for _ in range(2))
        yield Sample([x, y], {}, call(torch))


_bits("bitwise_and", lambda t: t.bitwise_and)
_bits("bitwise_or", lambda t: t.bitwise_or)
_bits("bitwise_xor", lambda t: t.bitwise_xor)


@samples("bitwise_not")
def bitwise_not(rng, torch):
    for dtype in ("int32", "int64", "uint8"):
        yield Sample([integers(rng, (3, 4), 0, 100, dtype)], {}, torch.bitwise_not)
    yield Sample([integers(rng, (5,), 0, 2, "bool")], {}, torch.bitwise_not)
    yield Sample([integers(rng, (0, 2))], {}, torch.bitwise_not)


@samples("gcd")
def gcd(rng, torch):
    for left, right in PAIRS:
        yield Sample([integers(rng, left, -60, 60), integers(rng, right, -60, 60)], {}, torch.gcd)
    x, y = (integers(rng, (20,), 0, 2**60, "int64") for _ in range(2))
    yield Sample([x, y], {}, torch.gcd)
    yield Sample([np.int64([7540113804746346429]), np.int64([4660046610375530309])], {}, torch.gcd)


@samples("broadcast_where")
def broadcast_where(rng, torch):
    for left, right in PAIRS:
        shape = np.broadcast_shapes(left, right)
        condition = integers(rng, shape, 0, 2, "bool")
        x, y = distinct(rng, left), distinct(rng, right)
        yield Sample([condition, x, y], {}, torch.where, (1, 2))
    condition = integers(rng, (3, 1), 0, 2, "bool")
    yield Sample([condition, integers(rng, (4,)), integers(rng, (3, 4))], {}, torch.where)
    mask = floats(rng, (3,)) * integers(rng, (3,), 0, 2)
    x, y = floats(rng, (2, 3)), floats(rng, ())
    yield Sample([mask.astype("float32"), x, y], {}, lambda c, x, y: torch.where(c != 0, x, y), (1, 2))
