"""Windows, short Fourier transforms, ranges, histograms, runs of neighbours, matrices of low rank
and files, with PyTorch as the witness."""

import numpy as np
import pytest
import scipy.signal
from twins import agree, agree_or_refuse, refuse

import weft

rng = np.random.default_rng(0)
WINDOWS = ["bartlett", "blackman", "hamming", "hann", "kaiser"]


@pytest.mark.parametrize("length", [0, 1, 2, 5, 8, 33])
@pytest.mark.parametrize("name", WINDOWS)
def test_window(name, length):
    for periodic in (True, False):
        for kind in ("float32", "float64"):
            call = lambda m, p=periodic, k=kind: getattr(m, f"{name}_window")(length, p, dtype=getattr(m, k))
            agree(call, 1e-5, 2e-7)


@pytest.mark.parametrize("name", WINDOWS)
def test_window_in_double_precision(name):
    given = ("kaiser", 12.0) if name == "kaiser" else name
    expected = scipy.signal.get_window(given, 37)
    made = getattr(weft, f"{name}_window")(37, dtype=weft.float64)
    np.testing.assert_allclose(made.numpy(), expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", WINDOWS)
def test_window_refused(name):
    for length, options in ((-1, {}), (2.5, {}), (3, {"dtype": "int32"}), (3, {"dtype": "complex64"})):
        call = lambda m, n=length, o=options: getattr(m, f"{name}_window")(
            n, **{key: getattr(m, value) for key, value in o.items()}
        )
        refuse(call)


WINDOW_OPTIONS = {
    "alpha": lambda m: m.hamming_window(6, True, 0.5, 0.4),
    "beta": lambda m: m.kaiser_window(6, False, 3.0),
    "requires_grad": lambda m: m.hann_window(3, requires_grad=True).requires_grad,
    "default dtype": lambda m: m.hann_window(3).dtype,
}


@pytest.mark.parametrize("name", WINDOW_OPTIONS)
def test_window_options(name):
    agree(WINDOW_OPTIONS[name])


# Short Fourier transforms.

SIGNALS = rng.standard_normal((3, 40))
COMPLEX = SIGNALS + 1j * rng.standard_normal((3, 40))
TRANSFORMS = {
    "plain": {},
    "hop": {"hop_length": 3},
    "not centred": {"center": False},
    "narrow": {"win_length": 5, "hop_length": 2},
    "normalized": {"normalized": True},
    "two sides": {"onesided": False},
    "circular": {"pad_mode": "circular"},
    "constant": {"pad_mode": "constant"},
    "pairs": {"return_complex": False},
    "aligned": {"center": False, "align_to_window": True, "win_length": 5, "hop_length": 2},
    "odd": {"n_fft": 9, "hop_length": 4},
}


def transformed(m, array, options, window=True):
    options = {"n_fft": 8, "return_complex": True, **options}
    x = m.tensor(array, requires_grad=True)
    width = options.get("win_length", options["n_fft"])
    values = m.arange(1.0, width + 1, dtype=m.float64) if window else None
    weights = None if values is None else values.requires_grad_()
    made = m.stft(x, window=weights, **options)
    loss = (made.abs() ** 2 * m.arange(made.numel()).reshape(made.shape)).sum()
    wanted = [x] if weights is None else [x, weights]
    return [made, *m.autograd.grad(loss, wanted)]


@pytest.mark.parametrize("name", TRANSFORMS)
def test_stft(name):
    for array in (SIGNALS, SIGNALS[0]):
        agree(lambda m, a=array: transformed(m, a, TRANSFORMS[name]), 1e-9, 1e-9)
        agree(lambda m, a=array: transformed(m, a, TRANSFORMS[name], window=False), 1e-9, 1e-9)


def test_stft_of_complex_numbers():
    agree(lambda m: transformed(m, COMPLEX, {"return_complex": None}), 1e-9, 1e-9)


@pytest.mark.parametrize("name", ["plain", "hop", "narrow", "normalized", "two sides", "odd"])
def test_istft_gives_the_signal_back(name):
    options = {"n_fft": 8, **TRANSFORMS[name]}
    n = options.get("win_length", options["n_fft"])
    window = weft.hann_window(n, dtype=weft.float64) + 0.1
    spectrum = weft.stft(weft.tensor(SIGNALS), window=window, return_complex=True, **options)
    made = weft.istft(spectrum, window=window, length=40, **options)
    np.testing.assert_allclose(made.numpy(), SIGNALS, atol=1e-12)


INVERSES = {
    "plain": {},
    "length": {"length": 17},
    "longer": {"length": 60},
    "not centred": {"center": False},
    "normalized": {"normalized": True},
    "narrow": {"win_length": 6},
    "no hop": {"hop_length": 0},
    "wide hop": {"hop_length": 9},
    "two sides": {"onesided": False},
    "n_fft": {"n_fft": 12},
    "wide window": {"win_length": 9},
    "complex": {"return_complex": True},
}
WRONG_INVERSES = ("no hop", "wide hop", "two sides", "n_fft", "wide window", "complex")
SPECTRUM = rng.standard_normal((2, 5, 11)) + 1j * rng.standard_normal((2, 5, 11))


@pytest.mark.parametrize("name", INVERSES)
def test_istft(name):
    def program(m, array):
        options = {"n_fft": 8, **INVERSES[name]}
        x = m.tensor(array, requires_grad=True)
        made = m.istft(x, **options)
        loss = (made**2 * m.arange(made.numel()).reshape(made.shape)).sum()
        return [made, m.autograd.grad(loss, x)]

    for array in (SPECTRUM, SPECTRUM[0]):
        is_wrong = name in WRONG_INVERSES
        agree_or_refuse(is_wrong, lambda m, a=array: program(m, a), 1e-9, 1e-9)


@pytest.mark.parametrize("complex_result", [True, False])
def test_istft_of_whole_spectra(complex_result):
    whole = np.concatenate([SPECTRUM, SPECTRUM[:, :3]], 1)
    agree(lambda m: m.istft(m.tensor(whole), 8, onesided=False, return_complex=complex_result), 1e-9, 1e-9)


SPECTRAL_ERRORS = {
    "no return_complex": lambda m: m.stft(m.ones(20), 8),
    "integers": lambda m: m.stft(m.ones(20, dtype=m.int64), 8, return_complex=True),
    "n_fft": lambda m: m.stft(m.ones(20), 80, center=False, return_complex=True),
    "hop": lambda m: m.stft(m.ones(20), 8, 0, return_complex=True),
    "width": lambda m: m.stft(m.ones(20), 8, win_length=9, return_complex=True),
    "window": lambda m: m.stft(m.ones(20), 8, window=m.ones(3), return_complex=True),
    "one side": lambda m: m.stft(m.ones(20) + 0j, 8, onesided=True),
    "rank": lambda m: m.stft(m.ones(2, 2, 20), 8, return_complex=True),
    "aligned": lambda m: m.stft(m.ones(20), 8, align_to_window=True, return_complex=True),
    "half": lambda m: m.stft(m.ones(20).half(), 8, return_complex=True),
    "real": lambda m: m.istft(m.ones(5, 11), 8),
    "empty": lambda m: m.istft(m.ones(5, 0) + 0j, 8),
    "zero windows": lambda m: m.istft(m.ones(5, 11) + 0j, 8, window=m.hann_window(8), center=False),
    "complex window": lambda m: m.istft(m.ones(5, 11) + 0j, 8, window=m.ones(8) + 0j),
}


@pytest.mark.parametrize("name", SPECTRAL_ERRORS)
def test_spectral_error(name):
    refuse(SPECTRAL_ERRORS[name])


# Ranges and dtypes.

NUMBERS = {
    "range": lambda m: [m.range(1, 4), m.range(1, 4, 0.5), m.range(4, 1, -1), m.range(0, 2.7)],
    "range of integers": lambda m: [m.range(1, 4, dtype=m.int32), m.range(0.5, 3, 1, dtype=m.int64)],
    "range the other way": lambda m: m.range(4, 1),
    "range without steps": lambda m: m.range(1, 4, 0),
    "range without end": lambda m: m.range(0, float("inf")),
    "range of one": lambda m: m.range(4),
    "range of truth": lambda m: m.range(1, 4, dtype=m.bool),
    "result_type": lambda m: [
        m.result_type(m.ones(2, dtype=m.int8), 1.0),
        m.result_type(1, 2.0),
        m.result_type(m.ones(2), m.ones(1, dtype=m.float64)),
        m.result_type(m.ones(2), m.tensor(1, dtype=m.float64)),
        m.result_type(3, m.tensor(True)),
    ],
    "result_type of text": lambda m: m.result_type("a", 1),
}


WRONG_NUMBERS = (
    "range the other way",
    "range without steps",
    "range without end",
    "range of one",
    "range of truth",
    "result_type of text",
)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    agree_or_refuse(name in WRONG_NUMBERS, NUMBERS[name])


# Histograms and runs: what PyTorch's samples leave out.

COUNTS = {
    "bins": lambda m: m.histogram(m.tensor([1.0, 2, 1, 5]), 4, range=(0.0, 3.0)),
    "edges": lambda m: m.histogram(m.tensor([1.0, 2, 3]), m.tensor([0.0, 1, 3]), density=True),
    "nothing": lambda m: m.histogram(m.ones(0), 4),
    "one value": lambda m: m.histogram(m.ones(3), 2),
    "NaN": lambda m: m.histogram(m.tensor([2.0, float("nan")]), 2),
    "NaN left out": lambda m: m.histogram(m.tensor([2.0, float("nan")]), 2, range=(0.0, 3.0)),
    "integers": lambda m: m.histogram(m.tensor([1, 2]), 4),
    "no bins": lambda m: m.histogram(m.ones(2), 0),
    "wrong range": lambda m: m.histogram(m.ones(2), 2, range=(3.0, 1.0)),
    "half a range": lambda m: m.histogram(m.ones(2), 2, range=(3.0,)),
    "weights": lambda m: m.histogram(m.ones(2), 2, weight=m.ones(3)),
    "other weights": lambda m: m.histogram(m.ones(2), 2, weight=m.ones(2).double()),
    "other edges": lambda m: m.histogram(m.ones(2), m.ones(2).double()),
    "matrix of edges": lambda m: m.histogram(m.ones(2), m.ones(2, 2)),
    "vector": lambda m: m.histogramdd(m.ones(3), 2),
    "too few bins": lambda m: m.histogramdd(m.ones(3, 2), [2]),
    "names": lambda m: [(h := m.histogram(m.ones(3), 2)).hist, h.bin_edges],
    "runs": lambda m: [
        m.segment_reduce(m.arange(6.0), r, lengths=m.tensor([2, 0, 4])) for r in ("sum", "mean", "max", "min", "prod")
    ],
    "runs from a number": lambda m: [
        m.segment_reduce(m.arange(6.0), r, lengths=m.tensor([2, 0, 4]), initial=2.5)
        for r in ("sum", "mean", "max", "min", "prod")
    ],
    "runs that do not fill": lambda m: m.segment_reduce(m.arange(6.0), "sum", lengths=m.tensor([2, 3])),
    "negative runs": lambda m: m.segment_reduce(m.arange(6.0), "sum", lengths=m.tensor([-1, 7])),
    "no runs": lambda m: m.segment_reduce(m.arange(6.0), "sum"),
    "other reductions": lambda m: m.segment_reduce(m.ones(2), "median", lengths=m.tensor([2])),
    "runs of integers": lambda m: m.segment_reduce(m.arange(6), "sum", lengths=m.tensor([6])),
    "indices": lambda m: m.segment_reduce(m.ones(2), "sum", indices=m.tensor([1, 0])),
}


WRONG_COUNTS = (
    "NaN",
    "integers",
    "no bins",
    "wrong range",
    "half a range",
    "weights",
    "other weights",
    "other edges",
    "matrix of edges",
    "vector",
    "too few bins",
    "runs that do not fill",
    "negative runs",
    "no runs",
    "other reductions",
    "runs of integers",
    "indices",
)


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name):
    agree_or_refuse(name in WRONG_COUNTS, COUNTS[name])


