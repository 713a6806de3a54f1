"""The whole path in seconds: a small network is composed, typed, optimised, saved, loaded, run."""

import numpy as np

import weft
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.verify import verify


def network():
    x = weft.symbol.Variable("data")
    y = weft.symbol.conv2d(x, channels=4, kernel_size=(3, 3), padding=(1, 1), name="conv")
    y = weft.symbol.max_pool2d(weft.symbol.relu(y), pool_size=(2, 2), strides=(2, 2))
    y = weft.symbol.dense(weft.symbol.flatten(y), units=5, name="fc")
    return weft.symbol.softmax(y, name="prob")


def by_hand(data, weight, bias, fc_weight, fc_bias):
    """The same network with numpy alone."""
    padded = np.pad(data, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None]
    y = np.maximum(y, 0)
    n, c, h, w = y.shape
    y = y.reshape(n, c, h // 2, 2, w // 2, 2).max((3, 5)).reshape(n, -1)
    y = y @ fc_weight.T + fc_bias
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
