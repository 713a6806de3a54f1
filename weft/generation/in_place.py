"""A decoder from a model file as steps over a cache that grows in place: its graph, with caches among inputs and
outputs, comes in; the same steps that modules write go out, or why they cannot be written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from ..base.errors import Error
from ..base.shape import is_static, normalize_axis
from ..core.ir import Node, NodeEntry
from ..core.op import Op
from ..core.symbol import Symbol
from ..core.symbolic import symbolic_names
from .cache import Kept
from .cache_reads import Read, cache_reads
from .graph_parts import BEFORE, Array, Copied, Parts, Sizes, row_axis
from .steps import ROWS, StepGraph

ELEMENTWISE = 1  # the last pattern of operators whose results depend on the same place of their inputs
MOVES = frozenset("transpose stack cast copy".split())
SAME_ORDER = frozenset("reshape flatten squeeze expand_dims".split())
PRODUCTS = frozenset("matmul dense batch_matmul".split())
ALONG = frozenset("layer_norm rms_norm l2_normalize softmax mean sum max min concatenate split".split())
CHECKED = (Sizes(0, 1), Sizes(1, 1), Sizes(5, 3))


class StepsOfFile:
    """What a `SteppingDecoder` asks of a model, of a graph with open rows and tokens before them."""

    def __init__(self, parts: Parts, context: int, most_rows: int) -> None:
        """Raises `Copied`, which says why, where some steps would not be what the graph computes."""
        self._parts, self._context = parts, context
        self._most_rows = min(most_rows, context)
        self.limits = {"context": context}
        self.window: int | None = None
        try:
            self._reads = cache_reads(parts, context)
            self._outer = self._outer_nodes()
            self._tables = self._tabled()
        except (Error, ArithmeticError, IndexError, TypeError, ValueError) as error:
            raise Copied(f"a part of it cannot be computed for {context} tokens: {error}") from None
        sizes = {(int(parts.shape(entry)[1]), int(parts.shape(entry)[3])) for entry in self._caches()}
        if len(sizes) != 1:
            raise Copied("its caches are of different sizes")
        self._sizes = sizes.pop()
        scores = parts.shape(parts.graph.outputs[0])
        self.vocabulary = scores[-1] if isinstance(scores[-1], int) else None
        if self.vocabulary is None or row_axis(scores) not in (None, len(scores) - 2):
            raise Copied(f"its scores are of shape {scores}")
        self._gives_all = row_axis(scores) is not None
        # Rows that are not tokens may stand behind the last one where nothing before them depends on them.
        self.takes_more_rows = self._gives_all and all(map(self._keeps_rows_apart, self._outer))

    def _caches(self) -> list[NodeEntry]:
        names = self._parts.inputs.caches
        return [NodeEntry(node) for node in self._parts.order if node.op is None and node.name in names]

    def _outer_nodes(self) -> list[Node]:
        """Those that depend on tokens and are in no attention."""
        inside = frozenset[Node]().union(*[read.nodes for read in self._reads])
        parts = self._parts
        outer = [node for node in parts.order if node in parts.tokens - inside and node.op is not None]
        for node in outer:
            if BEFORE in symbolic_names(node.params):
                raise Copied(f"{node.op_name} at {node.name!r} depends on how many tokens there are before")
        return outer

    # What depends on positions alone

    def _tabled(self) -> dict[NodeEntry, Array]:
        """Values by the position of a token, or the one value, of entries that depend on places."""
        inside = frozenset[Node]().union(*[read.nodes for read in self._reads])
        parts = self._parts
        read = dict.fromkeys(
            entry
            for node in self._outer
            for entry in node.inputs
            if entry.node not in parts.tokens and entry.node not in inside and parts.depends_on_place(entry)
        )
        return {entry: self._table(entry) for entry in read}

    def _table(self, entry: NodeEntry) -> Array:
        parts, shape, rows = self._parts, self._parts.shape(entry), self._most_rows
        where = f"{entry.node.name!r} of shape {shape}"
        axis = row_axis(shape)
        if axis is None and not is_static(shape):
            raise Copied(f"{where} grows with the tokens, and is no mask of an attention")
        (table,) = parts.values([entry], Sizes(0, self._context) if axis is not None else Sizes(0, 1), {})
        for sizes in (*CHECKED, Sizes(self._context - rows, rows), Sizes(self._context - 1, 1)):
            if sum(sizes) > self._context:
                continue
            (found,) = parts.values([entry], sizes, {})
            places = range(sizes.before, sum(sizes))
            if not np.array_equal(found, table if axis is None else table.take(places, axis), equal_nan=True):
                raise Copied(f"{where} is no table of positions")
        return table

    # Whether rows are independent

    def _keeps_rows_apart(self, node: Node) -> bool:
        assert node.op is not None
        parts, name, inputs = self._parts, node.op_name, node.inputs
        given = [entry.node in parts.tokens for entry in inputs]
        if any(row_axis(parts.shape(NodeEntry(node, index))) is None for index in range(node.num_outputs)):
            return False
        if _is_plain(node.op) or name in MOVES:
            return True
        if name in SAME_ORDER:
            return self._leading(inputs[0]) == self._leading(NodeEntry(node))
        if name in PRODUCTS:
            return given == [True, *[False] * (len(given) - 1)] and not getattr(node.params, "transpose_a", False)
        if name == "take":
            return given == [False, True]
        if name == "strided_slice":
            forward = all(isinstance(step, int) and step > 0 for step in node.params.stride)
            return forward and row_axis(parts.shape(inputs[0])) == row_axis(parts.shape(NodeEntry(node)))
        if name in ALONG:
            shape, axes = parts.shape(inputs[0]), node.params.axis
            axes = axes if isinstance(axes, tuple) else (axes,)
            return (
                len(axes) > 0
                and not getattr(node.params, "exclude", False)
                and all(isinstance(shape[normalize_axis(axis, len(shape))], int) for axis in axes)
            )
        return False

    def _leading(self, entry: NodeEntry) -> int | None:
        """How often rows are gone over: what stands before them in row-major order."""
        shape = self._parts.shape(entry)
        axis = row_axis(shape)
        return None if axis is None else prod(int(extent) for extent in shape[:axis])

    # The graph

    def kept(self, context: int) -> list[Kept]:
        """What layers keep of that many tokens."""
        windows = Counter(read.window for read in self._reads)
        return [Kept(count, *self._sizes, context, window) for window, count in windows.items()]

    def steps(self, context: int, dtype: str) -> tuple[Symbol, dict[str, np.ndarray]]:
        """One step as a graph, over a cache of some dtype, and the parameters that it reads, which are not kept."""
        assert context == self._context
        written = _Written(self._parts, self._reads, self._tables, self.kept(context), dtype)
        self._parts.params = {}
        return written.finished()


class _Written:
    """Writes the graph anew, node by node: attention reads the cache, tables take positions."""

    def __init__(
        self, parts: Parts, reads: Sequence[Read], tables: Mapping[NodeEntry, Array], kept: Sequence[Kept], dtype: str
    ) -> None:
        self._parts, self._tables = parts, tables
        named: dict[str, Array] = {_file_name(name): value for name, value in parts.params.items()}
        self._own = named
        constants = {f"table.{number}": value for number, value in enumerate(tables.values())}
        self._table_names = dict(zip(tables, constants))
        self._g = StepGraph(constants, kept, dtype)
        self._reads = {read.out.node: read for read in reads}
        self._made: dict[NodeEntry, Symbol] = {}

    def finished(self) -> tuple[Symbol, dict[str, np.ndarray]]:
        scores = self._parts.graph.outputs[0]
        narrow = self._narrow(scores)
        stops = {entry for read in self._reads.values() for entry in (read.query, *read.new)}
        for node in self._order(scores, stops):
            for entry in [NodeEntry(node, index) for index in range(node.num_outputs)]:
                made = self._entry(entry)
                self._made[entry] = self._last(entry, made) if entry == narrow else made
        wide = self._g.op("reshape", self._made[scores], shape=(1, -1))
        symbol, values = self._g.finished(wide)
        read = set(symbol.list_input_names())
        return symbol, {**values, **{name: value for name, value in self._own.items() if name in read}}

    def _order(self, scores: NodeEntry, stops: set[NodeEntry]) -> list[Node]:
        """The nodes that are left: what attention reads stands in place of its nodes."""
        found, pending = set[Node](), [scores]
        while pending:
            entry = pending.pop()
            if entry.node in found:
                continue
            found.add(entry.node)
            if entry.node in self._reads:
                read = self._reads[entry.node]
                pending += [read.query, *read.new]
            else:
                pending += [entry for entry in entry.node.inputs if entry not in self._tables]
        return [node for node in self._parts.order if node in found]

    def _entry(self, entry: NodeEntry) -> Symbol:
        node = entry.node
        if node.op is None:
            return self._variable(node)
        if node in self._reads:
            return self._attended(self._reads[node])
        if entry.index:
            return Symbol([NodeEntry(self._made[NodeEntry(node)].outputs[0].node, entry.index)])
        inputs = [self._input(below).outputs[0] for below in node.inputs]
        return Symbol([NodeEntry(Node(node.op, node.name, node.attrs, inputs))])

    def _input(self, entry: NodeEntry) -> Symbol:
        if entry not in self._tables:
            return self._made[entry]
        if entry not in self._made:
            table, axis = self._g.param(self._table_names[entry]), row_axis(self._parts.shape(entry))
            self._made[entry] = table if axis is None else self._g.op("take", table, self._g.positions, axis=axis)
        return self._made[entry]

    def _variable(self, node: Node) -> Symbol:
        if node.name != self._parts.inputs.ids:
            return Symbol([NodeEntry(Node(None, _file_name(node.name), _hints(node)))])
        dtype = self._parts.graph.fact(NodeEntry(node)).dtype
        ids = self._g.op("expand_dims", self._g.ids, axis=0)
        return ids if dtype is None or dtype.name == "int64" else self._g.op("cast", ids, dtype=dtype.name)

    def _attended(self, read: Read) -> Symbol:
        query, key, value = (self._rows(entry) for entry in (read.query, *read.new))
        return self._placed(read.out, self._g.attended(query, key, value, read.window, read.scale))

    def _rows(self, entry: NodeEntry) -> Symbol:
        """A row of numbers for each new token."""
        shape = self._parts.shape(entry)
        axis, made = row_axis(shape), self._input(entry)
        assert axis is not None
        axes = (axis, *[other for other in range(len(shape)) if other != axis])
        first = made if axis == 0 else self._g.op("transpose", made, axes=axes)
        return self._g.op("reshape", first, shape=(ROWS, -1))

    def _placed(self, entry: NodeEntry, rows: Symbol) -> Symbol:
        """The same back in the shape of an entry."""
        shape = self._parts.shape(entry)
        axis = row_axis(shape)
        assert axis is not None
        rest = [extent for number, extent in enumerate(shape) if number != axis]
        made = self._g.op("reshape", rows, shape=(ROWS, *rest))
        axes = list(range(1, len(shape)))
        axes.insert(axis, 0)
        return made if axis == 0 else self._g.op("transpose", made, axes=tuple(axes))

    # One row of scores

    def _narrow(self, entry: NodeEntry) -> NodeEntry | None:
        """From where on one row is enough: what is only multiplied by weights and changed number by number after."""
        parts = self._parts
        if row_axis(parts.shape(entry)) is None:
            return None
        while True:
            node = entry.node
            given = [below for below in node.inputs if below.node in parts.tokens]
            plain = node.op is not None and len(given) == 1 and (node.op_name == "matmul" or _is_plain(node.op))
            if not plain or (given[0] is not node.inputs[0] and node.op_name == "matmul"):
                return entry
            others = [below for below in node.inputs if below.node not in parts.tokens]
            static = all(is_static(parts.shape(below)) and below not in self._tables for below in others)
            (below,) = given
            alone = len(parts.readers[below]) == 1 and below not in parts.graph.outputs
            if not static or not alone or row_axis(parts.shape(below)) != row_axis(parts.shape(entry)):
                return entry
            entry = below

    def _last(self, entry: NodeEntry, made: Symbol) -> Symbol:
        axis = row_axis(self._parts.shape(entry))
        return self._g.last(made, axis if axis is not None else 0)


def _is_plain(op: Op) -> bool:
    """Whether each result depends on the same place of the inputs."""
    return bool(op.pattern <= ELEMENTWISE)


def _file_name(name: str) -> str:
    return f"file:{name}"  # nothing of a step's own is called like it


def _hints(node: Node) -> dict[str, str]:
    return {name: text for name, text in node.attrs.items() if name in ("__shape__", "__dtype__")}
