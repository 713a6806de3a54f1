"""Channels that reach little beside others, and which products stay floats: against numpy's own levels."""

import numpy as np
import pytest

import weft
from weft.compiler.quantise.equalise import Reach, equalised
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.ir import NodeEntry

rng = np.random.default_rng(78)
sym = weft.symbol
CHANNELS = 32
UNEVEN = (2.0 ** -(np.arange(CHANNELS) % 8)).astype("f")  # what channels reach


def normal(*shape):
    return rng.standard_normal(shape).astype("f")


def decibels(wanted, found):
    return 10 * np.log10(np.square(wanted, dtype="d").sum() / np.square(wanted - found, dtype="d").sum())


def in_levels(x, axes, ends):
    """Numbers as the nearest of so many levels on either side of zero, of one scale for the axes."""
    step = np.abs(x).max(axes, keepdims=True) / ends
    return np.rint(x / step) * step


def products():
    """By name: a product of x, its parameters, x with uneven channels, and the same in float64 of any x and weight."""
    rows, image = (64, CHANNELS), (2, CHANNELS, 9, 8)
    wide, deep = normal(16, CHANNELS) / UNEVEN, normal(CHANNELS, 1, 1, 1) / UNEVEN[:, None, None, None]
    x, y = normal(*rows) * UNEVEN, normal(*image) * UNEVEN[:, None, None]
    data = sym.Variable("x")
    plain = {"use_bias": False, "name": "p"}
    dense = sym.dense(data, sym.Variable("w"), units=16, **plain)
    matmul = sym.matmul(data, sym.Variable("w"), name="p")
    conv = sym.conv2d(data, sym.Variable("w"), channels=16, kernel_size=(1, 1), **plain)
    alone = sym.conv2d(data, sym.Variable("w"), channels=CHANNELS, groups=CHANNELS, kernel_size=(1, 1), **plain)
    mixed = lambda x, w: np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    return {
        "dense": (dense, wide, x, lambda x, w: x @ w.T),
        "matmul": (matmul, np.ascontiguousarray(wide.T), x, lambda x, w: x @ w),
        "conv2d": (conv, wide[:, :, None, None], y, mixed),
        "one filter for each channel": (alone, deep, y, lambda x, w: x * w[:, 0, 0, 0, None, None]),
    }


@pytest.mark.parametrize("name", products())
def test_small_channels_use_as_many_levels(name):
    symbol, weight, x, product = products()[name]
    wanted = product(x.astype("d"), weight.astype("d"))
    axis = 0 if name == "matmul" else tuple(range(1, weight.ndim))
    plain = product(in_levels(x, None, 127), in_levels(weight, axis, 127))
    made = weft.quantize((symbol, {"w": weight}), [x], shape={"x": x.shape}, least_decibels=0)
    found = weft.compile(made, shape={"x": x.shape})(x)[0]
    assert len(made.report.layers) == 1
    assert decibels(wanted, found) > decibels(wanted, plain) + 6


@pytest.mark.parametrize("name", products())
def test_the_same_numbers_in_floats(name):
    """By the references of operators, with what channels reach at random, and with channels that nothing reaches."""
    symbol, weight, x, _ = products()[name]
    graph = infer(
        Graph(symbol.outputs), {"x": x.shape, "w": weight.shape}, dict.fromkeys(("x", "w"), np.dtype("float32"))
    )
    node = graph.outputs[0].node
    reached = rng.uniform(0.5, 2, CHANNELS) * UNEVEN
    reached[::5] = 0
    made, params = equalised(
        graph, {"w": weight}, [node], {NodeEntry(node).node.inputs[0]: Reach(reached, reached / 3)}
    )
    assert "broadcast_mul" in [node.op_name for node in made.indexed.nodes]
    expected = evaluate(symbol, {"x": x, "w": weight})[0]
    found = evaluate(weft.core.symbol.Symbol(made.outputs), {**params, "x": x})[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_even_channels_stay_as_they_are():
    x, weight = normal(64, CHANNELS), normal(16, CHANNELS)
    made = weft.quantize((products()["dense"][0], {"w": weight}), [x], shape={"x": x.shape})
    assert "broadcast_mul" not in {node.op_name for node in Graph(made.symbol.outputs).indexed.nodes}


def test_what_loses_most_by_itself_stays_in_floats():
    """The second of two products reads a number far from all others, and multiplies it with zeros."""
    x, far = normal(64, CHANNELS), np.zeros((64, CHANNELS), "f")
    far[5, 7] = 300
    weights = {f"w{k}": normal(CHANNELS, CHANNELS) for k in range(2)}
    weights["w1"][:, 7] = 0
    sides = [sym.Variable("x"), sym.broadcast_add(sym.Variable("x"), sym.Variable("far"))]
    dense = [
        sym.dense(side, sym.Variable(f"w{k}"), units=CHANNELS, use_bias=False, name=f"p{k}")
        for k, side in enumerate(sides)
    ]
    y = sym.broadcast_add(*dense)
    made = weft.quantize((y, {**weights, "far": far}), [x, x + 1], shape={"x": x.shape})
    assert [row.name for row in made.report.layers] == ["p0"]
    wanted = x.astype("d") @ (weights["w0"] + weights["w1"].astype("d")).T
    assert decibels(wanted, weft.compile(made, shape={"x": x.shape})(x)[0]) > 30


@pytest.mark.parametrize("last", ["softmax", "sigmoid"])
def test_probabilities_are_judged_by_what_they_are_made_of(last):
    """Which is what the same model without its last operator loses, over all batches."""
    weight, batches = normal(16, CHANNELS), [normal(8, CHANNELS) for _ in range(3)]
    y = sym.dense(sym.Variable("x"), sym.Variable("w"), units=16, use_bias=False, name="p")
    made = weft.quantize((getattr(sym, last)(y), {"w": weight}), batches, shape={"x": (8, CHANNELS)})
    scores = weft.quantize((y, {"w": weight}), batches, shape={"x": (8, CHANNELS)})
    found = [weft.compile(scores, shape={"x": (8, CHANNELS)})(x)[0] for x in batches]
    wanted = [x.astype("d") @ weight.astype("d").T for x in batches]
    expected = decibels(np.concatenate(wanted), np.concatenate(found))
    assert abs(made.report.outputs[0].decibels - expected) < 0.01
