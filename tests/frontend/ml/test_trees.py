"""Trees of ai.onnx.ml against ONNX Runtime, and onnx's reference where the two differ."""

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_runs import onnxruntime_run

import weft
from weft.base.errors import FormatError

MODES = [f"BRANCH_{mode}" for mode in ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ")]
TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NEAR = dict.fromkeys(TRANSFORMS, 1e-5) | {"PROBIT": 3e-4}  # of which ONNX Runtime subtracts what is almost equal
FEATURES = 3


def halves(rng, *shape):
    """Numbers that are often equal."""
    return (rng.integers(-3, 4, shape) / 2).astype(np.float32)


class Grown:
    """Random trees as lists of attributes. Ids of nodes are in no order."""

    def __init__(self, rng, count, depth, modes=("BRANCH_LEQ",), missing=False):
        self.rng, self.modes, self.missing = rng, modes, missing
        self.nodes = {name: [] for name in "treeids nodeids featureids values modes truenodeids falsenodeids".split()}
        self.nan = []
        self.leaves = []  # (tree, node)
        for tree in range(count):
            self.ids = iter(rng.permutation(2 ** (depth + 2)).tolist())
            begin = len(self.nan)
            self._grow(5 * tree, next(self.ids), depth)
            self._squeeze_ids(begin)

    def _grow(self, tree, node, depth):
        is_leaf = depth == 0 or self.rng.random() < 0.1
        mode = "LEAF" if is_leaf else self.modes[self.rng.integers(len(self.modes))]
        yes, no = (0, 0) if is_leaf else (next(self.ids), next(self.ids))
        row = (tree, node, int(self.rng.integers(FEATURES)), float(halves(self.rng)), mode, yes, no)
        for column, value in zip(self.nodes.values(), row):
            column.append(value)
        self.nan.append(int(self.missing and self.rng.integers(2)))
        if is_leaf:
            self.leaves.append((tree, node))
        else:
            self._grow(tree, yes, depth - 1)
            self._grow(tree, no, depth - 1)

    def _squeeze_ids(self, begin):
        """ONNX Runtime wants ids below the number of nodes."""
        rank = {node: number for number, node in enumerate(sorted(self.nodes["nodeids"][begin:]))}
        for name in ("nodeids", "truenodeids", "falsenodeids"):
            self.nodes[name][begin:] = [rank.get(node, 0) for node in self.nodes[name][begin:]]
        tree = self.nodes["treeids"][begin]
        self.leaves = [(t, rank[node] if t == tree else node) for t, node in self.leaves]

    def attributes(self, part, ids, low=-1.0, tensors=False, share=1.0):
        """All attributes, with weights of a share of the targets in every leaf."""
        entries = [(tree, node, target) for tree, node in self.leaves for target in ids if self.rng.random() < share]
        weights = self.rng.uniform(low, 1, len(entries)).astype(np.float32) / (1 + len(set(self.nodes["treeids"])))
        made = {f"nodes_{name}": list(column) for name, column in self.nodes.items()}
        made["nodes_missing_value_tracks_true"] = self.nan
        made |= {f"{part}_{name}": list(column) for name, column in zip(("treeids", "nodeids", "ids"), zip(*entries))}
        made[f"{part}_weights"] = weights.tolist()
        if tensors:
            for name in ("nodes_values", f"{part}_weights"):
                array = np.array(made.pop(name), np.float64)
                made[f"{name}_as_tensor"] = numpy_helper.from_array(array)
        return made


def model_of(op_type, outputs, x, version, attrs):
    given = {name: value for name, value in attrs.items() if value is not None}
    node = helper.make_node(op_type, ["x"], outputs, domain="ai.onnx.ml", **given)
    given = helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), [None, x.shape[1]])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", version)]
    kinds = [TensorProto.INT64, TensorProto.FLOAT] if len(outputs) == 2 else [TensorProto.FLOAT]
    kinds = [TensorProto.DOUBLE] if version == 5 and x.dtype == np.float64 else kinds
    made = [helper.make_tensor_value_info(name, kind, None) for name, kind in zip(outputs, kinds)]
    return helper.make_model(helper.make_graph([node], "g", [given], made), opset_imports=opsets, ir_version=9)


def weft_run(model, x):
    return weft.compile(model, shape={"x": x.shape}).run({"x": x})


