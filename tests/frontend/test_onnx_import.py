"""from_onnx: structure, names, constants, versions and errors. ONNX Runtime is the oracle."""

import numpy as np
import onnx
import pytest
from onnx_models import make_model, node, small_network
from oracles import oracle

import weft
from weft.base.errors import FormatError, InvalidType, InvalidValue, NotFound, ShapeError, Unsupported
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.frontend import from_onnx
from weft.frontend.onnx.registry import converter


def run(model, shape=None, **inputs):
    symbol, params = from_onnx(model, shape)
    return evaluate(symbol, {**params, **inputs})


def ort_run(model, **inputs):
    ort = oracle("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def ops_of(symbol):
    return [s.attr("op_name") for s in symbol.get_internals() if s.attr("op_name") != "null"]


def test_network_matches_onnxruntime(rng):
    model = small_network(rng)
    x = rng.standard_normal((2, 3, 8, 8)).astype(np.float32)
    [made] = run(model, {"x": x.shape}, x=x)
    [expected] = ort_run(model, x=x)
    np.testing.assert_allclose(made, expected, rtol=1e-5, atol=1e-5)


def test_shape_arithmetic_leaves_no_operator(rng):
    symbol, params = from_onnx(small_network(rng), {"x": (2, 3, 8, 8)})
    assert ops_of(symbol) == ["conv2d", "relu", "max_pool2d", "reshape", "dense"]
    assert sorted(params) == ["b", "d", "w"]


def test_names_come_from_the_model(rng):
    symbol, _ = from_onnx(small_network(rng), {"x": (1, 3, 8, 8)})
    names = [s.attr("name") for s in symbol.get_internals()]
    assert {"conv", "relu", "pool", "flatten", "fc", "x", "w", "b", "d"} == set(names)


def test_parameters_are_the_initialisers(rng):
    model = small_network(rng)
    _, params = from_onnx(model, {"x": (1, 3, 8, 8)})
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    for name, value in params.items():
        np.testing.assert_array_equal(value.numpy(), stored[name])


def test_model_as_path_bytes_and_proto(rng, tmp_path):
    model = small_network(rng)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    x = rng.standard_normal((1, 3, 8, 8)).astype(np.float32)
    results = [run(m, {"x": x.shape}, x=x)[0] for m in (model, model.SerializeToString(), path, str(path))]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


def test_several_outputs_are_a_group_in_order(rng):
    model = make_model(
        [node("Split", "x", "a b", axis=1, num_outputs=2), node("Neg", "a", "c")], {"x": [2, 4]}, ["c", "b", "x"]
    )
    x = rng.standard_normal((2, 4)).astype(np.float32)
    symbol, params = from_onnx(model)
    assert len(symbol) == 3
    c, b, same = evaluate(symbol, {**params, "x": x})
    np.testing.assert_array_equal(c, -x[:, :2])
    np.testing.assert_array_equal(b, x[:, 2:])
    np.testing.assert_array_equal(same, x)


def test_inputs_have_hints():
    model = make_model([node("Relu", "x", "y")], {"x": [2, "n"]}, ["y"], elem_type=11)
    symbol, _ = from_onnx(model)
    graph = infer(Graph(symbol.outputs))
    assert graph.fact(symbol.outputs[0]).shape == (2, "n")
    assert graph.fact(symbol.outputs[0]).dtype == np.float64


def test_open_dimensions_stay_open_where_nothing_needs_them(rng):
    model = make_model(
        [node("MatMul", "x w", "m"), node("Relu", "m", "y")], {"x": ["n", 3]}, ["y"], {"w": np.ones((3, 2), np.float32)}
    )
    symbol, params = from_onnx(model)
    for batch in (1, 5):
        x = rng.standard_normal((batch, 3)).astype(np.float32)
        [y] = evaluate(symbol, {**params, "x": x})
        np.testing.assert_allclose(y, np.maximum(x.sum(1, keepdims=True).repeat(2, 1), 0), 1e-5)


def test_reshape_keeps_an_open_dimension(rng):
    model = make_model([node("Reshape", "x s", "y")], {"x": ["n", 3, 2]}, ["y"], {"s": np.array([0, -1])})
    x = rng.standard_normal((4, 3, 2)).astype(np.float32)
    np.testing.assert_array_equal(run(model, x=x)[0], x.reshape(4, 6))


def test_a_symbol_is_one_number_everywhere():
    model = make_model([node("Shape", "b", "s"), node("Expand", "a s", "y")], {"a": [1, "m"], "b": ["n", "m"]}, ["y"])
    symbol, _ = from_onnx(model, {"b": (4, 3)})
    graph = infer(Graph(symbol.outputs))
    assert graph.fact(symbol.outputs[0]).shape == (4, 3)
    told = r"(?s)cannot be.*m is 2 in input 'a', and 3 here.*shape=\{\"b\": \(4, None\)\}.*--shape b=4,\?"
    with pytest.raises(InvalidValue, match=told):
        from_onnx(model, {"a": (1, 2), "b": (4, 3)})


def test_dimensions_of_one_name_may_be_freed(rng):
    nodes = [node("ReduceSum", "a", "p"), node("ReduceSum", "b", "q"), node("Add", "p q", "y")]
    model = make_model(nodes, {"a": ["n", 3], "b": ["n", 3]}, ["y"])
    a, b = (rng.standard_normal((rows, 3)).astype(np.float32) for rows in (4, 5))
    told = r"(?s)'b' has shape \(5, 3\).*n = 4 by input 'a'.*shape=\{\"b\": \(None, 3\)\}.*--shape b=\?,3"
    with weft.compile(model) as compiled, pytest.raises(ShapeError, match=told):
        compiled.run({"a": a, "b": b})
    for shape in ({"a": (None, 3)}, {"b": (None, 3)}, {"a": (4, 3), "b": (None, 3)}):
        with weft.compile(model, shape=shape) as compiled:
            np.testing.assert_allclose(np.ravel(compiled.run({"a": a, "b": b})[0]), a.sum() + b.sum(), rtol=1e-4)


def test_shape_that_contradicts_the_model(rng):
    with pytest.raises(InvalidValue, match="cannot be"):
        from_onnx(small_network(rng), {"x": (1, 4, 8, 8)})
    with pytest.raises(NotFound, match="no input 'data'"):
        from_onnx(small_network(rng), {"data": (1, 3, 8, 8)})


def test_all_unsupported_operators_at_once():
    nodes = [
        node("Unheard", "x", "a", name="first"),
        node("Unheard", "a", "b", name="second"),
        node("Strange", "c", "d", name="branch"),
        node("Relu", "b", "y"),
    ]
    nodes.append(onnx.helper.make_node("Thing", ["y"], ["z"], name="own", domain="com.example"))
    model = make_model(nodes, {"x": [2], "c": []}, ["z"])
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 3))
    with pytest.raises(Unsupported) as caught:
        from_onnx(model)
    text = str(caught.value)
    assert "3 operators" in text
    assert "4 nodes" in text
    for part in (
        "ai.onnx.Unheard (opset 18) in 2 nodes: first, second",
        "com.example.Thing",
        "opset 3",
        "ai.onnx.Strange",
        "branch",
    ):
        assert part in text


