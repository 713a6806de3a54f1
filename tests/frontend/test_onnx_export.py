"""to_onnx: what it writes gives the same in ONNX Runtime and, read back, in weft."""

import numpy as np
import onnx
import pytest
from oracles import oracle

from weft import symbol as sym
from weft.base.errors import InvalidValue, Unsupported
from weft.core.graph import Graph
from weft.core.infer import infer
from weft.core.interpret import evaluate
from weft.core.ir import NodeEntry
from weft.core.symbol import Symbol
from weft.frontend import from_onnx, to_onnx


def ort_run(model, inputs):
    ort = oracle("onnxruntime")
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = {item.name for item in session.get_inputs()}
    return session.run(None, {name: value for name, value in inputs.items() if name in wanted})


def random_inputs(symbol, rng, shapes, dtypes=None):
    """Values for every variable, from what inference says of them."""
    dtypes = {name: np.dtype(dtype) for name, dtype in (dtypes or {}).items()}
    graph = infer(Graph(symbol.outputs), shapes, {**{n: np.dtype("float32") for n in shapes}, **dtypes})
    values = {}
    for variable in symbol.list_input_variables():
        name = variable.attr("name")
        fact = graph.fact(variable.outputs[0])
        data = rng.standard_normal(fact.shape)
        if name.endswith("var"):
            data = np.abs(data) + 0.5
        if fact.dtype.kind in "iu":
            data = rng.integers(0, 3, fact.shape)
        values[name] = np.asarray(data, fact.dtype)
    return values


def round_trip(symbol, rng, shapes, opset=17, dtypes=None):
    values = random_inputs(symbol, rng, shapes, dtypes)
    params = {name: value for name, value in values.items() if name not in shapes}
    given = {name: values[name] for name in shapes}
    kinds = {name: value.dtype for name, value in given.items()}
    model = to_onnx(symbol, params, shape=shapes, dtype=kinds, opset=opset)
    results = evaluate(symbol, values)
    back, back_params = from_onnx(model)
    again = evaluate(back, {**back_params, **given})
    for made, read, expected in zip(results, again, ort_run(model, given)):
        assert made.shape == expected.shape
        assert made.dtype == expected.dtype
        np.testing.assert_allclose(made, expected, rtol=2e-5, atol=2e-5)
        np.testing.assert_allclose(read, expected, rtol=2e-5, atol=2e-5)
    return model


