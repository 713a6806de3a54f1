"""The whole path in seconds: a small network is composed, typed, written as an ONNX file, imported, compiled, run,
saved as a program and loaded again."""

import numpy as np

import weft
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.verify import verify
from weft.frontend import to_onnx


def network():
    x = weft.symbol.Variable("data")
    y = weft.symbol.conv2d(x, channels=4, kernel_size=(3, 3), padding=(1, 1), name="conv")
    y = weft.symbol.max_pool2d(weft.symbol.relu(y), pool_size=(2, 2), strides=(2, 2))
    y = weft.symbol.dense(weft.symbol.flatten(y), units=5, name="fc")
    return weft.symbol.softmax(y, name="prob")


def before_probabilities(data, weight, bias, fc_weight, fc_bias):
    """The same network with numpy alone, but for the softmax."""
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None]
    y = np.maximum(y, 0)
    n, c, h, w = y.shape
    y = y.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5)).reshape(n, -1)
    return y @ fc_weight.T + fc_bias


def by_hand(*values):
    y = before_probabilities(*values)
    e = np.exp(y - y.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def test_a_small_network_from_end_to_end():
    rng = np.random.default_rng(0)
    graph = infer(weft.graph.create(network()), {"data": (2, 3, 8, 8)}, {"data": np.dtype("f4")})
    facts = {n.name: graph.facts[n][0] for n in graph.indexed.nodes if n.op is None}
    values = {n: rng.standard_normal(f.shape).astype(f.dtype) for n, f in facts.items()}
    assert [f.shape for f in facts.values()] == [(2, 3, 8, 8), (4, 3, 3, 3), (4,), (5, 64), (5,)]
    expected = by_hand(*values.values())
    for made in (graph, weft.graph.load_json(graph.json()), graph.apply("SimplifyInference")):
        verify(made)
        np.testing.assert_allclose(evaluate(made, values)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_file_is_imported_compiled_run_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(1)
    shapes = {"conv_weight": (4, 3, 3, 3), "conv_bias": (4,), "fc_weight": (5, 64), "fc_bias": (5,)}
    params = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    data = rng.standard_normal((2, 3, 8, 8)).astype("float32")
    before_softmax = network().get_internals()["fc_output"]
    path = tmp_path / "tiny.onnx"
    path.write_bytes(to_onnx(before_softmax, params, shape={"data": data.shape}).SerializeToString())
    model = weft.compile(path)
    expected = before_probabilities(data, *params.values())
    np.testing.assert_allclose(model(data)[0], expected, rtol=1e-4, atol=1e-4)
    assert model.report().host_steps == ()
    model.save(tmp_path / "tiny.weft")
    loaded = weft.runtime.load(tmp_path / "tiny.weft")
    np.testing.assert_array_equal(loaded(data)[0], model(data)[0])
