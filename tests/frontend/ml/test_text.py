"""Labels and categories that are text, maps and tokens, against ONNX Runtime."""

import numpy as np
import onnx
import pytest
from ml_nodes import ml_model, weft_run
from onnx import TensorProto, helper, numpy_helper
from onnx_runs import onnxruntime_run

from weft.base.errors import FormatError, InvalidValue, ShapeError

WORDS = ["low", "mid", "high", ""]


def text(rng, *shape, words=WORDS):
    return rng.choice(np.array(words, object), shape)


def check(model, inputs):
    want = onnxruntime_run(model, inputs)
    for made, wanted in zip(weft_run(model, inputs), want, strict=True):
        if isinstance(wanted, list):
            assert made == wanted
            continue
        assert (np.asarray(made).dtype.kind, np.shape(made)) == (wanted.dtype.kind, wanted.shape)
        if wanted.dtype == object:
            assert np.asarray(made).tolist() == wanted.tolist()
        else:
            np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


# Classifiers that name their classes


def test_trees_that_name_classes(rng):
    x = rng.standard_normal((7, 2)).astype(np.float32)
    attrs = {"nodes_treeids": [0] * 5, "nodes_nodeids": list(range(5)), "nodes_featureids": [0, 1, 0, 0, 0]}
    attrs |= {"nodes_modes": ["BRANCH_LEQ"] * 2 + ["LEAF"] * 3, "nodes_values": [0.25, -0.5, 0.0, 0.0, 0.0]}
    attrs |= {"nodes_truenodeids": [1, 3, 0, 0, 0], "nodes_falsenodeids": [2, 4, 0, 0, 0]}
    attrs |= {"class_treeids": [0] * 3, "class_nodeids": [2, 3, 4], "class_weights": [0.75, 0.5, 0.25]}
    for classes, ids in ((3, [0, 1, 2]), (2, [0, 0, 0])):
        named = {"class_ids": ids, "classlabels_strings": WORDS[:classes]}
        for version in (1, 3):
            check(*ml_model("TreeEnsembleClassifier", [x], 2, version=version, **attrs, **named))


def test_linear_and_support_vector_classifiers_that_name_classes(rng):
    x = rng.standard_normal((6, 2)).astype(np.float32)
    weights, shifts = rng.standard_normal(6).tolist(), rng.standard_normal(3).tolist()
    named = {"classlabels_strings": WORDS[:3]}
    check(*ml_model("LinearClassifier", [x], 2, version=1, coefficients=weights, intercepts=shifts, **named))
    attrs = {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "vectors_per_class": [1, 1, 1]}
    attrs |= {"coefficients": rng.standard_normal(6).tolist(), "support_vectors": weights, "rho": shifts}
    check(*ml_model("SVMClassifier", [x], 2, **attrs, **named))


# Tables


def test_label_encoder_of_version_1(rng):
    attrs = {"classes_strings": WORDS[:3], "default_string": "none", "default_int64": -9}
    check(*ml_model("LabelEncoder", [text(rng, 8, 1)], version=1, **attrs))
    check(*ml_model("LabelEncoder", [rng.integers(-1, 5, (8, 1))], version=1, **attrs))


@pytest.mark.parametrize("version", [2, 4])
def test_label_encoder(rng, version):
    x, numbers = text(rng, 9, 2), rng.integers(-1, 5, (9, 2))
    words = {"keys_strings": WORDS[:3]}
    check(*ml_model("LabelEncoder", [x], version=version, **words, values_int64s=[5, 6, 7], default_int64=-3))
    check(*ml_model("LabelEncoder", [x], version=version, **words, values_floats=[0.5, 1.5, 2.5], default_float=-0.25))
    check(*ml_model("LabelEncoder", [x], version=version, **words, values_strings=["a", "b", "c"], default_string="z"))
    named = {"keys_int64s": [0, 1, 4], "values_strings": WORDS[:3]}
    check(*ml_model("LabelEncoder", [numbers], version=version, **named))
    halves = (numbers / 2).astype(np.float32)
    check(*ml_model("LabelEncoder", [halves], version=version, keys_floats=[0.5, 2.0], values_strings=["half", "two"]))


def test_label_encoder_by_tensors(rng):
    keys = helper.make_tensor("keys", TensorProto.STRING, [3], [word.encode() for word in WORDS[:3]])
    values = numpy_helper.from_array(np.array([4, 5, 6], np.int16))
    default = numpy_helper.from_array(np.array([-1], np.int16))
    attrs = {"keys_tensor": keys, "values_tensor": values, "default_tensor": default}
    check(*ml_model("LabelEncoder", [text(rng, 5, 1)], version=4, **attrs))
    with pytest.raises(FormatError):
        weft_run(*ml_model("LabelEncoder", [text(rng, 5, 1)], version=2, keys_strings=["a"], values_int64s=[1, 2]))


