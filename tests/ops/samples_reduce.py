"""Samples of reductions and of what their gradients need."""

import numpy as np
from sample import SHAPES, Sample, distinct, floats, integers, samples

# shape, attributes, the axes that are reduced
CASES = [
    ((), {}, ()),
    ((5,), {}, (0,)),
    ((5,), {"axis": 0}, (0,)),
    ((2, 3), {}, (0, 1)),
    ((2, 3), {"axis": -1}, (1,)),
    ((2, 3), {"axis": (0,), "keepdims": True}, (0,)),
    ((2, 3, 4), {"axis": (2, 0)}, (0, 2)),
    ((2, 3, 4), {"axis": 1, "exclude": True}, (0, 2)),
    ((2, 3), {"axis": (0, 1), "exclude": True}, ()),
    ((2, 1, 3, 5), {"axis": (1, -1)}, (1, 3)),
    ((2, 3, 4), {"keepdims": True}, (0, 1, 2)),
    ((3, 1), {"axis": (0, 1)}, (0, 1)),
]
EMPTY = [((0, 3), {"axis": 1}, (1,)), ((3, 0), {"axis": 1}, (1,)), ((0,), {}, (0,))]


def _shaped(values, x, attrs, axes):
    """The oracle's values in the shape NNVM gives: (1,) when everything is reduced."""
    if attrs.get("keepdims"):
        shape = [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
    elif len(axes) == x.ndim:
        shape = [1]
    else:
        shape = [dim for axis, dim in enumerate(x.shape) if axis not in axes]
    return values.reshape(shape)


def _flat(x, axes):
    """The reduced axes moved to the end and merged."""
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    rows = [x.shape[axis] for axis in kept]
    count = int(np.prod([x.shape[axis] for axis in axes], dtype=int))
    return x.permute(kept + list(axes)).reshape(rows + [count])


def _reduction(name, call, make=floats, cases=CASES + EMPTY, whole=True, differentiable=True):
    @samples(name)
    def reduction(rng, torch):
        def oracle(x, attrs, axes):
            return _shaped(call(torch, _flat(x, axes)), x, attrs, axes)

        for shape, attrs, axes in cases:
            run = lambda x, attrs=attrs, axes=axes: oracle(x, attrs, axes)
            yield Sample([make(rng, shape)], attrs, run, differentiable and 0 not in shape)
            if whole and 0 not in shape:
                yield Sample([integers(rng, shape, dtype="int64")], attrs, run)


_reduction("sum", lambda t, x: x.sum(-1))
_reduction("prod", lambda t, x: x.prod(-1))
_reduction("mean", lambda t, x: x.mean(-1) if x.is_floating_point() else x.sum(-1) // max(x.shape[-1], 1))
_reduction("max", lambda t, x: x.amax(-1), distinct, CASES)
_reduction("min", lambda t, x: x.amin(-1), distinct, CASES)


_reduction("_norm", lambda t, x: (x * x).sum(-1).sqrt(), floats, CASES + EMPTY[:1], whole=False)
_reduction("logsumexp", lambda t, x: x.logsumexp(-1), floats, CASES + EMPTY[:1], whole=False)


@samples("_variance")
def variances(rng, torch):
    def oracle(x, attrs, axes, correction):
        flat = _flat(x, axes)
        made = flat.var(-1, correction=correction), flat.mean(-1)
        return [_shaped(each, x, attrs, axes) for each in made]

    for shape, attrs, axes in CASES:
        count = np.prod([shape[axis] for axis in axes], dtype=int)
        for correction in (0.0, 0.5):
            run = lambda x, a=attrs, axes=axes, c=correction: oracle(x, a, axes, c)
            given = {**attrs, "correction": correction}
            yield Sample([floats(rng, shape)], given, run, bool(count > correction))


@samples("_root")
def roots(rng, torch):
    for shape in SHAPES:
        yield Sample([floats(rng, shape, low=0.5, high=4)], {}, torch.sqrt)
    yield Sample([np.float32([0, 4])], {}, torch.sqrt, differentiable=False)


@samples("logsumexp")
def sums_that_overflow(rng, torch):
    x = np.float32([[500, 501, -500], [-np.inf] * 3, [np.inf, 1, np.inf], [np.nan, 1, 2]])
    yield Sample([x], {"axis": 1}, lambda x: x.logsumexp(1), differentiable=False)


@samples("sum")
def scalars(rng, torch):
    for shape in ((), (5,), (2, 3)):
        yield Sample([floats(rng, shape)], {"scalar": True}, lambda x: x.sum())
        yield Sample([floats(rng, shape)], {"scalar": True, "keepdims": True}, _kept_sum)


@samples("max")
def scalar_maxima(rng, torch):
    yield Sample([distinct(rng, (2, 3))], {"scalar": True}, lambda x: x.max())


@samples("argmax", system="numpy")
def scalar_position(rng, numpy):
    x = distinct(rng, (2, 3))
    yield Sample([x], {"scalar": True}, lambda x: np.asarray(np.argmax(x)), False)


def _kept_sum(x):
    return x.sum(tuple(range(x.ndim)), keepdim=True) if x.ndim else x


def _first(pick):
    """The position of the first extreme, as numpy says it; torch promises no order of ties."""
    return lambda t, x: t.from_numpy(np.asarray(pick(x.numpy(), -1)))


_reduction("argmax", _first(np.argmax), distinct, CASES)
_reduction("argmin", _first(np.argmin), distinct, CASES)


@samples("sum")
def other_sums(rng, torch):
    x = integers(rng, (3, 4), 0, 2, "bool")
    yield Sample([x], {"axis": 1}, lambda x: x.any(1))
    half = floats(rng, (3, 40), dtype="float16")
    yield Sample([half], {"axis": 1}, lambda x: x.float().sum(1), False, rtol=2e-3, atol=2e-3)
    big = integers(rng, (9,), 2**30, 2**31 - 1)
    yield Sample([big], {}, lambda x: x.sum(0, keepdim=True, dtype=torch.int32))


@samples("prod")
def products_with_zeros(rng, torch):
    x = floats(rng, (3, 4))
    x[0, 1] = x[1, 0] = x[1, 2] = 0
    yield Sample([x], {"axis": 1}, lambda x: x.prod(1))
    yield Sample([integers(rng, (4,), 0, 2, "bool")], {}, lambda x: x.all().reshape(1))


@samples("max")
def maxima_with_nan(rng, torch):
    x = np.float32([[1, np.nan, 3], [-np.inf, -np.inf, -np.inf]])
    yield Sample([x], {"axis": 1}, lambda x: x.amax(1), differentiable=False)
    lowest = np.full(3, -np.inf, "float32")
    yield Sample([np.zeros((3, 0), "float32")], {"axis": 1}, lambda x: lowest, False)


@samples("min")
def minima_with_nan(rng, torch):
    x = np.float32([[1, np.nan, 3], [np.inf, np.inf, np.inf]])
    yield Sample([x], {"axis": 1}, lambda x: x.amin(1), differentiable=False)


@samples("argmax", system="numpy")
def ties_and_nan(rng, numpy):
    x = np.float32([[1, 3, 3], [np.nan, 9, np.nan], [-np.inf, -np.inf, -np.inf]])
    yield Sample([x], {"axis": 1}, lambda x: np.array([1, 0, 0]), False)
    yield Sample([x], {"axis": 1, "dtype": "float32"}, lambda x: np.float32([1, 0, 0]), False)
    yield Sample([integers(rng, (2, 3), 0, 2, "bool")], {"axis": 1}, lambda x: np.argmax(x, 1))


@samples("argmin", system="numpy")
def ties_of_minima(rng, numpy):
    yield Sample([np.int32([[3, 1, 1]])], {"axis": -1, "dtype": "int64"}, lambda x: np.array([1]))


def _mask(name, amax):
    @samples(name)
    def make(rng, torch):
        for shape, attrs, axes in CASES:
            attrs = {key: value for key, value in attrs.items() if key != "keepdims"}
            best = lambda x, axes=axes: getattr(x, amax)(axes, keepdim=True) if axes else x
            yield Sample([distinct(rng, shape)], attrs, lambda x, b=best: (x == b(x)).float())
        ties = np.float32([[2, 2, 1], [0, 0, 0]])
        run = lambda x: (x == getattr(x, amax)(1, keepdim=True)).float()
        yield Sample([ties], {"axis": 1}, run, differentiable=False)


_mask("_max_mask", "amax")
_mask("_min_mask", "amin")


@samples("_prod_others")
def prod_others(rng, torch):
    for shape, attrs, axes in CASES:
        attrs = {key: value for key, value in attrs.items() if key != "keepdims"}
        x = floats(rng, shape, gap=0.2)
        run = lambda x, axes=axes: _product(x, axes) / x if axes else x * 0 + 1
        single = np.size(attrs.get("axis", ())) < 2 and not attrs.get("exclude")
        yield Sample([x], attrs, run, differentiable=single, rtol=1e-4)
    with_zero = np.float32([0, 2, 3])
    yield Sample([with_zero], {}, lambda x: torch.tensor([6.0, 0, 0]))


def _product(x, axes):
    for axis in axes:
        x = x.prod(axis, keepdim=True)
    return x


@samples("collapse_sum")
def collapse_sum(rng, torch):
    for shape, target in [
        ((3, 4), (4,)),
        ((3, 4), (3, 1)),
        ((2, 3, 4), (1, 4)),
        ((5,), (1,)),
        ((5,), ()),
        ((), ()),
        ((2, 3), (2, 3)),
        ((2, 3, 1, 4), (3, 1, 1)),
        ((0, 3), (1, 3)),
        ((1, 2), (1, 1)),
    ]:
        pair = [floats(rng, shape), floats(rng, target)]
        yield Sample(pair, {}, lambda x, y: x.sum_to_size(y.shape))
    yield Sample([integers(rng, (3, 2)), integers(rng, (2,))], {}, lambda x, y: x.sum(0))


@samples("expand_like")
def expand_like(rng, torch):
    for shape, like, attrs, middle in [
        ((3,), (3, 4), {"axis": 1}, (3, 1)),
        ((4,), (3, 4), {"axis": -2}, (1, 4)),
        ((1,), (3, 4), {}, (1, 1)),
        ((3, 1), (3, 4), {"axis": 1}, (3, 1)),
        ((3,), (2, 3, 4), {"axis": 1, "exclude": True}, (1, 3, 1)),
        ((1,), (5,), {}, (1,)),
        ((2, 3), (2, 3), {"axis": (0, 1), "exclude": True}, (2, 3)),
        ((1,), (), {}, ()),
        ((1,), (0, 2), {}, (1, 1)),
        ((), (2, 3), {}, (1, 1)),
        *[
            (shape, (3, 4), attrs, shape)
            for shape in [(3, 4), (3, 1), (1, 4), (1, 1)]
            for attrs in ({}, {"axis": 1}, {"axis": 0, "exclude": True})
        ],
    ]:
        pair = [floats(rng, shape), floats(rng, like)]
        yield Sample(pair, attrs, lambda x, y, m=middle: x.reshape(m).broadcast_to(y.shape))


@samples("_expand_like_grad")
def expand_like_grad(rng, torch):
    for wide, shape, attrs, axes in [
        ((3, 4), (3,), {"axis": 1}, [1]),
        ((3, 4), (1,), {}, [0, 1]),
        ((3, 4), (), {}, [0, 1]),
        ((2, 3, 4), (3,), {"axis": 1, "exclude": True}, [0, 2]),
        ((5,), (1,), {}, [0]),
        ((3, 4), (3, 1), {}, [1]),
        ((3, 4), (1, 4), {"axis": 1}, [0]),
        ((3, 4), (3, 4), {}, []),
        ((), (1,), {}, []),
        ((0, 2), (1,), {}, [0, 1]),
    ]:
        pair = [floats(rng, wide), floats(rng, shape)]
        total = lambda g, x, a=axes: (g.sum(a) if a else g).reshape(x.shape)
        yield Sample(pair, attrs, total)


@samples("_divide_by_count")
def divide_by_count(rng, torch):
    for shape, like, attrs, count in [
        ((3,), (3, 4), {"axis": 1}, 4),
        ((3, 1), (3, 4), {"axis": -1}, 4),
        ((1,), (5, 2), {}, 10),
        ((2, 4), (2, 3, 4, 5), {"axis": (0, 2), "exclude": True}, 15),
        ((), (7,), {}, 7),
        ((3,), (3, 4), {"axis": 1, "less": 1.5}, 2.5),
    ]:
        pair = [floats(rng, shape), floats(rng, like)]
        yield Sample(pair, attrs, lambda x, y, n=count: x / n)


@samples("cumsum")
def cumsum(rng, torch):
    for shape, axis in [
        ((5,), 0),
        ((3, 4), 1),
        ((3, 4), -2),
        ((2, 3, 2, 2), 1),
        ((0, 2), 0),
        ((3, 0), 1),
        ((40,), 0),
        ((2, 37), 1),
    ]:
        for exclusive in (False, True):
            for reverse in (False, True):
                attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
                run = lambda x, a=axis, e=exclusive, r=reverse: _running(x, a, e, r)
                yield Sample([floats(rng, shape)], attrs, run, atol=1e-5)
    yield Sample([integers(rng, (9,))], {}, lambda x: x.cumsum(0, dtype=x.dtype))


def _running(x, axis, exclusive, reverse):
    ordered = x.flip(axis) if reverse else x
    total = ordered.cumsum(axis)
    total = total - ordered if exclusive else total
    return total.flip(axis) if reverse else total
