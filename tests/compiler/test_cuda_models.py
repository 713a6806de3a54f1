"""Whole models for GPUs without one: code is made as for a device, a driver of Python checks every call, and kernels
run as their loops do in the interpreter. Values are PyTorch's and numpy's."""

import gc

import numpy as np
import pytest
from compiler.test_backends import Symbols, Tensors, convolutional, perceptron, randoms, residual
from oracles import oracle
from runtime.interpreted_cuda import interpreted
from runtime.test_cuda_executor import fake  # noqa: F401

import weft
from weft.runtime.cuda.array import DeviceArray, to_device

torch = oracle("torch")
sym = weft.symbol
rng = np.random.default_rng(21)


@pytest.fixture
def gpu(fake):  # noqa: F811
    with interpreted(fake):
        yield fake
    gc.collect()


def compiled(symbol, params, shapes):
    return weft.compile((symbol, params), shape=shapes, target="cuda -arch=sm_90a")


@pytest.mark.parametrize("network", [perceptron, convolutional, residual])
def test_networks(gpu, network):
    symbol, shapes = network(Symbols())
    values = randoms(**shapes)
    params = {name: value for name, value in values.items() if name != "x"}
    model = compiled(symbol, params, {"x": shapes["x"]})
    wanted = network(Tensors(values))[0].numpy()
    np.testing.assert_allclose(model.run({"x": values["x"]})[0], wanted, rtol=2e-5, atol=2e-5)
    (found,) = model.run({"x": to_device(values["x"])}, out="cuda")
    assert isinstance(found, DeviceArray)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=2e-5)
    assert gpu.calls.count("cuGraphLaunch") == 2


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16"])
@pytest.mark.parametrize("network", [perceptron, convolutional, residual])
def test_precisions_of_networks(gpu, network, precision):
    """Inputs and outputs stay float32; what is between them differs by what 16 bits do."""
    symbol, shapes = network(Symbols())
    values = randoms(**shapes)
    params = {name: value for name, value in values.items() if name != "x"}
    model = weft.compile((symbol, params), shape={"x": shapes["x"]}, target="cuda -arch=sm_90a", precision=precision)
    wanted = network(Tensors(values))[0].numpy()
    (found,) = model.run({"x": values["x"]})
    assert found.dtype == np.float32
    off = np.abs(found - wanted).max()
    assert off <= 0.02 * np.abs(wanted).max()
    assert off > 0 or precision == "tf32"


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_one_token_over_a_cache(gpu, precision):
    """Products of one row, attention of one query by two chunks of 66 keys, all in one graph."""
    names = {"x": (1, 12), "k": (1, 2, 66, 6), "v": (1, 2, 66, 6), "into": (12, 12), "back": (12, 10), "b": (12,)}
    given = {name: sym.Variable(name, shape=shape) for name, shape in names.items()}
    query = sym.reshape(sym.dense(given["x"], given["into"], given["b"], units=12), shape=(1, 2, 1, 6))
    mixed = sym.reshape(sym.scaled_dot_product_attention(query, given["k"], given["v"]), shape=(1, 12))
    values = randoms(**names)
    params = {name: values[name] for name in ("into", "back", "b")}
    target = {"fp32": "cuda -arch=sm_80", "fp16": "cuda -arch=sm_90a"}[precision]
    model = weft.compile((sym.relu(sym.matmul(mixed, given["back"])), params), target=target, precision=precision)
    (found,) = model.run({name: values[name] for name in "xkv"})
    wide = {name: torch.tensor(value).double() for name, value in values.items()}
    made = torch.nn.functional.linear(wide["x"], wide["into"], wide["b"]).reshape(1, 2, 1, 6)
    made = torch.nn.functional.scaled_dot_product_attention(made, wide["k"], wide["v"]).reshape(1, 12)
    wanted = (made @ wide["back"]).relu().numpy()
    np.testing.assert_allclose(found, wanted, atol={"fp32": 2e-5, "fp16": 2e-2}[precision])
    assert gpu.calls.count("cuGraphLaunch") == 1


