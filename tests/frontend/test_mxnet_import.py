"""from_mxnet: what is an input, where parameters come from, tables, gaps, and hostile models."""

import contextlib
import json

import numpy as np
import pytest
from bounds import ends
from mxnet_files import graph, named, node, params, second, sparse, text

import weft
from weft.base.errors import Error, FormatError, InvalidType, NotFound, Unsupported
from weft.core.interpret import evaluate
from weft.frontend import from_mxnet
from weft.frontend.converters import Rule
from weft.frontend.mxnet.importer import get_op
from weft.frontend.mxnet.registry import TABLE


def _dense_net():
    """x -> FullyConnected -> SoftmaxOutput with a label."""
    return [
        node("null", "x"),
        node("null", "fc_weight"),
        node("null", "fc_bias"),
        node("FullyConnected", "fc", [(0, 0), (1, 0), (2, 0)], num_hidden="3"),
        node("null", "softmax_label"),
        node("SoftmaxOutput", "softmax", [(3, 0), (4, 0)]),
    ]


def _weights(rng):
    return {"fc_weight": rng.normal(size=(3, 4)).astype("float32"), "fc_bias": rng.normal(size=3).astype("float32")}


def _softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture
def saved(tmp_path, rng):
    """A checkpoint of two epochs; the newer one is right."""
    weights = _weights(rng)
    (tmp_path / "net-symbol.json").write_text(text(_dense_net(), [[5, 0, 0]]))
    old = {f"arg:{name}": np.zeros_like(a) for name, a in weights.items()}
    new = {f"arg:{name}": a for name, a in weights.items()} | {"arg:unused": np.float32([1])}
    (tmp_path / "net-0009.params").write_bytes(named(**old))
    (tmp_path / "net-0010.params").write_bytes(named(**new))
    (tmp_path / "net-extra-0011.params").write_bytes(named(**old))
    return tmp_path, weights


def _expected(weights, x):
    return _softmax(x @ weights["fc_weight"].T + weights["fc_bias"])


def test_a_path_is_enough(saved, rng):
    folder, weights = saved
    symbol, made = from_mxnet(folder / "net-symbol.json", shape={"x": (2, 4)})
    assert symbol.list_input_names() == ["x", "fc_weight", "fc_bias"]
    assert sorted(made) == ["fc_bias", "fc_weight"]
    x = rng.normal(size=(2, 4)).astype("float32")
    [out] = evaluate(symbol, {**made, "x": x})
    np.testing.assert_allclose(out, _expected(weights, x), rtol=1e-5)


def test_compile_takes_the_path(saved, rng):
    folder, weights = saved
    model = weft.compile(folder / "net-symbol.json", shape={"x": (2, 4)})
    x = rng.normal(size=(2, 4)).astype("float32")
    np.testing.assert_allclose(model(x)[0], _expected(weights, x), rtol=1e-5)


def test_compile_leaves_the_batch_open(saved, rng):
    folder, weights = saved
    model = weft.compile(folder / "net-symbol.json")
    for batch in (1, 3):
        x = rng.normal(size=(batch, 4)).astype("float32")
        np.testing.assert_allclose(model(x)[0], _expected(weights, x), rtol=1e-5)


def test_another_parameter_file(saved):
    folder, _ = saved
    _, made = from_mxnet(str(folder / "net-symbol.json"), folder / "net-0009.params")
    assert not made["fc_weight"].numpy().any()


def test_no_parameter_file(saved):
    folder, _ = saved
    alone = folder / "other-symbol.json"
    alone.write_text((folder / "net-symbol.json").read_text())
    with pytest.raises(NotFound, match="no parameter file"):
        from_mxnet(alone)
    symbol, made = from_mxnet(alone, {})
    assert symbol.list_input_names() == ["x", "fc_weight", "fc_bias"]
    assert not made


def test_a_parameter_that_is_missing(rng):
    weights = _weights(rng)
    del weights["fc_bias"]
    with pytest.raises(NotFound, match="fc_bias"):
        from_mxnet(graph(_dense_net(), [[5, 0]]), weights)
    symbol, _ = from_mxnet(graph(_dense_net(), [[5, 0]]), weights, shape={"fc_bias": (3,)})
    assert "fc_bias" in symbol.list_input_names()


class _Array:
    """What MXNet's arrays look like from outside."""

    def __init__(self, array):
        self.array = array

    def asnumpy(self):
        return self.array