def test_errors_name_the_node():
    model = make_model([node("Reshape", "x s", "y", name="the_one")], {"x": [2, 3]}, ["y"], {"s": np.array([4, 2])})
    with pytest.raises(ValueError, match="the_one"):
        from_onnx(model)


def test_an_attribute_nobody_looks_at_is_not_dropped():
    converter("Relaxed", domain="com.example.relaxed")(lambda call: call.op("relu", call[0]))
    relaxed = onnx.helper.make_node("Relaxed", ["x"], ["y"], domain="com.example.relaxed", softcap=2.0)
    model = make_model([relaxed], {"x": [2]}, ["y"])
    model.opset_import.append(onnx.helper.make_opsetid("com.example.relaxed", 1))
    with pytest.raises(Unsupported, match="softcap"):
        from_onnx(model)


def test_statistics_of_old_opsets_are_refused():
    ones = {name: np.ones(3, np.float32) for name in "sbmv"}
    batch_norm = node("BatchNormalization", "x s b m v", "y mean variance saved_mean saved_variance")
    model = make_model([batch_norm], {"x": [2, 3]}, ["y", "mean"], ones, opset=9)
    with pytest.raises(Unsupported, match="statistics among its outputs"):
        from_onnx(model)


def test_what_is_no_model():
    with pytest.raises(InvalidType):
        from_onnx(42)
    with pytest.raises(NotFound):
        from_onnx("no/such/file.onnx")
    with pytest.raises(FormatError):
        from_onnx(b"")


