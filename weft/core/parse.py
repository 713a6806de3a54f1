"""Text to graph: reads what `Graph.ir` prints. Comes in: text that nobody vouches for. Goes out: a
graph, or a FormatError with the line and column of what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base.dtype import DType, as_dtype
from ..base.errors import Error, FormatError, InvalidType
from ..base.layout import Layout
from ..base.shape import Dim, Shape
from .bulk import collector_paused
from .graph import Graph
from .graph_attrs import FACT_DECODERS, FACT_KEYS, checked_json_attr
from .ir import UNKNOWN, Fact, Node, NodeEntry
from .json_save import MAX_SUBGRAPH_DEPTH
from .loaded import check_inputs, count_outputs, restore_versions
from .op import Op
from .symbol import Symbol
from .tokens import Tokens

Key = int | str  # of operators a number; of variables the name, unless they share it
MAX_NUMBER = 2**31  # of outputs and versions


@collector_paused
def parse_graph(text: str) -> Graph:
    """The graph that a text in the grammar of docs/text-ir.md describes.

    >>> import weft
    >>> graph = weft.graph.parse("Graph(%x) { %1 = relu(%x), name='r' ret %1 }")
    >>> graph.symbol.list_output_names()
    ['r_output']
    """
    if not isinstance(text, str):
        raise InvalidType(f"a graph is parsed from text, not from {type(text).__name__}")
    tokens = Tokens(text)
    graph = _Body(tokens, depth=0).graph()
    while tokens.word("attr"):
        _attribute(tokens, graph)
    if tokens.word("graph_attr_keys"):  # the short form lists what it does not say
        tokens.need("=")
        tokens.listed("[", "]", tokens.name)
    if tokens.kind:
        raise tokens.wrong("the end of the text")
    return graph


def _attribute(tokens: Tokens, graph: Graph) -> None:
    """attr key: tag = value, the value as JSON."""
    start = tokens.start
    key = tokens.name()
    tokens.need(":")
    tag = tokens.name()
    value = tokens.json_value()
    try:
        if key in graph.attrs or key in FACT_KEYS:
            raise FormatError(f"graph attribute {key[:80]!r} is given twice, or is a fact of nodes")
        graph.attrs[key] = checked_json_attr(tag, value)
    except Error as error:
        raise tokens.error(error, start) from None


class _Body:
    """One graph between its braces."""

    def __init__(self, tokens: Tokens, depth: int) -> None:
        self.tokens, self.depth = tokens, depth
        self.nodes: dict[Key, Node] = {}  # by what stands after the %
        self.counts: dict[Node, int] = {}
        self.facts: dict[Node, tuple[Fact, ...]] = {}
        self.described: set[Node] = set()

    def graph(self) -> Graph:
        tokens = self.tokens
        if not tokens.word("Graph"):
            raise tokens.wrong("Graph(")
        tokens.listed("(", ")", self._declaration)
        tokens.need("{")
        while tokens.kind == "node":
            self._line()
        if not tokens.word("ret"):
            raise tokens.wrong("a line that begins with %, or ret")
        outputs = [] if tokens.kind != "node" else [self._entry()]
        while tokens.mark(","):
            outputs.append(self._entry())
        tokens.need("}")
        restore_versions(self.nodes.values(), outputs)
        return Graph(outputs, facts=self.facts)

    def _declaration(self) -> None:
        """%name, or %number='name' for one of several variables of that name."""
        start, key = self.tokens.start, self._key()
        if isinstance(key, int):
            self.tokens.need("=")
        name = self.tokens.string() if isinstance(key, int) else key
        self._define(key, Node(None, name), start)

    def _define(self, key: Key, node: Node, start: int) -> None:
        if key in self.nodes:
            raise self._wrong(f"{_shown(key)} is defined twice", start)
        self.nodes[key] = node
        try:
            self.counts[node] = count_outputs(node)
        except Error as error:
            raise self.tokens.error(error, start) from None

    def _wrong(self, what: str, start: int, why: str | None = None) -> FormatError:
        return FormatError(what, where=self.tokens.where(start), why=why)

    def _key(self) -> Key:
        start = self.tokens.start
        key, index, version = self.tokens.node()
        if index is not None or version is not None:
            raise self._wrong(f"{_shown(key)} stands for a node, without output or version", start)
        return key

    def _known(self, key: Key, start: int) -> Node:
        node = self.nodes.get(key)
        if node is None:
            raise self._wrong(f"{_shown(key)} is not defined before it is used", start)
        return node

    def _entry(self) -> NodeEntry:
        start = self.tokens.start
        key, index, version = self.tokens.node()
        node, index, version = self._known(key, start), index or 0, version or 0
        if index >= self.counts[node] or version >= MAX_NUMBER:
            why = f"it has {self.counts[node]} outputs"
            raise self._wrong(f"output {index}:{version} of {_shown(key)} is none", start, why)
        return NodeEntry(node, index, version)

    def _dependency(self) -> Node:
        start = self.tokens.start
        return self._known(self._key(), start)

    # Lines

    def _line(self) -> None:
        start, key = self.tokens.start, self._key()
        if self.tokens.mark("="):
            self._node(key, start)
            return
        self._facts(self._variable(key, start), self._details())

    def _variable(self, key: Key, start: int) -> Node:
        """The variable that a line is about."""
        node = self._known(key, start)
        if node.op is not None or node in self.described:
            raise self._wrong(f"{_shown(key)} is no variable, or has a line already", start)
        self.described.add(node)
        return node

    def _node(self, key: Key, start: int) -> None:
        op_start, op_name = self.tokens.start, self.tokens.name()
        inputs, attrs = self._arguments()
        details = self._details()
        if op_name == "null":
            node = self._variable(key, start)
            if inputs or details.keys() & {"name", "control_deps", "subgraphs"}:
                raise self._wrong("a variable has attributes and facts only", op_start)
            node.attrs = attrs
        else:
            name = details.pop("name", f"{op_name}{key}")
            deps, subgraphs = details.pop("control_deps", ()), details.pop("subgraphs", ())
            try:
                node = Node(Op.get(op_name), name, attrs, inputs, deps, subgraphs)
            except Error as error:
                raise self.tokens.error(error, op_start) from None
            self._add(key, node, start)
        self._facts(node, details)

    def _add(self, key: Key, node: Node, start: int) -> None:
        if not isinstance(key, int):
            raise self._wrong(f"{_shown(key)} = ...: results of operators are numbered", start)
        self._define(key, node, start)
        try:
            check_inputs(node, self.counts, "its inputs")
        except Error as error:
            raise self.tokens.error(error, start) from None

    def _arguments(self) -> tuple[list[NodeEntry], dict[str, str]]:
        tokens, inputs, attrs = self.tokens, list[NodeEntry](), dict[str, str]()

        def argument() -> None:
            if tokens.kind == "node":
                inputs.append(self._entry())
                return
            self._once(attrs)
            key = tokens.name()
            tokens.need("=")
            attrs[key] = tokens.string()

        tokens.listed("(", ")", argument)
        return inputs, attrs

    def _once(self, taken: dict[str, Any]) -> None:
        """An error if the name that comes next is there already."""
        tokens = self.tokens
        if tokens.kind in ("word", "quoted"):
            text = tokens.token()
            name = text if tokens.kind == "word" else tokens.unquoted(text)
            if name in taken:
                where = tokens.where(tokens.start)
                raise FormatError(f"{name[:80]!r} is given twice", where=where)

    def _details(self) -> dict[str, Any]:
        """What follows a node: name, control_deps, subgraphs, facts (as functions of the number of
        outputs, which decides how they read)."""
        tokens, details = self.tokens, dict[str, Any]()
        while tokens.mark(","):
            self._once(details)
            start, key = tokens.start, tokens.name()
            tokens.need("=")
            if key == "name":
                details[key] = tokens.string()
            elif key == "control_deps":
                details[key] = tokens.listed("[", "]", self._dependency)
            elif key == "subgraphs":
                details[key] = tokens.listed("[", "]", self._subgraph)
            elif key in _VALUES:
                details[key] = (start, _value(tokens))
            else:
                raise FormatError(
                    f"a node has no {key[:80]!r}",
                    where=tokens.where(start),
                    why=f"there are name, control_deps, subgraphs, {', '.join(_VALUES)}",
                    hint="Graph.ir(full=True) prints graph attributes where they can be read",
                )
        return details

    def _subgraph(self) -> Symbol:
        if self.depth >= MAX_SUBGRAPH_DEPTH:
            raise FormatError(
                f"subgraphs are nested deeper than {MAX_SUBGRAPH_DEPTH}", where=self.tokens.where(self.tokens.start)
            )
        return Symbol(_Body(self.tokens, self.depth + 1).graph().outputs)

    def _facts(self, node: Node, details: dict[str, Any]) -> None:
        if not details:
            return
        count = self.counts[node]
        columns: dict[str, list[Any]] = {}
        for key, (start, value) in details.items():
            try:
                columns[key] = _fact_values(key, value, count)
            except Error as error:
                raise self.tokens.error(error, start) from None
        self.facts[node] = tuple(Fact(**{key: values[i] for key, values in columns.items()}) for i in range(count))


def _shown(key: Key) -> str:
    return f"%{str(key)[:80]}"


class _Tuple(list[Any]):
    """Values between parentheses, as opposed to brackets."""


def _value(tokens: Tokens) -> Any:
    """The right side of a fact: ?, a number, a word or text, or these in one or two brackets."""

    def plain() -> Any:
        if tokens.mark("?"):
            return None
        return tokens.number() if tokens.kind == "number" else tokens.name()

    def row() -> Any:
        if tokens.kind == "mark" and tokens.token() == "(":
            return _Tuple(tokens.listed("(", ")", plain))
        if tokens.kind == "mark" and tokens.token() == "[":
            return tokens.listed("[", "]", plain)
        return plain()

    if tokens.kind == "mark" and tokens.token() == "[":
        return tokens.listed("[", "]", row)
    return row()


def _fact_values(key: str, value: Any, count: int) -> list[Any]:
    """One value for each output, from a value alone or a list of them."""
    values = [value] if count == 1 else value
    if not isinstance(values, list) or isinstance(values, _Tuple) or len(values) != count:
        raise FormatError(f"{key} needs a list of {count}, one for each output")
    return [_VALUES[key](item) for item in values]


def _shape(value: Any) -> Shape:
    """(2,n,?) is exact; [2,0] is NNVM's form, where 0 and [] are unknown."""
    if value is None:
        return None
    if isinstance(value, _Tuple):
        return tuple(map(_dim, value))
    if not isinstance(value, list) or not all(isinstance(dim, int) for dim in value):
        raise FormatError("a shape is (2,n,?), or [2,0] where 0 is unknown")
    shape: Shape = FACT_DECODERS["shape"](value)
    return shape


def _dim(dim: Any) -> Dim:
    if isinstance(dim, int) and dim < 0:
        raise FormatError(f"dimension {dim} is negative")
    return dim  # type: ignore[no-any-return]


def _dtype(value: Any) -> DType | None:
    if value is None:
        return None
    if isinstance(value, int):
        found: DType | None = FACT_DECODERS["dtype"](value)
        return found
    if not isinstance(value, str):
        raise FormatError("a dtype is a name, or one of NNVM's codes")
    return as_dtype(value)


def _layout(value: Any) -> Layout:
    if value is None:
        return UNKNOWN.layout
    if not isinstance(value, str):
        raise FormatError("a layout is text such as NCHW")
    return Layout(value)


_VALUES: dict[str, Callable[[Any], Any]] = {"shape": _shape, "dtype": _dtype, "layout": _layout}
