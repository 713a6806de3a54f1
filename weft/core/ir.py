"""The graph IR, in one screen.

    Node       an operator applied to inputs, or a variable (op is None)
    NodeEntry  one output of a node: what edges carry and what results are
    Symbol     a list of entries that a user composes; the graph is what is reachable from them
    Graph      the same entries with named attributes and facts (shape, dtype, layout) about nodes

Edges point from consumer to producer, so a graph is reached backwards from its outputs. A node also
waits for its `control_deps`. `subgraphs` are closed: what they use from outside is an input.
A variable has a version, which grows each time an operator that mutates it is composed; an entry
names the version it reads, and for a mutating operator the one it makes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ..base.dtype import DType
from ..base.errors import GraphError
from ..base.layout import Layout
from ..base.shape import Shape
from .bulk import collector_paused
from .op import Op
from .schema import Params

if TYPE_CHECKING:
    from .symbol import Symbol


class VariableState:
    """The params of a variable: how often it has been mutated, and what it is before, if anybody
    said so: a numpy array, or a Symbol that computes it."""

    __slots__ = ("init", "version")

    def __init__(self, version: int = 0, init: Any = None) -> None:
        self.version = version
        self.init = init


class Node:
    """An operator application, or a variable. Compared by identity."""

    __slots__ = ("__weakref__", "attrs", "control_deps", "inputs", "name", "op", "params", "subgraphs")

    def __init__(
        self,
        op: Op | None,
        name: str,
        attrs: Mapping[str, str] | None = None,
        inputs: Iterable[NodeEntry] = (),
        control_deps: Iterable[Node] = (),
        subgraphs: Iterable[Symbol] = (),
        params: Params = None,
    ) -> None:
        self.op = op
        self.name = name
        self.attrs: dict[str, str] = dict(attrs) if attrs else {}
        self.inputs: list[NodeEntry] = list(inputs)
        self.control_deps: list[Node] = list(control_deps)
        self.subgraphs: tuple[Symbol, ...] = tuple(subgraphs)
        if params is None:
            params = VariableState() if op is None else op.parse(self.attrs)
        self.params: Params = params

    @property
    def is_variable(self) -> bool:
        return self.op is None

    @property
    def op_name(self) -> str:
        return "null" if self.op is None else self.op.name

    @property
    def num_outputs(self) -> int:
        return 1 if self.op is None else self.op.outputs_of(self.params)

    @property
    def num_visible_outputs(self) -> int:
        return 1 if self.op is None else self.op.visible_of(self.params)

    def entry(self, index: int = 0) -> NodeEntry:
        """One output; of a variable, in its present version."""
        return NodeEntry(self, index, self.params.version if self.op is None else 0)

    def output_name(self, index: int) -> str:
        """The name of an output: of a variable its own, else what the attribute
        `__output<index>__` says, else `<node>_<output>`."""
        if self.op is None:
            return self.name
        given = self.attrs.get(f"__output{index}__")
        if given is not None:
            return given
        suffix = self.op.output_names_of(self.params)[index]
        return f"{self.name}_{suffix}" if self.name else suffix

    def copy_with(self, inputs: Iterable[NodeEntry], control_deps: Iterable[Node] = ()) -> Node:
        """The same operator on other inputs."""
        old = self.params
        params = VariableState(old.version, old.init) if self.op is None else old
        return Node(self.op, self.name, self.attrs, inputs, control_deps, self.subgraphs, params)

    def __repr__(self) -> str:
        return f"Node({self.op_name}, {self.name!r})"


class NodeEntry(NamedTuple):
    """An output of a node. For a variable, `version` says before or after which mutation."""

    node: Node
    index: int = 0  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    version: int = 0


class Fact(NamedTuple):
    """What is known about an output."""

    shape: Shape = None
    dtype: DType | None = None
    layout: Layout = Layout()


UNKNOWN = Fact()


def topo_order(heads: Iterable[NodeEntry], extra: Mapping[Node, list[Node]] | None = None) -> list[Node]:
    """Every node reachable from the entries, each after what it needs.

    Depth first: inputs from left to right, then control dependencies (then `extra` ones), then the
    node. The order is a function of the graph alone. A cycle is an error.
    """
    order: list[Node] = []
    opened: set[Node] = set()
    closed: set[Node] = set()
    for head in heads:
        if head.node in closed:
            continue
        stack: list[Node | None] = [head.node]
        while stack:
            node = stack.pop()
            if node is None:  # what stands below has all its needs in `order`
                node = stack.pop()
                assert node is not None
                closed.add(node)
                order.append(node)
            elif node in opened:
                if node not in closed:
                    raise GraphError("the graph has a cycle", where=f"node {node.name!r}")
            else:
                opened.add(node)
                stack.append(node)
                stack.append(None)
                if extra is not None:
                    stack.extend(reversed(extra.get(node, ())))
                if node.control_deps:
                    stack.extend(reversed(node.control_deps))
                inputs = node.inputs
                if len(inputs) == 1:
                    stack.append(inputs[0][0])
                else:
                    stack.extend([entry[0] for entry in reversed(inputs)])
    return order


def mutation_writers(nodes: Iterable[Node]) -> dict[tuple[Node, int], Node]:
    """(variable, version) -> the node whose mutation makes that version."""
    writers = {}
    for node in nodes:
        if node.op is not None and node.op in Op.mutates:
            for index in node.op.mutates_of(node.params):
                variable, _, version = node.inputs[index]
                writers[variable, version] = node
    return writers


class Mutations:
    """Who makes which version of the variables that some nodes mutate.

    A graph may hold a part of what was composed: a version that nobody in it makes has the value of
    the one before.
    """

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.writers = mutation_writers(nodes)
        self._made: dict[Node, list[int]] = {}
        for variable, version in sorted(self.writers, key=lambda made: made[1]):
            self._made.setdefault(variable, []).append(version)

    def made_version(self, variable: Node, version: int) -> int:
        """The newest version, up to this one, that a node makes; 0 is what the variable began as.

        The cost is logarithmic in the number of mutations of the variable.
        """
        made = self._made.get(variable, [])
        position = bisect_right(made, version)
        return made[position - 1] if position else 0

    def count(self, variable: Node, version: int) -> int:
        """How many of the versions up to this one a node makes."""
        return bisect_right(self._made.get(variable, []), version)

    def needs(self, node: Node) -> list[Node]:
        """Nodes that must run before, because they make a version that this one reads."""
        found = []
        for variable, _, version in node.inputs if self.writers else ():
            if variable in self._made:
                own = self.writers.get((variable, version)) is node
                made = self.made_version(variable, version - own)
                found += [self.writers[variable, made]] if made else []
        return found


def mutation_deps(nodes: Iterable[Node]) -> dict[Node, list[Node]]:
    """Node -> nodes that must run before it, because they make a version that it reads."""
    nodes = list(nodes)
    mutations = Mutations(nodes)
    deps = {node: mutations.needs(node) for node in nodes} if mutations.writers else {}
    return {node: needs for node, needs in deps.items() if needs}


@collector_paused
def copy_nodes(heads: Iterable[NodeEntry]) -> dict[Node, Node]:
    """Node -> its copy, for everything reachable."""
    copies: dict[Node, Node] = {}
    for node in topo_order(heads):
        inputs = [NodeEntry(copies[n], i, v) for n, i, v in node.inputs]
        copies[node] = node.copy_with(inputs, [copies[n] for n in node.control_deps])
    return copies