class _Live:
    """What its symbols look like."""

    def __init__(self, source):
        self.source = source

    def tojson(self):
        return self.source


class _Parameter:
    def __init__(self, name, array):
        self.name, self.array = name, array

    def list_data(self):
        return [_Array(self.array)]


class _Block:
    """And its hybrid blocks."""

    def __init__(self, symbol, arrays):
        self._cached_graph = ([], symbol) if symbol else ()
        self.arrays = arrays

    def collect_params(self):
        return {name: _Parameter(name, array) for name, array in self.arrays.items()}


def test_live_objects(rng):
    weights, live = _weights(rng), _Live(text(_dense_net(), [[5, 0]]))
    x = rng.normal(size=(2, 4)).astype("float32")
    arrays = {name: _Array(a) for name, a in weights.items()}
    for symbol, made in (from_mxnet(live, arrays), from_mxnet(_Block(live, weights))):
        np.testing.assert_allclose(evaluate(symbol, {**made, "x": x})[0], _expected(weights, x), rtol=1e-5)
    with pytest.raises(Unsupported, match="no graph yet"):
        from_mxnet(_Block(None, weights))
    with pytest.raises(InvalidType):
        from_mxnet(7)
    with pytest.raises(InvalidType):
        from_mxnet(live, 7)
    with pytest.raises(InvalidType):
        from_mxnet(live, {"fc_weight": object()})


def test_sparse_parameters_become_dense(rng):
    weight = np.zeros((3, 4), "float32")
    weight[1] = rng.normal(size=4)
    bias = rng.normal(size=3).astype("float32")
    file = params([sparse(1, (3, 4), weight[1:2], np.int64([1])), second(bias)], ["arg:fc_weight", "arg:fc_bias"])
    _, made = from_mxnet(graph(_dense_net(), [[5, 0]]), file)
    np.testing.assert_array_equal(made["fc_weight"].numpy(), weight)


def test_auxiliary_states_come_apart_from_arguments(rng):
    names = ["x", "b_gamma", "b_beta", "b_moving_mean", "b_moving_var"]
    nodes = [node("null", name) for name in names]
    nodes.append(node("BatchNorm", "b", [(i, 0) for i in range(5)], eps="1e-3"))
    arg = {name: rng.uniform(1, 2, 3).astype("float32") for name in names[1:3]}
    aux = {name: rng.uniform(1, 2, 3).astype("float32") for name in names[3:]}
    symbol, made = from_mxnet(graph(nodes, [[5, 0]]), arg, aux, shape={"x": (2, 3)})
    x = rng.normal(size=(2, 3)).astype("float32")
    [out] = evaluate(symbol, {**made, "x": x})
    expected = (x - aux["b_moving_mean"]) / np.sqrt(aux["b_moving_var"] + 1e-3) + arg["b_beta"]
    np.testing.assert_allclose(out, expected, rtol=1e-5)  # gamma is fixed at 1


def test_several_outputs_are_a_group():
    nodes = [node("null", "x"), node("SliceChannel", "s", [(0, 0)], num_outputs="2")]
    symbol, _ = from_mxnet(graph(nodes, [[1, 1], [1, 0], [0, 0]]), shape={"x": (2, 4)})
    x = np.arange(8, dtype="float32").reshape(2, 4)
    outs = evaluate(symbol, {"x": x})
    for out, wanted in zip(outs, (x[:, 2:], x[:, :2], x)):
        np.testing.assert_array_equal(out, wanted)


def test_declared_shape_and_dtype():
    nodes = [node("null", "x", __shape__="(0, 4)", __dtype__="4"), node("_copy", "c", [(0, 0)])]
    model = weft.compile(from_mxnet(graph(nodes, [[1, 0]])))
    assert model.inputs[0].shape[1:] == (4,)
    assert model.inputs[0].dtype == np.int32


def test_the_dtype_of_weights_is_that_of_the_data(rng):
    weights = {name: a.astype("float64") for name, a in _weights(rng).items()}
    model = weft.compile(from_mxnet(graph(_dense_net(), [[5, 0]]), weights))
    assert model.inputs[0].dtype == np.float64


