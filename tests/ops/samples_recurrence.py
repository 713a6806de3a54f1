"""Samples of running products, extremes and recurrences."""

import numpy as np
from sample import Sample, distinct, floats, integers, samples

CASES = [((5,), 0), ((3, 4), 0), ((3, 4), -1), ((2, 5, 16), 1), ((2, 3, 2), -2), ((0, 3), 1), ((2, 0), 1)]


def _scans(name, call, make=floats, whole=False, slopes=True, attrs=None):
    @samples(name)
    def scans(rng, torch):
        for shape, axis in CASES:
            for extra in attrs or [{}]:
                run = lambda x, axis=axis, extra=extra: call(torch, x, axis, **extra)
                yield Sample([make(rng, shape)], {"axis": axis, **extra}, run, slopes)
                if whole:
                    x = integers(rng, shape, -3, 4, "int64")
                    yield Sample([x], {"axis": axis, **extra}, run)


def _exclusive(torch, x, axis, exclusive=False):
    made = torch.cumprod(x, axis)
    if not exclusive:
        return made
    ones = torch.ones_like(made.narrow(axis, 0, min(1, made.shape[axis])))
    return torch.cat([ones, made.narrow(axis, 0, max(made.shape[axis] - 1, 0))], axis)


_scans("cumprod", _exclusive, whole=True, attrs=[{}, {"exclusive": True}])
_scans("logcumsumexp", lambda t, x, axis: t.logcumsumexp(x, axis))
_scans("cummax_index", lambda t, x, axis: t.cummax(x, axis)[1], distinct, True, False)
_scans("cummin_index", lambda t, x, axis: t.cummin(x, axis)[1], distinct, True, False)


@samples("cumprod")
def with_zeros(rng, torch):
    x = floats(rng, (3, 6))
    x[0, 2] = x[1, 0] = x[1, 4] = x[2, 5] = 0
    yield Sample([x], {"axis": 1}, lambda x: x.cumprod(1))
    yield Sample([x], {"axis": 1, "exclusive": True}, lambda x: _exclusive(torch, x, 1, True))


@samples("logcumsumexp")
def far_apart(rng, torch):
    x = np.float32([-np.inf, -1000, 3, 500, -2, np.inf])
    yield Sample([x], {}, lambda x: torch.logcumsumexp(x, 0), False)


@samples("cummax_index")
def with_nan(rng, torch):
    x = np.float32([1, np.nan, 3, np.nan, 7])
    yield Sample([x], {}, lambda x: torch.cummax(x, 0)[1], False)


@samples("_shift", system="numpy")
def shift(rng, numpy):
    for shape, axis in CASES:
        if 0 in shape:
            continue
        for back in (False, True):

            def run(x, axis=axis, back=back):
                made = numpy.moveaxis(numpy.roll(x, -1 if back else 1, axis), axis, 0).copy()
                made[-1 if back else 0] = 0
                return numpy.moveaxis(made, 0, axis)

            yield Sample([floats(rng, shape)], {"axis": axis, "back": back}, run)


@samples("_recurrence", system="scipy.linalg")
def recurrence(rng, scipy):
    """The solution of s_k - a_k s_k-1 = b_k, a system of two diagonals."""

    def solve(a, b, reverse):
        rows = np.eye(len(a)) - np.diag(a[1:].astype("float64"), -1)
        return scipy.solve(rows.T if reverse else rows, b.astype("float64")).astype("float32")

    def run(a, b, axis, reverse):
        a, b = np.moveaxis(a, axis, -1), np.moveaxis(b, axis, -1)
        flat = zip(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))
        made = np.stack([solve(x, y, reverse) for x, y in flat])
        return np.moveaxis(made.reshape(a.shape), -1, axis)

    for shape, axis in CASES:
        for reverse in (False, True):
            if 0 not in shape:
                oracle = lambda a, b, k=axis, r=reverse: run(a, b, k, r)
                attrs = {"axis": axis, "reverse": reverse}
                yield Sample([floats(rng, shape), floats(rng, shape)], attrs, oracle, atol=1e-5)