X = sym.Variable("x")
IMAGE = {"x": (2, 6, 9, 8)}
CASES = {
    "conv2d": (lambda: sym.conv2d(X, channels=4, kernel_size=(3, 3), padding=(1, 0, 2, 1)), IMAGE),
    "conv2d_grouped": (
        lambda: sym.conv2d(
            X, channels=6, kernel_size=(3, 2), groups=3, strides=(2, 1), dilation=(1, 2), use_bias=False
        ),
        IMAGE,
    ),
    "conv2d_transpose": (
        lambda: sym.conv2d_transpose(
            X, channels=5, kernel_size=(4, 4), strides=(2, 2), padding=(1, 1), output_padding=(1, 0)
        ),
        IMAGE,
    ),
    "max_pool2d": (lambda: sym.max_pool2d(X, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)), IMAGE),
    "max_pool2d_ceil": (lambda: sym.max_pool2d(X, pool_size=(3, 3), strides=(2, 2), ceil_mode=True), IMAGE),
    "avg_pool2d": (lambda: sym.avg_pool2d(X, pool_size=(3, 3), strides=(2, 2), padding=(1, 1)), IMAGE),
    "avg_pool2d_padded": (lambda: sym.avg_pool2d(X, pool_size=(3, 3), padding=(1, 1), count_include_pad=True), IMAGE),
    "global_avg_pool2d": (lambda: sym.global_avg_pool2d(X), IMAGE),
    "global_max_pool2d": (lambda: sym.global_max_pool2d(X), IMAGE),
    "batch_norm": (lambda: sym.batch_norm(X, epsilon=1e-3), IMAGE),
    "batch_norm_last": (lambda: sym.batch_norm(X, axis=3, scale=False), IMAGE),
    "instance_norm": (lambda: sym.instance_norm(X), IMAGE),
    "group_norm": (lambda: sym.group_norm(X, num_groups=3), IMAGE),
    "lrn": (lambda: sym.lrn(X, size=3, axis=1, alpha=0.1, beta=0.7, bias=1.5), IMAGE),
    "prelu": (lambda: sym.prelu(X), IMAGE),
    "dense": (lambda: sym.dense(X, units=5), {"x": (3, 4)}),
    "dense_rows": (lambda: sym.dense(X, units=5), {"x": (2, 3, 4)}),
    "dense_no_bias": (lambda: sym.dense(X, units=5, use_bias=False), {"x": (2, 3, 4)}),
    "matmul": (lambda: sym.matmul(X, sym.Variable("w", shape=(4, 5))), {"x": (3, 4)}),
    "matmul_transposed": (
        lambda: sym.matmul(X, sym.Variable("w", shape=(5, 3)), transpose_a=True, transpose_b=True),
        {"x": (3, 4)},
    ),
    "batch_matmul": (
        lambda: sym.batch_matmul(X, sym.Variable("w", shape=(2, 5, 4)), transpose_b=True),
        {"x": (2, 3, 4)},
    ),
    "layer_norm": (lambda: sym.layer_norm(X, axis=-1, epsilon=1e-4), {"x": (2, 3, 8)}),
    "softmax": (lambda: sym.softmax(X, axis=1), {"x": (2, 3, 4)}),
    "log_softmax": (lambda: sym.log_softmax(X), {"x": (2, 3, 4)}),
    "reshape": (lambda: sym.reshape(X, shape=(0, -4, 3, 2, -1)), IMAGE),
    "squeeze": (lambda: sym.squeeze(sym.expand_dims(X, axis=1, num_newaxis=2)), {"x": (2, 3)}),
    "flatten": (lambda: sym.flatten(X), IMAGE),
    "transpose": (lambda: sym.transpose(X, axes=(0, 2, 3, 1)), IMAGE),
    "transpose_reverse": (lambda: sym.transpose(X), {"x": (2, 3, 4)}),
    "concatenate": (lambda: sym.concatenate(X, X * 2, axis=1), {"x": (2, 3)}),
    "split": (lambda: sym.split(X, indices_or_sections=(1, 3), axis=1), IMAGE),
    "strided_slice": (lambda: sym.strided_slice(X, begin=(0, 5), end=(2, 0), stride=(1, -2)), IMAGE),
    "pad": (lambda: sym.pad(X, pad_width=((0, 0), (0, 0), (1, 2), (0, 3)), pad_value=0.5), IMAGE),
    "broadcast_to": (lambda: sym.broadcast_to(X, shape=(3, 4)), {"x": (1, 4)}),
    "sum": (lambda: sym.sum(X, axis=(1, 3)), IMAGE),
    "sum_all": (lambda: sym.sum(X), IMAGE),
    "mean": (lambda: sym.mean(X, axis=1, keepdims=True), IMAGE),
    "max_excluded": (lambda: sym.max(X, axis=1, exclude=True), IMAGE),
    "argmax": (lambda: sym.argmax(X, axis=1), IMAGE),
    "comparison": (lambda: sym.broadcast_greater(X, X * 2), {"x": (2, 3)}),
    "where": (lambda: sym.where(sym.greater(X, X * 2), X, -X), {"x": (2, 3)}),
    "flip": (lambda: sym.flip(X, axis=1), {"x": (2, 3)}),
    "tile": (lambda: sym.tile(X, reps=(2, 1, 2)), {"x": (2, 3)}),
    "cast": (lambda: sym.cast(X, dtype="int32"), {"x": (2, 3)}),
    "clip": (lambda: sym.clip(X, a_min=-0.5, a_max=0.5), {"x": (2, 3)}),
    "arithmetic": (lambda: 1 - (X * 2 + 3) / 4 - (2 / (X * X + 1)), {"x": (2, 3)}),
    "cumsum": (lambda: sym.cumsum(X, axis=1, exclusive=True), {"x": (2, 3)}),
    "l2_normalize": (lambda: sym.l2_normalize(X, eps=1e-6, axis=1), IMAGE),
    "dropout": (lambda: sym.dropout(X, rate=0.3), {"x": (2, 3)}),
    "full_like": (lambda: X + sym.full_like(X, fill_value=2.0), {"x": (2, 3)}),
    "upsampling": (lambda: sym.upsampling(X, scale=2), IMAGE),
    "upsampling_bilinear": (lambda: sym.upsampling(X, scale=3, method="BILINEAR"), IMAGE),
    "resize": (lambda: sym.resize(X, size=(5, 13)), IMAGE),
    "resize_aligned": (lambda: sym.resize(X, size=(5, 13), align_corners=True), IMAGE),
    "resize_half_pixel": (lambda: sym.resize(X, size=(20, 13), coordinate_mode="half_pixel"), IMAGE),
    "resize_nearest": (lambda: sym.resize(X, size=(20, 13), method="NEAREST_NEIGHBOR"), IMAGE),
    "attention": (lambda: sym.scaled_dot_product_attention(X, X * 2, X + 1), {"x": (2, 2, 5, 4)}),
}
ACTIVATIONS = (
    "relu sigmoid tanh erf gelu silu softplus softsign hard_swish hard_sigmoid elu selu leaky_relu "
    "mish trunc exp abs floor ceil negative sin cos sign"
).split()


