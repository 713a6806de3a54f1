"""Fusion: which nodes become one kernel. GraphFindFusibleGroups, GraphFuse, `fusible_groups`.

A group has one root, the only node whose outputs others read, and at most one master: the anchor
(convolution, matmul, pool) whose result the rest works on element by element, or a reduction.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Any

from ..base.dtype import has_native_code
from ..base.shape import is_static, numel
from ..core.bulk import collector_paused
from ..core.fused import FusedGroup
from ..core.graph import Graph
from ..core.graph_attrs import JsonAttr
from ..core.ir import Fact, Node, NodeEntry
from ..core.op import Op
from ..core.passes import register_pass
from ..core.pattern import OpPattern

MAX_GROUP_NODES = 64  # keeps the expressions of a kernel at a size that compiles quickly
MAX_GROUP_INPUTS = 128  # and the tensors that it reads
MAX_REPEATS = 16  # how often a kernel may compute one value rather than read it
MOVERS = frozenset("expand_dims reshape squeeze flatten transpose broadcast_to copy cast".split())
DEFAULT_OPT_LEVEL = 2

# FPlaces: f(params, shapes of the inputs) -> the index in the output of each input's first element,
# for operators that only put their inputs side by side, or something around them.
_places = Op.get_attr("FPlaces")


@dataclass
class _Open:
    """A group while nodes still join it."""

    root: int
    size: int = 1
    inputs: int = 0  # at most so many tensors are read
    master: int | None = None
    anchored: bool = False
    extent: int = 0  # elements of the largest value computed inside


@collector_paused
def fusible_groups(graph: Graph, *, fuse: bool = True, dense: Container[str] = ()) -> list[FusedGroup]:
    """Every operator of the graph in exactly one group, each group after what it reads. `dense` names operators whose
    kernels write their result in one piece only.

    First every anchor takes the element-wise work on its result, up to a node that alone is read
    by others. Then every other node joins its readers, if they all are in one group: element-wise
    and broadcast work always, injective work unless the group has an anchor; but not where each
    element would be computed many times over. What only places things that are stored anyway, such
    as a concatenation of convolutions, is left alone.

    >>> from weft.core.symbol import Variable
    >>> [group] = fusible_groups(Graph(Op.get("relu")(Variable("x") + 1).outputs))
    >>> [node.op_name for node in group.nodes]
    ['__add_scalar__', 'relu']
    """
    indexed = graph.indexed
    grouping = _Grouping(graph, fuse, dense)
    members: dict[int, list[Node]] = {}
    for number, node in enumerate(indexed.nodes):
        opened = grouping.of[number]
        if opened is not None:
            members.setdefault(opened.root, []).append(node)
    return [group_of(graph, nodes, grouping.master(root)) for root, nodes in sorted(members.items())]


class _Grouping:
    def __init__(self, graph: Graph, fuse: bool, dense: Container[str]) -> None:
        self.dense = dense
        self.graph, self.indexed, self.fuse = graph, graph.indexed, fuse
        self.outputs = {entry.node for entry in graph.outputs}
        self.awaited = {dep for node in self.indexed.nodes for dep in node.control_deps}
        self.mutable = {self.indexed.nodes[number] for number in self.indexed.mutable_inputs}
        self.patterns = [
            pattern_of(node) if has_native_code_for(graph, node) else OpPattern.OPAQUE for node in self.indexed.nodes
        ]
        self.of: list[_Open | None] = [None] * self.indexed.num_nodes
        for number, pattern in enumerate(self.patterns):
            if pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
                self._claim(number)
        self.placed = self._place()
        for number in reversed(range(self.indexed.num_nodes)):
            if self.indexed.nodes[number].op is not None and self.of[number] is None:
                self.of[number] = self._join(number) or self._open(number)

    def master(self, root: int) -> Node | None:
        opened = self.of[root]
        assert opened is not None
        return None if opened.master is None else self.indexed.nodes[opened.master]

    def _readers(self, number: int) -> list[int]:
        """The nodes that read any output, once for each time."""
        entries = self.indexed.entry_range(number)
        return [reader for entry in entries for reader in self.indexed.consumers[entry]]

    def _may_vanish(self, number: int) -> bool:
        """Whether nothing but readers needs the node's value, or the moment it is computed."""
        node = self.indexed.nodes[number]
        if not self.fuse or node in self.outputs or node in self.awaited:
            return False
        return not any(entry.node in self.mutable for entry in node.inputs)

    def _claim(self, anchor: int) -> None:
        """Gives an anchor's group the work that follows it.

        Readers are taken in topological order; whenever all edges that leave what has been taken
        come from the last one, that one can be the root.
        """
        taken, settled = [anchor], 1
        inside, waiting = {anchor}, set(self._readers(anchor))
        heap = sorted(waiting)
        leaving, inputs = len(self._readers(anchor)), self._width(anchor)
        while heap and self._may_vanish(taken[-1]):
            number = heappop(heap)
            inputs += self._width(number)
            full = len(taken) == MAX_GROUP_NODES or inputs > MAX_GROUP_INPUTS
            if full or not self._follows(anchor, number):
                break
            read = self._readers(number)
            leaving += len(read) - sum(e in inside for e in self._producers(number))
            taken.append(number)
            inside.add(number)
            for reader in read:
                if reader not in waiting:
                    waiting.add(reader)
                    heappush(heap, reader)
            if leaving == len(read):
                settled = len(taken)
        extent = self._extent(anchor)
        inputs = sum(map(self._width, taken[:settled]))
        group = _Open(taken[settled - 1], settled, inputs, anchor, anchored=True, extent=extent)
        for number in taken[:settled]:
            self.of[number] = group

    def _place(self) -> set[int]:
        """Nodes that only place their inputs, where one of those is stored anyway: then whoever
        computes it can write it to its place, and the node costs nothing if it is left alone."""
        placed: set[int] = set()
        for number, node in enumerate(self.indexed.nodes):
            places = node.op is not None and node.op in _places and has_native_code_for(self.graph, node)
            parts = self._producers(number) if places else ()
            if any(self._is_stored(p, placed) and self._fits(p, number) for p in parts):
                placed.add(number)
        return placed

    def _is_stored(self, number: int, placed: set[int]) -> bool:
        """Whether a node's result will be in memory that is its own to choose."""
        node = self.indexed.nodes[number]
        if node.op is None or node in self.outputs or node.op.alias_of(node.params):
            return False
        if number in placed or self.of[number] is not None:
            return True
        return self.patterns[number] > OpPattern.INJECTIVE or len(set(self._readers(number))) > 1

    def _fits(self, number: int, whole: int) -> bool:
        """Whether what computes a part can write it where it stands: in one piece, or in rows."""
        opened = self.of[number]
        anchor = None if opened is None else opened.master
        node = self.indexed.nodes[number if anchor is None else anchor]
        in_rows = node.op_name not in self.dense and node.op not in Op.kernels
        return in_rows or _is_one_piece(self._shape(number), self._shape(whole))

    def _producers(self, number: int) -> list[int]:
        return [self.indexed.node_id[entry.node] for entry in self.indexed.nodes[number].inputs]

    def _width(self, number: int) -> int:
        """How many tensors a node adds to those that a kernel reads: all but the one between."""
        return max(len(self.indexed.nodes[number].inputs) - 1, 0)

    def _follows(self, anchor: int, number: int) -> bool:
        """Whether a node works on the anchor's result element by element, in the same shape."""
        shape = self._shape(anchor)
        return (
            self.patterns[number] <= OpPattern.BROADCAST
            and self.of[number] is None
            and shape is not None
            and shape == self._shape(number)
        )

    def _shape(self, number: int) -> object:
        node = self.indexed.nodes[number]
        return self.graph.fact(NodeEntry(node)).shape if node.num_outputs == 1 else None

    def _open(self, number: int) -> _Open:
        is_master = self.patterns[number] > OpPattern.INJECTIVE
        master = number if is_master else None
        return _Open(number, inputs=self._width(number), master=master, extent=self._extent(number))

    def _join(self, number: int) -> _Open | None:
        """The readers' group with this node in it; None if it must stand on its own."""
        readers = set(self._readers(number))
        groups = {id(self.of[reader]): self.of[reader] for reader in readers}
        if len(groups) != 1 or not self._may_vanish(number):
            return None
        if number in self.placed or readers & self.placed:
            return None
        (group,) = groups.values()
        assert group is not None
        hardest = OpPattern.BROADCAST if group.anchored else OpPattern.INJECTIVE
        fits = self.patterns[number] <= hardest
        easy = all(self.patterns[reader] <= OpPattern.COMM_REDUCE for reader in readers)
        inputs = group.inputs + self._width(number)
        full = group.size >= MAX_GROUP_NODES or inputs > MAX_GROUP_INPUTS
        if not fits or not easy or full or self._repeats(number, group):
            return None
        group.size += 1
        group.inputs = inputs
        group.extent = max(group.extent, self._extent(number))
        return group

    def _extent(self, number: int) -> int:
        facts = self.graph.node_facts(self.indexed.nodes[number])
        return max((numel(fact.shape) for fact in facts if is_static(fact.shape)), default=0)

    def _repeats(self, number: int, group: _Open) -> bool:
        """Whether each element would be computed many times over inside the group."""
        node = self.indexed.nodes[number]
        if not node.inputs or node.op_name in MOVERS:
            return False
        return group.extent > MAX_REPEATS * self._extent(number) > 0


