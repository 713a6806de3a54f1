"""Converters of decision trees: two forms of files, one operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .....base.dtype import FLOAT32, FLOAT64
from .....base.errors import FormatError
from .....ops.ml.trees import MODES
from ....emitter import Value
from ...call import OnnxCall
from ...registry import converter
from .forest import Forest, Ints, Trees, packed
from .labels import above, class_labels, labelled, likeliest
from .lookup import ML
from .scores import transformed, with_second_class

_BRANCH = {f"BRANCH_{mode.upper()}": number for number, mode in enumerate(MODES)}
_BRANCH |= dict.fromkeys(("BRANCH_NEQ", "BRANCH_MEMBER"), MODES.index("eq"))
_NAMES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")  # by number
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # by number


class Weights(NamedTuple):
    """What leaves give to targets, in any order."""

    nodes: Ints
    targets: Ints
    weights: np.ndarray


def _trees(
    roots: Ints,
    features: Ints,
    values: np.ndarray,
    modes: list[str],
    nan: np.ndarray,
    no: Ints,
    yes: Ints,
    members: dict[int, np.ndarray],
) -> Trees:
    """Trees by the names of their modes. What is unequal fails to be equal, NaN too: the two sides change places."""
    swapped = np.array([mode == "BRANCH_NEQ" for mode in modes], bool)
    numbers = np.array([_BRANCH[mode] for mode in modes], np.int64)
    holds, fails = np.where(swapped, [no, yes], [yes, no])
    return Trees(roots, features, values, numbers, nan & ~swapped, holds, fails, members)


# Trees by the numbers of their nodes


class _Ids:
    """The nodes of a file by the ids of tree and node, which are any numbers."""

    def __init__(self, trees: Ints, nodes: Ints) -> None:
        self.trees, self.nodes = np.unique(trees), np.unique(nodes)
        keys = self._keys(trees, nodes)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        if (self._sorted[1:] == self._sorted[:-1]).any():
            raise FormatError("a tree has two nodes of one id")

    def _keys(self, trees: Ints, nodes: Ints) -> Ints:
        places = [np.minimum(np.searchsorted(known, ids), len(known) - 1) for known, ids in self._columns(trees, nodes)]
        there = [known[place] == ids for place, (known, ids) in zip(places, self._columns(trees, nodes))]
        return np.where(there[0] & there[1], places[0] * len(self.nodes) + places[1], -1)

    def _columns(self, trees: Ints, nodes: Ints) -> list[tuple[Ints, Ints]]:
        return [(self.trees, trees), (self.nodes, nodes)]

    def find(self, trees: Ints, nodes: Ints, what: str) -> Ints:
        """Where the file has each of these nodes."""
        keys = self._keys(trees, nodes)
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        lost = np.flatnonzero(self._sorted[place] != keys)
        if len(lost):
            raise FormatError(f"{what} node {nodes[lost[0]]} of tree {trees[lost[0]]}, which is not there")
        return self._order[place]


def _column(call: OnnxCall, name: str, count: int | None = None, dtype: Any = np.int64) -> np.ndarray:
    """An attribute that is a list, of a length that others tell; its tensor form, where it has one, is preferred."""
    given = call.attr(f"{name}_as_tensor")
    values = np.ravel(np.asarray(call.attr(name) or [], dtype) if given is None else given)
    if count is not None and len(values) != count:
        raise FormatError(f"{name} has {len(values)} elements", why=f"others have {count}")
    return values


def _trees_by_id(call: OnnxCall, part: str) -> tuple[Trees, Weights]:
    """Versions 1 and 3, which name nodes by ids; `part` is what the attributes of weights begin with."""
    call.ignore("nodes_hitrates", "nodes_hitrates_as_tensor")
    tree_ids = _column(call, "nodes_treeids")
    count = len(tree_ids)
    if not count:
        raise FormatError("there are no trees")
    modes = call.attr("nodes_modes") or []
    unknown = set(modes) - {"LEAF", *_NAMES[:-1]}
    if len(modes) != count or unknown:
        raise FormatError(f"{len(modes)} modes of {count} nodes" if not unknown else f"mode {min(unknown)!r:.40}")
    node_ids, features, no, yes = (
        _column(call, f"nodes_{name}", count) for name in ("nodeids", "featureids", "falsenodeids", "truenodeids")
    )
    values = _column(call, "nodes_values", count, np.float32)
    nan = _column(call, "nodes_missing_value_tracks_true")
    nan = _column(call, "nodes_missing_value_tracks_true", count) if len(nan) else np.zeros(count, np.int64)

    ids = _Ids(tree_ids, node_ids)
    is_leaf = np.array([mode == "LEAF" for mode in modes])
    inner = np.flatnonzero(~is_leaf)
    number = np.empty(count, np.int64)  # branches first
    number[np.concatenate([inner, np.flatnonzero(is_leaf)])] = np.arange(count)
    roots = np.sort(np.unique(tree_ids, return_index=True)[1])  # the first node of each tree
    no, yes = (number[ids.find(tree_ids[inner], side[inner], "a branch leads to")] for side in (no, yes))
    names = [modes[place] for place in inner.tolist()]
    trees = _trees(number[roots], features[inner], values[inner], names, nan[inner] != 0, no, yes, {})
    entries = _column(call, f"{part}_ids")
    owners = [_column(call, f"{part}_{name}", len(entries)) for name in ("treeids", "nodeids")]
    weighed = ids.find(owners[0], owners[1], "a weight is of")
    weights = Weights(number[weighed], entries, _column(call, f"{part}_weights", len(entries), np.float32))
    return trees, weights


# Trees by position


def _trees_by_position(call: OnnxCall) -> tuple[Trees, Weights]:
    """Version 5, which has tables of branches and of leaves."""
    call.ignore("nodes_hitrates")
    features = _column(call, "nodes_featureids")
    count = len(features)
    modes = [int(mode) for mode in np.ravel(call.attr("nodes_modes"))]
    if len(modes) != count or not all(0 <= mode < len(_NAMES) for mode in modes):
        raise FormatError(f"{len(modes)} modes of {count} nodes, none of which is above {len(_NAMES) - 1}")
    values = np.ravel(call.attr("nodes_splits"))
    targets = _column(call, "leaf_targetids")
    weights = np.ravel(call.attr("leaf_weights"))
    nan = np.zeros(count, bool)
    if call.attr("nodes_missing_value_tracks_true") is not None:
        nan = _column(call, "nodes_missing_value_tracks_true", count) != 0
    if len(values) != count or len(weights) != len(targets):
        raise FormatError(f"{len(values)} splits of {count} nodes, {len(weights)} weights of {len(targets)} leaves")
    roots = _column(call, "tree_roots")
    if not len(roots) or ((roots < 0) | (roots >= count)).any():
        raise FormatError("a tree begins at a node that is not there")
    no, yes = (_positions(call, side, count, len(targets)) for side in ("false", "true"))
    members = _members(call, np.flatnonzero(np.array(modes) == _NAMES.index("BRANCH_MEMBER")))
    trees = _trees(roots, features, values, [_NAMES[mode] for mode in modes], nan, no, yes, members)
    return trees, Weights(count + np.arange(len(targets)), targets, weights)


def _positions(call: OnnxCall, side: str, branches: int, leaves: int) -> Ints:
    """The nodes that branches lead to on one side; leaves come after the branches."""
    places = _column(call, f"nodes_{side}nodeids", branches)
    is_leaf = _column(call, f"nodes_{side}leafs", branches) != 0
    if ((places < 0) | (places >= np.where(is_leaf, leaves, branches))).any():
        raise FormatError("a branch leads to a node that is not there")
    return np.where(is_leaf, branches + places, places)


def _members(call: OnnxCall, asking: Ints) -> dict[int, np.ndarray]:
    """The values that branches ask for, which the file has in the order of the branches, NaN after each."""
    given = call.attr("membership_values")
    values = np.zeros(0) if given is None else np.ravel(given)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != len(asking):
        raise FormatError(f"{len(ends)} lists of members for {len(asking)} branches that ask for them")
    begins = [0, *(ends + 1)]
    return {int(branch): values[begin:end] for branch, begin, end in zip(asking, begins, ends)}


# The operator


def _ensemble(call: OnnxCall, trees: Trees, weights: Weights, targets: int, aggregate: str) -> Value:
    """(rows, targets), in the dtype of the weights."""
    if aggregate not in _AGGREGATES:
        raise FormatError(f"aggregate_function {aggregate!r:.40}", why=f"it is one of {', '.join(_AGGREGATES)}")
    x = call[0]
    if x.dtype not in (FLOAT32, FLOAT64):
        x = call.cast(x, FLOAT32)
    if trees.values.dtype == FLOAT64:
        x = call.cast(x, FLOAT64)
    _check_range(trees.features, call.extent(x, 1), "feature")
    _check_range(weights.targets, targets, "target or class")
    forest = packed(trees)
    by_leaf, sparse = _by_leaf(forest, weights, targets, trees.branches, aggregate in ("SUM", "AVERAGE"))
    arrays = [
        forest.roots.astype(np.uint32),
        forest.links.astype(np.uint32),
        forest.thresholds.astype(x.dtype),
        forest.tests,
        *by_leaf,
    ]
    return call.op(
        "tree_ensemble",
        x,
        *(call.make(array) for array in arrays),
        targets=targets,
        depth=forest.depth,
        aggregate=aggregate.lower(),
        modes=forest.modes,
        missing=forest.missing,
        sparse=sparse,
    )


def _check_range(numbers: Ints, end: int, what: str) -> None:
    wrong = numbers[(numbers < 0) | (numbers >= end)]
    if len(wrong):
        raise FormatError(f"{what} {wrong[0]} of {end}")


def _by_leaf(
    forest: Forest, weights: Weights, targets: int, branches: int, adds: bool
) -> tuple[Sequence[np.ndarray], bool]:
    """Weights by the leaves of a forest; whether that is a list for each of them, and no row of a table."""
    at_leaf = weights.nodes >= branches  # some converters write weights of branches, which nothing reads
    leaf, target, weight = (column[at_leaf] for column in weights._replace(nodes=weights.nodes - branches))
    order = np.argsort(leaf, kind="stable")
    leaf, target, weight = leaf[order], target[order], weight[order]
    known = forest.leaves - branches
    begin, end = (np.searchsorted(leaf, known, side) for side in ("left", "right"))
    counts = end - begin
    starts = np.concatenate([[0], np.cumsum(counts)])
    entry = np.repeat(begin - starts[:-1], counts) + np.arange(starts[-1])
    whole = adds or (targets == 1 and (counts == 1).all())
    if whole and 2 * starts[-1] >= len(known) * targets:
        table = np.zeros((len(known), targets), weight.dtype)
        np.add.at(table, (np.repeat(np.arange(len(known)), counts), target[entry]), weight[entry])
        return [table], False
    filler = 0 if len(entry) else 1  # arrays are not empty
    columns = [np.concatenate([column[entry], np.zeros(filler, column.dtype)]) for column in (weight, target)]
    return [columns[0], starts.astype(np.uint32), columns[1].astype(np.uint32)], True


def _with_base(call: OnnxCall, scores: Value, base: np.ndarray) -> Value:
    if not base.size:
        return scores
    if base.size not in (1, call.extent(scores, 1)):
        raise FormatError(f"{base.size} base values for {call.extent(scores, 1)} targets")
    return call.op("broadcast_add", scores, call.make(base.reshape(1, -1), call.dtype(scores)))


@converter("TreeEnsembleRegressor", domain=ML)
def regressor(call: OnnxCall) -> Value:
    targets = call.attr("n_targets")
    if not targets or targets < 0:
        raise FormatError(f"n_targets is {targets}")
    trees, weights = _trees_by_id(call, "target")
    scores = _ensemble(call, trees, weights, targets, call.attr("aggregate_function"))
    scores = _with_base(call, scores, _column(call, "base_values", None, np.float32))
    return call.cast(transformed(call, scores, call.attr("post_transform")), FLOAT32)


@converter("TreeEnsemble", since=5, domain=ML)
def ensemble(call: OnnxCall) -> Value:
    aggregate, transform = call.attr("aggregate_function"), call.attr("post_transform")
    if not 0 <= aggregate < len(_AGGREGATES):
        raise FormatError(f"aggregate_function is {aggregate}")
    targets = call.attr("n_targets")
    if not targets or targets < 0:
        raise FormatError(f"n_targets is {targets}")
    trees, weights = _trees_by_position(call)
    scores = _ensemble(call, trees, weights, targets, _AGGREGATES[aggregate])
    return call.cast(transformed(call, scores, transform), call.dtype(call[0]))


@converter("TreeEnsembleClassifier", domain=ML)
def classifier(call: OnnxCall) -> list[Value]:
    """Labels and scores; of two classes of which only one has weights, the other has what is left."""
    labels = class_labels(call)
    trees, weights = _trees_by_id(call, "class")
    base, transform = _column(call, "base_values", None, np.float32), call.attr("post_transform")
    classes = np.unique(weights.targets)
    if len(labels) <= 2 and len(classes) == 1 and base.size <= 1 and not (classes[0] and base.size):
        which, scores = _of_one_class(call, trees, weights, base, len(labels))
        labels = labels if len(labels) == 2 else [0, 1]
    else:
        if base.size not in (0, len(labels)):
            raise FormatError(f"{base.size} base values for {len(labels)} classes")
        scores = _with_base(call, _ensemble(call, trees, weights, len(labels), "SUM"), base)
        which, scores = likeliest(call, scores), transformed(call, scores, transform)
    return [labelled(call, which, labels), call.cast(scores, FLOAT32)]


def _of_one_class(call: OnnxCall, trees: Trees, weights: Weights, base: np.ndarray, count: int) -> tuple[Value, Value]:
    """The class of each row, and its scores, where all weights are of one class."""
    transform, given = call.attr("post_transform"), int(weights.targets[0])
    _check_range(weights.targets, count, "class")
    score = _ensemble(call, trees, weights._replace(targets=weights.targets * 0), 1, "SUM")
    score = _with_base(call, score, base)
    likely = bool((weights.weights >= 0).all())  # then it is a probability
    which = above(call, score, 0.5 if likely and count == 2 else 0.0)
    if count == 1:
        return which, transformed(call, score, transform) if transform == "PROBIT" else score
    if given == 1:
        return which, transformed(call, call.joined([call.scaled(score, 0.0), score], 1), transform)
    return which, with_second_class(call, score, transform, complement=likely)