def test_masks_and_indices_in_float16(gpu):
    """A mask of float32's least number is finite in 16 bits; numbers that become indices stay float32 until then."""
    x, keep, at = sym.Variable("x", shape=(3, 5)), sym.Variable("keep", shape=(3, 5)), sym.Variable("at", shape=(2,))
    scores = x + (1.0 - keep) * sym.Variable("least", shape=(1,))
    made = sym.Group([sym.softmax(scores), sym.take(sym.Variable("rows"), sym.cast(at, dtype="int32"), axis=0)])
    rows = rng.standard_normal((4001, 2)).astype("float32")
    params = {"least": np.float32([np.finfo("float32").min]), "rows": rows}
    model = weft.compile((made, params), target="cuda -arch=sm_90a", precision="fp16")
    given = {"x": rng.standard_normal((3, 5)).astype("float32"), "keep": np.float32(rng.random((3, 5)) < 0.6)}
    given["keep"][:, 0] = 1
    weights, taken = model.run({**given, "at": np.float32([3001, 2999])})
    masked = torch.tensor(given["x"]).masked_fill(torch.tensor(given["keep"]) == 0, -torch.inf)
    np.testing.assert_allclose(weights, masked.softmax(1).numpy(), atol=2e-3)
    np.testing.assert_allclose(taken, rows[[3001, 2999]], rtol=1e-3, atol=1e-4)


def test_precisions_that_a_target_has_not(gpu):
    x = sym.Variable("x", shape=(2,))
    with pytest.raises(weft.Error, match=r"fp16-weights.*\n.*'tf32', 'fp16', 'bf16'"):
        weft.compile(sym.exp(x), target="cuda", precision="fp16-weights")
    with pytest.raises(weft.Error, match=r"'fp16'.*\n.*'fp16-weights'"):
        weft.compile(sym.exp(x), precision="fp16")


def test_open_sizes(gpu):
    symbol, shapes = perceptron(Symbols())
    values = randoms(**shapes)
    params = {name: value for name, value in values.items() if name != "x"}
    model = compiled(symbol, params, {"x": ("n", 4)})
    for n in (3, 1, 6, 3):
        x = rng.standard_normal((n, 4)).astype("float32")
        wanted = perceptron(Tensors({**values, "x": x}))[0].numpy()
        np.testing.assert_allclose(model.run({"x": x})[0], wanted, rtol=2e-5, atol=2e-5)
        (found,) = model.run({"x": to_device(x)}, out="cuda")
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=2e-5)


def test_operators_without_kernels_run_on_the_host_between_graphs(gpu):
    """An inverse, which no kernel computes, between two that kernels do."""
    x = sym.Variable("x", shape=(4, 4))
    model = compiled(sym.exp(sym.inverse(x + x)), {}, {"x": (4, 4)})
    values = (rng.standard_normal((4, 4)) + 4 * np.eye(4)).astype("float32")
    wanted = np.exp(np.linalg.inv(2 * values))
    for given, out in ((values, None), (to_device(values), "cuda")):
        (found,) = model.run({"x": given}, out=out)
        np.testing.assert_allclose(found if out is None else found.numpy(), wanted, rtol=1e-5, atol=1e-5)
    assert "1 host step" in str(model.report())
    assert gpu.calls.count("cuGraphLaunch") == 4


def test_saved_programs(gpu, tmp_path):
    symbol, shapes = residual(Symbols())
    values = randoms(**shapes)
    params = {name: value for name, value in values.items() if name != "x"}
    model = compiled(symbol, params, {"x": shapes["x"]})
    model.save(tmp_path / "model.weft")
    loaded = weft.runtime.load(tmp_path / "model.weft")
    (found,) = loaded.run({"x": values["x"]})
    np.testing.assert_array_equal(found, model.run({"x": values["x"]})[0])
    np.testing.assert_allclose(found, residual(Tensors(values))[0].numpy(), rtol=2e-5, atol=2e-5)
    assert "DeviceArray" in repr(loaded.run({"x": values["x"]}, out="cuda")[0])
    assert len(loaded.profile(values["x"], rounds=1).steps) == len(model.program.plan.steps)
