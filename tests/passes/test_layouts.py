"""CorrectLayout and AlterOpLayout."""

import pytest
from passes.graphs import F, Graph, Variable, agree, assert_same, names, op_names, typed

from weft.base.errors import InvalidValue, LayoutError
from weft.base.layout import Layout
from weft.core.op import Op


def with_layouts(symbol, layouts, **shapes):
    graph = typed(symbol, **shapes)
    order = symbol.list_input_names()
    wanted = [layouts.get(name, "__undef__") for name in order]
    graph._set_json_attr("layout_inputs", wanted, "list_layout")
    return graph


def small_conv(data, **attrs):
    return F.conv2d(data, name="c", **{"channels": 4, "kernel_size": (3, 3), **attrs})


def test_golden_nhwc_into_default_conv():
    graph = with_layouts(small_conv(Variable("x")), {"x": "NHWC"})
    done = graph.apply("CorrectLayout")
    assert names(done) == ["x", "x_NCHW", "c_weight", "c_bias", "c"]
    assert op_names(done)[1] == "__layout_transform__"
    assert done.json_attr("layout") == ["NHWC", "NCHW", "OIHW", "C", "NCHW"]
    assert done.attr("layout_inputs") is None


def test_nothing_to_correct():
    graph = with_layouts(F.relu(small_conv(Variable("x"))), {"x": "NCHW"}, x=(1, 2, 8, 8))
    done = graph.apply("CorrectLayout")
    assert names(done) == names(graph)
    assert done.json_attr("layout") == ["NCHW", "OIHW", "C", "NCHW", "NCHW"]
    assert done.fact(done.outputs[0]).shape == (1, 4, 6, 6)


def test_undefined_producers_learn_from_readers():
    done = Graph(small_conv(F.relu(Variable("x"))).outputs).apply("CorrectLayout")
    assert done.json_attr("layout")[1] == "NCHW"
    assert "__layout_transform__" not in op_names(done)


def test_layouts_flow_and_one_transform_serves_all_readers():
    x = Variable("x")
    y = F.relu(x)
    both = F.elemwise_add(
        small_conv(y, use_bias=False),
        F.conv2d(y, channels=4, kernel_size=(3, 3), use_bias=False, name="d"),
    )
    done = with_layouts(both, {"x": "NHWC"}).apply("CorrectLayout")
    assert op_names(done).count("__layout_transform__") == 1
    assert done.outputs[0].node.op_name == "elemwise_add"


def test_shapes_follow_a_transform():
    x = Variable("x")
    graph = typed(F.relu(x), x=(1, 2, 8, 9))
    graph._set_json_attr("layout_inputs", ["NHWC"], "list_layout")
    graph = graph.apply("CorrectLayout")
    conv = with_layouts(small_conv(Variable("x"), layout="NCHW"), {"x": "NHWC"})
    done = conv.apply("CorrectLayout")
    done._set_json_attr("shape_inputs", [[1, 8, 9, 2], [], []], "list_shape")
    done = done.apply("InferShape")
    assert done.fact(done.outputs[0]).shape == (1, 4, 6, 7)


def test_bad_layouts():
    graph = with_layouts(small_conv(Variable("x")), {"x": "NCDW"})
    with pytest.raises(LayoutError):
        graph.apply("CorrectLayout")
    graph._set_json_attr("layout_inputs", ["NCHW"], "list_layout")
    with pytest.raises(InvalidValue, match="3 inputs"):
        graph.apply("CorrectLayout")


@pytest.fixture
def blocked_conv():
    """Has conv2d prefer channels in blocks of 4, for the time of a test."""
    op = Op.get("conv2d")
    seen = []

    def prefer(params, inputs, facts):
        seen.append(facts)
        if params.layout != "NCHW" or facts[0].shape[1] % 4:
            return None
        attrs = {**op.attributes(params), "layout": "NCHW4c", "out_layout": "NCHW4c"}
        attrs["kernel_layout"] = "OIHW4i4o"
        return Op.get("_contrib_conv2d_NCHWc")(*inputs, **attrs)

    rows = Op.alter_layout._rows
    old = rows.get(op)
    rows[op] = (prefer, 1000)
    yield seen
    del rows[op]
    if old is not None:
        rows[op] = old


def test_altered_convs_work_in_blocks_and_the_rest_as_before(blocked_conv):
    x = Variable("x")
    y = F.relu(F.conv2d(x, channels=8, kernel_size=(3, 3), name="one"))
    y = F.conv2d(y, channels=4, kernel_size=(3, 3), name="two")
    graph = typed(F.flatten(F.exp(y)), x=(1, 4, 8, 8))
    assert blocked_conv == []
    done = graph.apply(["CorrectLayout", "AlterOpLayout", "CorrectLayout"])
    assert blocked_conv[0][0].shape == (1, 4, 8, 8)
    assert op_names(done).count("_contrib_conv2d_NCHWc") == 2
    agree(graph, done, rtol=1e-4)
    assert done.fact(done.outputs[0]).shape == graph.fact(graph.outputs[0]).shape
    # Between the two convolutions nothing is rearranged; before flatten it is, once.
    moved = [n for n in done.indexed.nodes if n.op_name == "__layout_transform__"]
    data_moves = [n for n in moved if n.inputs[0].node.op is not None or n.name.startswith("x")]
    assert [(n.params.src_layout, n.params.dst_layout) for n in data_moves] == [
        ("NCHW", "NCHW4c"), ("NCHW4c", "NCHW"),
    ]  # fmt: skip


def test_a_conv_that_feeds_a_fixed_reader_gives_it_its_own_layout(blocked_conv):
    graph = typed(F.flatten(small_conv(Variable("x"))), x=(1, 4, 6, 6))
    done = graph.apply(["CorrectLayout", "AlterOpLayout", "CorrectLayout"])
    assert op_names(done)[-2:] == ["__layout_transform__", "flatten"]
    agree(graph, done, rtol=1e-4)


def test_rules_may_decline(blocked_conv):
    graph = typed(small_conv(Variable("x")), x=(1, 3, 6, 6))
    done = graph.apply(["CorrectLayout", "AlterOpLayout", "CorrectLayout"])
    assert len(blocked_conv) == 1
    assert_same(done, small_conv(Variable("x")))
    assert done.fact(done.outputs[0]).layout == Layout("NCHW")
