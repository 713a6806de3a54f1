"""InferShape and InferType: what is said about some entries becomes facts about all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..base.errors import Error, InvalidValue
from ..base.shape import is_known, unify
from ..core.graph import Graph, facts_with
from ..core.graph_attrs import FACT_DECODERS, JsonAttr
from ..core.infer import dtype_hint, propagate, same_dtype, shape_hint, unify_dtype
from ..core.ir import Node
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


@register_pass("InferShape", provides=("shape", "shape_num_unknown_nodes"), changes_graph=False)
def infer_shape(graph: Graph) -> Graph:
    """Shapes of all entries, from `shape_inputs`, known facts and variables' hints, both ways."""
    return _infer(graph, _SHAPE)


@register_pass("InferType", provides=("dtype", "dtype_num_unknown_nodes"), changes_graph=False)
def infer_type(graph: Graph) -> Graph:
    """Dtypes of all entries, from `dtype_inputs`, known facts and variables' hints, both ways."""
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
