"""Samples of the parts of complex numbers, and of complex numbers of parts."""

import numpy as np
from sample import SHAPES, Sample, floats, samples


def numbers(rng, shape, dtype="complex64", gap=0.1):
    """Complex numbers of which none is near zero."""
    size, turn = rng.uniform(gap, 2, shape), rng.uniform(-np.pi, np.pi, shape)
    return np.asarray(size * np.exp(1j * turn)).astype(dtype)


def _of_both(rng):
    """Real and complex tensors."""
    for shape in SHAPES:
        yield floats(rng, shape, gap=0.1)
        yield numbers(rng, shape)
    yield numbers(rng, (2, 3), "complex128")


@samples("conj")
def conj(rng, torch):
    for x in _of_both(rng):
        yield Sample([x], {}, lambda x: torch.conj_physical(x))


@samples("real")
def real(rng, torch):
    for x in _of_both(rng):
        yield Sample([x], {}, torch.real)


@samples("imag")
def imag(rng, torch):
    for x in _of_both(rng):
        yield Sample([x], {}, lambda x: torch.imag(x) if x.is_complex() else x * 0)


@samples("angle")
def angle(rng, torch):
    for x in _of_both(rng):
        yield Sample([x], {}, torch.angle)
    corners = np.complex64([0, -0.0, 1j, -1j, -1, complex(-1, -0.0), np.nan])
    yield Sample([corners], {}, torch.angle)


@samples("sgn")
def sgn(rng, torch):
    for x in _of_both(rng):
        yield Sample([x], {}, torch.sgn)
    yield Sample([np.complex64([0, 3 + 4j, -2j])], {}, torch.sgn)


@samples("complex")
def complex_(rng, torch):
    for shape in SHAPES:
        pair = [floats(rng, shape, dtype="float64") for _ in range(2)]
        yield Sample(pair, {}, torch.complex)
    wide = [floats(rng, shape, dtype="float64") for shape in ((2, 1, 3), (4, 1))]
    yield Sample(wide, {}, torch.complex)


@samples("view_as_real")
def view_as_real(rng, torch):
    for shape in SHAPES:
        yield Sample([numbers(rng, shape)], {}, torch.view_as_real)


@samples("view_as_complex")
def view_as_complex(rng, torch):
    for shape in SHAPES:
        x = floats(rng, (*shape, 2), dtype="float64")
        yield Sample([x], {}, lambda x: torch.complex(x[..., 0], x[..., 1]))