def _is_one_piece(part: Any, whole: Any) -> bool:
    """Whether a part of a tensor is one piece of its memory: before the last axis that it does not
    fill, it has one element on every axis.

    >>> _is_one_piece((1, 3, 5), (1, 4, 5)), _is_one_piece((2, 3, 5), (2, 4, 5))
    (True, False)
    """
    if not is_static(part) or not is_static(whole):
        return False
    short = [axis for axis, (a, b) in enumerate(zip(part, whole)) if a != b]
    return not short or all(extent == 1 for extent in part[: short[-1]])


def pattern_of(node: Node) -> int:
    """How a node may fuse: opaque unless its operator is pure, has a pattern and one output.

    Injective operators may have several outputs.
    """
    if node.op is None or node.subgraphs or node.op.effect_of(node.params) != "pure":
        return OpPattern.OPAQUE
    if node.op in Op.kernels:  # they compute this operator and nothing else
        return OpPattern.OPAQUE
    pattern = Op.pattern.get(node.op, OpPattern.OPAQUE)
    if not node.inputs and pattern == OpPattern.OUT_ELEMWISE_FUSABLE:
        return OpPattern.ELEM_WISE  # zeros and the like: nothing to anchor a kernel on
    if node.op.mutates_of(node.params) or (node.num_outputs > 1 and pattern > OpPattern.INJECTIVE):
        return OpPattern.OPAQUE
    return int(pattern)


