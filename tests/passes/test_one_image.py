"""Graphs of several images become graphs of one, unless an operator mixes images."""

import numpy as np
import pytest

import weft.symbol as sym
from weft.compiler.prepare import typed_graph
from weft.core.graph import Graph
from weft.core.interpret import evaluate
from weft.passes.one_image import one_image

COUNT = 3


def network(x):
    y = sym.conv2d(x, channels=8, kernel_size=(3, 3), padding=(1, 1), name="c")
    y = sym.relu(sym.batch_norm(y, name="b")[0])
    y = sym.concatenate(y, sym.max_pool2d(y, pool_size=(3, 3), strides=(1, 1), padding=(1, 1)), axis=1)
    gate = sym.sigmoid(sym.mean(y, axis=(2, 3), keepdims=True))
    y = sym.mean(sym.broadcast_mul(y, gate), axis=(2, 3))
    return sym.dense(sym.reshape(y, shape=(COUNT, 16)), units=5, name="d")


def typed(symbol, shape=(COUNT, 4, 6, 6)):
    return typed_graph(symbol, {}, {"x": shape}, {})


def values_of(graph, seed=0):
    random = np.random.default_rng(seed)
    nodes = [graph.indexed.nodes[number] for number in graph.indexed.variables]
    facts = graph.facts
    return {node.name: random.uniform(0.5, 1.5, facts[node][0].shape).astype("float32") for node in nodes}


def test_the_graph_of_one_image_gives_each_its_result():
    graph = typed(network(sym.Variable("x")))
    count, alone = one_image(graph, ["x"])
    assert count == COUNT
    assert alone.fact(alone.outputs[0]).shape == (1, 5)
    values = values_of(graph)
    (whole,) = evaluate(graph, values)
    for image in range(COUNT):
        (part,) = evaluate(alone, {**values, "x": values["x"][image : image + 1]})
        np.testing.assert_allclose(part[0], whole[image], rtol=2e-5)


MIXING = {
    "softmax over images": lambda x: sym.softmax(x, axis=0),
    "mean of all": lambda x: sym.broadcast_add(x, sym.mean(x, axis=(0,), keepdims=True)),
    "moments of the batch": lambda x: sym.batch_norm(x, training=True, name="b")[0],
    "images side by side": lambda x: sym.transpose(x, axes=(1, 0, 2, 3)),
    "joined along images": lambda x: sym.concatenate(x, x, axis=0),
    "images reordered": lambda x: sym.flip(x, axis=0),
    "a weight for each image": lambda x: sym.broadcast_add(x, sym.Variable("w", shape=(COUNT, 1, 1, 1))),
    "an operator that is not known": lambda x: sym.cumsum(x, axis=0),
    "images of filters": lambda x: sym.conv2d(
        sym.Variable("y", shape=(COUNT, 4, 6, 6)), x, channels=COUNT, kernel_size=(6, 6), use_bias=False
    ),
}


@pytest.mark.parametrize("name", MIXING)
def test_images_that_are_mixed_stay_together(name):
    assert one_image(typed(MIXING[name](sym.Variable("x"))), ["x"]) is None


def test_one_image_alone_has_no_other_form():
    assert one_image(typed(sym.relu(sym.Variable("x")), (1, 4, 6, 6)), ["x"]) is None
    both = Graph(sym.Group([sym.relu(sym.Variable("x")), sym.Variable("z", shape=(2, 2))]).outputs)
    assert one_image(typed_graph(both, {}, {"x": (COUNT, 4, 6, 6), "z": (2, 2)}, {}), ["x", "z"]) is None