def test_a_convolution_says_how_many_channels_its_data_has(rng):
    nodes = [
        node("null", "x"),
        node("null", "c_weight"),
        node("Convolution", "c", [(0, 0), (1, 0)], kernel="(3, 3)", num_filter="4", no_bias="True", num_group="2"),
        node("Reshape", "r", [(2, 0)], shape="(0, -1)"),
    ]
    weight = rng.normal(size=(4, 3, 3, 3)).astype("float32")
    model = weft.compile(from_mxnet(graph(nodes, [[3, 0]]), {"c_weight": weight}))
    assert [dim for dim in model.inputs[0].shape if dim] == [6]
    out = model(rng.normal(size=(2, 6, 5, 5)).astype("float32"))[0]
    assert out.shape == (2, 4 * 3 * 3)


def test_an_unknown_input_name_is_reported():
    with pytest.raises(NotFound, match="no input 'y'"):
        from_mxnet(graph(_dense_net(), [[5, 0]]), shape={"y": (1, 4)})


# Tables.


def test_get_op():
    x = weft.symbol.Variable("x")
    assert get_op("relu")(x, name="r").list_output_names() == ["r_output"]
    with pytest.raises(NotFound):
        get_op("no_such_operator")


def _custom():
    return graph(
        [node("null", "x"), node("Mine", "m", [(0, 0)], alpha="3"), node("Reshape", "r", [(1, 0)], shape="(-1,)")],
        [[2, 0]],
    )


def test_a_converter_of_the_caller():
    def mine(inputs, attrs):
        return get_op("__mul_scalar__")(inputs[0], scalar=float(attrs["alpha"]))

    symbol, _ = from_mxnet(_custom(), convert_map={"Mine": mine}, shape={"x": (2, 2)})
    x = np.float32([[1, 2], [3, 4]])
    np.testing.assert_array_equal(evaluate(symbol, {"x": x})[0], [3, 6, 9, 12])


def test_a_converter_of_the_caller_comes_first():
    nodes = [node("null", "x"), node("Activation", "a", [(0, 0)], act_type="relu")]
    mine = {"Activation": lambda inputs, attrs: get_op("negative")(inputs[0])}
    symbol, _ = from_mxnet(graph(nodes, [[1, 0]]), convert_map=mine, shape={"x": (2,)})
    np.testing.assert_array_equal(evaluate(symbol, {"x": np.float32([1, -2])})[0], [-1, 2])
    with pytest.raises(InvalidType):
        from_mxnet(graph(nodes, [[1, 0]]), convert_map={"Activation": lambda i, a: 3})


@pytest.mark.parametrize("kind", [ZeroDivisionError, ValueError, RuntimeError])
def test_what_a_converter_of_the_caller_raises_is_the_cause(kind):
    def mine(inputs, attrs):
        raise kind("of the caller")

    nodes = [node("null", "x"), node("Activation", "a", [(0, 0)], act_type="relu")]
    with pytest.raises(Error, match=r"(?s)node 'a' \(Activation\).*of the caller") as caught:
        from_mxnet(graph(nodes, [[1, 0]]), convert_map={"Activation": mine}, shape={"x": (2,)})
    assert isinstance(caught.value.__cause__, kind)


def test_the_table_of_converters_may_be_extended(monkeypatch):
    def mine(call):
        return call.op("__mul_scalar__", call[0], scalar=float(call.attr("alpha")))

    monkeypatch.setitem(TABLE.rules, ("", "Mine"), [Rule(1, mine)])
    symbol, _ = from_mxnet(_custom(), shape={"x": (2, 2)})
    np.testing.assert_array_equal(evaluate(symbol, {"x": np.ones((2, 2), "float32")})[0], [3] * 4)


def test_an_identity_list_of_the_caller():
    nodes = [node("null", "x"), node("leaky_relu", "a", [(0, 0)], alpha="0.5")]
    symbol, _ = from_mxnet(graph(nodes, [[1, 0]]), identity_list=["leaky_relu"], shape={"x": (2,)})
    np.testing.assert_array_equal(evaluate(symbol, {"x": np.float32([1, -2])})[0], [1, -1])


# Gaps.


