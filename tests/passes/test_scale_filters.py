"""ScaleFilters: factors for channels go to the filters of a pointwise convolution."""

import numpy as np
import pytest

import weft
from weft import symbol as sym
from weft.base.cpu_target import host
from weft.compiler.prepare import prepare

rng = np.random.default_rng(5)


def network(extent=12, batch=1, outputs=16, swapped=False, read_twice=False):
    """A convolution of x with a factor for each of its 32 channels; so many pixels."""
    x = sym.Variable("x", shape=(batch, 16, extent, extent))
    s = sym.Variable("s", shape=(batch, 32, 1, 1))
    data = sym.conv2d(x, channels=32, kernel_size=(1, 1), use_bias=False, name="a")
    factors = sym.conv2d(s, channels=32, kernel_size=(1, 1), use_bias=False, name="f")
    pair = (factors, data) if swapped else (data, factors)
    made = sym.broadcast_mul(*pair)
    y = sym.conv2d(made, channels=outputs, kernel_size=(1, 1), name="b")
    params = {
        "a_weight": (32, 16, 1, 1),
        "f_weight": (32, 32, 1, 1),
        "b_weight": (outputs, 32, 1, 1),
        "b_bias": (outputs,),
    }
    values = {name: rng.standard_normal(shape).astype("float32") for name, shape in params.items()}
    return (sym.Group([y, sym.relu(made)]) if read_twice else y), values


def scales_data(net, params):
    """Whether something as large as the data is multiplied."""
    graph = prepare(net, params, {}, {}, 3, host()).graph
    sizes = [
        np.prod(graph.node_facts(node)[0].shape) for node in graph.indexed.nodes if node.op_name == "broadcast_mul"
    ]
    return max(sizes) >= 32 * 144


def expected(x, s, p):
    mix = lambda w, data: np.einsum("nchw,oc->nohw", data, w[:, :, 0, 0])
    data, factors = mix(p["a_weight"], x.astype("float64")), mix(p["f_weight"], s.astype("float64"))
    return mix(p["b_weight"], data * factors) + p["b_bias"][:, None, None]


@pytest.mark.parametrize(
    ("options", "scaled"),
    [
        ({}, False),
        ({"swapped": True}, False),
        ({"outputs": 24}, False),
        ({"batch": 2}, True),  # every image has factors of its own
        ({"read_twice": True}, True),
        ({"outputs": 256}, True),  # more filters than data
    ],
    ids=str,
)
def test_the_smaller_of_data_and_filters_is_scaled(options, scaled):
    net, params = network(**options)
    assert scales_data(net, params) == scaled
    batch = options.get("batch", 1)
    x = rng.standard_normal((batch, 16, 12, 12)).astype("float32")
    s = rng.standard_normal((batch, 32, 1, 1)).astype("float32")
    found = weft.compile((net, params)).run({"x": x, "s": s})[0]
    wanted = expected(x, s, params)
    assert np.abs(found - wanted).max() <= 5e-5 * np.abs(wanted).max()