def test_runs_after_the_end_are_refused():
    with pytest.raises(RuntimeError, match="ends after the 6 elements"):
        weft.segment_reduce(weft.arange(6.0), "sum", offsets=weft.tensor([0, 2, 9]))


# Matrices of low rank.


@pytest.mark.parametrize("shape", [(7, 4), (4, 7), (2, 6, 9)])
@pytest.mark.parametrize("kind", ["float64", "complex128"])
def test_lowrank(shape, kind):
    left = rng.standard_normal((*shape[:-1], 3)) + (1j if kind == "complex128" else 0)
    a = left @ rng.standard_normal((*shape[:-2], 3, shape[-1]))
    made = weft.tensor(a)
    u, s, v = weft.svd_lowrank(made, 3)
    np.testing.assert_allclose((u * s.unsqueeze(-2)) @ v.mH, a, atol=1e-10)
    np.testing.assert_allclose(s, np.linalg.svd(a, compute_uv=False)[..., :3], rtol=1e-10)
    u, s, v = weft.pca_lowrank(made, 3)
    centred = a - a.mean(-2, keepdims=True)
    np.testing.assert_allclose((u * s.unsqueeze(-2)) @ v.mH, centred, atol=1e-10)


def test_lowrank_has_gradients():
    a = rng.standard_normal((6, 4))
    x = weft.tensor(a, requires_grad=True)
    _, s, _ = weft.svd_lowrank(x, 4, M=weft.ones(1, 4, dtype=weft.float64))
    (dx,) = weft.autograd.grad((s * s).sum(), x)
    np.testing.assert_allclose(dx, 2 * (a - 1), atol=1e-9)  # the sum of squares of A - M


