"""Samples of Fourier transforms."""

from sample import Sample, floats, samples
from samples_complex import numbers

SHAPES = ((2, 8), (2, 3, 7), (1,), (2,), (5,))


@samples("fft")
def fft(rng, torch):
    for shape in SHAPES:
        for kind in ("complex64", "complex128"):
            yield Sample([numbers(rng, shape, kind)], {}, torch.fft.fft)
        yield Sample([numbers(rng, shape)], {"inverse": True}, lambda x: torch.fft.ifft(x, norm="forward"))


def _middle(torch, half, n, factor):
    weights = torch.ones(half.shape[-1], dtype=torch.float64)
    weights[1 : (n + 1) // 2] = factor
    return (half * weights).to(half.dtype)


@samples("rfft")
def rfft(rng, torch):
    for shape in SHAPES:
        n = shape[-1]
        yield Sample([floats(rng, shape, dtype="float64")], {"n": n}, torch.fft.rfft)
        yield Sample(
            [floats(rng, shape, dtype="float64")],
            {"n": n, "doubled": True},
            lambda x, n=n: _middle(torch, torch.fft.rfft(x), n, 2),
        )


@samples("irfft")
def irfft(rng, torch):
    for shape in SHAPES:
        n = shape[-1]
        half = (*shape[:-1], n // 2 + 1)
        yield Sample(
            [numbers(rng, half)], {"n": n, "doubled": True}, lambda x, n=n: torch.fft.irfft(x, n, norm="forward")
        )
        yield Sample(
            [numbers(rng, half, "complex128")],
            {"n": n},
            lambda x, n=n: torch.fft.irfft(_middle(torch, x, n, 0.5), n, norm="forward"),
        )
