"""Neighbouring axes as one, wherever every access walks through them in one go: fewer loops, and indices that are the
addresses themselves."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..te.expr import Const, Expr, ExprLike, Load, Var
from ..te.linear import Linear, expression
from ..te.loops import Buffer, Stmt, Store, buffer, span
from ..te.visit import parts, postorder, rewrite
from .access import accessed, address, continues
from .axes import Axis, in_one_go, simplified


def collapsed(
    buffers: Sequence[Buffer], axes: Sequence[Axis], body: Stmt
) -> tuple[Sequence[Buffer], Sequence[Axis], Stmt]:
    """The same with neighbouring axes joined wherever every access allows it."""
    body = simplified(body, axes)
    if addresses(body, axes) is None:
        return buffers, axes, body
    flat = flat_buffers(buffers)
    fewer, flattened = joined(axes, body, flat)
    return list(flat.values()), fewer, flattened


def addresses(body: Stmt, axes: Sequence[Axis]) -> list[Linear[Var]] | None:
    """The linear address of every access; None if one has none, or an axis is used as a value."""
    places: list[Linear[Var]] = []
    for node in postorder((body,)):
        if not isinstance(node, (Load, Store)) or accessed(node).scope != "arg":
            continue
        if node.mask is not None:
            return None
        place = address(node)
        if place is None:
            return None
        places.append(place)
    return None if value_vars(body) & {axis.var for axis in axes} else places


def value_vars(*roots: Expr | Stmt) -> set[Var]:
    """Variables that are read outside addresses."""
    variables: set[Var] = set()
    seen: set[int] = set()
    stack: list[Any] = list(roots)
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Var):
            variables.add(node)
        elif isinstance(node, Store):
            stack.append(node.value)
        elif not isinstance(node, Load):
            stack.extend(parts(node))
    return variables


def joined(axes: Sequence[Axis], body: Stmt, flat: dict[Buffer, Buffer]) -> tuple[list[Axis], Stmt]:
    """The body on flat buffers, over axes joined where all accesses walk through them in one go."""
    places = addresses(body, axes)
    assert places is not None
    groups = in_one_go(axes, lambda a, b: all(continues(place, a.var, b.var, b.extent) for place in places))
    joined = [Axis(Var(g[-1].var.name), prod(axis.extent for axis in g)) for g in groups]
    own = {axis.var for axis in axes}

    def index(access: Load | Store) -> tuple[Expr]:
        place = address(access)
        assert place is not None
        terms: dict[Expr, int] = {
            axis.var: place.terms[group[-1].var] for group, axis in zip(groups, joined) if group[-1].var in place.terms
        }
        terms |= {var: coefficient for var, coefficient in place.terms.items() if var not in own}
        return (expression(Linear(place.constant, terms)),)

    def flatten(node: Any) -> Any:
        if not isinstance(node, (Load, Store)) or accessed(node).scope != "arg":
            return node
        if isinstance(node, Load):
            return Load(flat[accessed(node)], index(node))
        return Store(flat[node.buffer], index(node), node.value)

    return joined, rewrite(body, flatten)


def size_of(source: Buffer) -> ExprLike:
    """Elements from the first to the last, those between rows included."""
    if not all(isinstance(number, Const) for number in (*source.shape, *source.strides)):
        return source.shape[0] * source.strides[0]
    sizes = (source.shape, source.strides)
    extents, strides = ([int(number.value) for number in numbers] for numbers in sizes)  # type: ignore[attr-defined]
    return span(extents, strides)


def flat_buffers(buffers: Sequence[Buffer]) -> dict[Buffer, Buffer]:
    return {b: buffer(b.name, b.dtype, (size_of(b),)) for b in buffers}