def data(rng, rows, dtype=np.float32):
    x = halves(rng, rows, FEATURES).astype(dtype)
    x[rng.random(x.shape) < 0.1] = np.nan
    return x


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize(
    ("modes", "missing", "share"),
    [(MODES[:1], False, 1), (MODES[1:2], True, 0.4), (MODES, True, 0.9), (MODES, False, 0.4)],
)
def test_regressor(rng, aggregate, modes, missing, share):
    x = data(rng, 21)
    attrs = Grown(rng, 30, 5, modes, missing).attributes("target", range(3), share=share)
    attrs |= {"n_targets": 3, "aggregate_function": aggregate, "base_values": [0.3, -0.2, 0.7]}
    model = model_of("TreeEnsembleRegressor", ["y"], x, 3, attrs)
    (want,) = onnxruntime_run(model, {"x": x})
    np.testing.assert_allclose(weft_run(model, x)[0], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_of_a_regressor(rng, transform):
    x = data(rng, 10)
    attrs = Grown(rng, 4, 3).attributes("target", range(3), low=0.1)
    attrs |= {"n_targets": 3, "post_transform": transform}
    model = model_of("TreeEnsembleRegressor", ["y"], x, 1, attrs)
    (want,) = onnxruntime_run(model, {"x": x})
    np.testing.assert_allclose(weft_run(model, x)[0], want, rtol=1e-4, atol=NEAR[transform])


def test_one_target_is_transformed_as_well(rng):
    """Which ONNX Runtime does for PROBIT alone."""
    x = data(rng, 10)
    attrs = Grown(rng, 4, 3).attributes("target", [0]) | {"n_targets": 1}
    (raw,) = onnxruntime_run(model_of("TreeEnsembleRegressor", ["y"], x, 3, attrs), {"x": x})
    model = model_of("TreeEnsembleRegressor", ["y"], x, 3, attrs | {"post_transform": "LOGISTIC"})
    np.testing.assert_allclose(weft_run(model, x)[0], 1 / (1 + np.exp(-raw)), rtol=1e-5)


@pytest.mark.parametrize("tensors", [False, True])
def test_double(rng, tensors):
    """Thresholds between two float32 numbers are told apart."""
    x = data(rng, 30, np.float64) + rng.choice([0, 1e-12, -1e-12], (30, FEATURES))
    attrs = Grown(rng, 6, 4, MODES[:4]).attributes("target", [0], tensors=tensors) | {"n_targets": 1}
    model = model_of("TreeEnsembleRegressor", ["y"], x, 3, attrs)
    (want,) = onnxruntime_run(model, {"x": x})
    np.testing.assert_allclose(weft_run(model, x)[0], want, rtol=1e-6)


def test_deep_trees_and_a_wide_batch(rng):
    x = data(rng, 203)
    attrs = Grown(rng, 70, 12, MODES[:2], True).attributes("target", [0]) | {"n_targets": 1}
    model = model_of("TreeEnsembleRegressor", ["y"], x, 3, attrs)
    (want,) = onnxruntime_run(model, {"x": x})
    for rows in (203, 1, 5):
        np.testing.assert_allclose(weft_run(model, x[:rows])[0], want[:rows], rtol=1e-4, atol=1e-5)


# What ONNX Runtime has otherwise than onnx's text, where all classes have weights: of two classes the label is 1
# whenever the second one is above 0, whatever the labels are; base values of two classes are not added.
BINARY = [(2, [0], low, base) for low in (0.0, -1.0) for base in (0, 1)] + [(2, [1], low, 0) for low in (0.0, -1.0)]
SEVERAL = [(3, [0, 1, 2], -1.0, 0), (3, [0, 1, 2], 0.0, 3), (4, [0, 1, 2, 3], -1.0, 4)]
ALONE = [(1, [0], 0.0, 0), (1, [0], -1.0, 1)]


@pytest.mark.parametrize(("count", "ids", "low", "base"), BINARY + SEVERAL + ALONE)
def test_classifier(rng, count, ids, low, base):
    for transform in TRANSFORMS:
        if transform == "PROBIT" and count == 2:
            continue  # ONNX Runtime leaves memory as it was
        x = data(rng, 19)
        attrs = Grown(rng, 5, 4, MODES[:2]).attributes("class", ids, low)
        attrs |= {"classlabels_int64s": [7, -3, 9, 4][:count], "post_transform": transform}
        if base:
            attrs["base_values"] = rng.uniform(low, 0.5, base).astype(np.float32).tolist()
        model = model_of("TreeEnsembleClassifier", ["label", "score"], x, 3, attrs)
        want = onnxruntime_run(model, {"x": x})
        label, score = weft_run(model, x)
        np.testing.assert_allclose(score, want[1], rtol=1e-4, atol=NEAR[transform], err_msg=transform)
        np.testing.assert_array_equal(label, want[0], err_msg=transform)
        assert label.dtype == np.int64


@pytest.mark.parametrize("base", [0, 2])
def test_two_classes_that_both_have_weights(rng, base):
    x = np.nan_to_num(data(rng, 19), nan=0.25)
    attrs = Grown(rng, 5, 4).attributes("class", [0, 1]) | {"classlabels_int64s": [7, -3]}
    attrs |= {"base_values": [0.25, -0.5]} if base else {}
    model = model_of("TreeEnsembleClassifier", ["label", "score"], x, 3, attrs)
    want = ReferenceEvaluator(model).run(None, {"x": x})
    label, score = weft_run(model, x)
    np.testing.assert_allclose(score, want[1], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(label, want[0])


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_integers(rng, dtype):
    x = rng.integers(-3, 4, (12, FEATURES)).astype(dtype)
    attrs = Grown(rng, 5, 4, MODES).attributes("class", [0, 1, 2]) | {"classlabels_int64s": [0, 1, 2]}
    model = model_of("TreeEnsembleClassifier", ["label", "score"], x, 1, attrs)
    want = onnxruntime_run(model, {"x": x})
    for made, wanted in zip(weft_run(model, x), want):
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)


# Version 5, which has tables of branches and leaves


def by_position(rng, count, depth, modes, dtype, targets):
    """Random trees; MEMBER is mode 6, and has lists of values."""
    table = {name: [] for name in "featureids splits modes truenodeids trueleafs falsenodeids falseleafs".split()}
    members, leaves, roots = [], [], []

    def side(level):
        if level == 0 or rng.random() < 0.1:
            leaves.append((int(rng.integers(targets)), rng.normal()))
            return len(leaves) - 1, 1
        return branch(level), 0

    def branch(level):
        number = len(table["modes"])
        for column in table.values():
            column.append(0)
        mode = int(rng.choice(modes))
        columns = {"featureids": int(rng.integers(FEATURES)), "splits": float(halves(rng)), "modes": mode}
        if mode == 6:  # of which ONNX Runtime takes whole numbers only
            members.append((number, [*np.unique(rng.integers(-6, 7, rng.integers(1, 9))), np.nan]))
        columns["truenodeids"], columns["trueleafs"] = side(level - 1)
        columns["falsenodeids"], columns["falseleafs"] = side(level - 1)
        for name, value in columns.items():
            table[name][number] = value
        return number

    for _ in range(count):
        roots.append(branch(depth))
    ordered = [value for _, values in sorted(members, key=lambda row: row[0]) for value in values]
    attrs = {f"nodes_{name}": column for name, column in table.items()}
    attrs["nodes_splits"] = numpy_helper.from_array(np.array(table["splits"], dtype))
    attrs["nodes_modes"] = numpy_helper.from_array(np.array(table["modes"], np.uint8))
    attrs["nodes_missing_value_tracks_true"] = rng.integers(0, 2, len(table["modes"])).tolist()
    attrs["leaf_targetids"] = [target for target, _ in leaves]
    attrs["leaf_weights"] = numpy_helper.from_array(np.array([weight for _, weight in leaves], dtype))
    attrs |= {"tree_roots": roots, "n_targets": targets}
    return attrs | ({"membership_values": numpy_helper.from_array(np.array(ordered, dtype))} if ordered else {})


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregate", range(4))
@pytest.mark.parametrize("modes", [[0], [0, 1, 2, 3, 4, 5]])
def test_ensemble(rng, dtype, aggregate, modes):
    x = data(rng, 18, dtype)
    attrs = by_position(rng, 6, 4, modes, dtype, 2) | {"aggregate_function": aggregate}
    model = model_of("TreeEnsemble", ["y"], x, 5, attrs)
    (want,) = onnxruntime_run(model, {"x": x})
    (made,) = weft_run(model, x)
    assert made.dtype == dtype
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


def test_membership(rng):
    for depth, modes in itertools.product((1, 3), ([6], [0, 6])):
        x = data(rng, 40) * 2
        model = model_of("TreeEnsemble", ["y"], x, 5, by_position(rng, 4, depth, modes, np.float32, 2))
        (want,) = onnxruntime_run(model, {"x": x})
        np.testing.assert_allclose(weft_run(model, x)[0], want, rtol=1e-5, atol=1e-6)


def test_half_precision(rng):
    x = np.nan_to_num(data(rng, 9, np.float16))
    attrs = by_position(rng, 3, 3, [0], np.float16, 2)
    model = model_of("TreeEnsemble", ["y"], x, 5, attrs)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    (made,) = weft_run(model, x)
    assert made.dtype == np.float16
    np.testing.assert_allclose(made, want, rtol=2e-3, atol=2e-3)


# What makes no sense


def _stump():
    """One branch, two leaves."""
    nodes = {"treeids": [0] * 3, "nodeids": [0, 1, 2], "featureids": [1, 0, 0], "values": [0.5, 0.0, 0.0]}
    nodes |= {"modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "truenodeids": [1, 0, 0], "falsenodeids": [2, 0, 0]}
    made = {f"nodes_{name}": column for name, column in nodes.items()} | {"n_targets": 1}
    return made | {
        "target_treeids": [0, 0],
        "target_nodeids": [1, 2],
        "target_ids": [0, 0],
        "target_weights": [1.0, 2.0],
    }


BROKEN = {
    "a child that is not there": {"nodes_truenodeids": [7, 0, 0]},
    "a negative child": {"nodes_falsenodeids": [-1, 0, 0]},
    "a circle of one": {"nodes_truenodeids": [0, 0, 0]},
    "a circle": {
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
        "nodes_truenodeids": [1, 0, 0],
        "nodes_falsenodeids": [2, 2, 0],
    },
    "two parents": {
        "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"],
        "nodes_truenodeids": [1, 2, 0],
        "nodes_falsenodeids": [1, 2, 0],
    },
    "an unknown mode": {"nodes_modes": ["BRANCH_LIKE", "LEAF", "LEAF"]},
    "too few modes": {"nodes_modes": ["BRANCH_LEQ", "LEAF"]},
    "a node twice": {"nodes_nodeids": [0, 1, 1]},
    "a feature that is not there": {"nodes_featureids": [3, 0, 0]},
    "a negative feature": {"nodes_featureids": [-1, 0, 0]},
    "a target that is not there": {"target_ids": [0, 1]},
    "a weight of a node that is not there": {"target_nodeids": [1, 5]},
    "no targets": {"n_targets": 0},
    "no nodes": {name: None for name in _stump() if name.startswith("nodes_")},
    "an unknown transform": {"post_transform": "SQUARE"},
    "an unknown aggregate": {"aggregate_function": "MEDIAN"},
    "too many base values": {"base_values": [0.5, 0.25]},
}


@pytest.mark.parametrize("what", BROKEN)
def test_malformed(what):
    x = np.zeros((2, FEATURES), np.float32)
    model = model_of("TreeEnsembleRegressor", ["y"], x, 3, _stump() | BROKEN[what])
    with pytest.raises(FormatError):
        weft_run(model, x)


def test_malformed_by_position(rng):
    x = np.zeros((2, FEATURES), np.float32)
    sound = by_position(rng, 2, 2, [0, 6], np.float32, 2)
    count, leaves = len(sound["nodes_featureids"]), len(sound["leaf_targetids"])
    ones = numpy_helper.from_array(np.ones(count - 1, np.float32))
    broken = [
        {"tree_roots": [0, count]},
        {"tree_roots": [0, 0]},
        {"nodes_truenodeids": [leaves + count] * count},
        {"nodes_falsenodeids": [-1] * count},
        {"nodes_trueleafs": [0] * count, "nodes_truenodeids": [0] * count},
        {"nodes_splits": ones},
        {"nodes_modes": numpy_helper.from_array(np.full(count, 7, np.uint8))},
        {"nodes_modes": numpy_helper.from_array(np.full(count, 6, np.uint8)), "membership_values": ones},
        {"aggregate_function": 4},
        {"post_transform": -1},
    ]
    for change in broken:
        with pytest.raises(FormatError):
            weft_run(model_of("TreeEnsemble", ["y"], x, 5, sound | change), x)


def test_a_chain_of_nodes_costs_what_its_nodes_cost():
    """Depth is no recursion: a tree that is a list of 20,000 nodes is read, and walked to its end."""
    count = 20_000
    tree = {"treeids": [0] * (2 * count + 1), "nodeids": list(range(2 * count + 1))}
    tree["featureids"], tree["values"] = [0] * (2 * count + 1), [float(i) for i in range(count)] + [0.0] * (count + 1)
    tree["modes"] = ["BRANCH_LEQ"] * count + ["LEAF"] * (count + 1)
    tree["truenodeids"] = [count + i for i in range(count)] + [0] * (count + 1)
    tree["falsenodeids"] = [i + 1 for i in range(count - 1)] + [2 * count] + [0] * (count + 1)
    attrs = {f"nodes_{name}": column for name, column in tree.items()} | {"n_targets": 1}
    attrs |= {"target_treeids": [0] * (count + 1), "target_nodeids": list(range(count, 2 * count + 1))}
    attrs |= {"target_ids": [0] * (count + 1), "target_weights": [float(i) for i in range(count + 1)]}
    x = np.array([[-1.0], [17.5], [count - 1.5], [count]], np.float32)
    (made,) = weft_run(model_of("TreeEnsembleRegressor", ["y"], x, 3, attrs), x)
    np.testing.assert_array_equal(made[:, 0], [0, 18, count - 1, count])
