"""Dead code: nodes that give nothing which is needed, and values that blocks pass on to nobody."""

from __future__ import annotations

from ..graph import Graph
from ..nodes import Node, Value, inside
from .aliases import Aliases
from .effects import has_effect, has_side_effects


def eliminate_dead_code(graph: Graph) -> None:
    """Takes out what nobody needs. Who has an effect stays, and so does who writes to its inputs.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %a : Tensor = aten::relu(%x)
    ...   %b : Tensor = aten::t(%x)
    ...   return (%b)''')
    >>> eliminate_dead_code(graph)
    >>> [node.kind() for node in graph.nodes()]
    ['aten::t']
    """
    _Liveness(graph, None).sweep([node for node in inside(graph.block()) if has_effect(node)])


def eliminate_dead_writes(graph: Graph) -> None:
    """The same; a write stays if what it writes to is read by somebody who stays, or known outside."""
    _Liveness(graph, Aliases(graph)).sweep([node for node in inside(graph.block()) if has_side_effects(node)])


def eliminate_dead_code_with_effects(graph: Graph) -> None:
    """Takes out all that the outputs of the graph do not need, whatever it does besides."""
    _Liveness(graph, None).sweep([])


class _Liveness:
    """What is needed. Of a loop or a branch, each value that it passes on counts for itself."""

    def __init__(self, graph: Graph, aliases: Aliases | None) -> None:
        self.graph, self.aliases = graph, aliases
        self.nodes: set[Node] = set()
        self.values: set[Value] = set()
        self.waiting: list[Node | Value] = []
        self.seen_places: set[int] = set()
        self.seen_from: set[int] = set()  # of those, where all that is held has been seen too
        self.writers = {} if aliases is None else aliases.writers

    def sweep(self, roots: list[Node]) -> None:
        """Takes out all that neither some nodes nor the outputs of the graph need."""
        self.waiting += [*roots, *self.graph.outputs()]
        if self.aliases is not None:
            self._see(self.aliases.outside)
        while self.waiting:
            step = self.waiting.pop()
            if isinstance(step, Node):
                self._node(step)
            elif step not in self.values:
                self.values.add(step)
                self._value(step)
        self._take_out()

    def _node(self, node: Node) -> None:
        if node in self.nodes:
            return
        self.nodes.add(node)
        around = node._owner._owner if node._owner is not None else None
        if around is not None:
            self.waiting.append(around)
        if node.kind() == "prim::If":
            self.waiting += node._inputs
        elif node.kind() == "prim::Loop":
            self.waiting += [*node._inputs[:2], node._blocks[0]._return._inputs[0]]
        else:
            self.waiting += node._inputs
            for block in node._blocks:
                self.waiting += block.outputs()

    def _value(self, value: Value) -> None:
        if self.aliases is not None and self.writers:
            for place in self.aliases.places_of(value) - self.seen_from:
                self.seen_from.add(place)
                self._see(self.aliases.reached_from(place))
        node, place = value.node(), value.offset()
        if node.kind() == "prim::Param":
            owner = node.owningBlock().owningNode()  # type: ignore[union-attr]
            if owner is not None and owner.kind() == "prim::Loop" and place:
                self._carried(owner, place - 1)
            elif owner is not None:
                self.waiting.append(owner)
            return
        self.waiting.append(node)
        if node.kind() == "prim::If":
            self.waiting += [block._return._inputs[place] for block in node._blocks]
        elif node.kind() == "prim::Loop":
            self._carried(node, place)

    def _carried(self, loop: Node, place: int) -> None:
        body = loop._blocks[0]
        self.waiting += [loop._inputs[place + 2], body._return._inputs[place + 1], body._param._outputs[place + 1]]

    def _see(self, places: set[int]) -> None:
        """Somebody who is needed knows of some places: those who write to them are needed too."""
        for place in places - self.seen_places:
            self.seen_places.add(place)
            self.waiting += self.writers.get(place, ())

    def _take_out(self) -> None:
        every = list(inside(self.graph.block()))
        for node in every:
            if node in self.nodes:
                self._narrow(node)
            else:
                node.removeAllInputs()
                for block in node._blocks:
                    block.returnNode().removeAllInputs()
        for node in reversed(every):
            if node not in self.nodes:
                node.destroy()
        for node in every:
            if node in self.nodes and node.kind() in ("prim::If", "prim::Loop"):
                self._erase_dead_outputs(node)

    def _narrow(self, node: Node) -> None:
        """Has the blocks of a node give only what is needed."""
        kept = [place for place, value in enumerate(node._outputs) if value in self.values]
        if node.kind() not in ("prim::If", "prim::Loop"):
            return
        if node.kind() == "prim::Loop":
            entries = node._blocks[0]._param._outputs
            kept = [place for place, value in enumerate(entries[1:]) if value in self.values]
        if len(kept) == len(node._outputs):
            return
        first = 0 if node.kind() == "prim::If" else 1
        for block in node._blocks:
            given = block._return._inputs
            block._return._set_inputs([*given[:first], *[given[place + first] for place in kept]])
        if first:
            node._set_inputs([*node._inputs[:2], *[node._inputs[place + 2] for place in kept]])

    def _erase_dead_outputs(self, node: Node) -> None:
        loop = node.kind() == "prim::Loop"
        entries = node._blocks[0]._param._outputs[1:] if loop else node._outputs
        for place in reversed([place for place, value in enumerate(entries) if value not in self.values]):
            node.eraseOutput(place)
            if loop:
                node._blocks[0]._param.eraseOutput(place + 1)
