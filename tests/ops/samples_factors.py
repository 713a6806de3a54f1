"""Samples of factors by elimination, reflections, eigenvalues, the exponential and least squares;
LAPACK behind PyTorch is what they are compared with."""

import numpy as np
from sample import Sample, floats, integers, samples
from samples_linalg import ANY, SQUARE, TOLERANCE, _sound


def _mixed(rng, shape):
    """Matrices whose rows must be swapped."""
    return np.ascontiguousarray(_sound(rng, shape)[..., ::-1, :])


@samples("lu_factor")
def lu_factor(rng, torch):
    for shape in [*SQUARE, (4, 3), (2, 3, 5), (3, 0)]:
        run = lambda a: tuple(torch.linalg.lu_factor(a))
        square = shape[-1] == shape[-2]
        yield Sample([_mixed(rng, shape)], {}, run, differentiable=square, **TOLERANCE)
    for shape in SQUARE:

        def without(a):
            swapped = torch.linalg.lu(a)
            assert torch.equal(swapped.P, torch.eye(a.shape[-1]).expand_as(swapped.P))
            packed, pivots = torch.linalg.lu_factor(a)
            return packed, pivots

        diagonal = _sound(rng, shape) + np.eye(shape[-1], dtype="float32") * 4
        yield Sample([diagonal], {"pivot": False}, without, **TOLERANCE)


@samples("row_swaps")
def row_swaps(rng, torch):
    for shape in [(3, 2), (2, 4, 4), (2, 1, 3, 5), (0, 2, 2)]:
        for reverse in (False, True):
            low = np.arange(1, shape[-2] + 1)
            pivots = rng.integers(low, shape[-2] + 1, (*shape[:-2], shape[-2])).astype("int32")

            def run(x, pivots, reverse=reverse):
                order = torch.lu_unpack(torch.eye(x.shape[-2]).expand(*x.shape[:-1], -1), pivots).P
                return (order if reverse else order.mT) @ x

            yield Sample([floats(rng, shape), pivots], {"reverse": reverse}, run)


def _indefinite(rng, shape):
    x = floats(rng, shape)
    return (x + np.swapaxes(x, -1, -2)).astype("float32")


LDL = {"rtol": 2e-3, "atol": 2e-4, "differentiable": False}


@samples("ldl_factor")
def ldl_factor(rng, torch):
    for shape in [*SQUARE, (6, 6)]:
        for hermitian in (False, True):
            run = lambda a, h=hermitian: tuple(torch.linalg.ldl_factor_ex(a, hermitian=h))
            yield Sample([_indefinite(rng, shape)], {"hermitian": hermitian}, run, **LDL)


@samples("ldl_solve")
def ldl_solve(rng, torch):
    for shape in [*SQUARE, (6, 6)]:
        matrix = _indefinite(rng, shape) + np.diag(np.arange(3, shape[-1] + 3)).astype("float32")
        packed, pivots = torch.linalg.ldl_factor(torch.from_numpy(matrix))
        b = floats(rng, (*shape[:-1], 2))
        yield Sample([packed.numpy(), pivots.numpy(), b], {}, torch.linalg.ldl_solve, **LDL)


@samples("geqrf")
def geqrf(rng, torch):
    for shape in ANY:
        run = lambda a: tuple(torch.geqrf(a))
        yield Sample([_sound(rng, shape)], {}, run, differentiable=False, **TOLERANCE)


@samples("eig")
def eig(rng, torch):
    for shape in SQUARE:
        run = lambda a: (torch.linalg.eigvals(a),)
        yield Sample([_sound(rng, shape).astype("float64")], {}, run, differentiable=False, **TOLERANCE)


@samples("eigvals")
def eigvals(rng, torch):
    for shape in SQUARE:
        wide = _sound(rng, shape).astype("float64")
        yield Sample([wide], {}, torch.linalg.eigvals, differentiable=False, **TOLERANCE)


@samples("matrix_exp")
def matrix_exp(rng, torch):
    for shape in SQUARE:
        yield Sample([floats(rng, shape)], {}, torch.linalg.matrix_exp, **TOLERANCE)
    large = floats(rng, (2, 3, 3), -9, 9, "float64")
    large[0] *= 0.01
    yield Sample([large], {}, torch.linalg.matrix_exp, rtol=1e-10, differentiable=False)


@samples("lstsq")
def lstsq(rng, torch):
    for shape in ANY:
        inputs = [_sound(rng, shape), floats(rng, (*shape[:-1], 2))]
        run = lambda a, b: torch.linalg.lstsq(a, b).solution
        yield Sample(inputs, {}, run, **TOLERANCE)
    thin = np.outer(integers(rng, (4,), 1, 5), integers(rng, (3,), 1, 5)).astype("float64")
    run = lambda a, b: torch.linalg.lstsq(a, b, driver="gelsd").solution
    yield Sample([thin, floats(rng, (4, 2), dtype="float64")], {}, run, False, rtol=1e-8)
