"""Ensembles of decision trees, as arrays of nodes.

The two children of a node are neighbours: the first is taken where the test of the node fails, the second
where it holds. A leaf is its own first child and has a threshold that no test meets (NaN), so that walking
past it changes nothing, and all walks of a group may take as many steps as the longest of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base.dtype import DTYPES, FLOAT64, INT64, is_float
from ...base.errors import DTypeError, ShapeError
from ...base.shape import show, unify, unify_dim
from ...core.schema import BOOL, INT, attr, choice, schema, tuple_of
from .._families import Inferred, Shapes, define, ranked
from .._kernels import Body, Rows, along, wide_dtype

MODES = ("leq", "lt", "gte", "gt", "eq")
MISSING = 8  # the bit of a test that holds for NaN; those below are the number of its mode
UINT8, UINT32 = DTYPES["uint8"], DTYPES["uint32"]
LANES = 8  # walks that one thread takes at once: while one waits for memory, the others go on
STEPS = 4  # that all of them take before it is asked whether any is still under way
SHALLOW = 8  # steps that are taken without asking
GROUPS = 8  # of walks, for which a tree stays in the nearest cache
CHUNK = 64  # trees of one row that a thread takes at a time


@schema
class TreeEnsembleAttrs:
    targets: int = attr(INT, "numbers that each row gets", low=1)
    depth: int = attr(INT, "steps that a walk takes at most", low=0, high=2**31 - 1)
    aggregate: str = attr(choice("sum", "average", "min", "max"), "over the trees", default="sum")
    modes: tuple[str, ...] = attr(tuple_of(choice(*MODES), "tuple of modes"), "of tests that occur", default=("leq",))
    missing: bool = attr(BOOL, "some tests hold for NaN", default=False)
    sparse: bool = attr(BOOL, "leaves name the targets that they have weights of", default=False)


_INPUTS = {
    "data": "(rows, features)",
    "roots": "(trees,) uint32: the node that each tree begins with",
    "links": "(nodes, 2) uint32: the first child and the feature that is tested; of a leaf itself and its number",
    "thresholds": "(nodes,): what the feature is compared with; NaN of a leaf",
    "tests": "(nodes,) uint8: the number of the mode (0 leq, 1 lt, 2 gte, 3 gt, 4 eq), plus 8 if it holds for NaN",
    "weights": "(leaves, targets); (entries,) if sparse",
    "starts": "(leaves + 1,) uint32, if sparse: the first entry of each leaf, and their end",
    "entries": "(entries,) uint32, if sparse: the target of each weight",
}


def _names(params: TreeEnsembleAttrs) -> list[str]:
    return list(_INPUTS) if params.sparse else list(_INPUTS)[:6]


def _shape(params: TreeEnsembleAttrs, ins: Shapes, outs: Shapes) -> Inferred:
    rows, features = ranked(ins[0], 2, "the data")
    (trees,) = ranked(ins[1], 1, "roots")
    nodes, two = ranked(ins[2], 2, "links")
    node_shape = unify(unify((nodes,), ins[3]), ins[4])
    unify_dim(two, 2)
    (rows_out, _) = ranked(unify(outs[0], (None, params.targets)), 2, "the output")
    rows = unify_dim(rows, rows_out)
    known = [(rows, features), (trees,), (nodes, 2), node_shape, node_shape, *_weight_shapes(params, ins)]
    if features == 0 or trees == 0 or node_shape[0] in (0, 1):
        raise ShapeError(
            f"data of shape {show(ins[0])}, {show(ins[1])} roots and {show(ins[2])} links",
            why="there is a feature, a tree and two nodes at least",
        )
    return known, [(rows, params.targets)]


def _weight_shapes(params: TreeEnsembleAttrs, ins: Shapes) -> list[Any]:
    if not params.sparse:
        leaves, _ = ranked(unify(ins[5], (None, params.targets)), 2, "weights")
        if leaves == 0:
            raise ShapeError("weights of no leaf")
        return [(leaves, params.targets)]
    (entries,) = ranked(unify(ins[5], ins[7]), 1, "weights")
    (starts,) = ranked(ins[6], 1, "starts")
    if entries == 0 or starts in (0, 1):
        raise ShapeError(f"{entries} weights and {starts} starts", why="there is a leaf with a weight at least")
    return [(entries,), (starts,), (entries,)]


def _dtype(params: TreeEnsembleAttrs, ins: Sequence[Any], outs: Sequence[Any]) -> Inferred:
    data = ins[0] if ins[0] is not None else ins[3]
    weights = ins[5] if ins[5] is not None else outs[0]
    wanted = [data, UINT32, UINT32, data, UINT8, weights, UINT32, UINT32][: len(ins)]
    for name, given, dtype in zip(_INPUTS, ins, wanted):
        floating = dtype is None or dtype in (UINT8, UINT32) or is_float(dtype)
        if not floating or (given is not None and given != dtype):
            raise DTypeError(f"{name} of dtype {given}", why=f"it must be {dtype if floating else 'floating'}")
    return wanted, [weights]


# In numpy


def _reference(
    params: TreeEnsembleAttrs, x: Any, roots: Any, links: Any, thresholds: Any, tests: Any, *leaf: Any
) -> Any:
    x, thresholds = (values.astype(wide_dtype(values.dtype)) for values in (x, thresholds))
    last = len(thresholds) - 1
    features = np.minimum(links[:, 1], x.shape[1] - 1)
    node = np.broadcast_to(np.minimum(roots, last), (len(x), len(roots)))
    rows = np.arange(len(x))[:, None]
    for _ in range(params.depth):
        taken = _taken(params, x[rows, features[node]], thresholds[node], tests[node])
        after = np.minimum(links[node, 0].astype(INT64) + taken, last)
        if np.array_equal(after, node):
            break
        node = after
    return _aggregated(params, links[node, 1], *leaf)


def _taken(params: TreeEnsembleAttrs, value: Any, threshold: Any, test: Any) -> Any:
    compare = dict(zip(MODES, (np.less_equal, np.less, np.greater_equal, np.greater, np.equal)))
    taken = compare[params.modes[0]](value, threshold)
    for mode in params.modes[1:]:
        taken = np.where(test % MISSING == MODES.index(mode), compare[mode](value, threshold), taken)
    return taken | ((test >= MISSING) & np.isnan(value)) if params.missing else taken


def _aggregated(params: TreeEnsembleAttrs, leaves: Any, weights: Any, starts: Any = None, entries: Any = None) -> Any:
    """What the leaves of each row come to, (rows, targets)."""
    ufunc, neutral = _ACCUMULATION[params.aggregate]
    if starts is None:
        values = weights.astype(FLOAT64)[np.minimum(leaves, len(weights) - 1)]
        total = ufunc.reduce(values, axis=1, initial=neutral)
    else:
        total = np.full((len(leaves), params.targets), neutral)
        leaves = np.minimum(leaves, len(starts) - 2).astype(INT64)
        first, end = (np.minimum(starts[leaves + side], len(weights)).astype(INT64) for side in (0, 1))
        for step in range(int(np.max(end - first, initial=0))):
            row, tree = np.nonzero(first + step < end)
            entry = first[row, tree] + step
            ufunc.at(total, (row, np.minimum(entries[entry], params.targets - 1)), weights[entry].astype(FLOAT64))
    if params.aggregate == "average":
        total = total / leaves.shape[1]
    return np.where(total == neutral, 0, total).astype(weights.dtype)


_ACCUMULATION: dict[str, tuple[Any, float]] = {
    "sum": (np.add, 0.0),
    "average": (np.add, 0.0),
    "min": (np.minimum, np.inf),
    "max": (np.maximum, -np.inf),
}


# As loops


class _Walks:
    """What the kernels of an ensemble share: its buffers, and what is done with them."""

    def __init__(self, params: TreeEnsembleAttrs, b: te.KernelBuilder, buffers: Sequence[te.Buffer]) -> None:
        self.params, self.b = params, b
        self.data, self.roots, self.links, self.thresholds, self.tests, *self.leaf = buffers
        self.nodes = _extent(self.thresholds, 0)

    def root(self, tree: te.ExprLike) -> te.Expr:
        return _within(self.roots[tree], self.nodes)

    def leaves(self, rows: Sequence[te.Expr], roots: Sequence[te.Expr]) -> list[te.Expr]:
        """The numbers of the leaves that walks end in; each has a row of the data and begins at a node."""
        b, depth = self.b, self.params.depth
        node = b.alloc("node", INT64, (len(rows),), scope="register")
        for walk, root in enumerate(roots):
            b.store(node, walk, root)
        if depth <= SHALLOW:
            self._steps(rows, node, depth)
        else:
            moved, left = (b.alloc(name, INT64, (), scope="register") for name in ("moved", "left"))
            b.store(moved, (), 1)
            b.store(left, (), depth)
            with b.repeat_while((moved[()] > 0) & (left[()] > 0)):
                self._steps(rows, node, STEPS - 1)
                b.store(moved, (), 0)
                for walk, row in enumerate(rows):
                    before = b.let("before", node[walk])
                    b.store(node, walk, self._next(row, before))
                    b.store(moved, (), moved[()] | (before ^ node[walk]))
                b.store(left, (), left[()] - STEPS)
        return [te.cast(self.links[node[walk], 1], INT64) for walk in range(len(rows))]

    def _steps(self, rows: Sequence[te.Expr], node: te.Buffer, count: int) -> None:
        """Steps of all walks, in turns."""
        for _ in range(count):
            for walk, row in enumerate(rows):
                self.b.store(node, walk, self._next(row, node[walk]))

    def _next(self, row: te.Expr, node: te.Expr) -> te.Expr:
        feature = _within(self.links[node, 1], _extent(self.data, 1))
        taken = self._taken(self.data[row, feature], self.thresholds[node], node)
        return _within(te.cast(self.links[node, 0], INT64) + te.cast(taken, INT64), self.nodes)

    def _taken(self, value: te.Expr, threshold: te.Expr, node: te.Expr) -> te.Expr:
        first, *others = self.params.modes
        wide = wide_dtype(value.dtype)
        value, threshold = te.cast(value, wide), te.cast(threshold, wide)
        taken = te.compare(_COMPARE[first], value, threshold)
        for mode in others:
            is_it = (self.tests[node] % MISSING).equal(MODES.index(mode))
            taken = te.select(is_it, te.compare(_COMPARE[mode], value, threshold), taken)
        return taken | ((self.tests[node] >= MISSING) & te.isnan(value)) if self.params.missing else taken

    def add(self, total: te.Buffer, row: te.ExprLike, leaf: te.Expr, counts: te.Expr | None = None) -> None:
        """Takes a leaf into the totals of a row; one that does not count may only be given twice for min and max."""
        b, combine = self.b, _COMBINE[self.params.aggregate]
        if not self.params.sparse:
            weights = self.leaf[0]
            leaf = b.let("leaf", _within(leaf, _extent(weights, 0)))
            blocks = Rows(1, 1, self.params.targets)
            with b.loop("block", blocks.inner // blocks.block) as block, along(b, blocks) as lane:
                target = block * blocks.block + lane
                weight = te.cast(weights[leaf, target], FLOAT64)
                weight = weight if counts is None else te.select(counts, weight, _neutral(self.params))
                b.store(total, (row, target), combine(total[row, target], weight))
            return
        weights, starts, entries = self.leaf
        leaf = b.let("leaf", _within(leaf, _extent(starts, 0) - 1))
        first, end = (
            b.let("bound", te.min(te.cast(starts[leaf + side], INT64), _extent(weights, 0))) for side in (0, 1)
        )
        count = te.max(end - first, 0)
        with b.loop("entry", count if counts is None else te.select(counts, count, 0)) as entry:
            target = b.let("target", _within(entries[first + entry], self.params.targets))
            weight = te.cast(weights[first + entry], FLOAT64)
            b.store(total, (row, target), combine(total[row, target], weight))


def _extent(buffer: te.Buffer, axis: int) -> int:
    return int(buffer.shape[axis].value)  # type: ignore[attr-defined]


def _within(index: te.Expr, extent: int) -> te.Expr:
    """An unsigned number as an index that is in bounds."""
    return te.min(te.cast(index, INT64), extent - 1)


_COMPARE = dict(zip(MODES, ("le", "lt", "ge", "gt", "eq")))
_COMBINE: dict[str, Callable[[te.Expr, te.Expr], te.Expr]] = {
    "sum": lambda a, b: a + b,
    "average": lambda a, b: a + b,
    "min": te.min,
    "max": te.max,
}


def _neutral(params: TreeEnsembleAttrs) -> te.Expr:
    return te.const(_ACCUMULATION[params.aggregate][1], FLOAT64)


def _result(params: TreeEnsembleAttrs, total: te.Expr, trees: int, dtype: Any) -> te.Expr:
    total = total / float(trees) if params.aggregate == "average" else total
    return te.cast(te.select(total.equal(_neutral(params)), 0.0, total), dtype)


def _kernels(params: TreeEnsembleAttrs, inputs: Any, outputs: Any) -> Any:
    """Rows in groups that walk one tree at once; those that are left over walk many trees at once."""
    body = Body("tree_ensemble", inputs, outputs)
    rows = inputs[0][0][0]
    grouped = rows // LANES * LANES
    if grouped or not rows:
        _group_kernel(params, body, len(inputs), grouped)
    if rows > grouped:
        _row_kernels(params, body, len(inputs), grouped, rows - grouped)
    return body.kernels


def _views(body: Body, count: int) -> dict[int, Sequence[int]]:
    return {position: body.specs[position][0] for position in range(count)}


def _group_kernel(params: TreeEnsembleAttrs, body: Body, count: int, rows: int) -> None:
    """Blocks of rows; a tree after the other takes all groups of a block."""
    (trees,), targets = body.specs[1][0], params.targets
    groups = min(GROUPS, max(rows // LANES // 16, 1))
    blocks = -(-rows // (LANES * groups))
    totals = body.temporary((rows, targets), FLOAT64)
    views = _views(body, count) | {count: body.specs[count][0], totals: (rows, targets)}
    with body.kernel(views, rows * trees * 16) as (b, *buffers), b.parallel("block", blocks) as block:
        total, out = buffers.pop(), buffers.pop()
        walks = _Walks(params, b, buffers)
        first = b.let("first", block * (LANES * groups))
        here = b.let("here", te.min(rows - first, LANES * groups))
        with b.loop("row", here) as row, b.loop("target", targets) as target:
            b.store(total, (first + row, target), _neutral(params))
        with b.loop("tree", trees) as tree:
            root = b.let("root", walks.root(tree))
            with b.loop("group", here // LANES) as group:
                places = [first + group * LANES + lane for lane in range(LANES)]
                for place, leaf in zip(places, walks.leaves(places, [root] * LANES)):
                    walks.add(total, place, leaf)
        with b.loop("row", here) as row, b.loop("target", targets) as target:
            value = total[first + row, target]
            b.store(out, (first + row, target), _result(params, value, trees, out.dtype))


def _row_kernels(params: TreeEnsembleAttrs, body: Body, count: int, first: int, rows: int) -> None:
    """Chunks of trees for a row each; then the chunks of each row come together."""
    (trees,), targets = body.specs[1][0], params.targets
    lanes = min(trees, LANES)
    chunks = -(-trees // CHUNK)
    totals = body.temporary((rows * chunks, targets), FLOAT64)
    views = _views(body, count) | {totals: (rows * chunks, targets)}
    with body.kernel(views, rows * trees * 16) as (b, *buffers), b.parallel("task", rows * chunks) as task:
        total = buffers.pop()
        walks = _Walks(params, b, buffers)
        row = b.let("row", first + task // chunks)
        begin = b.let("begin", task % chunks * CHUNK)
        with b.loop("target", targets) as target:
            b.store(total, (task, target), _neutral(params))
        with b.loop("group", te.min((trees - begin + lanes - 1) // lanes, CHUNK // lanes)) as group:
            numbers = [b.let("tree", begin + group * lanes + lane) for lane in range(lanes)]
            roots = [b.let("root", walks.root(te.min(number, trees - 1))) for number in numbers]
            for number, leaf in zip(numbers, walks.leaves([row] * lanes, roots)):
                walks.add(total, task, leaf, number < trees)
    views = {totals: (rows, chunks, targets), count: body.specs[count][0]}
    with body.kernel(views, rows * chunks * targets) as (b, total, out), b.parallel("row", rows) as row:
        combine = _COMBINE[params.aggregate]
        with b.loop("target", targets) as target:
            value = b.alloc("value", FLOAT64, (), scope="register")
            b.store(value, (), _neutral(params))
            with b.loop("chunk", chunks) as chunk:
                b.store(value, (), combine(value[()], total[row, chunk, target]))
            b.store(out, (first + row, target), _result(params, value[()], trees, out.dtype))


tree_ensemble = define(
    "tree_ensemble",
    "What the leaves that a row ends in come to, over all trees: their sum, average, minimum or maximum, "
    "computed in float64; 0 for a target that none of them has. A walk begins at the root of a tree and goes "
    "from a node to the first of its two children, or to the second where the feature of the row compares "
    "with the threshold of the node as its mode says. Numbers that are out of range count as the last one in it.",
    level=10,
    inputs=_INPUTS,
    named=False,
    attrs=TreeEnsembleAttrs,
    shape=_shape,
    dtype=_dtype,
    reference=_reference,
    kernels=_kernels,
)
tree_ensemble.set_num_inputs(lambda params: len(_names(params)))
tree_ensemble.input_names = _names
