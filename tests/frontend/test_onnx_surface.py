"""Files as exporters write them: inputs that nothing reads, dimensions without a name, attributes that say the default.
The values are ONNX Runtime's."""

import copy
import pickle

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from oracles import oracle

import weft
from weft.base.errors import NotFound
from weft.frontend.onnx import model as model_file

ort = oracle("onnxruntime")
rng = np.random.default_rng(5)


def model_of(text, opset=18):
    graph = parser.parse_graph(text)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def of_runtime(proto, inputs):
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def test_inputs_that_nothing_reads_may_be_given():
    """One is read by nobody, one only for a shape that is known: folding leaves no trace of either."""
    proto = model_of(
        "m (float[2, 3] x, float[4] unread, float[2, 3] shaped) => (float[2, 3] y, int64[2] s)"
        " { y = Relu(x)\n s = Shape(shaped) }"
    )
    inputs = {name: rng.standard_normal(shape).astype("f") for name, shape in (("x", (2, 3)), ("unread", (4,)))}
    inputs["shaped"] = np.zeros((2, 3), "f")
    model = weft.compile(proto)
    wanted = of_runtime(proto, inputs)
    for made in (model, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        for found, expected in zip(made.run(inputs), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(made.run({"x": inputs["x"]})[0], wanted[0])
        with pytest.raises(NotFound, match="no input 'other'"):
            made.run({**inputs, "other": inputs["x"]})


def test_a_question_mark_is_no_name():
    """Two dimensions called so need not be equal."""
    proto = model_of('m (float["?", "?"] x) => (float["?", "?"] y) { y = Relu(x) }')
    x = rng.standard_normal((2, 5)).astype("f")
    np.testing.assert_array_equal(weft.compile(proto).run({"x": x})[0], of_runtime(proto, {"x": x})[0])


@pytest.mark.parametrize("axes", ["{1}", "{0, -1}", "{}"])
@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMean", "ReduceL2"])
def test_reductions_that_say_what_no_axes_mean(op, axes):
    count = len(axes.strip("{}").split(",")) if axes != "{}" else 0
    proto = model_of(
        f"m (float[2, 3, 4] x) => (float[] y) <int64[{count}] axes = {axes}>"
        f" {{ y = {op} <noop_with_empty_axes = 1, keepdims = 0> (x, axes) }}"
    )
    del proto.graph.output[0].type.tensor_type.shape.dim[:]
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    x = rng.standard_normal((2, 3, 4)).astype("f")
    np.testing.assert_allclose(weft.compile(proto).run({"x": x})[0], of_runtime(proto, {"x": x})[0], rtol=1e-5)


def test_a_scale_of_one_element_is_for_all():
    proto = model_of(
        "m (uint8[6] x) => (float[6] y) <float[1] scale = {0.5}, uint8[1] zero = {3}>"
        " { y = DequantizeLinear <axis = 0> (x, scale, zero) }"
    )
    x = np.array([0, 3, 5, 100, 200, 255], "uint8")
    onnx.checker.check_model(proto)
    np.testing.assert_allclose(weft.compile(proto).run({"x": x})[0], (x.astype("f") - 3) * 0.5)


def test_converters_that_the_caller_brings():
    """By the operator's name with its domain, in subgraphs too; numpy says what is right."""
    text = """m (float[n] x, bool c) => (float[n] y) {
        t = If <then_branch = a () => (float[n] p) { p = com.example.Scale <by = 3.0> (x) },
                else_branch = b () => (float[n] q) { q = com.example.Scale <by = 5.0> (x) }> (c)
        y = com.example.Scale <by = 2.0> (t) }"""
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.example", 1)]
    model = onnx.helper.make_model(onnx.parser.parse_graph(text), opset_imports=opsets)
    scale = lambda inputs, attrs: inputs[0] * attrs["by"]
    x = np.array([1, -2.5], "float32")
    compiled = weft.compile(weft.frontend.from_onnx(model, convert_map={"com.example.Scale": scale}))
    assert compiled(x, np.array(True))[0].tolist() == (6 * x).tolist()
    assert compiled(x, np.array(False))[0].tolist() == (10 * x).tolist()
    with pytest.raises(weft.base.errors.Unsupported, match=r"com\.example\.Scale"):
        weft.frontend.from_onnx(model)


def sparse(name: str, values: list[float], indices: list, dims: list[int]) -> onnx.SparseTensorProto:
    stored = onnx.numpy_helper.from_array(np.array(values, "float32"), name)
    return helper.make_sparse_tensor(stored, onnx.numpy_helper.from_array(np.array(indices), "places"), dims)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_initialisers_and_constants(indices):
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse("c", [2.0, 3.0], indices, [2, 3])),
        helper.make_node("Add", ["s", "c"], ["t"]),
        helper.make_node("Add", ["x", "t"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 3]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    graph.sparse_initializer.append(sparse("s", [10.0, 20.0], indices, [2, 3]))
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    x = np.ones((2, 3), "float32")
    assert weft.compile(proto)(x)[0].tolist() == [[1, 13, 1], [1, 1, 24]]


@pytest.mark.parametrize(
    ("values", "indices", "dims"),
    [
        ([1.0], [6], [2, 3]),
        ([1.0], [-1], [2, 3]),
        ([1.0], [[0, 3]], [2, 3]),
        ([1.0, 2.0], [1], [2, 3]),
        ([], [], [2**45]),
    ],
)
def test_sparse_tensors_that_make_no_sense(values, indices, dims):
    node = helper.make_node("Identity", ["s"], ["y"])
    graph = helper.make_graph([node], "g", [], [helper.make_empty_tensor_value_info("y")])
    graph.sparse_initializer.append(sparse("s", values, indices or np.zeros(0, "int64"), dims))
    with pytest.raises(weft.Error, match=r"sparse|values|sense"):
        weft.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_what_the_file_says_of_itself():
    proto = model_of("m (float[2] x) => (float[2] y) { y = Relu(x) }")
    proto.producer_name, proto.producer_version, proto.model_version = "pen", "3", 7
    helper.set_model_props(proto, {"author": "somebody"})
    compiled = weft.compile(proto)
    for copied in (compiled, copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
        about = copied.metadata
        assert (about["producer"], about["producer_version"], about["model_version"]) == ("pen", "3", 7)
        assert about["properties"] == {"author": "somebody"}
        assert about["opsets"]["ai.onnx"] == proto.opset_import[0].version


def test_files_that_protobuf_alone_would_not_read(tmp_path, monkeypatch):
    """Large weights are read beside the graph, so that the size of the file does not matter."""
    weight = np.arange(1 << 19, dtype="float32")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1 << 19])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "m.onnx")
    monkeypatch.setattr(model_file, "_LARGEST_FILE", 1 << 16)
    assert np.array_equal(weft.compile(tmp_path / "m.onnx")(np.ones(1, "float32"))[0], weight + 1)
    (tmp_path / "text.onnx").write_bytes(b"0" * (1 << 17))
    with pytest.raises(weft.Error, match="larger than 2 GiB"):
        weft.compile(tmp_path / "text.onnx")
