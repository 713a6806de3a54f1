"""Graph: entries with named attributes and facts; what passes take and give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..base.errors import Error, InvalidType, InvalidValue, NotFound, OutOfRange
from ..base.shown import as_html
from .graph_attrs import FACT_DECODERS, FACT_KEYS, FACT_TAGS, JSON_TYPES, JsonAttr, checked_json_attr
from .indexed import IndexedGraph
from .ir import UNKNOWN, Fact, Node, NodeEntry
from .json_save import graph_to_json
from .passes import apply_passes
from .symbol import Symbol
from .text import print_full, print_ir

Facts = dict[Node, tuple[Fact, ...]]


class Graph:
    """What passes take and give. Treated as immutable: a pass makes a new one."""

    __slots__ = ("_index", "_indexed", "attrs", "facts", "outputs", "sources")

    def __init__(
        self,
        outputs: Iterable[NodeEntry],
        attrs: Mapping[str, Any] | None = None,
        facts: Mapping[Node, tuple[Fact, ...]] | None = None,
        sources: Mapping[Node, tuple[Node, ...]] | None = None,
    ) -> None:
        self.outputs: list[NodeEntry] = list(outputs)
        self.attrs: dict[str, Any] = dict(attrs or {})
        self.facts: Facts = dict(facts or {})
        self.sources: dict[Node, tuple[Node, ...]] = dict(sources or {})
        self._indexed: IndexedGraph | None = None
        self._index: GraphIndex | None = None

    def __repr__(self) -> str:
        return f"<Graph of {self.symbol!r}>"

    def _repr_html_(self) -> str:
        return as_html(f"{self!r}\n\n{self.ir()}")

    @property
    def symbol(self) -> Symbol:
        return Symbol(self.outputs)

    @property
    def indexed(self) -> IndexedGraph:
        """The dense view, made once."""
        if self._indexed is None:
            self._indexed = IndexedGraph(self.outputs)
        return self._indexed

    @property
    def index(self) -> GraphIndex:
        """The dense view with NNVM's names, made once."""
        if self._index is None:
            self._index = GraphIndex(self)
        return self._index

    def fact(self, entry: NodeEntry) -> Fact:
        """What is known about an output."""
        facts = self.facts.get(entry.node)
        return facts[entry.index] if facts else UNKNOWN

    def replace(self, **changes: Any) -> Graph:
        """A graph with some fields changed; attributes and facts are copied."""
        fields = {name: getattr(self, name) for name in ("outputs", "attrs", "facts", "sources")}
        return Graph(**{**fields, **changes})

    def trimmed(self) -> Graph:
        """The graph without facts and sources of nodes it does not reach."""
        reached = self.indexed.node_id
        facts = {node: facts for node, facts in self.facts.items() if node in reached}
        sources = {node: origin for node, origin in self.sources.items() if node in reached}
        made = self.replace(facts=facts, sources=sources)
        made._indexed = self._indexed
        return made

    def apply(self, passes: str | Sequence[str]) -> Graph:
        """Runs passes by name, in order."""
        names = [passes] if isinstance(passes, str) else passes
        if not isinstance(names, (list, tuple)):
            raise InvalidType(f"apply takes a pass's name or a list of them, not {passes!r}")
        result: Graph = apply_passes(self, names)
        return result

    def json(self) -> str:
        """The graph as JSON text."""
        return graph_to_json(self)

    def ir(
        self,
        join_entry_attrs: Sequence[str] | None = None,
        join_node_attrs: Sequence[str] | None = None,
        *,
        full: bool = False,
    ) -> str:
        """The graph as readable text, with facts or graph attributes joined to each line.

        The full form says all that JSON does, and `weft.graph.parse` reads it back.
        """
        if not full:
            return print_ir(self, join_entry_attrs or (), join_node_attrs or ())
        if join_entry_attrs or join_node_attrs:
            raise InvalidValue("the full form has every attribute already, so it joins none")
        return print_full(self)

    # Attributes as NNVM's files and scripts know them.

    def attr(self, key: str) -> Any:
        """A graph attribute as a Python value, or None."""
        value = self.attrs.get(key)
        if value is None:
            return self._fact_attr(key)
        return value.value if isinstance(value, JsonAttr) else value

    def json_attr(self, key: str) -> Any:
        """A graph attribute that a file can hold, as a Python value; None if absent."""
        value = self.attrs.get(key)
        if value is None:
            return self._fact_attr(key)
        if not isinstance(value, JsonAttr):
            raise InvalidType(
                f"graph attribute {key!r} is a {type(value).__name__}, which JSON cannot hold",
                hint="read it with graph.attr(key)",
            )
        return value.value

    def _set_json_attr(self, key: str, value: Any, type_name: str | None = None) -> None:
        """Sets a graph attribute, in place. `type_name` is needed unless the value is a str."""
        if type_name is None:
            if not isinstance(value, str):
                raise InvalidValue(
                    f"graph attribute {key!r} needs a type_name",
                    why=f"{type(value).__name__} does not say which one",
                    hint="one of " + ", ".join(JSON_TYPES),
                )
            type_name = "str"
        try:
            checked = checked_json_attr(type_name, value)
        except Error as error:
            error.at(f"graph attribute {key!r}")
            raise
        if key in FACT_KEYS:
            nodes, pointers = self.indexed.nodes, self.indexed.entry_ptr
            self.facts = facts_from_attr(self.facts, key, checked, nodes, pointers)
        else:
            self.attrs[key] = checked

    def _set_symbol_list_attr(self, key: str, value: Symbol | Sequence[Symbol]) -> None:
        """Sets a graph attribute that is a list of entries."""
        symbols = [value] if isinstance(value, Symbol) else list(value)
        for item in symbols:
            if not isinstance(item, Symbol):
                raise InvalidType(f"graph attribute {key!r} takes symbols, not {item!r}")
        self.attrs[key] = [entry for item in symbols for entry in item.outputs]

    def _fact_attr(self, key: str) -> Any:
        """`shape`, `dtype` or `layout` of every entry, in NNVM's encoding."""
        if key not in FACT_KEYS:
            return None
        encode, unknown = FACT_KEYS[key]
        values = [getattr(f, key) for node in self.indexed.nodes for f in self.node_facts(node)]
        done = f"{key}_num_unknown_nodes" in self.attrs
        # numpy says that None is float64, so an unknown dtype is told by identity
        if not done and all(v is None if unknown is None else v == unknown for v in values):
            return None
        return [encode(value) for value in values]

    def node_facts(self, node: Node) -> tuple[Fact, ...]:
        return self.facts.get(node) or (UNKNOWN,) * node.num_outputs


