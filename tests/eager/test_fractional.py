"""Pools at random places and transposed convolutions of volumes against PyTorch."""

import numpy as np
import pytest
from oracles import oracle

import weft


@pytest.fixture(scope="module")
def torch():
    return oracle("torch")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rank", [2, 3])
def test_pools_at_given_places(torch, rank, dtype):
    rng = np.random.default_rng(rank)
    for trial in range(12):
        sizes = rng.integers(3, 12, rank)
        kernel = tuple(int(rng.integers(1, min(4, n - 1) + 1)) for n in sizes)
        outs = tuple(int(rng.integers(1, n - k + 4 - rank)) for n, k in zip(sizes, kernel))
        lead = (2, 3) if trial % 3 else (3,)
        x = rng.standard_normal((*lead, *sizes)).astype(dtype)
        if trial % 4 == 0:
            x.flat[rng.integers(0, x.size, 4)] = np.nan
        samples = rng.random((len(x) if len(lead) == 2 else 1, 3, rank)).astype(dtype)
        found = []
        for library in (torch, weft):
            data = library.from_numpy(x.copy()).requires_grad_()
            pool = getattr(library.nn.functional, f"fractional_max_pool{rank}d")
            values, places = pool(data, kernel, outs, return_indices=True, _random_samples=library.from_numpy(samples))
            (values * values).sum().backward()
            found.append([values.detach().numpy(), places.numpy(), data.grad.numpy()])
        for a, b in zip(*found):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("rank", [2, 3])
def test_places_are_of_the_stream(torch, rank):
    x = np.random.default_rng(0).standard_normal((2, 3, *[9] * rank)).astype("float32")
    for array in (x, x[0]):
        found = []
        for library in (torch, weft):
            library.manual_seed(5)
            name = f"fractional_max_pool{rank}d_with_indices"
            pool = getattr(library.nn.functional, name)
            found.append(pool(library.from_numpy(array), 2, output_ratio=(0.5,) * rank))
        for a, b in zip(*found):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({}, ValueError),
        ({"output_size": (8, 9)}, RuntimeError),
        ({"output_size": (4,)}, RuntimeError),
        ({"output_size": (4, 4), "kernel_size": (2, 2, 2)}, RuntimeError),
        ({"output_size": (1, 1), "kernel_size": 10}, RuntimeError),
        ({"output_size": (4, 4), "_random_samples": (2, 3, 3)}, RuntimeError),
        ({"output_size": (4, 4), "_random_samples": (1, 3, 2)}, RuntimeError),
        ({"output_size": (4, 4), "shape": (8, 9)}, IndexError),
        ({"output_size": (4, 4), "shape": (2, 0, 8, 9)}, RuntimeError),
    ],
    ids=str,
)
def test_errors_of_pools(torch, options, kind):
    for library in (torch, weft):
        given = {"kernel_size": 2, **options}
        x = library.zeros(*given.pop("shape", (2, 3, 8, 9)))
        if "_random_samples" in given:
            given["_random_samples"] = library.zeros(*given["_random_samples"])
        with pytest.raises(kind):
            library.nn.functional.fractional_max_pool2d(x, **given)


VOLUMES = [
    ({}, 4),
    ({"stride": 2, "padding": 1, "output_padding": 1}, 4),
    ({"stride": (3, 1, 2), "padding": (0, 1, 1), "dilation": (2, 1, 2)}, 4),
    ({"groups": 2, "stride": (1, 2, 1), "output_padding": (0, 1, 0)}, 2),
]


@pytest.mark.parametrize(("options", "out"), VOLUMES, ids=str)
@pytest.mark.parametrize("biased", [False, True])
def test_transposed_volumes(torch, options, out, biased):
    rng = np.random.default_rng(0)
    shapes = [(2, 4, 3, 4, 5), (4, out, 3, 2, 3), (out * options.get("groups", 1),)]
    arrays = [rng.standard_normal(s) for s in shapes][: 2 + biased]
    found = []
    for library in (torch, weft):
        given = [library.from_numpy(a.copy()).requires_grad_() for a in arrays]
        made = library.nn.functional.conv_transpose3d(*given, **options)
        grads = library.autograd.grad((made**2).sum(), given, create_graph=True)
        twice = library.autograd.grad((grads[0] ** 2).sum(), given[:2])
        found.append([t.detach().numpy() for t in (made, *grads, *twice)])
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


def test_one_transposed_volume(torch):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 4, 5)), rng.standard_normal((2, 3, 2, 2, 2))
    a, b = (library.conv_transpose3d(library.from_numpy(x), library.from_numpy(w)).numpy() for library in (weft, torch))
    np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"output_padding": 1},
        {"stride": 2, "output_padding": 2},
        {"padding": 8},
        {"padding": -1},
        {"output_padding": -1},
        {"stride": 0},
        {"groups": 2},
    ],
    ids=str,
)
def test_errors_of_volumes(torch, options):
    for library in (torch, weft):
        x, w = library.zeros(1, 3, 4, 4, 4), library.zeros(3, 2, 2, 2, 2)
        with pytest.raises(RuntimeError):
            library.nn.functional.conv_transpose3d(x, w, **options)
