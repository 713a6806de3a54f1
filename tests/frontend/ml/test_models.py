"""Linear models, support vector machines and features of ai.onnx.ml against ONNX Runtime."""

import numpy as np
import pytest
from ml_nodes import ml_model, weft_run
from onnx_runs import onnxruntime_run

from weft.base.errors import FormatError

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def numbers(rng, *shape, low=-1.0, high=1.0):
    return rng.uniform(low, high, shape).astype(np.float32)


def check(model, inputs, rtol=1e-4, atol=1e-5):
    want = onnxruntime_run(model, inputs)
    for made, wanted in zip(weft_run(model, inputs), want, strict=True):
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
        np.testing.assert_allclose(made, wanted, rtol=rtol, atol=atol)


# Linear


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32])
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(rng, dtype, targets):
    x = (numbers(rng, 5, 4) * 6).astype(dtype)
    weights, shifts = numbers(rng, targets * 4).tolist(), numbers(rng, targets).tolist()
    if dtype != np.float32:  # which ONNX Runtime does not have
        (made,) = weft_run(*ml_model("LinearRegressor", [x], coefficients=weights, intercepts=shifts, targets=targets))
        np.testing.assert_allclose(made, x @ np.reshape(weights, (targets, 4)).T + shifts, rtol=1e-4, atol=1e-5)
        return
    for transform in TRANSFORMS[:4] if targets > 1 else ["NONE"]:
        attrs = {"intercepts": shifts, "targets": targets, "post_transform": transform}
        check(*ml_model("LinearRegressor", [x], coefficients=weights, **attrs))
    check(*ml_model("LinearRegressor", [x], coefficients=weights, targets=targets))


@pytest.mark.parametrize("transform", TRANSFORMS[:4])
@pytest.mark.parametrize(("classes", "rows"), [(2, 1), (2, 2), (4, 4)])
def test_linear_classifier(rng, transform, classes, rows):
    x = numbers(rng, 9, 3)
    attrs = {"coefficients": numbers(rng, rows * 3).tolist(), "intercepts": numbers(rng, rows).tolist()}
    attrs |= {"classlabels_ints": [5, -2, 7, 1][:classes], "post_transform": transform, "multi_class": 1}
    check(*ml_model("LinearClassifier", [x], 2, **attrs))


def test_linear_models_with_too_few_numbers(rng):
    x = numbers(rng, 2, 3)
    with pytest.raises(FormatError):
        weft_run(*ml_model("LinearRegressor", [x], coefficients=[1.0, 2.0]))
    attrs = {"coefficients": [1.0] * 6, "intercepts": [0.5] * 3, "classlabels_ints": [1, 2]}
    with pytest.raises(FormatError):
        weft_run(*ml_model("LinearClassifier", [x], 2, **attrs))


@pytest.mark.parametrize(("classes", "rows"), [(3, 3), (2, 1), (2, 2)])
def test_linear_models_with_too_many_coefficients(rng, classes, rows):
    """ONNX Runtime takes the first ones, and says nothing."""
    x = numbers(rng, 4, 2)
    attrs = {"coefficients": numbers(rng, rows * 4).tolist(), "intercepts": numbers(rng, rows).tolist()}
    labels = {"classlabels_ints": [4, -1, 2][:classes], "post_transform": "LOGISTIC"}
    with pytest.warns(UserWarning, match=rf"of {rows * 4} coefficients the first {rows * 2} count"):
        check(*ml_model("LinearClassifier", [x], 2, **attrs, **labels))
    with pytest.warns(UserWarning, match=rf"of {rows * 4} coefficients the first {rows * 2} count"):
        check(*ml_model("LinearRegressor", [x], targets=rows, **attrs))


# Support vector machines


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("one_class", [0, 1])
def test_svm_regressor(rng, kernel, one_class):
    x, vectors = numbers(rng, 6, 3), numbers(rng, 5, 3)
    attrs = {"kernel_type": kernel, "kernel_params": [0.7, 0.2, 3.0], "one_class": one_class}
    supported = {"n_supports": 5, "support_vectors": vectors.ravel().tolist(), "coefficients": numbers(rng, 5).tolist()}
    check(*ml_model("SVMRegressor", [x], rho=[0.3], **attrs, **supported))
    attrs |= {"kernel_type": "LINEAR"}  # without support vectors ONNX Runtime reads past the parameters of others
    check(*ml_model("SVMRegressor", [x], rho=[0.3], **attrs, n_supports=0, coefficients=numbers(rng, 3).tolist()))


def svm(rng, counts, features, kernel, sure=False):
    pairs = len(counts) * (len(counts) - 1) // 2
    attrs = {"vectors_per_class": list(counts), "classlabels_ints": [4, -1, 9, 2][: len(counts)]}
    attrs |= {"support_vectors": numbers(rng, sum(counts) * features).tolist(), "rho": numbers(rng, pairs).tolist()}
    attrs["coefficients"] = numbers(rng, (len(counts) - 1) * sum(counts)).tolist()
    attrs |= {"kernel_type": kernel, "kernel_params": [0.6, 0.1, 2.0]}
    if sure:
        attrs |= {"prob_a": numbers(rng, pairs, low=-3, high=-1).tolist(), "prob_b": numbers(rng, pairs).tolist()}
    return attrs


@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("counts", [(3, 2), (2, 3, 1), (1, 2, 2, 3)])
@pytest.mark.parametrize(("kernel", "transform"), [*((kernel, "NONE") for kernel in KERNELS), ("RBF", "LOGISTIC")])
def test_svm_classifier(rng, sure, counts, kernel, transform):
    x = numbers(rng, 12, 3, low=-2, high=2)
    attrs = svm(rng, counts, 3, kernel, sure) | {"post_transform": transform}
    check(*ml_model("SVMClassifier", [x], 2, **attrs), rtol=1e-3, atol=1e-4)


