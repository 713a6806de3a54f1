"""Gradients of convolutions by the sizes of their arguments are PyTorch's."""

import numpy as np
import pytest
from oracles import oracle

import weft

rng = np.random.default_rng(0)

OPTIONS = [{}, {"stride": 2, "padding": 1}, {"stride": 2, "dilation": 2, "padding": 2, "groups": 2}]


@pytest.mark.parametrize("what", ["input", "weight"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_gradients_of_convolutions(rank, options, what):
    torch = oracle("torch")
    x = rng.normal(size=(2, 4, *(6, 5, 7)[:rank])).astype("float32")
    w = rng.normal(size=(6, 4 // options.get("groups", 1), *(3, 2, 3)[:rank])).astype("float32")
    y = getattr(torch.nn.functional, f"conv{rank}d")(torch.from_numpy(x), torch.from_numpy(w), **options)
    g = rng.normal(size=tuple(y.shape)).astype("float32")
    results = []
    for lib in (weft, torch):
        function = getattr(lib.nn.grad, f"conv{rank}d_{what}")
        first, second = (x.shape, lib.from_numpy(w)) if what == "input" else (lib.from_numpy(x), w.shape)
        results.append(function(first, second, lib.from_numpy(g), **options).numpy())
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-4)


def test_names_of_types():
    theirs = oracle("torch").nn.common_types
    for name in ("_size_1_t", "_size_2_t", "_size_3_t", "_size_any_t", "_ratio_2_t", "_size_2_opt_t"):
        assert set(getattr(weft.nn.common_types, name).__args__) == set(getattr(theirs, name).__args__)