def test_category_mapper(rng):
    attrs = {"cats_strings": WORDS[:3], "cats_int64s": [7, 3, 5], "default_string": "none", "default_int64": -9}
    check(*ml_model("CategoryMapper", [text(rng, 8, 1)], **attrs))
    check(*ml_model("CategoryMapper", [rng.integers(3, 9, (8, 1))], **attrs))


def test_one_hot_encoder(rng):
    check(*ml_model("OneHotEncoder", [text(rng, 6, 2)], cats_strings=WORDS[:2], zeros=1))
    known = text(rng, 6, 2, words=WORDS[:3])
    check(*ml_model("OneHotEncoder", [known], cats_strings=WORDS[:3], zeros=0))
    check(*ml_model("OneHotEncoder", [rng.integers(0, 3, (4, 1))], cats_int64s=[2, 0, 1], zeros=0))


def test_one_hot_encoder_that_must_fail(rng):
    with pytest.raises(InvalidValue, match="'mid'"):
        weft_run(*ml_model("OneHotEncoder", [np.array([["low"], ["mid"]], object)], cats_strings=["low"], zeros=0))
    with pytest.raises(InvalidValue, match="3"):
        weft_run(*ml_model("OneHotEncoder", [np.array([[1], [3]])], cats_int64s=[1, 2], zeros=0))


def test_array_feature_extractor_of_text(rng):
    check(*ml_model("ArrayFeatureExtractor", [text(rng, 3, 4), np.array([2, 0])]))


# Maps


@pytest.mark.parametrize("labels", [{"classlabels_int64s": [4, 2, 7]}, {"classlabels_strings": WORDS[:3]}])
def test_zip_map(rng, labels):
    check(*ml_model("ZipMap", [rng.random((4, 3)).astype(np.float32)], **labels))
    with pytest.raises(ShapeError):
        weft_run(*ml_model("ZipMap", [rng.random((4, 2)).astype(np.float32)], **labels))


def map_model(op_type, key, value, result, **attrs):
    """A node that takes one map."""
    node = helper.make_node(op_type, ["x"], ["y"], domain="ai.onnx.ml", **attrs)
    given = onnx.ValueInfoProto(name="x")
    given.type.map_type.key_type = key
    given.type.map_type.value_type.tensor_type.elem_type = value
    made = helper.make_tensor_value_info("y", result, None)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 1)]
    return helper.make_model(helper.make_graph([node], "g", [given], [made]), opset_imports=opsets, ir_version=9)


def test_dict_vectorizer():
    vocabulary = {"string_vocabulary": ["a", "b", "c", "d"]}
    model = map_model("DictVectorizer", TensorProto.STRING, TensorProto.FLOAT, TensorProto.FLOAT, **vocabulary)
    check(model, {"x": {"b": 1.5, "d": -2.0}})
    model = map_model(
        "DictVectorizer", TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT, int64_vocabulary=[3, 1]
    )
    check(model, {"x": {1: 0.5, 9: 4.0}})


def test_cast_map():
    model = map_model("CastMap", TensorProto.INT64, TensorProto.FLOAT, TensorProto.FLOAT, cast_to="TO_FLOAT")
    check(model, {"x": {4: 1.5, 2: -2.0}})
    sparse = {"cast_to": "TO_INT64", "map_form": "SPARSE", "max_map": 5}
    model = map_model("CastMap", TensorProto.INT64, TensorProto.FLOAT, TensorProto.INT64, **sparse)
    check(model, {"x": {4: 3.0, 2: -2.0}})


# Tokens


@pytest.mark.parametrize(
    "attrs",
    [
        {"tokenexp": "[a-z0-9_]+"},
        {"tokenexp": "a|ab|abc", "mincharnum": 2},
        {"tokenexp": "[a-z]+", "mark": 1},
        {"separators": [" "]},
        {"separators": [" ", "[0-9]"], "mincharnum": 2},
        {"separators": [""]},
    ],
)
def test_tokenizer(attrs):
    x = np.array([["abc def 1x", "ab"], ["a1b2  cab", "z_9 abcab"]], object)
    attrs = {"mark": 0, "mincharnum": 1, "pad_value": "#"} | attrs
    for given in (x, x[0]):
        node = helper.make_node("Tokenizer", ["x"], ["y"], domain="com.microsoft", **attrs)
        inputs = [helper.make_tensor_value_info("x", TensorProto.STRING, given.shape)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.STRING, None)]
        opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
        graph = helper.make_graph([node], "g", inputs, outputs)
        check(helper.make_model(graph, opset_imports=opsets, ir_version=9), {"x": given})
