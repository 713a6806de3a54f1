"""Models of open sizes for GPUs: a program for each class of sizes, whatever sizes those are. A driver of Python checks
every call, kernels run as what they mean in the interpreter, and values are PyTorch's."""

import gc

import numpy as np
import pytest
from oracles import oracle
from runtime.interpreted_cuda import interpreted
from runtime.test_cuda_executor import fake  # noqa: F401

import weft

torch = oracle("torch")
sym = weft.symbol
rng = np.random.default_rng(17)
F = torch.nn.functional
ARCHS = ["sm_90a", "sm_80"]
BOUND = {"fp32": 2e-5, "tf32": 5e-3, "fp16": 5e-3, "bf16": 4e-2}


@pytest.fixture
def gpu(fake):  # noqa: F811
    with interpreted(fake):
        yield fake
    gc.collect()


def drawn(*shape):
    return rng.standard_normal(shape).astype("float32")


def perceptron(x, into, b1, back, b2):
    hidden = sym.gelu(sym.dense(x, into, b1, units=32))
    return sym.dense(hidden, back, b2, units=16) + x


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_rows_of_products(gpu, arch, precision):
    params = {"into": drawn(32, 16), "b1": drawn(32), "back": drawn(16, 32), "b2": drawn(16)}
    symbol = perceptron(*map(sym.Variable, ("x", *params)))
    target = f"cuda -arch={arch}"
    model = weft.compile((symbol, params), shape={"x": ("n", "s", 16)}, target=target, precision=precision)
    wide = {name: torch.tensor(value).double() for name, value in params.items()}
    for shape in ((2, 5), (1, 1), (8, 3), (3, 8), (2, 5)):
        x = drawn(*shape, 16)
        t = torch.tensor(x).double()
        wanted = F.linear(F.gelu(F.linear(t, wide["into"], wide["b1"])), wide["back"], wide["b2"]) + t
        (found,) = model.run({"x": x})
        np.testing.assert_allclose(found, wanted.numpy(), atol=BOUND[precision] * np.abs(wanted.numpy()).max())
    assert model.compilations == 1