# Operators whose meaning changed between versions.


@pytest.mark.parametrize("opset", [11, 12, 13])
def test_softmax_before_and_after_opset_13(rng, opset):
    model = make_model([node("Softmax", "x", "y", axis=1)], {"x": [2, 3, 4]}, ["y"], opset=opset)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], ort_run(model, x=x)[0], rtol=1e-5)


@pytest.mark.parametrize("opset", [10, 11, 13])
def test_clip_by_attributes_and_inputs(rng, opset):
    limits = {"lo": np.float32(-0.5), "hi": np.float32(0.25)}
    nodes = {10: node("Clip", "x", "y", min=-0.5, max=0.25), 11: node("Clip", "x lo hi", "y")}
    model = make_model([nodes[min(opset, 11)]], {"x": [20]}, ["y"], limits if opset > 10 else {}, opset=opset)
    x = rng.standard_normal(20).astype(np.float32)
    np.testing.assert_array_equal(run(model, x=x)[0], np.clip(x, -0.5, 0.25))


@pytest.mark.parametrize("opset", [12, 13, 18])
def test_axes_as_attribute_and_as_input(rng, opset):
    axes = {"axes": np.array([1])}
    if opset < 13:
        nodes = [node("ReduceSum", "x", "r", axes=[1], keepdims=0), node("Unsqueeze", "r", "y", axes=[0])]
    else:
        nodes = [node("ReduceSum", "x axes", "r", keepdims=0), node("Unsqueeze", "r zero", "y")]
        axes["zero"] = np.array([0])
    model = make_model(nodes, {"x": [2, 3, 4]}, ["y"], axes if opset > 12 else {}, opset=opset)
    x = rng.standard_normal((2, 3, 4)).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], x.sum(1)[None], rtol=1e-5)


# Forms that exporters write.


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_and_normalisation(rng, approximate):
    model = make_model(
        [
            node("LayerNormalization", "x g b", "n", axis=-1, epsilon=1e-3),
            node("Gelu", "n", "y", approximate=approximate),
        ],
        {"x": [2, 3, 8]},
        ["y"],
        {name: rng.standard_normal(8).astype(np.float32) for name in "gb"},
        opset=20,
    )
    x = rng.standard_normal((2, 3, 8)).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], ort_run(model, x=x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("bhid,bhjd->bhij", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij->ji", [(3, 4)]),
        ("ij->", [(3, 4)]),
        ("i,j->ij", [(3,), (4,)]),
        ("...ij,jk->...ik", [(2, 3, 4), (4, 5)]),
        ("ij,jk", [(3, 4), (4, 5)]),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)]),
    ],
)
def test_einsum_is_numpys(rng, equation, shapes):
    names = [f"x{i}" for i in range(len(shapes))]
    model = make_model(
        [node("Einsum", " ".join(names), "y", equation=equation)],
        {name: list(shape) for name, shape in zip(names, shapes)},
        ["y"],
    )
    values = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    [made] = run(model, **dict(zip(names, values)))
    np.testing.assert_allclose(made, np.einsum(equation, *values), rtol=1e-4, atol=1e-5)


def test_integer_division_rounds_towards_zero():
    model = make_model([node("Div", "a b", "y")], {"a": [4], "b": [4]}, ["y"], elem_type=6)
    a, b = np.array([7, -7, 7, -7], np.int32), np.array([2, 2, -2, -2], np.int32)
    np.testing.assert_array_equal(run(model, a=a, b=b)[0], [3, -3, -3, 3])


def test_numbers_become_attributes(rng):
    nodes = [node("Mul", "x two", "m"), node("Sub", "one m", "y")]
    numbers = {"two": np.float32(2.5), "one": np.float32(1)}
    symbol, params = from_onnx(make_model(nodes, {"x": [2, 3]}, ["y"], numbers))
    assert ops_of(symbol) == ["__mul_scalar__", "__rsub_scalar__"]
    assert not params
    x = rng.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(evaluate(symbol, {"x": x})[0], 1 - 2.5 * x, rtol=1e-6)


