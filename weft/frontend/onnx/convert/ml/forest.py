"""Trees as files have them come in, the arrays of the operator `tree_ensemble` go out.

Every step works on all nodes of a level at once, so that the cost is that of the file; what is no tree
(a node with two parents, a circle, a child that is not there) is found on the way down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .....base.errors import FormatError
from .....ops.ml.trees import MISSING, MODES

Ints = np.ndarray[Any, np.dtype[np.int64]]
Floats = np.ndarray[Any, np.dtype[Any]]


@dataclass
class Trees:
    """All nodes of all trees by number; the leaves are those from `branches` on. The other arrays are of branches."""

    roots: Ints
    features: Ints
    values: Floats
    modes: Ints  # numbers of MODES
    holds_for_nan: np.ndarray
    yes: Ints  # the node where the test holds
    no: Ints
    members: dict[int, Floats]  # of the branches that ask for one of several values

    @property
    def branches(self) -> int:
        return len(self.features)


@dataclass
class Forest:
    """The arrays of `tree_ensemble` without the weights, and the node that each of its leaves is."""

    roots: Ints
    links: Ints
    thresholds: Floats
    tests: np.ndarray
    leaves: Ints
    depth: int

    @property
    def modes(self) -> tuple[str, ...]:
        used = np.unique(self.tests[~np.isnan(self.thresholds)] % MISSING)
        return tuple(MODES[int(number)] for number in used) or MODES[:1]

    @property
    def missing(self) -> bool:
        return bool((self.tests >= MISSING).any())


def packed(trees: Trees) -> Forest:
    """The nodes laid out in pairs of siblings: a tree after the other, and in it a subtree after the other.

    A tree begins with a pair of its own, of which the root is the first.
    """
    levels = _levels(trees)
    begin, place = _pairs(trees, levels)
    reached = np.concatenate([*levels, np.zeros(0, np.int64)])
    slots = np.concatenate([2 * begin, 2 * place[reached], 2 * place[reached] + 1])
    nodes = np.concatenate([trees.roots, trees.no[reached], trees.yes[reached]])
    order = np.argsort(slots)
    slots, nodes = slots[order], nodes[order]
    is_branch = nodes < trees.branches
    at, branches = slots[is_branch], nodes[is_branch]
    ends = slots[~is_branch]

    count = 2 * (len(trees.roots) + len(reached))
    links = np.stack([np.arange(count), np.zeros(count, np.int64)], 1)  # what nobody reaches is a leaf
    links[at] = np.stack([2 * place[branches], trees.features[branches]], 1)
    links[ends, 1] = np.arange(len(ends))
    thresholds = np.full(count, np.nan, trees.values.dtype)
    thresholds[at] = trees.values[branches]
    tests = np.zeros(count, np.uint8)
    tests[at] = (trees.modes + MISSING * trees.holds_for_nan)[branches]
    slot_of = np.full(trees.branches, -1)
    slot_of[branches] = at
    links, thresholds, tests = _with_searches(trees, slot_of, [links, thresholds, tests])
    depth = len(levels) * (1 + max((len(members).bit_length() for members in trees.members.values()), default=0))
    return Forest(2 * begin, links, thresholds, tests, nodes[~is_branch], depth)


def _with_searches(trees: Trees, slot_of: Ints, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Branches that ask for one of several values become a search: halves by leq, then eq, all of which lead to
    the children of the branch."""
    end = len(arrays[0])
    rows: list[tuple[int, tuple[int, int], float, int]] = []
    for branch, members in trees.members.items():
        slot, feature = int(slot_of[branch]), int(trees.features[branch])
        children, nan = int(arrays[0][slot, 0]), MISSING * int(trees.holds_for_nan[branch])
        todo = [(slot, np.unique(members))] if slot >= 0 else []
        while todo:
            slot, values = todo.pop()
            half = len(values) // 2
            if half:
                rows.append((slot, (end, feature), values[half - 1], MODES.index("leq") + nan))
                todo += [(end, values[half:]), (end + 1, values[:half])]
                end += 2
            else:
                rows.append((slot, (children, feature), values[0] if len(values) else np.nan, MODES.index("eq") + nan))
    if not rows:
        return arrays
    grown = [np.concatenate([array, np.zeros((end - len(array), *array.shape[1:]), array.dtype)]) for array in arrays]
    slots, *columns = zip(*rows)
    for array, column in zip(grown, columns):
        array[list(slots)] = column
    return grown


def _levels(trees: Trees) -> list[Ints]:
    """The branches that can be reached, by their depth."""
    seen = np.zeros(trees.branches, bool)
    levels: list[Ints] = []
    level = trees.roots
    while True:
        level = level[level < trees.branches]
        if not len(level):
            return levels
        fresh = np.unique(level)
        if len(fresh) < len(level) or seen[fresh].any():
            raise FormatError(
                "a node of a tree is reached in two ways", why="trees have no circles, and share no nodes"
            )
        seen[level] = True
        levels.append(level)
        level = np.stack([trees.no[level], trees.yes[level]], 1).ravel()


def _pairs(trees: Trees, levels: Sequence[Ints]) -> tuple[Ints, Ints]:
    """The number of the pair that each tree begins with, and of the pair that the children of each branch are."""
    no, yes, roots = (np.minimum(nodes, trees.branches) for nodes in (trees.no, trees.yes, trees.roots))
    size = np.zeros(trees.branches + 1, np.int64)  # branches of each subtree; the last one stands for all leaves
    for level in reversed(levels):
        size[level] = 1 + size[no[level]] + size[yes[level]]
    end = np.cumsum(1 + size[roots])
    begin = end - 1 - size[roots]
    place = np.zeros_like(size)
    place[roots] = begin + 1
    for level in levels:
        place[no[level]] = place[level] + 1
        place[yes[level]] = place[level] + 1 + size[no[level]]
    return begin, place
