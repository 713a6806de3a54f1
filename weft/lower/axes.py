"""The loops of a stage: axes over its result, and what happens at one element of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any, NamedTuple

from ..te.expr import Reduce, Var
from ..te.extents import is_open
from ..te.loops import For, Stmt
from ..te.simplify_loops import simplify_statement
from ..te.tensor import Tensor
from ..te.visit import postorder
from .group import reached_tensors

LONGEST = 1 << 40  # no axis has as many turns


class Axis(NamedTuple):
    """A loop variable and how many turns it makes: a number, or a size that is an argument."""

    var: Var
    extent: Any


class Nest(NamedTuple):
    """Axes, and what happens at one element of them."""

    axes: list[Axis]
    body: Stmt


def in_one_go(axes: Iterable[Any], joins: Callable[[Any, Any], bool]) -> list[list[Any]]:
    """The axes but those of one element, neighbours together that are walked in one go: `joins` tells of an axis and of
    the one inside it."""
    groups: list[list[Any]] = []
    for axis in axes:
        if type(axis.extent) is int and axis.extent == 1:
            continue
        if groups and joins(groups[-1][-1], axis):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def turns_of(axes: Iterable[Axis]) -> dict[Var, tuple[int, int]]:
    """The first and the last turn of each axis, as far as they are known."""
    return {axis.var: (0, LONGEST if is_open(axis.extent) else max(axis.extent - 1, 0)) for axis in axes}


def simplified(body: Stmt, axes: Iterable[Axis]) -> Stmt:
    """The body simplified with what its axes count."""
    return simplify_statement(body, turns_of(axes))


def peeled(nest: Stmt, shape: Sequence[Any]) -> Nest:
    """The loops over the output's axes, and what stands in them."""
    axes = []
    for extent in shape:
        assert isinstance(nest, For)
        axes.append(Axis(nest.var, extent))
        nest = nest.body
    return Nest(axes, nest)


def reductions(output: Tensor, stored: Container[Tensor]) -> list[Reduce]:
    """What a stage reduces, itself or in what it computes on the way."""
    inside = [t for t in reached_tensors(output, stored) if t not in stored]
    nodes = [node for t in (output, *inside) if t.body is not None for node in postorder((t.body,))]
    return [node for node in nodes if isinstance(node, Reduce)]


def extents_of(reduced: Iterable[Reduce]) -> list[Any]:
    return [axis.extent for node in reduced for axis in node.axes]