def has_native_code_for(graph: Graph, node: Node) -> bool:
    """Whether kernels could read and write all that a node does."""
    facts = (*graph.node_facts(node), *map(graph.fact, node.inputs))
    return all(fact.dtype is None or has_native_code(fact.dtype) for fact in facts)


def group_of(graph: Graph, nodes: list[Node], master: Node | None) -> FusedGroup:
    """The group that nodes make, of which the last is the only one that others read."""
    inside = set(nodes)
    inputs = dict.fromkeys(e for node in nodes for e in node.inputs if e.node not in inside)
    last = nodes[-1]
    used = {entry.index for entry in graph.outputs if entry.node is last}
    indexed = graph.indexed
    for index, entry in enumerate(indexed.entry_range(indexed.node_id[last])):
        if indexed.consumers[entry]:
            used.add(index)
    outputs = [NodeEntry(last, index) for index in sorted(used)] or [NodeEntry(last)]
    return FusedGroup(tuple(nodes), tuple(inputs), tuple(outputs), master)


@register_pass(
    "GraphFindFusibleGroups",
    requires=("shape", "dtype"),
    op_attrs=("TOpPattern",),
    provides=("group_root", "group_master", "pattern"),
    changes_graph=False,
)
def find_fusible_groups(graph: Graph) -> Graph:
    """Attributes `group_root` and `group_master`: for each node the number of its group's root and
    master (the root where there is none); `pattern`: how the group computes up to that node.

    With `opt_level` below 1 every node is a group of its own.
    """
    level = graph.attr("opt_level")
    fuse = (DEFAULT_OPT_LEVEL if level is None else level) >= 1
    ids = graph.indexed.node_id
    roots, masters = list(range(len(ids))), list(range(len(ids)))
    patterns = [OpPattern.OPAQUE] * len(ids)
    for group in fusible_groups(graph, fuse=fuse):
        inside = set(group.nodes)
        for node in group.nodes:
            before = [patterns[ids[e.node]] for e in node.inputs if e.node in inside]
            patterns[ids[node]] = max([pattern_of(node), *before])
            roots[ids[node]] = ids[group.nodes[-1]]
            masters[ids[node]] = ids[group.master or group.nodes[-1]]
    attrs = {key: value for key, value in graph.attrs.items() if key != "opt_level"}
    attrs["group_root"] = JsonAttr("list_int", roots)
    attrs["group_master"] = JsonAttr("list_int", masters)
    attrs["pattern"] = JsonAttr("list_int", patterns)
    return graph.replace(attrs=attrs)


@dataclass(frozen=True)
class FusedEntry:
    """A group cut out: `subgraph` reads variables input0, input1, ... in place of the inputs."""

    subgraph: Graph
    inputs: tuple[NodeEntry, ...]
    root: int
    master: int


@register_pass("GraphFuse", requires=("shape", "dtype", "group_root", "group_master"), provides=("fused_entry",))
def graph_fuse(graph: Graph) -> Graph:
    """Attribute `fused_entry`: a FusedEntry for the number of each group's root."""
    roots, masters = graph.attr("group_root"), graph.attr("group_master")
    members: dict[int, list[Node]] = {}
    for number, node in enumerate(graph.indexed.nodes):
        if node.op is not None:
            members.setdefault(roots[number], []).append(node)
    fused = {root: _cut_out(graph, root, masters[root], nodes) for root, nodes in members.items()}
    return graph.replace(attrs={**graph.attrs, "fused_entry": fused})


def _cut_out(graph: Graph, root: int, master: int, nodes: list[Node]) -> FusedEntry:
    made: dict[Node, Node] = {}
    facts: dict[Node, tuple[Fact, ...]] = {}
    inputs: dict[NodeEntry, NodeEntry] = {}
    numbers = count()

    def inner(entry: NodeEntry) -> NodeEntry:
        if entry.node in made:
            return NodeEntry(made[entry.node], entry.index)
        if entry not in inputs:
            variable = Node(None, f"input{next(numbers)}")
            facts[variable] = (graph.fact(entry),)
            inputs[entry] = NodeEntry(variable)
        return inputs[entry]

    for node in nodes:
        made[node] = node.copy_with([inner(entry) for entry in node.inputs])
        facts[made[node]] = graph.node_facts(node)
    last = nodes[-1]
    outputs = [NodeEntry(made[last], index) for index in range(last.num_outputs)]
    return FusedEntry(Graph(outputs, facts=facts), tuple(inputs), root, master)
