"""Attributes that hold extents by name: which names they are, and the same attributes with numbers.

A field of a kind that is `symbolic` takes expressions over names where it takes numbers. Shape rules see
them; what computes does not: it runs on attributes that are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base.extents import evaluate, names_of, substitute
from ..base.shape import Shape, StaticShape, is_known
from .ir import Node, NodeEntry, topo_order
from .op import Op
from .schema import Field, Params, fields_of
from .symbol import Symbol


def symbolic_names(params: Params) -> frozenset[str]:
    """The names in the attributes of a node.

    >>> from .schema import EXTENTS, attr, parse, schema
    >>> @schema
    ... class PartAttrs:
    ...     sizes: tuple[int, ...] = attr(EXTENTS, "how large the parts are")
    >>> sorted(symbolic_names(parse(PartAttrs, {"sizes": "(n, 12, s//2)"}, "operator part")))
    ['n', 's']
    """
    found: frozenset[str] = frozenset()
    for _, value in _symbolic(params):
        for text in _texts(value):
            found |= names_of(text)
    return found


def bound_attrs(params: Params, values: Mapping[str, int]) -> dict[str, str]:
    """The text of those attributes that hold names, with numbers for those that are given.

    >>> from .schema import EXTENTS, attr, parse, schema
    >>> @schema
    ... class PartAttrs:
    ...     sizes: tuple[int, ...] = attr(EXTENTS, "how large the parts are")
    >>> bound_attrs(parse(PartAttrs, {"sizes": "(n, 12, s//2)"}, "operator part"), {"n": 2, "s": 8})
    {'sizes': '[2,12,4]'}
    """
    return {field.name: field.kind.print(_bound(value, values)) for field, value in _symbolic(params)}


def bound_params(params: Params, value_of: Callable[[str], Any]) -> Params:
    """Attributes with what `value_of` says of the expressions over names in them."""
    fields = {field.name: _replaced(value, value_of) for field, value in _symbolic(params)}
    return replace(params, **fields) if fields else params


def _replaced(value: Any, value_of: Callable[[str], Any]) -> Any:
    if isinstance(value, tuple):
        return tuple(_replaced(item, value_of) for item in value)
    return value_of(value) if isinstance(value, str) else value


def _symbolic(params: Params) -> list[tuple[Field, Any]]:
    """The attributes with names in them."""
    if not hasattr(params, "__weft_fields__"):
        return []  # text, of an operator without a schema
    pairs = [(field, getattr(params, field.name)) for field in fields_of(type(params)) if field.kind.symbolic]
    return [(field, value) for field, value in pairs if any(True for _ in _texts(value))]


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _texts(item)


def _bound(value: Any, values: Mapping[str, int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_bound(item, values) for item in value)
    return substitute(value, values) if isinstance(value, str) else value


def names_in(nodes: Iterable[Node]) -> frozenset[str]:
    """The names in the attributes of nodes, and of those in their subgraphs."""
    found: set[str] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node.op is not None:
            found |= symbolic_names(node.params)
        for subgraph in node.subgraphs:
            pending += topo_order(subgraph.outputs)
    return frozenset(found)


def empty_shape(op: Op, params: Params, ins: Sequence[Shape], values: Mapping[str, int]) -> StaticShape | None:
    """The shape of the one output of a node with names in its attributes, if it has no elements: operators to which an
    extent of 0 means something else cannot be asked for it."""
    rule = Op.shape.get(op)
    said = rule(params, list(ins), [None]) if rule is not None and op.outputs_of(params) == 1 else None
    if not said or not is_known(said[1][0]):
        return None
    shape = tuple(evaluate(dim, values) for dim in said[1][0])
    return shape if 0 in shape else None


def bound_symbol(symbol: Symbol, values: Mapping[str, int]) -> Symbol:
    """A symbol with numbers for the names in attributes, also in those of its subgraphs."""
    made: dict[Node, Node] = {}
    for node in topo_order(symbol.outputs):
        inputs = [moved(entry, made) for entry in node.inputs]
        subgraphs = [bound_symbol(subgraph, values) for subgraph in node.subgraphs]
        attrs = bound_attrs(node.params, values) if node.op is not None else {}
        same = all(new is old for new, old in zip(subgraphs, node.subgraphs))
        if attrs or inputs != node.inputs or not same:
            deps = [made.get(dep, dep) for dep in node.control_deps]
            made[node] = Node(node.op, node.name, {**node.attrs, **attrs}, inputs, deps, subgraphs)
    return Symbol([moved(entry, made) for entry in symbol.outputs]) if made else symbol


def moved(entry: NodeEntry, made: Mapping[Node, Node]) -> NodeEntry:
    """The entry of what stands for its node now."""
    return entry._replace(node=made[entry.node]) if entry.node in made else entry
