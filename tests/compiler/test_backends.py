"""The seam of backends: one that weft does not know compiles and runs networks, by blocks and threads, with shared
memory and barriers. The values are PyTorch's."""

from pathlib import Path

import numpy as np
import pytest
from compiler import toy_backend
from compiler.toy_backend import TOY
from oracles import oracle

import weft
from weft.base.errors import InvalidValue
from weft.base.target import Target
from weft.compiler.backends import register_backend
from weft.runtime.loading import load_executor
from weft.te.grid import grid_of
from weft.te.loops import Barrier
from weft.te.simplify_loops import statements

torch = oracle("torch")
rng = np.random.default_rng(7)
sym = weft.symbol


@pytest.fixture(autouse=True)
def toy():
    register_backend(TOY)


def randoms(**shapes):
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def perceptron(net):
    h = net.relu(net.dense("x", "w1", "b1", 5))
    return net.dense(h, "w2", "b2", 3), {"x": (3, 4), "w1": (5, 4), "b1": (5,), "w2": (3, 5), "b2": (3,)}


def convolutional(net):
    h = net.relu(net.conv("x", "w1", "b1", 3))
    h = net.pool(h)
    shapes = {"x": (1, 2, 6, 6), "w1": (3, 2, 3, 3), "b1": (3,), "w2": (4, 12), "b2": (4,)}
    return net.dense(net.flatten(h), "w2", "b2", 4), shapes


def residual(net):
    h = net.norm("x", "g", "b")
    h = net.sigmoid(net.dense(h, "w1", "b1", 6))
    h = net.add(net.dense(h, "w2", "b2", 4), "x")
    shapes = {"x": (2, 4), "g": (4,), "b": (4,), "w1": (6, 4), "b1": (6,), "w2": (4, 6), "b2": (4,)}
    return net.join(h, "x"), shapes


class Symbols:
    """The layers as weft's symbols."""

    def __init__(self):
        self.v = lambda x: sym.Variable(x) if isinstance(x, str) else x

    relu, sigmoid = staticmethod(sym.relu), staticmethod(sym.sigmoid)
    flatten = staticmethod(sym.flatten)
    pool = staticmethod(lambda x: sym.max_pool2d(x, pool_size=(2, 2), strides=(2, 2)))
    dense = lambda self, x, w, b, units: sym.dense(self.v(x), self.v(w), self.v(b), units=units)
    conv = lambda self, x, w, b, n: sym.conv2d(self.v(x), self.v(w), self.v(b), channels=n, kernel_size=(3, 3))
    norm = lambda self, x, g, b: sym.layer_norm(self.v(x), self.v(g), self.v(b))
    add = lambda self, a, b: sym.broadcast_add(self.v(a), self.v(b))
    join = lambda self, a, b: sym.concatenate(self.v(a), self.v(b), axis=1)


class Tensors:
    """The same layers as PyTorch's functions."""

    def __init__(self, values):
        self.values = {name: torch.from_numpy(value) for name, value in values.items()}
        self.v = lambda x: self.values[x] if isinstance(x, str) else x

    relu = staticmethod(lambda x: torch.relu(x))
    sigmoid = staticmethod(lambda x: torch.sigmoid(x))
    flatten = staticmethod(lambda x: torch.flatten(x, 1))
    pool = staticmethod(lambda x: torch.nn.functional.max_pool2d(x, 2))
    dense = lambda self, x, w, b, units: torch.nn.functional.linear(self.v(x), self.v(w), self.v(b))
    conv = lambda self, x, w, b, n: torch.nn.functional.conv2d(self.v(x), self.v(w), self.v(b))
    norm = lambda self, x, g, b: torch.nn.functional.layer_norm(self.v(x), (4,), self.v(g), self.v(b))
    add = lambda self, a, b: self.v(a) + self.v(b)
    join = lambda self, a, b: torch.cat([self.v(a), self.v(b)], 1)


@pytest.mark.parametrize("network", [perceptron, convolutional, residual])
@pytest.mark.parametrize("target", ["toy", "toy -threads=3"])
def test_networks_on_a_backend_from_outside(network, target):
    symbol, shapes = network(Symbols())
    values = randoms(**shapes)
    params = {name: value for name, value in values.items() if name != "x"}
    model = weft.compile((symbol, params), shape={"x": shapes["x"]}, target=target)
    (found,) = model.run({"x": values["x"]})
    wanted, _ = network(Tensors(values))
    np.testing.assert_allclose(found, wanted.numpy(), rtol=2e-5, atol=2e-5)
    (bound,) = model.bind({"x": values["x"]})()
    np.testing.assert_array_equal(bound, found)
    kernels = load_executor(model.program).kernels.values()
    assert all(grid_of(kernel) is not None for kernel in kernels)
    shared = [k for k in kernels if any(isinstance(s, Barrier) for s in statements(k.body))]
    assert shared  # dense goes through memory that a block shares
    assert {slot.device.type for slot in model.program.plan.slots} == {"toy"}
    assert any(step.launch.threads[0] > 1 for step in model.program.plan.steps)
    assert "loops" in str(model.report())


def test_a_program_is_for_its_backend_alone():
    symbol, shapes = perceptron(Symbols())
    model = weft.compile(symbol, shape=shapes, target="toy")
    assert model.program.target == "toy -threads=8"
    with pytest.raises(InvalidValue, match="unknown target 'abacus'"):
        weft.compile(symbol, shape=shapes, target="abacus")
    assert Target.create("toy", threads=4).threads == 4


def test_the_backend_fits_on_a_page_or_three():
    assert len(Path(toy_backend.__file__).read_text().splitlines()) < 150