def test_all_gaps_are_reported_at_once():
    nodes = [
        node("null", "x"),
        node("_random_gamma", "a", [(0, 0)]),
        node("relu", "b", [(1, 0)]),
        node("_random_gamma", "c", [(2, 0)]),
        node("_foreach", "loop", [(3, 0)]),
        node("Custom", "unused", [(0, 0)]),
    ]
    inner = [node("null", "y"), node("_random_gamma", "d", [(0, 0)]), node("Custom", "e", [(0, 0)])]
    nodes[4]["subgraphs"] = [graph(inner, [[1, 0]])]
    with pytest.raises(Unsupported) as caught:
        from_mxnet(graph(nodes, [[4, 0]]))
    said = str(caught.value)
    assert "1 operators" in said
    assert "_random_gamma in 3 nodes: a, c, d" in said
    assert "Custom" not in said


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Dropout", {"mode": "always"}),
        ("Pooling", {"kernel": "(2,2)", "pooling_convention": "same"}),
        ("Activation", {"act_type": "relu", "new_attribute": "1"}),
    ],
)
def test_what_is_not_covered_is_never_dropped(op, attrs):
    nodes = [node("null", "x"), node(op, "a", [(0, 0)], **attrs)]
    with pytest.raises(Unsupported):
        from_mxnet(graph(nodes, [[1, 0]]), shape={"x": (1, 2, 4, 4)})


@pytest.mark.parametrize(
    ("op", "attrs"),
    [
        ("Activation", {}),
        ("Activation", {"act_type": "quick"}),
        ("Reshape", {"shape": "(7,-1)"}),
        ("Reshape", {"shape": "many"}),
        ("Convolution", {"kernel": "(3,3)", "num_filter": "2"}),
        ("transpose", {"axes": "(0,0,1,2)"}),
        ("slice_axis", {"axis": "9", "begin": "0", "end": "1"}),
        ("Cast", {"dtype": "float7"}),
        ("SliceChannel", {"num_outputs": "99999999999"}),
        ("tile", {"reps": "(99999999,99999999,99999999)"}),
        ("Pad", {"mode": "edge", "pad_width": "1"}),
        ("RNN", {"mode": "lstm", "state_size": "4", "num_layers": "1000000000"}),
    ],
)
def test_malformed_attributes(op, attrs):
    nodes = [node("null", "x"), node(op, "a", [(0, 0)], **attrs)]
    with ends(), pytest.raises(Error):
        from_mxnet(graph(nodes, [[1, 0]]), shape={"x": (1, 2, 4, 4)})


