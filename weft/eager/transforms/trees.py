"""Nested containers: dicts, lists and tuples of values as a flat list and what is needed to build them again."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ...base.errors import InvalidValue


class Step(NamedTuple):
    """One value, or a container of the last `width` values that were built."""

    kind: type | None  # None for a value
    context: Any  # keys of a dict, what a default dict makes, the bound of a deque
    width: int


LEAF = Step(None, None, 0)


class Tree(tuple[Step, ...]):
    """The structure of nested containers: steps that build them from the inside out."""

    @property
    def leaves(self) -> int:
        return sum([step.kind is None for step in self])

    def built(self, values: Iterable[Any]) -> Any:
        """The containers, with values in the places of the leaves."""
        left, made = iter(values), list[Any]()
        for step in self:
            if step.kind is None:
                made.append(next(left))
                continue
            items = made[len(made) - step.width :]
            del made[len(made) - step.width :]
            made.append(_container(step, items))
        return made[0]

    def __str__(self) -> str:
        return f"{self.built(['*'] * self.leaves)}".replace("'*'", "*")


def _container(step: Step, items: list[Any]) -> Any:
    kind: Any = step.kind
    if kind is defaultdict:
        return defaultdict(step.context[0], zip(step.context[1], items))
    if kind in (dict, OrderedDict):
        return kind(zip(step.context, items))
    if kind is deque:
        return deque(items, step.context)
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def _parts(value: Any) -> tuple[Any, Sequence[Any]] | None:
    """What a container has to be known of besides its values, and those; None for a value."""
    kind = type(value)
    if kind in (dict, OrderedDict):
        return tuple(value), list(value.values())
    if kind is defaultdict:
        return (value.default_factory, tuple(value)), list(value.values())
    if kind in (list, tuple) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        return None, value
    if kind is deque:
        return value.maxlen, list(value)
    if isinstance(value, tuple) and type(value).__module__.startswith("weft"):
        return None, value
    return None


def flattened(value: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Tree]:
    """The values in containers, and the structure of those.

    >>> flattened({"a": [1, 2], "b": (3,)})[0]
    [1, 2, 3]
    """
    leaves: list[Any] = []
    steps: list[Step] = []
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if type(item) is Step:
            steps.append(item)
            continue
        parts = None if is_leaf is not None and is_leaf(item) else _parts(item)
        if parts is None:
            leaves.append(item)
            steps.append(LEAF)
        else:
            context, items = parts
            waiting.append(Step(type(item), context, len(items)))
            waiting += reversed(items)
    return leaves, Tree(steps)


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """The containers with what a function gives for each value."""
    leaves, tree = flattened(value)
    return tree.built([function(leaf) for leaf in leaves])


def spread(prefix: Any, tree: Tree) -> list[Any] | None:
    """One value a leaf of a tree, from a tree whose values may stand for whole containers; None where the two do not
    fit.

    >>> spread((0, 1), flattened(("x", ["y", "z"]))[1])
    [0, 1, 1]
    """
    found: list[Any] = []
    waiting = [(prefix, tree.built(range(tree.leaves)))]
    while waiting:
        given, wanted = waiting.pop()
        parts, into = _parts(given), _parts(wanted)
        if parts is None:
            found += [given] * flattened(wanted)[1].leaves
        elif into is None or type(given) is not type(wanted) or len(parts[1]) != len(into[1]):
            return None
        elif isinstance(given, dict):
            if set(given) != set(wanted):
                return None
            waiting += reversed([(given[key], part) for key, part in wanted.items()])
        else:
            waiting += reversed(list(zip(parts[1], into[1])))
    return found


def must_be_alike(name: str, what: str, tree: Tree, other: Tree) -> None:
    """Refuses a structure that is not that of another."""
    if tree != other:
        raise InvalidValue(f"{name}: {what} has the structure {tree}, where {other} is expected")
