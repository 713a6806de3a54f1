"""Samples of the operators of several tensors, element by element."""

import numpy as np
from sample import SHAPES, SMALL_SHAPES, Sample, distinct, floats, integers, samples

PAIRS = [
    ((), ()),
    ((3,), ()),
    ((), (2, 3)),
    ((4, 1), (3,)),
    ((2, 1, 3), (2, 4, 1)),
    ((1, 3, 1, 2), (2, 1, 2, 1)),
    ((0,), (1,)),
    ((2, 0, 3), (1, 3)),
    ((5, 3), (5, 3)),
]


def _binary(name, call, low=-2.0, gap=0.0, whole=None):
    @samples(f"elemwise_{name}")
    def equal_shapes(rng, torch):
        for shape in SHAPES:
            pair = [floats(rng, shape, low, 2, gap=gap) for _ in range(2)]
            yield Sample(pair, {}, lambda x, y: call(torch, x, y))
        yield from _whole(rng, torch, [((3, 4), (3, 4))], whole)

    @samples(f"broadcast_{name}")
    def broadcasting(rng, torch):
        for a, b in PAIRS:
            pair = [floats(rng, shape, low, 2, gap=gap) for shape in (a, b)]
            yield Sample(pair, {}, lambda x, y: call(torch, x, y))
        yield from _whole(rng, torch, [((3, 1), (4,))], whole)


def _whole(rng, torch, pairs, call):
    for a, b in pairs if call else ():
        for dtype in ("int32", "int64", "int8"):
            y = integers(rng, b, dtype=dtype)
            y = np.where(y == 0, 3, y).astype(dtype)
            yield Sample([integers(rng, a, dtype=dtype), y], {}, lambda x, y: call(torch, x, y))


