"""What is quantised becomes integer operators: which operators are left, and values against numpy and PyTorch."""

import numpy as np
import pytest
from oracles import oracle

import weft
import weft.passes
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.passes import apply_passes

rng = np.random.default_rng(41)
sym = weft.symbol


def levels(shape, dtype):
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


class Network:
    """A graph of levels, and the values of its variables."""

    def __init__(self):
        self.values, self.variables = {}, {}

    def put(self, name, value):
        self.values[name] = np.asarray(value)
        return self.variables.setdefault(name, sym.Variable(name))

    def numbers(self, name, shape, dtype, count=(), axis=0, zero=True):
        """Levels that stand for numbers, and those numbers."""
        scale = rng.uniform(0.01, 0.1, count).astype(np.float32)
        data, point = levels(shape, dtype), levels(count, dtype)
        inputs = [self.put(name, data), self.put(f"{name}_scale", scale)]
        inputs += [self.put(f"{name}_zero", point)] if zero else []
        spread = (-1, *(1,) * (len(shape) - 1 - axis)) if count else ()
        steps = data.astype(np.float64) - (point.reshape(spread) if zero else 0)
        return sym.dequantize(*inputs, axis=axis, use_zero=zero), steps * scale.reshape(spread)

    def ops(self, symbol):
        """The operators that are left after the pass."""
        read = {name: self.values[name] for name in symbol.list_input_names()}
        shapes, dtypes = ({name: getattr(value, fact) for name, value in read.items()} for fact in ("shape", "dtype"))
        graph = apply_passes(infer(Graph(symbol.outputs), shapes, dtypes), ("FuseQuantised",))
        return [node.op_name for node in graph.indexed.nodes if node.op is not None]

    def run(self, symbol, given=("x",)):
        inputs = {name: value for name, value in self.values.items() if name in given}
        params = {name: value for name, value in self.values.items() if name not in given}
        shapes, dtypes = ({name: getattr(v, k) for name, v in inputs.items()} for k in ("shape", "dtype"))
        model = weft.compile((symbol, params), shape=shapes, dtype=dtypes)
        return model.run(inputs)[0], [kernel.name for kernel in model.report().kernels]


def requantized(number, scale, zero):
    limits = np.iinfo(zero.dtype)
    return np.clip(np.rint(number / scale) + zero, limits.min, limits.max)


def within_one_level(found, wanted):
    assert found.dtype in (np.uint8, np.int8)
    gaps = np.abs(found.astype(np.int32) - wanted)
    assert gaps.max() <= 1
    assert (gaps > 0).mean() < 0.01  # numbers that float64 has on the other side of a half


@pytest.mark.parametrize(("x_kind", "w_kind"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("between", ["nothing", "relu", "clip"])
def test_convolution(x_kind, w_kind, many, between):
    torch, net = oracle("torch"), Network()
    x, x_numbers = net.numbers("x", (2, 5, 8, 7), x_kind)
    w, w_numbers = net.numbers("w", (18, 5, 3, 3), w_kind, (18,) if many else (), zero=w_kind == "uint8")
    both = net.values["x_scale"] * net.values["w_scale"]
    bias = rng.integers(-9999, 9999, 18).astype(np.int32)
    b = sym.dequantize(net.put("b", bias), net.put("b_scale", both), axis=0, use_zero=False)
    y = sym.conv2d(x, w, b, channels=18, kernel_size=(3, 3), padding=(1, 0, 1, 2), strides=(2, 1))
    padded = torch.nn.functional.pad(torch.tensor(x_numbers), (0, 2, 1, 1))
    wanted = torch.nn.functional.conv2d(padded, torch.tensor(w_numbers), torch.tensor(bias * both), stride=(2, 1))
    y = {"nothing": y, "relu": sym.relu(y), "clip": sym.clip(y, a_min=-3, a_max=6)}[between]
    low, high = {"nothing": (-np.inf, np.inf), "relu": (0, np.inf), "clip": (-3, 6)}[between]
    scale, zero = np.float32(0.3), levels((), x_kind)
    y = sym.quantize(y, net.put("y_scale", scale), net.put("y_zero", zero))
    ops = net.ops(y)
    assert "integer_conv" in ops
    assert not {"conv2d", "quantize", "dequantize", "requantize"} & set(ops)
    found, kernels = net.run(y)
    assert any("byte_conv2d" in name and "cast" in name for name in kernels)  # and its own epilogue
    within_one_level(found, requantized(wanted.numpy().clip(low, high), scale, zero))


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("operator", ["dense", "matmul"])
def test_products(operator, many):
    net = Network()
    x, x_numbers = net.numbers("x", (2, 9, 30), "uint8")
    count = (21,) if many else ()
    if operator == "dense":
        w, w_numbers = net.numbers("w", (21, 30), "int8", count, zero=False)
        bias = rng.normal(size=21).astype(np.float32)
        y = sym.dense(x, w, net.put("b", bias), units=21)
        wanted = x_numbers @ w_numbers.T + bias
    else:
        w, w_numbers = net.numbers("w", (30, 21), "int8", count, axis=1)
        y, wanted = sym.matmul(x, w), x_numbers @ w_numbers
    assert "integer_matmul" in net.ops(y)
    found, kernels = net.run(y)
    assert any("byte_matmul" in name for name in kernels)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_elements_that_move_stay_levels():
    """And what is quantised as it was before is not touched at all."""
    net = Network()
    x, _ = net.numbers("x", (1, 4, 6, 6), "uint8")
    y = sym.max_pool2d(x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))
    y = sym.transpose(sym.concatenate(y, y, axis=1), axes=(0, 2, 3, 1))
    y = sym.quantize(y, net.variables["x_scale"], net.variables["x_zero"])
    assert set(net.ops(y)) == {"max_pool2d", "concatenate", "transpose"}
    found, _ = net.run(y)
    padded = np.pad(net.values["x"], [(0, 0), (0, 0), (1, 1), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2].max((-1, -2))
    np.testing.assert_array_equal(found, np.concatenate([windows, windows], 1).transpose(0, 2, 3, 1))


def test_sum_of_two_scales_is_one_kernel():
    net = Network()
    a, a_numbers = net.numbers("x", (3, 40), "uint8")
    b, b_numbers = net.numbers("r", (3, 40), "int8")
    scale, zero = np.float32(0.2), np.uint8(100)
    y = sym.quantize(a + b, net.put("s", scale), net.put("z", zero))
    found, kernels = net.run(y, ("x", "r"))
    assert len(kernels) == 1
    within_one_level(found, requantized(a_numbers + b_numbers, scale, zero))


def test_what_is_of_no_use_stays_in_floats():
    """Weights with a scale for each input, levels of 16 bits, and products of two that are computed."""
    net = Network()
    x, _ = net.numbers("x", (1, 4, 6, 6), "uint8")
    other, _ = net.numbers("v", (8, 4, 1, 1), "int8", (4,), axis=1)
    wide, _ = net.numbers("u", (8, 4, 1, 1), "int16")
    attrs = {"channels": 8, "kernel_size": (1, 1), "use_bias": False}
    for y in (sym.conv2d(x, other, **attrs), sym.conv2d(x, wide, **attrs), sym.batch_matmul(x, x)):
        assert not {"integer_conv", "integer_matmul"} & set(net.ops(y))


def test_graphs_that_are_not_quantised_are_left_alone():
    graph = infer(Graph(sym.relu(sym.Variable("x")).outputs), {"x": (2, 3)}, {"x": np.dtype("float32")})
    assert apply_passes(graph, ("FuseQuantised",)).outputs == graph.outputs
