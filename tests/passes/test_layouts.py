"""CorrectLayout and AlterOpLayout."""

import pytest
from passes.graphs import F, Graph, Variable, agree, assert_same, names, op_names, typed

from weft.base.errors import InvalidValue, LayoutError
from weft.base.layout import Layout
from weft.core.op import Op
from weft.core.passes import get_pass


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
        small_conv(y, use_bias=False), F.conv2d(y, channels=4, kernel_size=(3, 3), use_bias=False, name="d")
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
    assert [(n.params.src_layout, n.params.dst_layout) for n in data_moves] == [("NCHW", "NCHW4c"), ("NCHW4c", "NCHW")]


def test_a_conv_that_feeds_a_fixed_reader_gives_it_its_own_layout(blocked_conv):
    graph = typed(F.flatten(small_conv(Variable("x"))), x=(1, 4, 6, 6))
    done = graph.apply(["CorrectLayout", "AlterOpLayout", "CorrectLayout"])
    assert op_names(done)[-2:] == ["__layout_transform__", "flatten"]
    agree(graph, done, rtol=1e-4)


def test_between_two_replaced_operators_no_layout_is_known(blocked_conv):
    first = F.conv2d(Variable("x"), channels=8, kernel_size=(1, 1), name="one", use_bias=False)
    second = F.conv2d(first, channels=8, kernel_size=(1, 1), name="two", use_bias=False)
    graph = typed(F.relu(second), x=(1, 4, 6, 6)).apply(["CorrectLayout", "AlterOpLayout"])
    layouts = dict(zip(names(graph), graph.json_attr("layout")))
    made = [n.name for n in graph.indexed.nodes if n.op_name == "_contrib_conv2d_NCHWc"]
    assert [layouts[name] for name in made] == ["__undef__", "NCHW"]  # relu reads the second


def test_a_replaced_operator_gets_what_the_one_before_it_gives(blocked_conv, monkeypatch):
    """A pad that is replaced by one of five dimensions, which a blocked image has."""
    rows = lambda params, inputs, facts: F.pad(inputs, pad_width=((0, 0), (0, 0), (1, 1), (0, 0), (0, 0)))
    monkeypatch.setitem(Op.alter_layout._rows, Op.get("pad"), (rows, 1000))
    image = F.conv2d(Variable("x"), channels=8, kernel_size=(1, 1), name="one", use_bias=False)
    padded = F.pad(image, pad_width=((0, 0), (0, 0), (1, 1), (0, 0)))
    graph = typed(F.conv2d(padded, channels=4, kernel_size=(3, 3), name="two"), x=(1, 4, 6, 6))
    done = graph.apply(["CorrectLayout", "AlterOpLayout", "CorrectLayout"])
    pad = next(n for n in done.indexed.nodes if n.op_name == "pad")
    assert done.fact(pad.inputs[0]).layout == done.node_facts(pad)[0].layout == Layout("NCHW4c")


@pytest.mark.parametrize(
    ("left", "right", "turns", "out"),
    [
        ("HW", "WC", {}, "HC"),
        ("WH", "WC", {"transpose_a": True}, "HC"),
        ("HW", "CW", {"transpose_b": True}, "HC"),
        ("NHW", "WC", {}, "NHC"),
        ("HW", "WH", {}, "__undef__"),
        ("HW", "__undef__", {}, "__undef__"),
    ],
)
def test_a_product_has_the_axes_that_are_not_summed(left, right, turns, out):
    product = F.matmul(Variable("a"), Variable("b"), **turns)
    done = with_layouts(product, {"a": left, "b": right}).apply("CorrectLayout")
    assert done.json_attr("layout")[-1] == out


def test_dense_has_the_layout_of_its_data():
    done = with_layouts(F.dense(Variable("x"), units=3), {"x": "NC"}).apply("CorrectLayout")
    assert done.json_attr("layout")[-1] == "NC"


def test_rules_may_decline(blocked_conv):
    graph = typed(small_conv(Variable("x")), x=(1, 3, 6, 6))
    done = graph.apply(["CorrectLayout", "AlterOpLayout", "CorrectLayout"])
    assert len(blocked_conv) == 1
    assert_same(done, small_conv(Variable("x")))
    assert done.fact(done.outputs[0]).layout == Layout("NCHW")


def test_an_error_of_a_rule_names_the_node_and_keeps_its_cause(monkeypatch):
    def rule(params, ins, last, outs):
        try:
            return {}["NCHW"]
        except KeyError as missing:
            raise LayoutError("no such layout") from missing

    monkeypatch.setitem(Op.layout._rows, Op.get("relu"), (rule, 1000))
    with pytest.raises(LayoutError, match="operator relu, node 'r'") as found:
        Graph(F.relu(Variable("x"), name="r").outputs).apply("CorrectLayout")
    assert isinstance(found.value.__cause__, KeyError)


def test_layout_passes_say_which_operator_attributes_they_read():
    assert get_pass("NameAxes").op_attrs == ("FCorrectLayout",)
    assert get_pass("CorrectLayout").op_attrs == ("FCorrectLayout",)