_binary("add", lambda t, x, y: x + y, whole=lambda t, x, y: x + y)
_binary("sub", lambda t, x, y: x - y, whole=lambda t, x, y: x - y)
_binary("mul", lambda t, x, y: x * y, whole=lambda t, x, y: x * y)
_binary("div", lambda t, x, y: x / y, gap=0.2, whole=lambda t, x, y: x // y)
_binary("mod", lambda t, x, y: x % y, gap=0.2, whole=lambda t, x, y: x % y)
_binary("pow", lambda t, x, y: x**y, low=0.1, whole=lambda t, x, y: _int_pow(x.numpy(), y.numpy()))


def _int_pow(x, y):
    """Python's own integers: wrapped to the dtype, and truncated where the power is negative."""
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), x.dtype)
    for at, (a, b) in zip(np.ndindex(out.shape), zip(*map(np.ravel, np.broadcast_arrays(x, y)))):
        a, b = int(a), int(b)
        value = a**b if b >= 0 else {1: 1, -1: -1 if b % 2 else 1}.get(a, 0)
        bits = x.dtype.itemsize * 8
        out[at] = (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
    return out


def _pairwise(call, x, y):
    """Python's own arithmetic, 0 where the divisor is 0."""
    return np.array([call(a, b) if b else 0 for a, b in zip(x.tolist(), y.tolist())])


@samples("broadcast_div", system="numpy")
def integer_division_by_zero(rng, numpy):
    pair = [integers(rng, (4,)), np.int32([0, 2, 0, -2])]
    yield Sample(pair, {}, lambda x, y: _pairwise(lambda a, b: a // b, x, y))
    floats_ = [np.float32([1, -1, 0]), np.zeros(3, "float32")]
    yield Sample(floats_, {}, lambda x, y: np.float32([np.inf, -np.inf, np.nan]), False)


@samples("broadcast_mod", system="numpy")
def remainder_by_zero(rng, numpy):
    pair = [integers(rng, (4,)), np.int32([0, 2, 0, -2])]
    yield Sample(pair, {}, lambda x, y: _pairwise(lambda a, b: a % b, x, y))


@samples("broadcast_pow")
def powers_at_zero(rng, torch):
    pair = [np.float32([0, 0, 2, 1.5]), np.float32([2, 0, 0, -1])]
    yield Sample(pair, {}, torch.pow, differentiable=False)
    negative = [np.float32([-2, -1.5]), np.float32([2, 3])]
    yield Sample(negative, {}, torch.pow, differentiable=(0,))


def _pick(name, call):
    @samples(f"broadcast_{name}")
    def make(rng, torch):
        for a, b in PAIRS:
            x = distinct(rng, a)
            y = distinct(rng, b) + np.float32(0.041)
            yield Sample([x, y], {}, lambda x, y: call(torch, x, y))
        nan = [np.float32([np.nan, 1, np.inf]), np.float32([0, np.nan, 3])]
        yield Sample(nan, {}, lambda x, y: call(torch, x, y), differentiable=False)
        whole = [integers(rng, (3, 1)), integers(rng, (4,))]
        yield Sample(whole, {}, lambda x, y: call(torch, x, y))


_pick("max", lambda t, x, y: t.maximum(x, y))
_pick("min", lambda t, x, y: t.minimum(x, y))


def _compare(name, call):
    @samples(f"broadcast_{name}")
    def make(rng, torch):
        for a, b in PAIRS:
            pair = [distinct(rng, a), distinct(rng, b) + np.float32(0.041)]
            yield Sample(pair, {}, lambda x, y: call(x, y).float())
        for dtype in ("int32", "uint8", "bool"):
            pair = [integers(rng, shape, 0, 2).astype(dtype) for shape in ((4, 3), (3,))]
            yield Sample(pair, {}, call)
        nan = np.float32([np.nan, 1])
        yield Sample([nan, nan.copy()], {}, call, differentiable=False)


_compare("greater", lambda x, y: x > y)
_compare("less", lambda x, y: x < y)
_compare("equal", lambda x, y: x == y)
_compare("not_equal", lambda x, y: x != y)
_compare("greater_equal", lambda x, y: x >= y)
_compare("less_equal", lambda x, y: x <= y)


def _indicator(name, call):
    @samples(name)
    def make(rng, torch):
        for shape in SMALL_SHAPES:
            pair = [distinct(rng, shape), distinct(rng, shape) + np.float32(0.041)]
            yield Sample(pair, {}, call)
        yield Sample([integers(rng, (9,), 0, 3), integers(rng, (9,), 0, 3)], {}, call)


_indicator("greater", lambda x, y: x > y)
_indicator("less", lambda x, y: x < y)


def _logical(name):
    @samples(name)
    def make(rng, torch):
        for dtype in ("int32", "float32", "bool"):
            pair = [integers(rng, (3, 4), 0, 2).astype(dtype) for _ in range(2)]
            yield Sample(pair, {}, getattr(torch, name), differentiable=False)


_logical("logical_and")
_logical("logical_or")


def _shift(name, call):
    @samples(name)
    def make(rng, torch):
        pair = [integers(rng, (3, 1), -99, 99), integers(rng, (4,), 0, 8)]
        yield Sample(pair, {}, call)
        yield Sample([integers(rng, (5,), 0, 99, "uint8"), np.uint8([0, 1, 2, 3, 7])], {}, call)


_shift("broadcast_left_shift", lambda x, y: x << y)
_shift("broadcast_right_shift", lambda x, y: x >> y)


@samples("elemwise_sum")
def elemwise_sum(rng, torch):
    for count, shape in zip((1, 2, 3, 5, 2), SMALL_SHAPES):
        parts = [floats(rng, shape) for _ in range(count)]
        yield Sample(parts, {"num_args": count}, lambda *xs: sum(xs[1:], xs[0]))
    parts = [integers(rng, (2, 3)) for _ in range(3)]
    yield Sample(parts, {"num_args": 3}, lambda *xs: sum(xs[1:], xs[0]))


@samples("broadcast_to")
def broadcast_to(rng, torch):
    for shape, wanted, out in [
        ((3, 1), (3, 4), (3, 4)),
        ((1, 3), (5, 0), (5, 3)),
        ((3,), (2, 3), (2, 3)),
        ((), (2, 1), (2, 1)),
        ((), (), ()),
        ((1, 1, 2), (4, 0, 2), (4, 1, 2)),
        ((0, 1), (0, 3), (0, 3)),
    ]:
        x = floats(rng, shape)
        yield Sample([x], {"shape": wanted}, lambda x, o=out: x.broadcast_to(o))


@samples("broadcast_like")
def broadcast_like(rng, torch):
    for shape, like in [((3, 1), (3, 4)), ((3,), (2, 3)), ((), (2, 1)), ((1, 2), (0, 2))]:
        pair = [floats(rng, shape), floats(rng, like)]
        yield Sample(pair, {}, lambda x, y: x.broadcast_to(y.shape))