def test_svm_classifier_without_vectors(rng):
    x = numbers(rng, 7, 3)
    attrs = {"coefficients": numbers(rng, 9).tolist(), "rho": [0.4], "classlabels_ints": [3, 1, 2]}
    attrs |= {"kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0]}
    check(*ml_model("SVMClassifier", [x], 2, **attrs, post_transform="LOGISTIC"))


def test_svms_that_make_no_sense(rng):
    x = numbers(rng, 2, 3)
    sound = svm(rng, (2, 1), 3, "RBF", True)
    broken = [
        {"vectors_per_class": [2, 2]},
        {"vectors_per_class": [2, 1, 1]},
        {"vectors_per_class": [-1, 4]},
        {"support_vectors": [1.0] * 8},
        {"support_vectors": [1.0] * 6},
        {"rho": [0.5, 0.5]},
        {"prob_a": [0.5, 0.5]},
        {"kernel_type": "COSINE"},
        {"classlabels_ints": None},
        {"coefficients": [1.0]},
    ]
    for change in broken:
        with pytest.raises(FormatError):
            weft_run(*ml_model("SVMClassifier", [x], 2, **(sound | change)))
    for change in ({"n_supports": 2}, {"rho": None}, {"coefficients": [1.0] * 4}):
        attrs = {"coefficients": [1.0] * 3, "rho": [0.5], "support_vectors": [1.0] * 9} | change
        with pytest.raises(FormatError):
            weft_run(*ml_model("SVMRegressor", [x], **attrs))


# Features


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_scaler(rng, dtype):
    x = (numbers(rng, 4, 3) * 9).astype(dtype)
    for count in (1, 3):
        attrs = {"offset": numbers(rng, count).tolist(), "scale": numbers(rng, count).tolist()}
        check(*ml_model("Scaler", [x], **attrs))
    with pytest.raises(FormatError):
        weft_run(*ml_model("Scaler", [x], offset=[0.5, 1.0], scale=[1.5]))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(rng, norm):
    x = numbers(rng, 4, 3)
    x[1] = 0
    check(*ml_model("Normalizer", [x], norm=norm))
    check(*ml_model("Normalizer", [x[0]], norm=norm))
    check(*ml_model("Normalizer", [(x * 9).astype(np.int64)], norm=norm))


def test_imputer(rng):
    x = rng.integers(0, 3, (5, 3)).astype(np.float32)
    gaps = np.where(x == 1, np.nan, x).astype(np.float32)
    for count in (1, 3):
        filling = numbers(rng, count).tolist()
        check(*ml_model("Imputer", [x], imputed_value_floats=filling, replaced_value_float=1.0))
        check(*ml_model("Imputer", [gaps], imputed_value_floats=filling, replaced_value_float=float("nan")))
        whole = [7, -4, 9][:count]
        check(*ml_model("Imputer", [x.astype(np.int64)], imputed_value_int64s=whole, replaced_value_int64=2))
    with pytest.raises(FormatError):
        weft_run(*ml_model("Imputer", [x], imputed_value_floats=[0.5, 1.0]))


def test_binarizer(rng):
    check(*ml_model("Binarizer", [numbers(rng, 4, 3)], threshold=0.25))


def test_array_feature_extractor(rng):
    for shape in ((5,), (3, 5), (2, 3, 5)):
        for which in ([1], [4, 0, 0]):
            check(*ml_model("ArrayFeatureExtractor", [numbers(rng, *shape), np.array(which)]))
    check(*ml_model("ArrayFeatureExtractor", [rng.integers(0, 9, (3, 5)), np.array([2, 1])]))


@pytest.mark.parametrize("dtype", [np.int64, np.float32, np.float64])
def test_one_hot_encoder(rng, dtype):
    for shape in ((6,), (3, 2)):
        x = rng.integers(0, 5, shape).astype(dtype)
        check(*ml_model("OneHotEncoder", [x], cats_int64s=[3, 0, 1], zeros=1))


def test_feature_vectorizer(rng):
    parts = [numbers(rng, 4, 2), numbers(rng, 4, 3)]
    check(*ml_model("FeatureVectorizer", parts, inputdimensions=[2, 3]))
    with pytest.raises(FormatError):
        weft_run(*ml_model("FeatureVectorizer", parts, inputdimensions=[2]))


@pytest.mark.parametrize("count", [1, 2, 7, 16, 33])
def test_label_encoder_of_numbers(rng, count):
    keys = rng.permutation(100)[:count] - 50
    x = np.concatenate([rng.permutation(100)[:30] - 50, keys]).reshape(-1, 1)
    whole, real = rng.permutation(1000)[:count].tolist(), numbers(rng, count).tolist()
    check(*ml_model("LabelEncoder", [x], keys_int64s=keys.tolist(), values_floats=real, default_float=0.5))
    check(*ml_model("LabelEncoder", [x], keys_int64s=keys.tolist(), values_int64s=whole, default_int64=-7))
    real_x, real_keys = x.astype(np.float32) / 8, (keys / 8).tolist()
    real_x[:2] = np.nan
    check(*ml_model("LabelEncoder", [real_x], version=2, keys_floats=real_keys, values_floats=real))
    with_nan = {"keys_floats": [*real_keys, float("nan")], "values_int64s": [*whole, 77]}
    check(*ml_model("LabelEncoder", [real_x], version=4, **with_nan))
