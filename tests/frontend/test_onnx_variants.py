"""Forms of ONNX operators that few models have: opsets before 7, scatters that reduce, training, and quantisation to
less than a byte. The oracles are ONNX Runtime, PyTorch, numpy, and onnx's reference evaluator."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from oracles import oracle

import weft.tools.onnx_backend as backend
from weft.base.dtype import STORED_DTYPES
from weft.base.errors import Error

rng = np.random.default_rng(0)


def one_node(node, inputs, opset=None):
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in inputs.items()
    ]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output]
    imports = [helper.make_opsetid("", opset or onnx.defs.onnx_opset_version())]
    return helper.make_model(helper.make_graph([node], "one", infos, outputs), opset_imports=imports, ir_version=10)


# Before opset 7.

OLD = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
    "Pow": np.power,
    "Greater": np.greater,
    "Less": np.less,
}


@pytest.mark.parametrize("op", OLD)
@pytest.mark.parametrize(("shape", "axis"), [((4,), 1), ((4, 5), 1), ((3,), 0), ((5,), -1), ((5,), None), ((1,), None)])
def test_the_second_operand_stood_where_it_was_put(op, shape, axis):
    a, b = rng.uniform(0.5, 2, (3, 4, 5)).astype("float32"), rng.uniform(0.5, 2, shape).astype("float32")
    attrs = {"broadcast": 1} | ({} if axis is None else {"axis": axis})
    node = helper.make_node(op, ["a", "b"], ["y"], **attrs)
    (y,) = backend.run_node(node, [a, b], opset_version=6)
    behind = 0 if axis is None else 3 - axis % 3 - len(shape)
    np.testing.assert_allclose(y, OLD[op](a, b.reshape(*shape, *[1] * behind)), rtol=1e-5)


@pytest.mark.parametrize("shape", [(1,), (4,)])
def test_slopes_were_of_channels(shape):
    x, slope = rng.standard_normal((2, 4, 3)).astype("float32"), rng.standard_normal(shape).astype("float32")
    (y,) = backend.run_node(helper.make_node("PRelu", ["x", "s"], ["y"]), [x, slope], opset_version=6)
    np.testing.assert_allclose(y, np.where(x < 0, x * slope[:, None], x), rtol=1e-6)


OLDEST = {
    "Sum": (2, {}, lambda a, b: a + b),
    "Mean": (2, {}, lambda a, b: (a + b) / 2),
    "Max": (2, {}, np.maximum),
    "Min": (2, {}, np.minimum),
    "Relu": (1, {}, lambda a: np.maximum(a, 0)),
    "LeakyRelu": (1, {"alpha": 0.25}, lambda a: np.where(a < 0, 0.25 * a, a)),
    "Clip": (1, {"min": 0.0}, lambda a: np.maximum(a, 0)),
}


@pytest.mark.parametrize("op", OLDEST)
def test_operators_of_the_first_opset(op):
    """With the hint that memory may be written to, which makes no difference."""
    count, attrs, compute = OLDEST[op]
    values = [rng.standard_normal((3, 4)).astype("float32") for _ in range(count)]
    node = helper.make_node(op, list("ab"[:count]), ["y"], consumed_inputs=[0] * count, **attrs)
    (y,) = backend.run_node(node, values, opset_version=1)
    np.testing.assert_allclose(y, compute(*values), rtol=1e-6)


def test_a_type_was_a_word():
    x = rng.uniform(-9, 9, 5).astype("float32")
    (y,) = backend.run_node(helper.make_node("Cast", ["x"], ["y"], to="INT32"), [x], opset_version=1)
    np.testing.assert_array_equal(y, x.astype("int32"))
    with pytest.raises(Error, match="no element type"):
        backend.run_node(helper.make_node("Cast", ["x"], ["y"], to="number"), [x], opset_version=1)


@pytest.mark.parametrize("opset", [1, 10])
def test_the_largest_of_many(opset):
    x = rng.permutation(24).reshape(4, 6).astype("float32")
    if opset == 1:
        outputs = backend.run_node(helper.make_node("TopK", ["x"], ["y", "i"], k=3), [x], opset_version=1)
    else:
        node = helper.make_node("TopK", ["x", "k"], ["y", "i"])
        outputs = backend.run_node(node, [x, np.array([3])], opset_version=opset)
    order = np.argsort(-x, 1)[:, :3]
    np.testing.assert_array_equal(outputs[1], order)
    np.testing.assert_array_equal(outputs[0], np.take_along_axis(x, order, 1))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_one_element_of_all_further_axes_was_chosen(axis):
    x = rng.permutation(24).reshape(2, 3, 4).astype("float32")
    (y,) = backend.run_node(helper.make_node("Hardmax", ["x"], ["y"], axis=axis), [x], opset_version=11)
    rows = x.reshape(int(np.prod(x.shape[: axis % 3])), -1)
    np.testing.assert_array_equal(y.reshape(rows.shape), rows == rows.max(1, keepdims=True))


def test_slopes_of_integers():
    x, slope = rng.integers(-9, 9, (2, 4, 3)), rng.integers(-9, 9, (4, 1))
    (y,) = backend.run_node(helper.make_node("PRelu", ["x", "s"], ["y"]), [x, slope])
    np.testing.assert_array_equal(y, np.where(x < 0, x * slope, x))


# Batch normalisation.


def statistics(shape, dtype="float32"):
    scale, bias, mean = (rng.standard_normal(shape).astype(dtype) for _ in range(3))
    return scale, bias, mean, rng.uniform(0.5, 2, shape).astype(dtype)


@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("stored", ["float32", "float64"])
def test_batch_norm_in_training(shape, stored):
    torch = oracle("torch")
    x = (rng.standard_normal(shape) * 3 + 1).astype("float32")
    scale, bias, mean, var = statistics(3)
    given = [x, scale, bias, mean.astype(stored), var.astype(stored)]
    node = helper.make_node(
        "BatchNormalization", list("xsbmv"), ["y", "mean", "var"], training_mode=1, momentum=0.7, epsilon=1e-3
    )
    y, new_mean, new_var = backend.run_node(node, given)
    assert new_mean.dtype == new_var.dtype == stored
    tensors = [torch.tensor(value) for value in (x, mean.copy(), var.copy(), scale, bias)]
    expected = torch.nn.functional.batch_norm(*tensors, training=True, momentum=0.3, eps=1e-3)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_mean, tensors[1], rtol=1e-5, atol=1e-6)
    others = tuple(axis for axis in range(x.ndim) if axis != 1)  # PyTorch divides by n - 1 here, ONNX by n
    np.testing.assert_allclose(new_var, 0.7 * var + 0.3 * x.var(others), rtol=1e-5)


def test_batch_norm_whose_statistics_are_computed():
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    scale, bias, mean, var = statistics(3)
    text = """m (float[2, 3, 4] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2, 3, 4] y) {
        half = Add(m, m)
        double = Mul(v, v)
        y = BatchNormalization(x, s, b, half, double)
    }"""
    model = helper.make_model(onnx.parser.parse_graph(text))
    (y,) = backend.run_model(model, [x, scale, bias, mean, var])
    column = lambda value: value[:, None]
    expected = (x - column(2 * mean)) / np.sqrt(column(var * var) + 1e-5) * column(scale) + column(bias)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_batch_norm_of_every_place_by_itself():
    x = rng.standard_normal((2, 3, 4)).astype("float32")
    scale, bias, mean, var = statistics((3, 4))
    node = helper.make_node("BatchNormalization", list("xsbmv"), ["y"], spatial=0)
    (y,) = backend.run_node(node, [x, scale, bias, mean, var], opset_version=7)
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(var + 1e-5) * scale + bias, rtol=1e-4, atol=1e-5)


# Scatters.


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64", "int32"])
@pytest.mark.parametrize("constant", [False, True])
def test_scatters_reduce(reduction, dtype, constant):
    ort = oracle("onnxruntime")
    data = rng.uniform(-9, 9, (3, 4, 5)).astype(dtype)
    if reduction == "none":  # then no two may meet
        places = np.stack(np.unravel_index(rng.permutation(12)[:6], (3, 4)), -1).reshape(2, 3, 2)
        along = np.argsort(rng.random((2, 4, 5)), 1)
    else:
        places = np.stack([rng.integers(-3, 3, (2, 3)), rng.integers(-4, 4, (2, 3))], -1)
        along = rng.integers(-4, 4, (2, 6, 5))
    cases = {
        "ScatterND": (places, rng.uniform(-3, 3, (2, 3, 5)).astype(dtype), {}),
        "ScatterElements": (along, rng.uniform(-3, 3, along.shape).astype(dtype), {"axis": 1}),
    }
    for op, (indices, updates, attrs) in cases.items():
        node = helper.make_node(op, ["d", "i", "u"], ["y"], reduction=reduction, **attrs)
        feed = {"d": data, "i": indices, "u": updates}
        model = one_node(node, feed, 18)
        wide = {name: value.astype("float32") if value.dtype == "float16" else value for name, value in feed.items()}
        data_of_ort = one_node(node, wide, 18).SerializeToString()  # which reduces no float16
        (expected,) = ort.InferenceSession(data_of_ort, providers=["CPUExecutionProvider"]).run(None, wide)
        if constant:
            model.graph.initializer.append(onnx.numpy_helper.from_array(indices, "i"))
        (y,) = backend.run_model(model, [data, updates] if constant else [data, indices, updates])
        rtol = 2e-2 if dtype == "float16" else 1e-5
        np.testing.assert_allclose(y, expected, rtol=rtol, atol=rtol, err_msg=op)


@pytest.mark.parametrize(("reduction", "combined"), [("add", np.logical_or), ("mul", np.logical_and)])
def test_scatters_of_bools(reduction, combined):
    data, updates = rng.random(6) < 0.5, rng.random(4) < 0.5
    indices = np.array([[0], [3], [3], [5]])
    node = helper.make_node("ScatterND", ["d", "i", "u"], ["y"], reduction=reduction)
    (y,) = backend.run_node(node, [data, indices, updates], opset_version=18)
    expected = data.copy()
    for place, update in zip(indices[:, 0], updates):
        expected[place] = combined(expected[place], update)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(("batch_dims", "where"), [(1, (2, 3, 2)), (1, (2, 1)), (2, (2, 3, 4, 1)), (2, (2, 3, 2))])
def test_places_of_each_batch(batch_dims, where):
    ort = oracle("onnxruntime")
    data = rng.standard_normal((2, 3, 4, 5)).astype("float32")
    extents = np.array(data.shape[batch_dims : batch_dims + where[-1]])
    indices = rng.integers(-extents, extents, where)
    node = helper.make_node("GatherND", ["d", "i"], ["y"], batch_dims=batch_dims)
    feed = {"d": data, "i": indices}
    session = ort.InferenceSession(one_node(node, feed, 13).SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(backend.run_node(node, [data, indices])[0], session.run(None, feed)[0])


# Control flow: a Scan of opset 8 goes over each element of a batch by itself.


BODY = """body (float[3] state, float[3] forward, float[2] backward)
    => (float[3] next, float[3] kept, float[2] turned) {
    next = Add(state, forward)
    kept = Mul(state, forward)
    turned = Identity(backward)
}"""


def scan_of_batches(lengths, directions=(0, 1)):
    outputs = ["last", "kept", "turned"]
    return helper.make_node(
        "Scan",
        [lengths, "s", "f", "b"],
        outputs,
        num_scan_inputs=2,
        directions=directions,
        body=onnx.parser.parse_graph(BODY),
    )


def sequences(batches=4, longest=5):
    shapes = {"s": (batches, 3), "f": (batches, longest, 3), "b": (batches, longest, 2)}
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


def test_a_scan_of_batches():
    given = sequences()
    outputs = backend.run_node(scan_of_batches(""), list(given.values()), opset_version=8)
    state, forward, backward = given.values()
    sums = state[:, None] + np.concatenate([np.zeros((4, 1, 3)), np.cumsum(forward, 1)], 1)
    np.testing.assert_allclose(outputs["last"], sums[:, -1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(outputs["kept"], sums[:, :-1] * forward, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(outputs["turned"], backward[:, ::-1])


@pytest.mark.parametrize("directions", [(0, 1), (1, 0), (1, 1)])
def test_a_scan_of_sequences_of_unequal_lengths(directions):
    ort = oracle("onnxruntime")
    for _ in range(3):
        feed = {"l": rng.integers(1, 6, 4), **sequences()}
        model = one_node(scan_of_batches("l", directions), feed, 8)
        for item in model.graph.output:
            item.CopyFrom(helper.make_tensor_value_info(item.name, TensorProto.FLOAT, None))
        session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        outputs = backend.run_model(model, list(feed.values()))
        for ours, theirs in zip(outputs, session.run(None, feed), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("lengths", "told"),
    [([5, 6, 1, 1], r"sequence_lens\[1\] is 6"), ([5, 1, 0, 1], r"sequence_lens\[2\] is 0"), ([5, 5], "no length for")],
)
def test_a_length_that_no_sequence_has(lengths, told):
    with pytest.raises(Error, match=told):
        backend.run_node(scan_of_batches("l"), [np.array(lengths), *sequences().values()], opset_version=8)


# Optimizers: two tensors at once, in the first step and later.

PREVIEW = "ai.onnx.preview.training"


def optimised(op, kinds, **attrs):
    shapes = [(3, 4), (5,)]
    values = {
        f"{kind}{i}": rng.uniform(0.1, 2, shape).astype("float32") for kind in kinds for i, shape in enumerate(shapes)
    }
    node = helper.make_node(
        op, ["r", "t", *values], [f"new_{name}" for name in values if name[0] != "g"], domain=PREVIEW, **attrs
    )
    return node, values


@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize("mode", ["standard", "nesterov"])
def test_momentum(count, mode):
    node, values = optimised("Momentum", "xgv", alpha=0.9, beta=0.7, norm_coefficient=0.01, mode=mode)
    outputs = backend.run_node(node, [np.float32(0.1), np.int64(count), *values.values()])
    for i in range(2):
        x, g, v = (values[f"{kind}{i}"] for kind in "xgv")
        g = g + 0.01 * x
        v = 0.9 * v + (0.7 if count else 1) * g
        x = x - 0.1 * (v if mode == "standard" else g + 0.9 * v)
        np.testing.assert_allclose(outputs[f"new_x{i}"], x, rtol=1e-5)
        np.testing.assert_allclose(outputs[f"new_v{i}"], v, rtol=1e-5)


@pytest.mark.parametrize("count", [0, 3])
def test_adagrad(count):
    node, values = optimised("Adagrad", "xgh", norm_coefficient=0.01, decay_factor=0.2, epsilon=1e-3)
    outputs = backend.run_node(node, [np.float32(0.1), np.int64(count), *values.values()])
    for i in range(2):
        x, g, h = (values[f"{kind}{i}"] for kind in "xgh")
        g = g + 0.01 * x
        h = h + g * g
        np.testing.assert_allclose(
            outputs[f"new_x{i}"], x - 0.1 / (1 + 0.2 * count) * g / (np.sqrt(h) + 1e-3), rtol=1e-5
        )
        np.testing.assert_allclose(outputs[f"new_h{i}"], h, rtol=1e-5)


@pytest.mark.parametrize("count", [0, 3])
def test_adam(count):
    node, values = optimised(
        "Adam", "xgvh", norm_coefficient=0.01, norm_coefficient_post=0.02, alpha=0.8, beta=0.95, epsilon=1e-3
    )
    outputs = backend.run_node(node, [np.float32(0.1), np.int64(count), *values.values()])
    rate = 0.1 * np.sqrt(1 - 0.95**count) / (1 - 0.8**count) if count else 0.1
    for i in range(2):
        x, g, v, h = (values[f"{kind}{i}"] for kind in "xgvh")
        g = g + 0.01 * x
        v, h = 0.8 * v + 0.2 * g, 0.95 * h + 0.05 * g * g
        np.testing.assert_allclose(outputs[f"new_x{i}"], (1 - 0.02) * (x - rate * v / (np.sqrt(h) + 1e-3)), rtol=1e-5)
        np.testing.assert_allclose(outputs[f"new_v{i}"], v, rtol=1e-5)
        np.testing.assert_allclose(outputs[f"new_h{i}"], h, rtol=1e-5)


# Einsum: of two axes with one letter the diagonal is taken.


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ii->i", [(4, 4)]),
        ("ii", [(4, 4)]),
        ("...ii->...i", [(2, 3, 4, 4)]),
        ("iji,j->i", [(3, 2, 3), (2,)]),
        ("iii->i", [(3, 3, 3)]),
        ("ijij->ji", [(2, 3, 2, 3)]),
    ],
)
def test_diagonals(equation, shapes):
    values = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    node = helper.make_node("Einsum", list("ab"[: len(values)]), ["y"], equation=equation)
    (y,) = backend.run_node(node, values)
    np.testing.assert_allclose(y, np.einsum(equation, *values), rtol=1e-5, atol=1e-6)


def test_a_letter_of_two_extents_is_refused():
    node = helper.make_node("Einsum", ["a"], ["y"], equation="ii->i")
    with pytest.raises(Error, match="axes of 2 and 3 elements"):
        backend.run_node(node, [np.ones((2, 3), "float32")])


# Quantisation to less than a byte, and to floats in one.

NARROW = [name for name in STORED_DTYPES if name.startswith(("int", "uint", "float8_e4", "float8_e5", "float4"))]


@pytest.mark.parametrize("name", NARROW)
@pytest.mark.parametrize("kind", ["one", "axis", "blocks"])
def test_numbers_become_levels_and_return(name, kind):
    dtype = STORED_DTYPES[name]
    x = rng.standard_normal((4, 6)).astype("float32") * 3
    shape, attrs = {"one": ((), {}), "axis": ((6,), {"axis": 1}), "blocks": ((2, 6), {"axis": 0, "block_size": 2})}[
        kind
    ]
    scale = rng.uniform(0.2, 0.6, shape).astype("float32")
    zero = rng.integers(0, 2, shape).astype("float32").astype(dtype) if "int" in name else np.zeros(shape, dtype)
    feed = {"x": x, "s": scale, "z": zero}
    model = one_node(helper.make_node("QuantizeLinear", list(feed), ["y"], **attrs), feed)
    expected = ReferenceEvaluator(model).run(None, feed)[0]
    (levels,) = backend.run_model(model, feed)
    assert levels.dtype == dtype
    np.testing.assert_array_equal(levels.astype("float32"), expected.astype("float32"))
    feed["x"] = levels
    model = one_node(helper.make_node("DequantizeLinear", list(feed), ["y"], **attrs), feed)
    expected = ReferenceEvaluator(model).run(None, feed)[0]
    np.testing.assert_allclose(backend.run_model(model, feed)[0], expected, rtol=1e-6)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(value, key) for key, value in feed.items() if key != "s"
    )
    np.testing.assert_allclose(backend.run_model(model, [scale])[0], expected, rtol=1e-6)


def test_the_type_of_levels_may_be_an_attribute():
    x = rng.standard_normal((4, 6)).astype("float32") * 3
    node = helper.make_node("QuantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.INT4)
    (levels,) = backend.run_node(node, [x, np.float32(0.5)])
    np.testing.assert_array_equal(levels.astype("int8"), np.clip(np.round(x / 0.5), -8, 7))