def test_lowrank_refused():
    refuse(lambda m: m.pca_lowrank(m.ones(5, 3), 9))
    refuse(lambda m: m.pca_lowrank(m.ones(5, 3), 2, niter=-1))


# Files.


def test_from_file(tmp_path):
    path = tmp_path / "numbers"
    np.arange(16, dtype="float32").tofile(path)
    agree(lambda m: m.from_file(str(path), size=5))
    agree(lambda m: m.from_file(str(path), size=6, dtype=m.int16))
    refuse(lambda m: m.from_file(str(path), size=800))
    refuse(lambda m: m.from_file(str(tmp_path / "nothing"), size=8))
    own = weft.from_file(str(path), size=4)
    own[0] = 7
    assert np.fromfile(path, "float32")[0] == 0
    shared = weft.from_file(str(path), True, 20)
    shared[1] = 5
    assert np.fromfile(path, "float32")[[1, 3, 19]].tolist() == [5, 3, 0]


# Fourier transforms: what PyTorch's samples leave out.

FOURIER = {
    "fftfreq": lambda m: [m.fft.fftfreq(n, 0.5) for n in (1, 4, 7)],
    "rfftfreq": lambda m: [m.fft.rfftfreq(n, dtype=m.float64) for n in (1, 4, 7)],
    "half": lambda m: m.fft.fft(m.ones(4).half()),
    "norm": lambda m: m.fft.fft(m.ones(4), norm="other"),
    "no points": lambda m: m.fft.fft(m.ones(4), 0),
    "complex": lambda m: m.fft.rfft(m.ones(4) + 0j),
    "the same dimension": lambda m: m.fft.fftn(m.ones(4, 4), dim=(0, -2)),
    "too many sizes": lambda m: m.fft.fftn(m.ones(4), s=(2, 2)),
    "other sizes": lambda m: m.fft.fftn(m.ones(4, 4), s=(2, 2), dim=0),
    "integers": lambda m: m.fft.fft(m.arange(5)),
}


WRONG_FOURIER = ("half", "norm", "no points", "complex", "the same dimension", "too many sizes", "other sizes")


@pytest.mark.parametrize("name", FOURIER)
def test_fourier(name):
    agree_or_refuse(name in WRONG_FOURIER, FOURIER[name])
