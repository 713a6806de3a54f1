"""Samples of ensembles of trees: trees are nested tuples, which a plain walk from root to leaf answers for."""

import operator

import numpy as np
from sample import Sample, samples

MODES = ("leq", "lt", "gte", "gt", "eq")
COMPARE = dict(zip(MODES, (operator.le, operator.lt, operator.ge, operator.gt, operator.eq)))


def tree(rng, depth, features, targets, modes, missing, sparse):
    """(mode, feature, threshold, holds for NaN, no, yes), or a leaf: a dict from targets to weights."""
    if depth == 0 or rng.random() < 0.15:
        chosen = rng.permutation(targets)[: rng.integers(targets + 1)] if sparse else range(targets)
        return {int(target): np.float32(rng.normal()) for target in chosen}
    mode = modes[rng.integers(len(modes))]
    sides = [tree(rng, depth - 1, features, targets, modes, missing, sparse) for _ in range(2)]
    threshold = np.float32(rng.integers(-3, 4) / 2)
    return (mode, int(rng.integers(features)), threshold, bool(missing and rng.random() < 0.5), *sides)


def packed(trees, targets, sparse):
    """Pairs of siblings, subtree after subtree."""
    links, thresholds, tests, leaves = [], [], [], []

    def grow():
        for column, value in ((links, [len(links), 0]), (thresholds, np.nan), (tests, 0)):
            column.append(value)

    def put(node, slot):
        if isinstance(node, dict):
            links[slot] = [slot, len(leaves)]
            leaves.append(node)
            return
        mode, feature, threshold, nan, no, yes = node
        first = len(links)
        grow(), grow()
        links[slot], thresholds[slot], tests[slot] = [first, feature], threshold, MODES.index(mode) + 8 * nan
        put(no, first), put(yes, first + 1)

    roots = []
    for one in trees:
        roots.append(len(links))
        grow(), grow()
        put(one, roots[-1])
    arrays = [np.array(roots, np.uint32), np.array(links, np.uint32), np.array(thresholds, np.float32)]
    arrays.append(np.array(tests, np.uint8))
    if not sparse:
        return [*arrays, np.array([[leaf[t] for t in range(targets)] for leaf in leaves], np.float32)]
    entries = [item for leaf in leaves for item in leaf.items()]
    starts = np.cumsum([0, *map(len, leaves)])
    weights, of = [w for _, w in entries], [t for t, _ in entries]
    return [*arrays, np.array(weights, np.float32), np.array(starts, np.uint32), np.array(of, np.uint32)]


def leaf_of(node, row):
    while not isinstance(node, dict):
        mode, feature, threshold, nan, no, yes = node
        holds = COMPARE[mode](row[feature], threshold) or (nan and np.isnan(row[feature]))
        node = yes if holds else no
    return node


def answer(trees, targets, aggregate, data):
    combine = {"sum": np.sum, "average": lambda w: np.sum(w) / len(trees), "min": np.min, "max": np.max}[aggregate]
    made = np.zeros((len(data), targets), np.float32)
    for number, row in enumerate(data):
        leaves = [leaf_of(one, row) for one in trees]
        for target in range(targets):
            weights = [np.float64(leaf[target]) for leaf in leaves if target in leaf]
            made[number, target] = combine(weights) if weights else 0
    return made


CASES = [  # rows, trees, depth, features, targets, aggregate, modes, missing, sparse
    (3, 2, 3, 2, 1, "sum", ("leq",), False, False),
    (19, 5, 4, 3, 2, "average", ("leq",), False, False),
    (1, 130, 3, 4, 1, "sum", ("lt",), False, False),
    (5, 70, 3, 4, 16, "max", ("gt",), False, False),
    (17, 6, 11, 3, 3, "sum", ("leq", "eq"), True, True),
    (9, 70, 10, 3, 2, "min", MODES, True, True),
    (8, 4, 4, 3, 2, "max", ("gte",), True, False),
    (11, 3, 0, 2, 2, "sum", ("leq",), False, False),
]


@samples("tree_ensemble", system="numpy")
def tree_ensemble(rng, numpy):
    for rows, count, depth, features, targets, aggregate, modes, missing, sparse in CASES:
        trees = [tree(rng, depth, features, targets, modes, missing, sparse) for _ in range(count)]
        data = (rng.integers(-4, 5, (rows, features)) / 2).astype(np.float32)
        data[rng.random(data.shape) < 0.1] = np.nan
        attrs = {"targets": targets, "depth": depth, "aggregate": aggregate, "modes": modes}
        attrs |= {"missing": missing, "sparse": sparse}
        inputs = [data, *packed(trees, targets, sparse)]
        yield Sample(inputs, attrs, lambda x, *_, of=(trees, targets, aggregate): answer(*of, x))
