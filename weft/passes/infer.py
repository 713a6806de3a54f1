"""InferShape and InferType: what is said about some entries becomes facts about all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ..base.errors import Error, InvalidType, InvalidValue
from ..base.shape import is_known, unify
from ..core.graph import Graph, facts_with
from ..core.graph_attrs import FACT_DECODERS, JsonAttr
from ..core.infer import dtype_hint, propagate, same_dtype, shape_hint, unify_dtype
from ..core.ir import Node, NodeEntry
from ..core.op import Op, OpMap, Rule
from ..core.passes import register_pass


class _Kind(NamedTuple):
    """One kind of fact, and how it is inferred."""

    key: str
    rules: OpMap[Rule]
    absent: Rule
    meet: Callable[[Any, Any], Any]
    hint: Callable[[Node, str], Any]
    known: Callable[[Any], bool]


_SHAPE = _Kind("shape", Op.shape, lambda *_: None, unify, shape_hint, is_known)
_DTYPE = _Kind("dtype", Op.dtype, same_dtype, unify_dtype, dtype_hint, lambda d: d is not None)


@register_pass(
    "InferShape", provides=("shape", "shape_num_unknown_nodes"), op_attrs=("FInferShape",), changes_graph=False
)
def infer_shape(graph: Graph) -> Graph:
    """Shapes of all entries, both ways, from `shape_inputs` (one for each variable), `shape_hints`
    (a dict from entries), known facts and variables' attributes."""
    return _infer(graph, _SHAPE)


@register_pass(
    "InferType", provides=("dtype", "dtype_num_unknown_nodes"), op_attrs=("FInferType",), changes_graph=False
)
def infer_type(graph: Graph) -> Graph:
    """Dtypes of all entries, both ways, from `dtype_inputs` (one for each variable), `dtype_hints`
    (a dict from entries), known facts and variables' attributes."""
    return _infer(graph, _DTYPE)


def _infer(graph: Graph, kind: _Kind) -> Graph:
    indexed = graph.indexed
    given = graph.attr(f"{kind.key}_inputs")
    hint_key = graph.attr(f"{kind.key}_attr_key") or kind.key
    values = [getattr(f, kind.key) for node in indexed.nodes for f in graph.node_facts(node)]
    if given is not None:
        values = _with_inputs(graph, kind, values, given)
    for number in indexed.variables:
        entry = indexed.entry_ptr[number]
        if values[entry] is None:
            values[entry] = kind.hint(indexed.nodes[number], hint_key)
    _meet_hints(graph, kind, values)
    propagate(indexed, values, kind.rules, kind.absent, kind.meet)
    unknown = sum(not kind.known(value) for value in values)
    erased = (f"{kind.key}_inputs", f"{kind.key}_attr_key")
    attrs = {key: value for key, value in graph.attrs.items() if key not in erased}
    attrs[f"{kind.key}_num_unknown_nodes"] = JsonAttr("size_t", unknown)
    facts = facts_with(graph.facts, kind.key, values, indexed.nodes, indexed.entry_ptr)
    return graph.replace(attrs=attrs, facts=facts)


def _with_inputs(graph: Graph, kind: _Kind, values: list[Any], given: Sequence[Any]) -> list[Any]:
    """The known facts met with what is said about the inputs, one value for each variable.

    Where they contradict, the inputs are new and every other fact is forgotten.
    """
    indexed = graph.indexed
    if len(given) != len(indexed.variables):
        raise InvalidValue(
            f"graph attribute {kind.key}_inputs has {len(given)} values",
            why=f"the graph has {len(indexed.variables)} inputs",
        )
    said = [FACT_DECODERS[kind.key](value) for value in given]
    entries = [indexed.entry_ptr[number] for number in indexed.variables]
    try:
        met = [kind.meet(values[entry], value) for entry, value in zip(entries, said)]
    except Error:
        met, values = said, [None] * len(values)
    result = list(values)
    for entry, value in zip(entries, met):
        result[entry] = value
    return result


def _meet_hints(graph: Graph, kind: _Kind, values: list[Any]) -> None:
    """Adds what is said about entries of any node; entries of other graphs are passed over."""
    hints = graph.attr(f"{kind.key}_hints") or {}
    if not isinstance(hints, Mapping):
        raise InvalidType(f"{kind.key}_hints is a {type(hints).__name__}, no dict from entries")
    for entry, said in hints.items():
        if not isinstance(entry, NodeEntry):
            raise InvalidType(f"{kind.key}_hints has a {type(entry).__name__} for an entry")
        if entry.node in graph.indexed.node_id:
            number = graph.indexed.entry_id(entry)
            where = f"{kind.key}_hints of node {entry.node.name!r}"
            try:
                values[number] = kind.meet(values[number], FACT_DECODERS[kind.key](said))
            except Error as error:
                error.at(where)
                raise
            except TypeError:
                raise InvalidType(f"{said!r} is no {kind.key}", where=where) from None