def test_a_number_of_higher_rank_still_adds_axes(rng):
    model = make_model([node("Add", "x c", "y")], {"x": [3]}, ["y"], {"c": np.full((1, 1, 1), 2, np.float32)})
    x = rng.standard_normal(3).astype(np.float32)
    [y] = run(model, x=x)
    assert y.shape == (1, 1, 3)
    np.testing.assert_allclose(y[0, 0], x + 2)


def test_large_fills_stay_operators():
    model = make_model(
        [node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")],
        {"x": [1]},
        ["y"],
        {"s": np.array([1 << 20, 1 << 20])},
    )
    symbol, params = from_onnx(model)
    assert "full" in ops_of(symbol)
    assert not params


# Functions of the model, and operators of other domains.


def with_function(body, calls):
    """A model whose nodes call the function `own.Twice`."""
    function = onnx.helper.make_function(
        "own", "Twice", ["a"], ["b"], body, [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("own", 1)]
    )
    model = make_model(calls, {"x": [2, 3]}, ["y"])
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    model.functions.append(function)
    return model


def test_functions_are_written_out(rng):
    call = onnx.helper.make_node("Twice", ["x"], ["t"], domain="own")
    again = onnx.helper.make_node("Twice", ["t"], ["y"], domain="own")
    model = with_function([node("Add", "a a", "b")], [call, again])
    x = rng.standard_normal((2, 3)).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], 4 * x)


OLDER = {
    "Softmax": ({"axis": 1}, lambda x: np.exp(x) / np.exp(x).sum()),  # over all axes from this on, before opset 13
    "Squeeze": ({"axes": [0]}, lambda x: x[0]),  # an input from opset 13 on
    "ReduceSum": ({"axes": [1], "keepdims": 0}, lambda x: x.sum(1)),
}


@pytest.mark.parametrize("op", OLDER)
@pytest.mark.parametrize("inside", [False, True])
def test_a_function_is_of_its_own_opset(rng, op, inside):
    """In a subgraph of it, too. The oracle is numpy: ONNX Runtime computes a Softmax as the model's opset has it."""
    attrs, expected = OLDER[op]
    body = [onnx.helper.make_node(op, ["a"], ["b"], **attrs)]
    if inside:
        empty = onnx.helper.make_empty_tensor_value_info
        branch = onnx.helper.make_graph([onnx.helper.make_node(op, ["a"], ["c"], **attrs)], "g", [], [empty("c")])
        other = onnx.helper.make_graph([node("Identity", "a", "d")], "h", [], [empty("d")])
        body = [
            node("ReduceMax", "a", "top"),
            node("Greater", "top top", "never"),
            onnx.helper.make_node("Squeeze", ["never"], ["one"]),
            onnx.helper.make_node("If", ["one"], ["b"], then_branch=other, else_branch=branch),
        ]
    function = onnx.helper.make_function("own", "Old", ["a"], ["b"], body, [onnx.helper.make_opsetid("", 11)])
    calls = [onnx.helper.make_node("Old", ["x"], ["y"], domain="own")]
    model = make_model(calls, {"x": [1, 2, 3]}, ["y"])
    model.opset_import.append(onnx.helper.make_opsetid("own", 1))
    model.functions.append(function)
    x = rng.standard_normal((1, 2, 3)).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], expected(x), rtol=1e-5)


def test_function_that_calls_itself():
    call = onnx.helper.make_node("Twice", ["x"], ["y"], domain="own")
    inner = onnx.helper.make_node("Twice", ["a"], ["b"], domain="own")
    with pytest.raises(FormatError, match="calls itself"):
        from_onnx(with_function([inner], [call]))


def test_functions_that_would_explode():
    model = make_model([onnx.helper.make_node("F40", ["x"], ["y"], domain="own")], {"x": [2]}, ["y"])
    opsets = [onnx.helper.make_opsetid("", 18), onnx.helper.make_opsetid("own", 1)]
    model.opset_import.append(opsets[1])
    for level in range(41):
        if level:
            body = [onnx.helper.make_node(f"F{level - 1}", [a], [b], domain="own") for a, b in (("a", "m"), ("m", "b"))]
        else:
            body = [node("Relu", "a", "b")]
        model.functions.append(onnx.helper.make_function("own", f"F{level}", ["a"], ["b"], body, opsets))
    with pytest.raises(Unsupported, match="more than"):
        from_onnx(model)


