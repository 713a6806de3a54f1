"""FoldScaleAxis: where scales go, where they must not, and equal values."""

import numpy as np
import pytest
from passes.graphs import F, Variable, agree, assert_same, op_names, typed, values

import weft


def conv(data, name="c", **attrs):
    return F.conv2d(data, name=name, **{"channels": 4, "kernel_size": (3, 3), **attrs})


def channels(symbol, after=2):
    return F.expand_dims(symbol, axis=1, num_newaxis=after)


def fold(symbol, **shapes):
    shapes = {"x": (2, 3, 6, 6), **shapes}
    graph = typed(symbol, **shapes)
    folded = graph.apply("FoldScaleAxis")
    given = values(graph)
    random = np.random.default_rng(5)
    for name in given:  # scales of both signs
        given[name] = random.normal(size=given[name].shape).astype("float32")
    if "v" in given:
        given["v"] = np.abs(given["v"])
    agree(graph, folded, given, rtol=1e-3, atol=1e-3)
    return graph, folded


def muls_of_data(graph):
    """Multiplications that are not of weights or biases."""
    return [
        node for node in graph.indexed.nodes if node.op_name == "broadcast_mul" and not node.name.endswith("_scaled")
    ]


def test_golden_scale_before_a_convolution():
    x, s = Variable("x"), Variable("s")
    _, folded = fold(conv(x * channels(s)), s=(3,))
    weight, bias = Variable("c_weight"), Variable("c_bias")
    expected = F.conv2d(Variable("x"), weight * channels(Variable("s")), bias, channels=4, kernel_size=(3, 3))
    assert_same(folded, expected)


def test_scale_after_a_convolution():
    _, folded = fold(conv(Variable("x")) * channels(Variable("s")), s=(4,))
    last = folded.outputs[0].node
    assert last.op_name == "conv2d"
    weight, bias = (entry.node for entry in last.inputs[1:])
    assert weight.inputs[1].node.params.num_newaxis == 3
    assert bias.inputs[1].node.name == "s"


@pytest.mark.parametrize("layouts", [("NHWC", "HWIO"), ("NCHW", "OIHW"), ("NHWC", "OHWI")])
@pytest.mark.parametrize("side", ["before", "after"])
def test_layouts(layouts, side):
    data, kernel = layouts
    attrs = {"layout": data, "kernel_layout": kernel}
    shape = (2, 6, 6, 3) if data == "NHWC" else (2, 3, 6, 6)
    after = 0 if data == "NHWC" else 2
    extent = 3 if side == "before" else 4
    s = channels(Variable("s"), after) if after else Variable("s")
    x = Variable("x")
    symbol = conv(x * s, **attrs) if side == "before" else conv(x, **attrs) * s
    _, folded = fold(symbol, x=shape, s=(extent,))
    assert not muls_of_data(folded)


def test_depthwise_and_grouped():
    deep = {"channels": 3, "groups": 3}
    _, folded = fold(conv(Variable("x") * channels(Variable("s")), **deep), s=(3,))
    assert not muls_of_data(folded)
    grouped = {"channels": 4, "groups": 2}
    symbol = conv(Variable("x") * channels(Variable("s")), **grouped)
    _, folded = fold(symbol, x=(2, 4, 6, 6), s=(4,))
    assert len(muls_of_data(folded)) == 1
    symbol = conv(Variable("x"), **grouped) * channels(Variable("s"))
    _, folded = fold(symbol, x=(2, 4, 6, 6), s=(4,))
    assert not muls_of_data(folded)


def test_scale_of_unknown_sign_does_not_pass_relu():
    s = Variable("s")
    symbol = F.relu(conv(Variable("x"))) * channels(s)
    graph, folded = fold(symbol, s=(4,))
    assert op_names(folded) == op_names(graph)
    symbol = F.max_pool2d(conv(Variable("x")), pool_size=(2, 2)) * channels(s)
    assert len(muls_of_data(fold(symbol, s=(4,))[1])) == 1


