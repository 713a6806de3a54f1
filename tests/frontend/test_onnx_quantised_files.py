"""Files that ONNX Runtime's quantiser writes, against ONNX Runtime: a network with residual sums, pools and a
concatenation, one with filters of one channel each, and a transformer; their weights are random."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from oracles import oracle

import weft

rng = np.random.default_rng(31)


class Builder:
    """Nodes one after the other, and the weights they read."""

    def __init__(self):
        self.nodes, self.constants = [], {}

    def put(self, *shape, scale=1.0):
        name = f"c{len(self.constants)}"
        self.constants[name] = (rng.normal(size=shape) * scale).astype(np.float32)
        return name

    def ints(self, *values):
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(values, np.int64)
        return name

    def node(self, op_type, *inputs, **attrs):
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, list(inputs), [name], name=f"{op_type}_{name}", **attrs))
        return name

    def conv(self, x, inputs, outputs, size=1, groups=1, **attrs):
        weight = self.put(outputs, inputs // groups, size, size, scale=(inputs // groups * size * size) ** -0.5)
        pads = [size // 2] * 4
        return self.node("Conv", x, weight, self.put(outputs, scale=0.3), group=groups, pads=pads, **attrs)

    def linear(self, x, inputs, outputs):
        product = self.node("MatMul", x, self.put(inputs, outputs, scale=inputs**-0.5))
        return self.node("Add", product, self.put(outputs, scale=0.3))

    def model(self, shape, result):
        graph = helper.make_graph(
            self.nodes,
            "network",
            [helper.make_tensor_value_info("x", 1, shape)],
            [helper.make_tensor_value_info(result, 1, None)],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def residual():
    g, shape = Builder(), (2, 3, 13, 13)
    x = g.node("Relu", g.conv("x", 3, 12, 3, strides=[2, 2]))
    x = g.node("MaxPool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1])
    inner = g.conv(g.node("Relu", g.conv(x, 12, 12, 3)), 12, 12, 3)
    x = g.node("Relu", g.node("Add", x, inner))
    x = g.node("Concat", g.conv(x, 12, 20), x, axis=1)
    x = g.node("Flatten", g.node("GlobalAveragePool", x))
    return g.model(shape, g.node("Gemm", x, g.put(7, 32, scale=0.2), g.put(7), transB=1)), shape


def separable():
    g, shape = Builder(), (1, 3, 12, 12)
    x = g.node("Relu", g.conv("x", 3, 8, 3, strides=[2, 2]))
    x = g.node("Relu", g.conv(x, 8, 8, 3, groups=8))
    x = g.node("AveragePool", g.conv(x, 8, 17), kernel_shape=[2, 2], strides=[2, 2])
    x = g.node("Gemm", g.node("Flatten", x), g.put(5, 17 * 9, scale=0.1), g.put(5), transB=1)
    return g.model(shape, g.node("Sigmoid", x)), shape


def transformer():
    g, shape, width = Builder(), (2, 6, 16), 16
    norm = g.node("LayerNormalization", "x", g.put(width), g.put(width))
    heads = [g.node("Reshape", g.linear(norm, width, width), g.ints(2, 6, 2, 8)) for _ in range(3)]
    q, v = (g.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (heads[0], heads[2]))
    scores = g.node("Softmax", g.node("MatMul", q, g.node("Transpose", heads[1], perm=[0, 2, 3, 1])))
    mixed = g.node("Transpose", g.node("MatMul", scores, v), perm=[0, 2, 1, 3])
    x = g.node("Add", "x", g.linear(g.node("Reshape", mixed, g.ints(2, 6, width)), width, width))
    inner = g.node("Tanh", g.linear(x, width, 40))
    return g.model(shape, g.node("Add", x, g.linear(inner, 40, width))), shape


NETWORKS = {"residual": residual, "separable": separable, "transformer": transformer}


@pytest.fixture(scope="module", params=NETWORKS)
def network(request, tmp_path_factory):
    """A network in a file, the shape of its input, and where to write others."""
    model, shape = NETWORKS[request.param]()
    folder = tmp_path_factory.mktemp(request.param)
    onnx.save(model, folder / "network.onnx")
    return folder, shape


def quantised(folder, shape, **how):
    """The file that the quantiser writes after it has seen some inputs, or without."""
    quantiser = oracle("onnxruntime.quantization")
    written = folder / "quantised.onnx"
    if "format" not in how:
        quantiser.quantize_dynamic(folder / "network.onnx", written, weight_type=quantiser.QuantType[how["weights"]])
        return written

    class Seen(quantiser.CalibrationDataReader):
        def __init__(self):
            self.inputs = iter([{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(3)])

        def get_next(self):
            return next(self.inputs, None)

    quantiser.quantize_static(
        folder / "network.onnx",
        written,
        Seen(),
        quant_format=quantiser.QuantFormat[how["format"]],
        per_channel=how["per_channel"],
        activation_type=quantiser.QuantType[how["activations"]],
        weight_type=quantiser.QuantType[how["weights"]],
    )
    return written


def onnxruntime_says(path, x):
    """Node by node, as the file has them."""
    ort = oracle("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options).run(None, {"x": x})[0]


def last_step(path):
    """The scale of the levels that the result was last rounded to, if it was."""
    model = onnx.load(path)
    constants = {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}
    last = model.graph.node[-1]
    return float(constants[last.input[1]].max()) if last.op_type == "DequantizeLinear" else 0.0


def check(path, shape):
    x = rng.normal(size=shape).astype(np.float32)
    wanted = onnxruntime_says(path, x)
    model = weft.compile(path)
    found = model.run({"x": x})[0]
    # Means of levels often stand just between two of them, and may fall to either.
    step = last_step(path)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5 + 2.01 * step)
    assert np.abs(found - wanted).mean() <= 1e-5 + 0.7 * step
    return [kernel.name for kernel in model.report().kernels]


STATIC = [
    ("QDQ", False, "QUInt8", "QInt8"),
    ("QDQ", True, "QInt8", "QInt8"),
    ("QDQ", True, "QUInt8", "QUInt8"),
    ("QOperator", True, "QUInt8", "QInt8"),
    ("QOperator", False, "QInt8", "QInt8"),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "per_channel", "activations", "weights"), STATIC)
def test_levels_that_are_known(network, kind, per_channel, activations, weights):
    how = {"format": kind, "per_channel": per_channel, "activations": activations, "weights": weights}
    kernels = check(quantised(*network, **how), network[1])
    assert sum("byte_conv2d" in name or "byte_matmul" in name for name in kernels) >= 2


@pytest.mark.parametrize("weights", ["QInt8", "QUInt8"])
def test_levels_that_follow_from_the_data(network, weights):
    kernels = check(quantised(*network, weights=weights), network[1])
    assert any("byte_conv2d" in name or "byte_matmul" in name for name in kernels)