def facts_from_attr(facts: Facts, key: str, attr: JsonAttr, nodes: Sequence[Node], pointers: Sequence[int]) -> Facts:
    """Facts with one kind set from NNVM's list of one value an entry, in the order of `nodes`."""
    if attr.tag != FACT_TAGS[key]:
        raise InvalidValue(f"graph attribute {key!r} is a {attr.tag}, not a {FACT_TAGS[key]}")
    if len(attr.value) != pointers[-1]:
        raise InvalidValue(
            f"graph attribute {key!r} has {len(attr.value)} values", why=f"the graph has {pointers[-1]} entries"
        )
    return facts_with(facts, key, [*map(FACT_DECODERS[key], attr.value)], nodes, pointers)


def facts_with(facts: Facts, key: str, values: Sequence[Any], nodes: Sequence[Node], pointers: Sequence[int]) -> Facts:
    """Facts with one kind (shape, dtype or layout) replaced, one value an entry."""
    place = Fact._fields.index(key)
    made = dict(facts)
    for node, start, end in zip(nodes, pointers, pointers[1:]):
        old = facts.get(node) or (UNKNOWN,) * (end - start)
        if end - start == 1:
            made[node] = (_with(old[0], place, values[start]),)
        else:
            made[node] = tuple(_with(fact, place, values[start + i]) for i, fact in enumerate(old))
    return made


def _with(fact: Fact, place: int, value: Any) -> Fact:
    row: list[Any] = list(fact)
    row[place] = value
    return Fact._make(row)


class GraphIndex:
    """Looks things up in a graph by name or number, with NNVM's names and JSON-style entries."""

    def __init__(self, graph: Graph) -> None:
        indexed = graph.indexed
        self._ids = {node.name: number for number, node in enumerate(indexed.nodes)}
        self.nodes: list[dict[str, Any]] = [
            {
                "op": node.op_name,
                "name": node.name,
                "attrs": dict(node.attrs),
                "inputs": indexed.triples(node.inputs),
                "control_deps": indexed.numbers(node.control_deps),
            }
            for node in indexed.nodes
        ]
        self.entry_ptr = list(indexed.entry_ptr)
        self.input_names = [indexed.nodes[number].name for number in indexed.variables]
        self.output_entries = indexed.triples(graph.outputs)

    @property
    def num_nodes(self) -> int:
        return len(self.entry_ptr) - 1

    @property
    def num_node_entries(self) -> int:
        return self.entry_ptr[-1]

    def node_id(self, key: str) -> int:
        """The number of the node of that name; of several, the last."""
        if key not in self._ids:
            raise NotFound(f"no node is called {key!r}")
        return self._ids[key]

    def entry_id(self, key: str | int | Sequence[int], value_index: int = 0) -> int:
        """The number of an entry, by node name or number, or by [node, index, version]."""
        if isinstance(key, (list, tuple)):
            if len(key) != 3:
                raise InvalidValue(f"an entry is 3 numbers, not {key!r}")
            number, value_index = key[0], key[1]
        else:
            number = self.node_id(key) if isinstance(key, str) else key
        if not isinstance(number, int) or not isinstance(value_index, int):
            raise InvalidType(f"nodes and outputs are numbered, so {key!r} finds none")
        if not 0 <= number < self.num_nodes:
            raise OutOfRange(f"node {number} of a graph with {self.num_nodes} nodes")
        entry = self.entry_ptr[number] + value_index
        if value_index < 0 or entry >= self.entry_ptr[number + 1]:
            raise OutOfRange(f"output {value_index} of node {self.nodes[number]['name']!r}")
        return entry