@pytest.mark.parametrize("name", CASES)
def test_operator(name, rng):
    build, shapes = CASES[name]
    round_trip(build(), rng, shapes)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activation(name, opset, rng):
    round_trip(getattr(sym, name)(X), rng, {"x": (3, 5)}, opset=opset)


def test_embedding_of_integers(rng):
    words = sym.Variable("words_weight", shape=(3, 4))
    round_trip(sym.take(words, X, axis=0), rng, {"x": (2, 5)}, dtypes={"x": "int64", "words_weight": "float32"})


@pytest.mark.parametrize(("name", "wanted"), [("broadcast_min", np.logical_and), ("broadcast_max", np.logical_or)])
def test_the_smaller_and_the_larger_of_bools(name, wanted, rng):
    """ONNX's Min and Max take numbers alone."""
    x, y = rng.random((3, 4)) < 0.5, rng.random((3, 4)) < 0.5
    both = {"x": (3, 4), "y": (3, 4)}
    model = to_onnx(
        getattr(sym, name)(sym.Variable("x"), sym.Variable("y")), {}, shape=both, dtype=dict.fromkeys(both, "bool")
    )
    peer = oracle("onnxruntime").InferenceSession(model.SerializeToString())
    np.testing.assert_array_equal(peer.run(None, {"x": x, "y": y})[0], wanted(x, y))


def test_opset_20_has_gelu_itself(rng):
    model = round_trip(sym.gelu(X, approximate="tanh"), rng, {"x": (3, 5)}, opset=20)
    assert [node.op_type for node in model.graph.node] == ["Gelu"]


def test_outputs_keep_order_and_names(rng):
    pair = sym.Group([sym.relu(X, name="b"), sym.exp(X, name="a"), X])
    model = round_trip(pair, rng, {"x": (2, 3)})
    assert [item.name for item in model.graph.output] == ["b_output", "a_output", "x_output"]


def test_nodes_of_one_name_do_not_collide(rng):
    twice = sym.exp(sym.relu(X, name="same"), name="same")
    round_trip(sym.Group([twice, sym.negative(twice, name="same")]), rng, {"x": (2, 3)})


def test_parameters_are_initialisers_and_inputs_are_not(rng):
    net = sym.dense(X, units=2, name="fc")
    model = round_trip(net, rng, {"x": (3, 4)})
    assert sorted(t.name for t in model.graph.initializer) == ["fc_bias", "fc_weight"]
    assert [item.name for item in model.graph.input] == ["x"]


def test_all_gaps_at_once():
    net = sym.flip(sym._min_mask(sym._max_mask(X, name="mask")))
    with pytest.raises(Unsupported, match=r"2 operators .* _max_mask, _min_mask"):
        to_onnx(net, {}, shape={"x": (1, 4, 4, 4)})


def test_what_onnx_cannot_say_is_one_report():
    half = sym.conv2d(X, channels=2, kernel_size=(1, 1), out_dtype="int32", use_bias=False, name="a")
    whole = sym.Group([half, sym.elemwise_pow(X, X, name="b"), sym.elemwise_pow(X, X, name="c")])
    weights = {"a_weight": np.ones((2, 3, 1, 1), np.int8)}
    with pytest.raises(Unsupported) as caught:
        to_onnx(whole, weights, shape={"x": (1, 3, 4, 4)}, dtype={"x": "int8"})
    assert "2 operators" in caught.value.what
    assert "out_dtype int32 cannot be written as ONNX in 1 nodes: a" in caught.value.why
    assert "integers cannot be written as ONNX in 2 nodes: b, c" in caught.value.why


def test_an_output_that_nothing_writes():
    norm = sym.batch_norm(X, name="norm")
    mean = Symbol([NodeEntry(norm.outputs[0].node, 1)])
    moments = {f"norm_{n}": np.ones(3, np.float32) for n in ("gamma", "beta", "moving_mean", "moving_var")}
    with pytest.raises(Unsupported, match="batch_norm") as caught:
        to_onnx(mean, moments, shape={"x": (1, 3, 4, 4)})
    assert "output 1 of batch_norm in 1 nodes: norm" in caught.value.why


def test_missing_shape_and_wrong_opset():
    with pytest.raises(InvalidValue, match="not known"):
        to_onnx(sym.relu(X), {})
    with pytest.raises(InvalidValue, match="opset 5"):
        to_onnx(sym.relu(X), {}, shape={"x": (1,)}, opset=5)


def test_file_is_written_whole(tmp_path, rng):
    path = tmp_path / "m.onnx"
    model = to_onnx(sym.relu(X), {}, path, shape={"x": (2,)})
    assert onnx.load(path) == model
    assert [item.name for item in tmp_path.iterdir()] == ["m.onnx"]
    with pytest.raises(InvalidValue, match="cannot write"):
        to_onnx(sym.relu(X), {}, tmp_path / "no" / "m.onnx", shape={"x": (2,)})
