"""Shapes, names and errors that the original NNVM gave for neural-network operators."""

from __future__ import annotations

import pytest

from weft import symbol as sym
from weft.base.errors import Error, ShapeError
from weft.compiler.graph_util import gradients, infer_dtype, infer_shape
from weft.core.graph import Graph


def shapes(symbol, **given):
    return infer_shape(Graph(symbol.outputs), **given)


def x():
    return sym.Variable("x")


@pytest.mark.parametrize(
    ("attrs", "data", "weight", "bias", "out"),
    [
        ({"channels": 6, "kernel_size": (3, 3), "groups": 3}, [1, 6, 8, 8], [6, 2, 3, 3], [6], [1, 6, 6, 6]),
        (
            {"channels": 6, "kernel_size": (3, 3), "layout": "NHWC", "kernel_layout": "HWIO"},
            [1, 8, 8, 4],
            [3, 3, 4, 6],
            [6],
            [1, 6, 6, 6],
        ),
    ],
)
def test_conv2d(attrs, data, weight, bias, out):
    assert shapes(sym.conv2d(x(), **attrs), x=data) == ([data, weight, bias], [out])


def test_conv2d_in_blocks():
    made = sym.contrib.conv2d_NCHWc(
        x(), channels=32, kernel_size=(3, 3), layout="NCHW16c", kernel_layout="OIHW16i16o", out_layout="NCHW16c"
    )
    ins, outs = shapes(made, x=(1, 1, 8, 8, 16))
    assert ins[1:] == [[2, 1, 3, 3, 16, 16], [2, 16]]
    assert outs == [[1, 2, 6, 6, 16]]


def test_conv2d_transpose():
    made = sym.conv2d_transpose(x(), channels=6, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1))
    ins, outs = shapes(made, x=(1, 3, 8, 8))
    assert ins[1] == [3, 6, 4, 4]
    assert outs == [[1, 6, 16, 16]]


def test_conv2d_without_data_infers_nothing():
    made = sym.conv2d(x(), channels=6, kernel_size=(3, 3), name="c")
    assert shapes(made) == ([[], [], []], [[]])


def test_conv2d_refuses_a_wrong_weight():
    made = sym.conv2d(x(), channels=6, kernel_size=(3, 3), name="c")
    with pytest.raises(ShapeError, match=r"\(6, 4, 5, 5\)"):
        shapes(made, x=(1, 4, 8, 8), c_weight=(6, 4, 5, 5))


@pytest.mark.parametrize(
    ("attrs", "data", "message"),
    [
        ({"channels": 4, "kernel_size": (3, 3), "groups": 3}, (1, 6, 8, 8), "groups"),
        ({"channels": 6, "kernel_size": (3, 3), "groups": 3}, (1, 4, 8, 8), "groups"),
        ({"channels": 4, "kernel_size": (9, 3)}, (1, 6, 8, 8), "exceeds input"),
        ({"channels": 4, "kernel_size": (3, 3)}, (1, 6, 8), "dimensions"),
        ({"channels": 4, "kernel_size": (3, 3, 3)}, (1, 6, 8, 8), "kernel_size"),
        ({"channels": 4, "kernel_size": (3, 3), "padding": (1, 1, 1)}, (1, 6, 8, 8), "padding"),
        ({"channels": 4, "kernel_size": (3, 3), "layout": "NCW"}, (1, 6, 8, 8), "layout"),
    ],
)
def test_conv2d_errors(attrs, data, message):
    with pytest.raises(Error, match=message):
        shapes(sym.conv2d(x(), **attrs), x=data)


def test_pools_and_resizing():
    pooled = sym.max_pool2d(x(), pool_size=(2, 2), padding=(0, 0, 1, 1))
    assert shapes(pooled, x=(1, 1, 4, 4))[1] == [[1, 1, 4, 4]]
    assert shapes(sym.upsampling(x(), scale=2), x=(1, 1, 8, 8))[1] == [[1, 1, 16, 16]]
    assert shapes(sym.resize(x(), size=(4, 5)), x=(1, 2, 8, 8))[1] == [[1, 2, 4, 5]]
    assert shapes(sym.global_avg_pool2d(x()), x=(1, 3, 8, 7))[1] == [[1, 3, 1, 1]]


def test_pool_larger_than_its_input():
    with pytest.raises(Error, match=r"pool size \(7\) exceeds input \(4 padded to 4\)"):
        shapes(sym.max_pool2d(x(), pool_size=(7, 7)), x=(1, 1, 4, 4))


def test_pool_of_padding_alone():
    with pytest.raises(Error, match="padding"):
        shapes(sym.avg_pool2d(x(), pool_size=(2, 2), padding=(2, 0)), x=(1, 1, 4, 4))


def test_dense():
    made = sym.dense(x(), units=3, name="fc")
    assert shapes(made, x=(2, 4)) == ([[2, 4], [3, 4], [3]], [[2, 3]])
    assert shapes(made, fc_weight=(3, 4))[0][1:] == [[3, 4], [3]]
    assert made.list_attr(recursive=True) == {"fc$units": "3", "fc_weight$units": "3", "fc_bias$units": "3"}


def test_hidden_outputs():
    dropped = Graph(sym.dropout(x()).outputs)
    assert dropped.indexed.num_node_entries == 3
    assert len(dropped.outputs) == 1
    normed = sym.batch_norm(x(), name="bn")
    assert Graph(normed.outputs).indexed.num_node_entries == 8
    assert normed.list_input_names("aux_state") == ["bn_moving_mean", "bn_moving_var"]
    assert normed.list_output_names() == ["bn_output"]


def test_batch_norm_axes():
    for axis, channels in ((1, 3), (-1, 5), (0, 2)):
        ins, outs = shapes(sym.batch_norm(x(), axis=axis), x=(2, 3, 4, 5))
        assert ins == [[2, 3, 4, 5], *[[channels]] * 4]
        assert outs == [[2, 3, 4, 5]]
    with pytest.raises(Error, match="axis 4"):
        shapes(sym.batch_norm(x(), axis=4), x=(2, 3, 4, 5))


def test_only_variables_are_mutated():
    with pytest.raises(Error, match="mutate"):
        sym.batch_norm(x(), x(), x(), sym.relu(x()), x())


def test_softmax_axis_is_checked():
    with pytest.raises(Error, match="axis 2"):
        shapes(sym.softmax(x(), axis=2), x=(2, 3))


def test_names_of_gradients():
    made = sym.softmax(x(), name="sm")
    nodes = [node.name for node in Graph(gradients(made, x_of(made))[0].outputs).indexed.nodes]
    assert [name for name in nodes if name.startswith("sm_")] == [
        "sm_grad_sub0",
        "sm_grad_sub1",
        "sm_grad_sub2",
        "sm_grad",
    ]
    fc = sym.dense(x(), units=3, name="fc")
    assert gradients(fc, x_of(fc))[0].list_output_names() == ["fc_data_grad_output"]


def x_of(symbol):
    return symbol.list_input_variables()[0]


def test_out_dtype():
    made = sym.conv2d(x(), channels=1, kernel_size=(1, 1), use_bias=False, out_dtype="int32")
    ins, outs = infer_dtype(Graph(made.outputs), x="int8")
    assert (ins, outs) == (["int8", "int8"], ["int32"])
