"""Samples of the operators that sort; PyTorch's stable sort is the oracle."""

import numpy as np
from sample import Sample, distinct, floats, integers, samples

CASES = [((7,), 0), ((3, 5), -1), ((4, 3), 0), ((2, 6, 3), 1), ((1, 1), 1), ((2, 0), 1), ((0, 3), 1)]


def _inputs(rng, shape):
    yield distinct(rng, shape), True
    yield integers(rng, shape, -2, 3, "int32"), False  # with ties
    yield integers(rng, shape, 0, 2).astype("bool"), False
    odd = floats(rng, shape)
    odd[rng.random(shape) < 0.4] = rng.choice([np.nan, np.inf, -np.inf])
    yield odd, False


@samples("argsort")
def argsort(rng, torch):
    for shape, axis in CASES:
        for x, _ in _inputs(rng, shape):
            for descending in (False, True):
                run = lambda x, a=axis, d=descending: torch.argsort(x, dim=a, descending=d, stable=True).int()
                yield Sample([x], {"axis": axis, "descending": descending}, run)
    run = lambda x: torch.argsort(x, stable=True)
    yield Sample([floats(rng, (2, 40))], {"dtype": "int64"}, run)
    nan = np.float32([np.nan, 1, np.inf, np.nan, -np.inf, -0.0, 0.0])
    run = lambda x: torch.argsort(x, descending=True, stable=True).int()
    yield Sample([nan], {"descending": True}, run, differentiable=False)


@samples("sort")
def sort(rng, torch):
    for shape, axis in CASES:
        for x, smooth in _inputs(rng, shape):
            for descending in (False, True):
                attrs = {"axis": axis, "descending": descending}
                run = lambda x, a=axis, d=descending: torch.sort(x, dim=a, descending=d).values
                yield Sample([x], attrs, run, differentiable=smooth)


@samples("topk")
def topk(rng, torch):
    def run(x, k, axis, largest):
        made = torch.sort(x, dim=axis, descending=largest, stable=True)
        return made.values.narrow(axis, 0, k), made.indices.narrow(axis, 0, k).int()

    for shape, axis in CASES:
        for x, smooth in _inputs(rng, shape):
            for largest in (True, False):
                k = int(rng.integers(0, shape[axis] + 1))
                attrs = {"k": k, "axis": axis, "largest": largest}
                oracle = lambda x, k=k, a=axis, g=largest: run(x, k, a, g)
                yield Sample([x], attrs, oracle, differentiable=smooth)