def test_converters_for_other_domains_can_be_added(rng):
    @converter("ScaledForTest", domain="com.example", since=2)
    def scaled(call):
        return call.op("__mul_scalar__", call[0], scalar=call.attr("by", 3.0))

    nodes = [onnx.helper.make_node("ScaledForTest", ["x"], ["y"], by=2.0, domain="com.example")]
    model = make_model(nodes, {"x": [4]}, ["y"])
    model.opset_import.append(onnx.helper.make_opsetid("com.example", 1))
    with pytest.raises(Unsupported, match="ScaledForTest"):
        from_onnx(model)
    model.opset_import[-1].version = 2
    x = rng.standard_normal(4).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], 2 * x)


def test_opset_of_the_future():
    with pytest.raises(Unsupported, match="newer"):
        from_onnx(make_model([node("Relu", "x", "y")], {"x": [2]}, ["y"], opset=1000))


def test_names_of_nodes_and_initialisers_do_not_mix(rng):
    weight = rng.standard_normal((3, 2)).astype(np.float32)
    model = make_model(
        [node("Relu", "x", "r", name="w"), node("MatMul", "r w", "y")], {"x": [2, 3]}, ["y"], {"w": weight}
    )
    _, params = from_onnx(model)
    np.testing.assert_array_equal(params["w"].numpy(), weight)


def test_scatter_into_known_places(rng):
    data = rng.standard_normal((4, 3)).astype(np.float32)
    news = rng.standard_normal((2, 3)).astype(np.float32)
    model = make_model(
        [node("ScatterND", "x i u", "y")], {"x": [4, 3], "u": [2, 3]}, ["y"], {"i": np.array([[-1], [1]])}
    )
    expected = data.copy()
    expected[[-1, 1]] = news
    np.testing.assert_array_equal(run(model, x=data, u=news)[0], expected)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.array([[4], [1]]), "i"))
    with pytest.raises(FormatError, match="outside"):
        from_onnx(model)


@pytest.mark.parametrize("axis", [0, 1])
def test_quantised_and_back(rng, axis):
    scale = rng.uniform(0.01, 0.1, (4, 3)[axis]).astype(np.float32)
    zero = rng.integers(-20, 20, scale.size).astype(np.int8)
    model = make_model(
        [node("QuantizeLinear", "x s z", "q", axis=axis), node("DequantizeLinear", "q s z", "y", axis=axis)],
        {"x": [4, 3]},
        ["y"],
        {"s": scale, "z": zero},
    )
    x = rng.standard_normal((4, 3)).astype(np.float32)
    np.testing.assert_allclose(run(model, x=x)[0], ort_run(model, x=x)[0], rtol=1e-6)


def test_all_that_is_not_supported_is_told_at_once():
    """Operators that are missing, and what stands behind one and beside it."""
    text = """m (float[1, 1, 4, 4] x, string[2] words) =>
        (float[a, b] n, float[1, 1, 6, 6] r, float[1, 1, 8, 8] s, string[2] t, float[1, 1, 4, 4] u)
        <float[4] sizes = {1, 1, 2, 2}> {
        n = Unheard(x)
        [pool] p = Unseen <kernel_shape = [2, 2]> (x)
        [behind] r = Resize <mode = "strange"> (p, , sizes)
        [beside] s = Resize <mode = "odd"> (x, , sizes)
        [onwords] t = Identity(words)
        [fine] u = Relu(x)
    }"""
    opsets = [onnx.helper.make_opsetid("", 22)]
    graph = onnx.parser.parse_graph(text)
    graph.value_info.append(onnx.helper.make_tensor_value_info("p", 1, [1, 1, 3, 3]))
    model = onnx.helper.make_model(graph, opset_imports=opsets)
    with pytest.raises(Unsupported) as caught:
        from_onnx(model)
    told = str(caught.value)
    assert "2 operators of the model are not supported, in 2 nodes" in told
    assert "2 uses of operators or types are not supported" in told
    for part in ("Unheard", "Unseen", "strange", "'behind'", "odd", "'beside'"):
        assert part in told
    assert "onwords" not in told
    assert "fine" not in told