def test_damaged_models_give_errors_and_nothing_else(rng):
    """Characters of a small model are replaced at random."""
    whole = text(_dense_net(), [[5, 0]])
    weights = _weights(rng)
    refused = 0
    for _ in range(400):
        damaged = list(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = chr(rng.integers(32, 127))
        try:
            from_mxnet(json_or_path("".join(damaged)), weights, shape={"x": (2, 4)})
        except Error:
            refused += 1
    assert refused > 200


def json_or_path(source):
    return source.encode() if not source.startswith("{") else source


def test_damaged_parameters_give_errors_and_nothing_else(rng):
    whole = named(**{f"arg:{name}": a for name, a in _weights(rng).items()})
    for _ in range(400):
        damaged = bytearray(whole)
        for place in rng.integers(0, len(whole), 3):
            damaged[place] = rng.integers(256)
        with contextlib.suppress(Error):
            from_mxnet(graph(_dense_net(), [[5, 0]]), bytes(damaged), shape={"x": (2, 4)})


def test_a_long_chain_is_no_problem():
    count = 20_000
    nodes = [node("null", "x")] + [node("_copy", f"c{i}", [(i, 0)]) for i in range(count)]
    nodes.append(node("relu", "r", [(count, 0)]))
    symbol, _ = from_mxnet(json.dumps(graph(nodes, [[count + 1, 0]])), shape={"x": (2,)})
    np.testing.assert_array_equal(evaluate(symbol, {"x": np.float32([-1, 2])})[0], [0, 2])


def test_a_fill_of_unknown_shape():
    zeros = node("_zeros", "z", shape="(2, 0)")
    with pytest.raises(Unsupported):
        from_mxnet(graph([zeros], [[0, 0]]))
    with pytest.raises(Unsupported):
        from_mxnet(graph([zeros, node("relu", "r", [(0, 0)])], [[1, 0]]))


def test_two_variables_of_one_name():
    nodes = [node("null", "x"), node("null", "x"), node("elemwise_add", "a", [(0, 0), (1, 0)])]
    with pytest.raises(FormatError, match="'x'"):
        from_mxnet(graph(nodes, [[2, 0]]), shape={"x": (2,)})


def test_the_list_of_operators():
    names = set(TABLE.supported())
    assert {"Convolution", "BatchNorm", "RNN", "relu", "_contrib_box_nms"} <= names
    assert not {"softmax_cross_entropy", "Custom"} & names


@pytest.mark.parametrize("ratio", [2, -1])
def test_a_region_of_no_image_is_zeros(ratio):
    """As MXNet 1.9.1 gives, whatever the images hold."""
    attrs = {"pooled_size": "(2, 2)", "spatial_scale": "1", "sample_ratio": str(ratio)}
    nodes = [node("null", "x"), node("null", "rois"), node("_contrib_ROIAlign", "y", [(0, 0), (1, 0)], **attrs)]
    symbol, _ = from_mxnet(graph(nodes, [[2, 0, 0]]), shape={"x": (1, 3, 6, 6), "rois": (2, 5)})
    x = np.full((1, 3, 6, 6), 7, "float32")
    x[0, :, 5, 5] = np.nan
    rois = np.float32([[-1, 0, 0, 5, 5], [0, 0, 0, 3, 3]])
    expected = np.stack([np.zeros((3, 2, 2)), np.full((3, 2, 2), 7)])
    np.testing.assert_allclose(evaluate(symbol, {"x": x, "rois": rois})[0], expected)
    made = weft.compile(symbol, shape={"x": x.shape, "rois": rois.shape})(x, rois)[0]
    np.testing.assert_allclose(made, expected)


HALF = "2"  # float16, as MXNet numbers dtypes
LARGE = np.float16([[300, -400, 250, 500], [0.5, 1, 2, -4]])
WIDE = LARGE.astype("float64")
NORMS = np.sqrt((WIDE**2).sum(1))
IN_HALF = {  # node, its attributes, what it gives
    "norm": ("norm", {"axis": "1"}, NORMS),
    "wide_norm": ("norm", {"axis": "1", "out_dtype": "float32"}, NORMS),
    "L2Normalization": ("L2Normalization", {"mode": "instance"}, WIDE / NORMS[:, None]),
    "softmax": ("softmax", {"axis": "1", "temperature": "0.001"}, WIDE.max(1)[:, None] == WIDE),
    "std": ("_npi_std", {"axis": "(1,)"}, WIDE.std(1)),
}


@pytest.mark.parametrize("name", IN_HALF)
def test_steps_of_float16_do_not_overflow(name):
    """Squares and quotients between are beyond float16, results are not."""
    op, attrs, expected = IN_HALF[name]
    nodes = [node("null", "x", __dtype__=HALF), node(op, "y", [(0, 0)], **attrs)]
    symbol, made = from_mxnet(graph(nodes, [[1, 0, 0]]), shape={"x": LARGE.shape})
    [found] = evaluate(symbol, {**made, "x": LARGE})
    assert found.dtype == attrs.get("out_dtype", "float16")
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-3)


def test_moments_of_float16():
    """The mean square is within range, the largest square is not."""
    x = np.float16([[600] + [0] * 15])
    nodes = [node("null", "x", __dtype__=HALF), node("moments", "y", [(0, 0)], axes="(1,)")]
    symbol, made = from_mxnet(graph(nodes, [[1, 0, 0], [1, 1, 0]]), shape={"x": x.shape})
    mean, variance = evaluate(symbol, {**made, "x": x})
    np.testing.assert_allclose([mean, variance], [[37.5], [21093.75]], rtol=1e-3)


@pytest.mark.parametrize(("dtype", "code"), [("float16", HALF), ("float32", "0")])
def test_boxes_that_share_nothing_or_are_empty(dtype, code):
    """The union of empty boxes is 0, and that of large ones beyond float16."""
    left = np.array([[0, 0, 300, 400], [5, 5, 5, 5]], dtype)
    right = np.array([[0, 0, 300, 200], [5, 5, 5, 5], [900, 900, 901, 901]], dtype)
    nodes = [node("null", name, __dtype__=code) for name in "ab"]
    nodes.append(node("_contrib_box_iou", "y", [(0, 0), (1, 0)], format="corner"))
    shapes = {"a": left.shape, "b": right.shape}
    symbol, made = from_mxnet(graph(nodes, [[2, 0, 0]]), shape=shapes)
    [found] = evaluate(symbol, {**made, "a": left, "b": right})
    np.testing.assert_array_equal(found, [[0.5, 0, 0], [0, 0, 0]])
