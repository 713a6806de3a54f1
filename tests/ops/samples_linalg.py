"""Samples of linear algebra; LAPACK behind PyTorch is what they are compared with."""

import numpy as np
from sample import Sample, floats, samples

SQUARE = [(3, 3), (2, 4, 4), (1, 1), (2, 1, 2, 2), (0, 2, 2)]
ANY = [(4, 3), (3, 4), (3, 3), (2, 5, 2)]
TOLERANCE = {"rtol": 2e-4, "atol": 2e-5}


def _sound(rng, shape):
    """Matrices whose inverse is not large."""
    noise = floats(rng, shape, -0.3, 0.3)
    return (noise + np.eye(*shape[-2:]) * np.arange(1, shape[-1] + 1)).astype("float32")


def _symmetric(rng, shape):
    x = _sound(rng, shape)
    return ((x + np.swapaxes(x, -1, -2)) / 2).astype("float32")


@samples("triangle")
def triangle(rng, torch):
    for shape in [(3, 4), (4, 2), (2, 3, 3), (0, 2, 2)]:
        for lower, diagonal in [(True, 0), (False, 0), (True, -1), (False, 2)]:
            run = torch.tril if lower else torch.triu
            yield Sample(
                [floats(rng, shape)], {"lower": lower, "diagonal": diagonal}, lambda x, run=run, k=diagonal: run(x, k)
            )


@samples("inverse")
def inverse(rng, torch):
    for shape in SQUARE:
        yield Sample([_sound(rng, shape)], {}, torch.linalg.inv, **TOLERANCE)
        run = lambda a: torch.linalg.inv(a.mT)
        yield Sample([_sound(rng, shape)], {"transposed": True}, run, **TOLERANCE)


@samples("solve")
def solve(rng, torch):
    for shape in SQUARE:
        for turned in (False, True):
            run = lambda a, b, t=turned: torch.linalg.solve(a.mT if t else a, b)
            inputs = [_sound(rng, shape), floats(rng, (*shape[:-1], 2))]
            yield Sample(inputs, {"transposed": turned}, run, **TOLERANCE)
            for name, part in (("lower", torch.tril), ("upper", torch.triu)):
                attrs = {"transposed": turned, "triangle": name}
                of_part = lambda a, b, run=run, part=part: run(part(a), b)
                yield Sample(inputs, attrs, of_part, **TOLERANCE)


@samples("det")
def det(rng, torch):
    for shape in SQUARE:
        yield Sample([_sound(rng, shape)], {}, torch.linalg.det, **TOLERANCE)
    singular = np.outer(floats(rng, (3,)), floats(rng, (3,))).astype("float32")
    yield Sample([singular], {}, torch.linalg.det, rtol=1e-4, atol=1e-4, differentiable=False)


@samples("_cofactors")
def cofactors(rng, torch):
    def run(a):
        a = a.clone().double().requires_grad_()
        return torch.autograd.grad(torch.linalg.det(a).sum(), a)[0].float()

    for shape in SQUARE:
        yield Sample([_sound(rng, shape)], {}, run, **TOLERANCE)


@samples("slogdet")
def slogdet(rng, torch):
    for shape in SQUARE:
        yield Sample([-_sound(rng, shape)], {}, lambda a: tuple(torch.linalg.slogdet(a)), **TOLERANCE)


@samples("cholesky")
def cholesky(rng, torch):
    for shape in SQUARE:
        run = lambda a: torch.linalg.cholesky(a)
        yield Sample([_symmetric(rng, shape)], {}, run, differentiable=False, **TOLERANCE)


@samples("eigh")
def eigh(rng, torch):
    for shape in SQUARE:
        run = lambda a: (torch.linalg.eigvalsh(a),)
        yield Sample([_symmetric(rng, shape)], {}, run, differentiable=False, **TOLERANCE)


@samples("qr")
def qr(rng, torch):
    for shape in ANY:
        run = lambda a: tuple(torch.linalg.qr(a))
        wide = shape[-1] > shape[-2]
        yield Sample([_sound(rng, shape)], {}, run, differentiable=not wide, **TOLERANCE)


@samples("svd", system="scipy.linalg")
def svd(rng, scipy):
    for shape in ANY:

        def run(a):
            parts = [scipy.svd(m.astype("float64"), False) for m in a.reshape(-1, *a.shape[-2:])]
            made = [np.stack(part).astype("float32") for part in zip(*parts)]
            return tuple(x.reshape(*a.shape[:-2], *x.shape[1:]) for x in made)

        yield Sample([_sound(rng, shape)], {}, run, **TOLERANCE)


@samples("svdvals")
def svdvals(rng, torch):
    for shape in ANY:
        yield Sample([_sound(rng, shape)], {}, torch.linalg.svdvals, **TOLERANCE)


@samples("pinv")
def pinv(rng, torch):
    for shape in ANY:
        yield Sample([_sound(rng, shape)], {}, torch.linalg.pinv, **TOLERANCE)


@samples("distances")
def distances(rng, torch):
    shapes = [((3, 4), (5, 4)), ((2, 3, 6), (2, 2, 6)), ((1, 1), (1, 1)), ((0, 2), (3, 2))]
    for left, right in shapes:
        for by_products in (False, True):
            inputs = [floats(rng, left), floats(rng, right)]
            yield Sample(inputs, {"by_products": by_products}, torch.cdist, **TOLERANCE)
