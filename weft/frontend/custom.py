"""Converters that callers bring: a function of symbols and attributes becomes values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.errors import InvalidType
from ..core.functions import make_function
from ..core.infer import infer_node
from ..core.ir import UNKNOWN, Fact, Node, NodeEntry
from ..core.op import Op
from ..core.symbol import Symbol
from .emitter import Emitter, Value

SymbolConverter = Callable[[Sequence[Symbol], Mapping[str, Any]], Symbol]


def get_op(name: str) -> Callable[..., Symbol]:
    """The function on symbols of a weft operator; an error if there is none of that name.

    >>> from weft.core.symbol import Variable
    >>> get_op("relu")(Variable("x"), name="r").list_output_names()
    ['r_output']
    """
    return make_function(Symbol, Op.get(name), name)


def converted_by(
    function: SymbolConverter, emitter: Emitter, inputs: Sequence[Value], attrs: Mapping[str, Any]
) -> list[Value]:
    """What the function makes of the inputs, with facts about each output."""
    symbols = [emitter.symbol(value) for value in inputs]
    result = function(symbols, dict(attrs))
    if not isinstance(result, Symbol):
        raise InvalidType(f"a converter gave a {type(result).__name__}, not a Symbol")
    facts = {symbol.outputs[0]: value.fact for symbol, value in zip(symbols, inputs)}
    _infer(result.outputs, facts)
    return [Value(entry.node.name, facts[entry], part) for entry, part in zip(result.outputs, result)]


def _infer(entries: Sequence[NodeEntry], facts: dict[NodeEntry, Fact]) -> None:
    """Fills in the facts of the entries and of all that they need."""
    pending = [entry.node for entry in entries if entry not in facts]
    while pending:
        node = pending[-1]
        needed = [entry.node for entry in node.inputs if entry not in facts]
        if needed:
            pending += needed
            continue
        pending.pop()
        for index, fact in enumerate(_facts(node, facts)):
            facts.setdefault(NodeEntry(node, index), fact)


def _facts(node: Node, facts: Mapping[NodeEntry, Fact]) -> tuple[Fact, ...]:
    if node.op is None:
        return (UNKNOWN,)
    return infer_node(node.op, node.params, [facts[entry] for entry in node.inputs], node.name)


def identity_converter(op_name: str) -> SymbolConverter:
    """Hands inputs and attributes, but for hidden ones, to the weft operator of that name."""
    function = get_op(op_name)

    def convert(inputs: Sequence[Symbol], attrs: Mapping[str, Any]) -> Symbol:
        return function(*inputs, **attrs)

    return convert
