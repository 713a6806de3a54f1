"""The comparison of modules finds what differs; networks of one's own behave as PyTorch's do."""

import warnings

import numpy as np
import pytest
from oracles import oracle
from twin_modules import compare

import weft

rng = np.random.default_rng(0)


def affine(lib, wrong=False):
    """A network of one's own with everything that a module can hold."""

    class Affine(lib.nn.Module):
        def __init__(self, size):
            super().__init__()
            self.weight = lib.nn.Parameter(lib.randn(size, size))
            self.frozen = lib.nn.Parameter(lib.randn(size), requires_grad=False)
            self.register_parameter("bias", None)
            self.register_buffer("mean", lib.zeros(size))
            self.register_buffer("calls", lib.tensor(0))
            self.register_buffer("scratch", lib.ones(1), persistent=False)

        def forward(self, x, scale=1.0):
            self.calls += 1
            if self.training:
                self.mean = 0.5 * self.mean + x.detach().mean(0)
            y = lib.nn.functional.linear(x, self.weight) * scale + self.frozen - self.mean
            return y + 1 if wrong else y

        def extra_repr(self):
            return f"size={len(self.mean)}"

    inner = lib.nn.ModuleDict({"first": Affine(3), "again": lib.nn.ModuleList([Affine(3), Affine(3)])})

    class Net(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = inner
            self.shared = inner["first"]

        def forward(self, x, scale=1.0):
            a = self.parts["first"](x, scale=scale)
            return a, {"last": [self.shared(a), self.parts["again"][1](a)]}

    return Net()


def test_networks_are_compared_with_their_twins():
    x = rng.normal(size=(4, 3)).astype("float32")
    compare(affine, inputs=(x,), named_inputs={"scale": np.float32(rng.normal(size=(3,)))}, pickled=False)


def test_a_difference_is_found():
    x = rng.normal(size=(4, 3)).astype("float32")
    with pytest.raises(AssertionError, match="output 0"):
        compare(lambda lib: affine(lib, wrong=lib is weft), inputs=(x,))


def test_a_draw_that_differs_is_found():
    def net(lib):
        if lib is weft:
            lib.randn(1)
        return affine(lib)

    oracle("torch")
    with pytest.raises(AssertionError, match=r"parts\.first\.weight"):
        compare(net)


def convolutional(lib):
    nn = lib.nn
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.3), nn.Flatten(),
        nn.Linear(16, 3), nn.LogSoftmax(1),
    )  # fmt: skip


def orthogonal(lib):
    return lib.nn.utils.parametrizations.orthogonal(lib.nn.Linear(3, 2))


def with_norms(lib):
    net = lib.nn.Sequential(lib.nn.Conv1d(3, 4, 2), lib.nn.Tanh(), lib.nn.ConvTranspose1d(4, 2, 3))
    lib.nn.utils.parametrizations.weight_norm(net[0])
    lib.nn.utils.parametrizations.spectral_norm(net[2])
    return lib.nn.DataParallel(net)


NETWORKS = {
    "convolutional": (convolutional, (3, 2, 4, 4)),
    "orthogonal": (orthogonal, (4, 3)),
    "norms": (with_norms, (2, 3, 5)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_layers(name):
    build, shape = NETWORKS[name]
    compare(
        build, inputs=(rng.normal(size=shape).astype("float32"),), randomised=name != "orthogonal", rtol=1e-3, atol=1e-4
    )


def test_lazy_layers_become_others():
    x = rng.normal(size=(4, 5)).astype("float32")

    def build(lib):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's, on lazy modules as such
            net = lib.nn.Sequential(lib.nn.LazyLinear(6), lib.nn.LazyBatchNorm1d())
        net(lib.from_numpy(x))
        return net

    compare(build, inputs=(x,), rtol=1e-3, atol=1e-4)