def test_scale_that_cannot_be_negative_passes_relu_and_pools():
    s = F.__rdiv_scalar__(F.sqrt(Variable("v") + 0.1), scalar=2)
    y = F.max_pool2d(F.relu(conv(Variable("x"))), pool_size=(2, 2))
    _, folded = fold(y * channels(s), v=(4,))
    assert not muls_of_data(folded)
    z = conv(F.leaky_relu(Variable("x") * channels(F.exp(Variable("s")))))
    _, folded = fold(z, s=(3,))
    assert not muls_of_data(folded)


def test_averages_and_sums_let_any_scale_through():
    s, b = Variable("s"), Variable("b")
    y = F.avg_pool2d(conv(Variable("x")), pool_size=(2, 2)) * channels(s)
    assert not muls_of_data(fold(y, s=(4,))[1])
    y = (conv(Variable("x")) + channels(b)) * channels(s)
    assert not muls_of_data(fold(y, s=(4,), b=(4,))[1])
    y = (channels(b) - conv(Variable("x"))) * channels(s)
    assert not muls_of_data(fold(y, s=(4,), b=(4,))[1])


def test_a_sum_of_large_values_stops_it():
    y = (conv(Variable("x")) + Variable("r")) * channels(Variable("s"))
    assert len(muls_of_data(fold(y, s=(4,), r=(2, 4, 4, 4))[1])) == 1


def test_what_others_read_is_not_scaled():
    y = conv(Variable("x"))
    both = y * channels(Variable("s")) + y
    assert len(muls_of_data(fold(both, s=(4,))[1])) == 1
    data = Variable("x") * channels(Variable("t"))
    both = conv(data) + conv(data, "d")
    assert len(muls_of_data(fold(both, t=(3,))[1])) == 1


def test_batch_norms_fold_away():
    y = F.batch_norm(conv(Variable("x")), name="bn")[0]
    graph = typed(F.relu(y), x=(2, 3, 6, 6))
    folded = graph.apply(["SimplifyInference", "FoldScaleAxis"])
    assert not [n for n in muls_of_data(folded) if n.name == "bn_a_mul_data"]
    agree(graph, folded, rtol=1e-4, atol=1e-4)


def test_two_scales_in_a_row():
    y = conv(Variable("x")) * channels(Variable("s")) * channels(Variable("t"))
    assert not muls_of_data(fold(y, s=(4,), t=(4,))[1])


def test_a_scale_computed_from_the_data_stays():
    x = Variable("x")
    gate = F.sigmoid(F.global_avg_pool2d(x))
    y = conv(x * F.reshape(gate, shape=(3, 1, 1)))
    graph = typed(y, x=(1, 3, 6, 6))
    assert op_names(graph.apply("FoldScaleAxis")) == op_names(graph)


def test_shapes_other_than_expand_dims():
    _, folded = fold(conv(Variable("x")) * Variable("s"), s=(1, 4, 1, 1))
    assert not muls_of_data(folded)
    _, folded = fold(conv(Variable("x")) * Variable("s"), s=(1, 1, 1, 1))
    assert len(muls_of_data(folded)) == 1
    _, folded = fold(conv(Variable("x")) * Variable("s"), s=(1, 1, 4, 1))
    assert len(muls_of_data(folded)) == 1


def test_dtypes_need_not_be_known():
    graph = weft.graph.create(conv(Variable("x") * channels(Variable("s"))))
    weft.compiler.graph_attr.set_shape_inputs(graph, {"x": (2, 3, 6, 6), "s": (3,)})
    folded = graph.apply(["InferShape", "FoldScaleAxis"])
    assert muls_of_data(folded) == []
    assert "broadcast_mul" in op_names(folded)  # that of the weights


def test_a_convolution_that_changes_the_dtype_needs_dtypes():
    net = conv(Variable("x"), out_dtype="float32") * channels(Variable("s"))
    graph = weft.graph.create(net)
    weft.compiler.graph_attr.set_shape_inputs(graph, {"x": (2, 3, 6, 6), "s": (4,)})
    folded = graph.apply(["InferShape", "FoldScaleAxis"])
    assert len(muls_of_data(folded)) == 1
