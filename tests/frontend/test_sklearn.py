"""Pipelines of scikit-learn, written by skl2onnx as they are, agree with scikit-learn."""

import importlib
from types import SimpleNamespace

import numpy as np
import pytest
from oracles import oracle

import weft

ROWS, TRIED = 120, 23
WORDS = np.array("red green blue yellow cat dog house tree".split())
MODULES = (
    "linear_model svm ensemble tree neighbors naive_bayes neural_network decomposition preprocessing impute compose "
    "pipeline feature_extraction.text feature_selection cluster gaussian_process calibration multiclass "
    "discriminant_analysis cross_decomposition mixture"
).split()


@pytest.fixture(scope="module")
def sk():
    """All estimators of scikit-learn by their names."""
    oracle("sklearn"), oracle("skl2onnx")
    names = {}
    for module in MODULES:
        names |= vars(importlib.import_module(f"sklearn.{module}"))
    return SimpleNamespace(**names)


@pytest.fixture(scope="module")
def data():
    """Inputs and targets by name."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((ROWS, 5)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * np.abs(x[:, 2]) + 0.1 * rng.standard_normal(ROWS)).astype(np.float32)
    three = np.digitize(y, [-0.5, 0.7])
    gaps = np.where(rng.random(x.shape) < 0.1, np.nan, x).astype(np.float32)
    said = [" ".join(rng.choice(WORDS, rng.integers(2, 7))) for _ in range(ROWS)]
    return {
        "x": x,
        "positive": np.abs(x),
        "gaps": gaps,
        "codes": rng.integers(0, 4, (ROWS, 3)),
        "names": rng.choice(WORDS[:4], (ROWS, 2)).astype(object),
        "said": np.array(said),
        "number": y,
        "numbers": np.stack([y, -2 * y], 1),
        "two": (y > 0).astype(int) + 3,
        "three": three,
        "named": np.array(["low", "mid", "high"])[three],
        "none": None,
    }


def written(model, x, **options):
    """The model as skl2onnx writes it, the number of rows left open."""
    types = importlib.import_module("skl2onnx.common.data_types")
    if x.dtype.kind == "O":
        declared = types.StringTensorType([None, x.shape[1]])
    elif x.dtype.kind == "U":
        declared = types.StringTensorType([None, 1])
    else:
        kind = types.Int64TensorType if x.dtype.kind == "i" else types.FloatTensorType
        declared = kind([None, x.shape[1]])
    to_onnx = oracle("skl2onnx").to_onnx
    settings = {id(model): options} if options else None
    return to_onnx(model, initial_types=[("x", declared)], options=settings, target_opset={"": 18, "ai.onnx.ml": 3})


def tried(model, x, y, **options):
    """The fitted model, some rows, and what weft gives for them."""
    model = model.fit(x) if y is None else model.fit(x, y)
    rows = x[:TRIED]
    given = rows.reshape(-1, 1).astype(object) if x.dtype.kind == "U" else rows
    compiled = weft.compile(written(model, x, **options))
    return model, rows, compiled.run({"x": given})


# name: (estimator, inputs, targets)
CLASSIFIERS = {
    "logistic regression, two classes": (lambda sk: sk.LogisticRegression(), "x", "two"),
    "logistic regression": (lambda sk: sk.LogisticRegression(), "x", "three"),
    "logistic regression, named classes": (lambda sk: sk.LogisticRegression(), "x", "named"),
    "stochastic gradient descent": (lambda sk: sk.SGDClassifier(loss="log_loss", random_state=0), "x", "three"),
    "support vectors, two classes": (lambda sk: sk.SVC(probability=True, random_state=0), "x", "two"),
    "support vectors": (lambda sk: sk.SVC(probability=True, random_state=0), "x", "three"),
    "support vectors, polynomial": (lambda sk: sk.NuSVC(kernel="poly", probability=True, random_state=0), "x", "named"),
    "random forest, two classes": (lambda sk: sk.RandomForestClassifier(9, random_state=0), "x", "two"),
    "random forest": (lambda sk: sk.RandomForestClassifier(9, random_state=0), "x", "three"),
    "random forest, named classes": (lambda sk: sk.RandomForestClassifier(9, random_state=0), "x", "named"),
    "extra trees": (lambda sk: sk.ExtraTreesClassifier(9, random_state=0), "x", "three"),
    "decision tree": (lambda sk: sk.DecisionTreeClassifier(random_state=0), "x", "three"),
    "gradient boosting, two classes": (lambda sk: sk.GradientBoostingClassifier(n_estimators=9), "x", "two"),
    "gradient boosting": (lambda sk: sk.GradientBoostingClassifier(n_estimators=9), "x", "three"),
    "histogram gradient boosting, two classes": (
        lambda sk: sk.HistGradientBoostingClassifier(max_iter=9),
        "gaps",
        "two",
    ),
    "histogram gradient boosting": (lambda sk: sk.HistGradientBoostingClassifier(max_iter=9), "gaps", "three"),
    "bagging": (lambda sk: sk.BaggingClassifier(n_estimators=3, random_state=0), "x", "three"),
    "boosting": (lambda sk: sk.AdaBoostClassifier(n_estimators=4, random_state=0), "x", "three"),
    "nearest neighbours": (lambda sk: sk.KNeighborsClassifier(), "x", "three"),
    "naive Bayes, Gaussian": (lambda sk: sk.GaussianNB(), "x", "three"),
    "naive Bayes, Bernoulli": (lambda sk: sk.BernoulliNB(), "x", "three"),
    "naive Bayes, multinomial": (lambda sk: sk.MultinomialNB(), "positive", "three"),
    "naive Bayes, complement": (lambda sk: sk.ComplementNB(), "positive", "three"),
    "perceptrons": (lambda sk: sk.MLPClassifier((8,), max_iter=30, random_state=0), "x", "three"),
    "linear discriminant": (lambda sk: sk.LinearDiscriminantAnalysis(), "x", "three"),
    "quadratic discriminant": (lambda sk: sk.QuadraticDiscriminantAnalysis(), "x", "three"),
    "calibrated": (lambda sk: sk.CalibratedClassifierCV(sk.LinearSVC(), cv=2), "x", "three"),
    "one against the rest": (lambda sk: sk.OneVsRestClassifier(sk.LogisticRegression()), "x", "three"),
    "voting": (
        lambda sk: sk.VotingClassifier(
            [("a", sk.LogisticRegression()), ("b", sk.GaussianNB())], voting="soft", flatten_transform=False
        ),
        "x",
        "three",
    ),
    "stacking": (
        lambda sk: sk.StackingClassifier([("a", sk.LogisticRegression()), ("b", sk.GaussianNB())]),
        "x",
        "three",
    ),
    "scaled and projected": (
        lambda sk: sk.make_pipeline(sk.StandardScaler(), sk.PCA(3), sk.LogisticRegression()),
        "x",
        "named",
    ),
    "columns apart": (
        lambda sk: sk.make_pipeline(
            sk.ColumnTransformer([("a", sk.StandardScaler(), [0, 1]), ("b", "passthrough", [3]), ("c", "drop", [4])]),
            sk.RandomForestClassifier(5, random_state=0),
        ),
        "x",
        "three",
    ),
    "features together": (
        lambda sk: sk.make_pipeline(
            sk.make_union(sk.StandardScaler(), sk.PolynomialFeatures(2)), sk.LogisticRegression(max_iter=500)
        ),
        "x",
        "three",
    ),
    "words": (lambda sk: sk.make_pipeline(sk.TfidfVectorizer(), sk.LogisticRegression()), "said", "named"),
    "categories": (
        lambda sk: sk.make_pipeline(sk.OneHotEncoder(handle_unknown="ignore"), sk.LogisticRegression()),
        "names",
        "three",
    ),
}


@pytest.fixture
def whole_numbers(monkeypatch):
    """skl2onnx gives truth values where attributes are whole numbers, which protobuf may refuse."""
    helper = oracle("onnx").helper
    make = helper.make_attribute

    def make_attribute(key, value, *args, **kwargs):
        if isinstance(value, (list, tuple, np.ndarray)):
            value = [int(item) if isinstance(item, (bool, np.bool_)) else item for item in value]
        return make(key, value, *args, **kwargs)

    monkeypatch.setattr(helper, "make_attribute", make_attribute)


@pytest.mark.sampled(2)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.usefixtures("whole_numbers")
def test_classifier(sk, data, name):
    make, x, y = CLASSIFIERS[name]
    model, rows, (labels, scores) = tried(make(sk), data[x], data[y], zipmap=False)
    np.testing.assert_array_equal(labels.reshape(-1), model.predict(rows))  # skl2onnx may write them as a row
    np.testing.assert_allclose(scores, model.predict_proba(rows), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("y", ["three", "named"])
def test_probabilities_as_maps(sk, data, y):
    model, rows, (labels, scores) = tried(sk.LogisticRegression(), data["x"], data[y])
    np.testing.assert_array_equal(labels, model.predict(rows))
    assert [list(row) for row in scores] == [model.classes_.tolist()] * TRIED
    np.testing.assert_allclose([list(row.values()) for row in scores], model.predict_proba(rows), rtol=1e-4, atol=1e-5)


REGRESSORS = {
    "least squares": (lambda sk: sk.LinearRegression(), "x", "number"),
    "elastic net": (lambda sk: sk.ElasticNet(0.01), "x", "numbers"),
    "support vectors": (lambda sk: sk.SVR(), "x", "number"),
    "support vectors, polynomial": (lambda sk: sk.NuSVR(kernel="poly"), "x", "number"),
    "random forest": (lambda sk: sk.RandomForestRegressor(9, random_state=0), "x", "number"),
    "random forest, two targets": (lambda sk: sk.RandomForestRegressor(9, random_state=0), "x", "numbers"),
    "extra trees": (lambda sk: sk.ExtraTreesRegressor(9, random_state=0), "x", "number"),
    "gradient boosting": (lambda sk: sk.GradientBoostingRegressor(n_estimators=9), "x", "number"),
    "histogram gradient boosting": (lambda sk: sk.HistGradientBoostingRegressor(max_iter=9), "gaps", "number"),
    "boosting": (lambda sk: sk.AdaBoostRegressor(n_estimators=4, random_state=0), "x", "number"),
    "nearest neighbours": (lambda sk: sk.KNeighborsRegressor(), "x", "number"),
    "perceptrons": (lambda sk: sk.MLPRegressor(hidden_layer_sizes=(8,), max_iter=30, random_state=0), "x", "number"),
    "Gaussian process": (lambda sk: sk.GaussianProcessRegressor(alpha=0.5), "x", "number"),
    "voting": (
        lambda sk: sk.VotingRegressor([("a", sk.LinearRegression()), ("b", sk.DecisionTreeRegressor(max_depth=3))]),
        "x",
        "number",
    ),
    "stacking": (
        lambda sk: sk.StackingRegressor([("a", sk.LinearRegression()), ("b", sk.DecisionTreeRegressor(max_depth=3))]),
        "x",
        "number",
    ),
    "partial least squares": (lambda sk: sk.PLSRegression(2), "x", "numbers"),
    "filled and scaled": (
        lambda sk: sk.make_pipeline(sk.SimpleImputer(), sk.StandardScaler(), sk.Ridge()),
        "gaps",
        "number",
    ),
    "means of clusters": (lambda sk: sk.KMeans(3, n_init=2, random_state=0), "x", "none"),
    "isolation forest": (lambda sk: sk.IsolationForest(n_estimators=20, random_state=0), "x", "none"),
    "one class": (lambda sk: sk.OneClassSVM(), "x", "none"),
    "mixture": (lambda sk: sk.GaussianMixture(3, random_state=0), "x", "none"),
}


@pytest.mark.parametrize("name", REGRESSORS)
@pytest.mark.usefixtures("whole_numbers")
def test_regressor(sk, data, name):
    make, x, y = REGRESSORS[name]
    model, rows, (made, *_) = tried(make(sk), data[x], data[y])
    want = model.predict(rows)
    np.testing.assert_allclose(made.reshape(want.shape), want, rtol=1e-3, atol=1e-4)


TRANSFORMERS = {
    "standard scaler": (lambda sk: sk.StandardScaler(), "x"),
    "range": (lambda sk: sk.MinMaxScaler(), "x"),
    "robust scaler": (lambda sk: sk.RobustScaler(), "x"),
    "normalizer": (lambda sk: sk.Normalizer("l1"), "x"),
    "binarizer": (lambda sk: sk.Binarizer(threshold=0.1), "x"),
    "polynomials": (lambda sk: sk.PolynomialFeatures(2), "x"),
    "bins": (lambda sk: sk.KBinsDiscretizer(4, encode="onehot-dense", quantile_method="linear"), "x"),
    "powers": (lambda sk: sk.PowerTransformer(), "x"),
    "categories": (lambda sk: sk.OneHotEncoder(), "codes"),
    "named categories": (lambda sk: sk.OneHotEncoder(), "names"),
    "ordinals": (lambda sk: sk.OrdinalEncoder(), "names"),
    "imputer": (lambda sk: sk.SimpleImputer(strategy="median"), "gaps"),
    "imputer by neighbours": (lambda sk: sk.KNNImputer(n_neighbors=3), "gaps"),
    "principal components": (lambda sk: sk.PCA(3, whiten=True), "x"),
    "kernel components": (lambda sk: sk.KernelPCA(3, kernel="rbf"), "x"),
    "singular values": (lambda sk: sk.TruncatedSVD(3), "x"),
    "chosen by variance": (lambda sk: sk.VarianceThreshold(0.9), "x"),
    "counts of words": (lambda sk: sk.CountVectorizer(), "said"),
    "weights of pairs of words": (lambda sk: sk.TfidfVectorizer(ngram_range=(1, 2)), "said"),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformer(sk, data, name):
    make, x = TRANSFORMERS[name]
    model, rows, (made,) = tried(make(sk), data[x], None)
    want = model.transform(rows)
    want = want.toarray() if hasattr(want, "toarray") else want
    np.testing.assert_allclose(made, want, rtol=1e-3, atol=1e-4)


def test_one_model_serves_every_number_of_rows(sk, data):
    model = sk.RandomForestClassifier(5, random_state=0).fit(data["x"], data["named"])
    compiled = weft.compile(written(model, data["x"], zipmap=False))
    for rows in (1, 2, 31, ROWS):
        labels, scores = compiled.run({"x": data["x"][:rows]})
        np.testing.assert_array_equal(labels, model.predict(data["x"][:rows]))
        np.testing.assert_allclose(scores, model.predict_proba(data["x"][:rows]), rtol=1e-4, atol=1e-5)
