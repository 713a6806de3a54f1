"""Operators that write to their inputs replaced by those that give something new."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from ..graph import Graph
from ..nodes import Block, Node, Value
from ..schema import FunctionSchema
from ..types import ListType, TensorType
from .aliases import Aliases
from .effects import has_side_effects, writes_inputs
from .order import in_order
from .schemas import schema_for, schema_of


def remove_inplace_ops(graph: Graph) -> None:
    """Has `x.add_(y)` be `x + y`, which is read in the place of `x` from then on, in the block that made `x`. Others
    that share the memory of `x` do not see it: `remove_mutation` asks who does.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %a : Tensor = aten::neg(%x)
    ...   %b : Tensor = aten::relu_(%a)
    ...   return (%a)''')
    >>> remove_inplace_ops(graph)
    >>> [node.kind() for node in graph.nodes()], next(graph.outputs()).node().kind()
    (['aten::neg', 'aten::relu'], 'aten::relu')
    """
    objects: dict[Value, Value] = {}  # the value that something was first
    renaming = _Renaming(lambda value: objects.get(value, value))
    for step in in_order(graph.block()):
        if step in renaming.made:
            continue
        node = renaming.read(step)
        if isinstance(step, Block) or not writes_inputs(node) or len(node._outputs) != 1:
            continue
        first = objects.get(node._inputs[0], node._inputs[0])
        maker = first.node()
        ours = maker.owningBlock() is node.owningBlock() and maker.kind() != "prim::Param" and not maker._blocks
        made = _without_writing(node) if ours else None
        objects[node.output() if made is None else made.output()] = first
        if made is not None:
            renaming.replace(node, made.output())
    renaming.read(graph.block())


def remove_mutation(graph: Graph) -> bool:
    """The same, of writes that nobody tells from a new value: to a tensor that was made in the same block and that
    nothing else shares, and to a list that was made there and is not read before. Whether there was one.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %a : Tensor = aten::relu(%x)
    ...   %b : Tensor = aten::relu_(%a)
    ...   %c : Tensor = aten::relu_(%x)
    ...   return (%a)''')
    >>> remove_mutation(graph)
    True
    >>> [node.kind() for node in graph.nodes()]
    ['aten::relu', 'aten::relu', 'aten::relu_']
    """
    owners, changed = _Owners(Aliases(graph)), False
    renaming = _Renaming(owners.objects.get)
    for step in in_order(graph.block()):
        if step in renaming.made:
            continue
        given = list(step.outputs() if isinstance(step, Block) else step._inputs)
        node = renaming.read(step)
        if isinstance(step, Block):
            owners.share(given)
            continue
        made = _without_memory(node) if owners.may_replace(node, given) else None
        if made is None:
            owners.look_at(node, given)
        else:
            changed = True
            owners.share(given[1:])
            renaming.replace(node, made.output())
            owners.objects[made.output()] = owners.objects[given[0]]
    renaming.read(graph.block())
    return changed


class _Renaming:
    """What stands for values that were written to, by what tells that they are the same object."""

    def __init__(self, same: Callable[[Value], Hashable]) -> None:
        self._same = same
        self._now: dict[Hashable, Value] = {}
        self.made: set[Node] = set()  # which stand for others, and read what they should

    def read(self, step: Node | Block) -> Node:
        """Has a node, or the end of a block, read what stands for its inputs by now; gives it."""
        node = step.returnNode() if isinstance(step, Block) else step
        for offset, value in enumerate(node._inputs):
            now = self._now.get(self._same(value), value)
            if now is not value:
                node._put(offset, now)
        return node

    def replace(self, node: Node, made: Value) -> None:
        """Has another value stand for what a node wrote to, from now on; the node goes."""
        told = self._same(node._inputs[0])
        self._now[told] = made
        self.made.add(made.node())
        if node.output() is not made:
            node.output().replaceAllUsesWith(made)
            node.destroy()


class _Owners:
    """Who made the memory of values, and what else knows of it, as far as a walk has come."""

    def __init__(self, aliases: Aliases) -> None:
        self.aliases = aliases
        self.objects: dict[Value, int] = {}  # the places of values that are all of an object, and not a part
        self._makers: dict[Hashable, Node] = {}
        self._shared: set[int] = set()  # that others know of
        self._kept: set[int] = set()  # of those, where all that is held is known too
        self._read: set[int] = set()

    def share(self, values: Iterable[Value]) -> None:
        """Something else keeps values from now on."""
        for place in {place for value in values for place in self._places(value)} - self._kept:
            self._kept.add(place)
            self._shared |= self.aliases.reached_from(place)

    def _places(self, value: Value) -> set[int]:
        """Where a value is; one that stands for another is there."""
        known = self.objects.get(value)
        return self.aliases.places_of(value) if known is None else {known}

    def may_replace(self, node: Node, given: list[Value]) -> bool:
        """Whether a node writes to one object, which its block made, and which nobody else has."""
        if not writes_inputs(node) or not given or len(node._outputs) != 1:
            return False
        place = self.objects.get(given[0])
        if place is None or place in self._shared or self.aliases.writes(node) != {place}:
            return False
        alone = self._makers[place].owningBlock() is node.owningBlock()
        return alone and not (place in self._read and isinstance(given[0].type(), ListType))

    def look_at(self, node: Node, given: list[Value]) -> None:
        for value in node._outputs:
            places = self.aliases.places_of(value)
            for place in places:
                if self._makers.setdefault(place, node) is not node:
                    self._shared.add(place)
                elif len(places) == 1 and self.aliases.is_of_one(place):
                    self.objects[value] = place
        for value in given:
            self._read |= self._places(value)
        if _keeps_inputs(node):
            self.share(given)


def _keeps_inputs(node: Node) -> bool:
    """Whether others may know of what a node read, by what it gives or wrote to."""
    schema: FunctionSchema | None = schema_of(node)
    plain = schema is not None and not schema.is_mutable and not has_side_effects(node)
    return not plain or any(result.alias_info is not None for result in schema.returns)  # type: ignore[union-attr]


def _without_writing(node: Node) -> Node | None:
    """A node, put before one that writes to its first input, that gives the same and writes to nothing; None if there
    is no such operator."""
    kind, schema = node.kind(), schema_of(node)
    if not kind.endswith("_") or kind.endswith("__") or schema is None or not schema.is_mutable:
        return None
    if len(node._outputs) != 1 or not isinstance(node._inputs[0].type(), TensorType):
        return None
    pure = schema_for(kind[:-1], [value.type() for value in node._inputs])
    if pure is None or any(part.alias_info is not None for part in (*pure.arguments, *pure.returns)):
        return None
    made = node._graph.create(kind[:-1], node._inputs).insertBefore(node)
    made.copyMetadata(node)
    made.output().setType(node.output().type())
    return made


def _without_memory(node: Node) -> Node | None:
    if node.kind() != "aten::append":
        return _without_writing(node)
    construct, added = node._inputs[0].node(), node._inputs[1]
    if construct.kind() != "prim::ListConstruct":
        return None
    construct.addInput(added)
    construct.moveBefore(node)
    return construct
