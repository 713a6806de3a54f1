"""Which values of a graph may share memory, and who writes to it, as the schemas of operators tell.

Memory is in places. A value that has any (a tensor, a list, a tuple of tensors) may be at each of a few places, and a
place of a container holds others. Where two places cannot be told apart any more, they are made one, so all of it takes
time in proportion to the graph: what a loop carries is at one place, and what is taken out of a container, or put into
it later, is where all that it holds is. What comes from outside is at wild places, one for each type, since inputs of
a type may be the same object.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..graph import Graph
from ..nodes import Node, Value
from ..schema import FunctionSchema
from ..types import (
    AnyType,
    AwaitType,
    ClassType,
    DictType,
    FutureType,
    ListType,
    OptionalType,
    PyObjectType,
    RRefType,
    TensorType,
    TupleType,
    Type,
    UnionType,
    VarType,
)
from .effects import EFFECTS, STRUCTURAL
from .order import ends, in_order
from .schemas import schema_of

MOST_PLACES = 16  # that a value may be at, before they are made one
_OPAQUE = (AnyType, UnionType, PyObjectType, RRefType, VarType, FutureType, AwaitType)
_NOTHING: frozenset[int] = frozenset()
_MAKE_CONTAINERS = frozenset(("prim::ListConstruct", "prim::TupleConstruct", "prim::DictConstruct"))
_TAKE_OUT = frozenset(
    (
        "prim::ListUnpack prim::TupleUnpack prim::TupleIndex prim::DictIndex aten::__getitem__ aten::pop "
        "aten::select aten::get"
    ).split()
)
_ONLY_READ = ("prim::Print", "prim::RaiseException", "aten::warn")  # of those that have effects
_PASS_ON = frozenset(("prim::unchecked_cast", "prim::ConstantChunk"))
_MAY_PASS_ON = frozenset(("prim::AutogradAdd", "prim::DifferentiableGraph"))  # or give something new


def has_memory(kind: Type) -> bool:
    """Whether values of a type have memory that others may share."""
    if isinstance(kind, (TensorType, ListType, DictType, ClassType, *_OPAQUE)):
        return True
    return isinstance(kind, (OptionalType, TupleType)) and any(has_memory(part) for part in kind.containedTypes())


def _holds(kind: Type) -> bool:
    """Whether values of a type hold others that have memory."""
    if isinstance(kind, OptionalType):
        return _holds(kind.getElementType())
    return isinstance(kind, (ListType, DictType, TupleType)) and any(map(has_memory, kind.containedTypes()))


class _Places:
    """Places, which may turn out to be one, and what those of containers hold."""

    def __init__(self) -> None:
        self.parents: list[int] = []
        self.held: dict[int, set[int]] = {}
        self.merged: set[int] = set()  # containers whose parts are at one place
        self.united: set[int] = set()  # that were several

    def new(self) -> int:
        self.parents.append(len(self.parents))
        return len(self.parents) - 1

    def find(self, place: int) -> int:
        parents = self.parents
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    def unite(self, places: Iterable[int]) -> None:
        waiting = [list(places)]
        while waiting:
            group = list({self.find(place) for place in waiting.pop()})
            if len(group) < 2:
                continue
            root, *others = group
            self.united.add(root)
            held = self.held.pop(root, set())
            for other in others:
                self.parents[other] = root
                more = self.held.pop(other, set())
                held, more = (held, more) if len(held) >= len(more) else (more, held)
                held |= more
            if held:
                self.held[root] = held
            if any(place in self.merged for place in group):
                self.merged.add(root)
                waiting.append(list(held))

    def put(self, container: int, parts: Iterable[int]) -> None:
        """Has a container hold more."""
        container = self.find(container)
        held = self.held.setdefault(container, set())
        held.update(parts)
        if container in self.merged:
            self.unite(held)

    def parts(self, container: int) -> int:
        """The one place of all that a container holds, now and later."""
        container = self.find(container)
        held = self.held.setdefault(container, set())
        if not held:
            held.add(self.new())
        if container not in self.merged:
            self.merged.add(container)
            self.unite(list(held))
        return self.find(next(iter(self.held[self.find(container)])))


class Aliases:
    """What shares memory in a graph, as it is now: after edits it has to be made again.

    >>> from ..parse import parse_ir
    >>> graph = parse_ir('''graph(%x : Tensor):
    ...   %a : Tensor = aten::relu(%x)
    ...   %b : Tensor = aten::t(%a)
    ...   return (%b)''')
    >>> x, a, b = next(graph.inputs()), *[node.output() for node in graph.nodes()]
    >>> aliases = Aliases(graph)
    >>> aliases.may_alias(a, b), aliases.may_alias(x, a)
    (True, False)
    """

    def __init__(self, graph: Graph) -> None:
        self._places = _Places()
        self._of: dict[Value, frozenset[int]] = {}
        self._wild: dict[str, int] = {}
        self._writes: dict[Node, set[int]] = {}
        self._opaque_nodes: list[Node] = []
        self._constants: dict[int, int] = {}  # places of tensors, by their identities
        self._reach: dict[int, set[int]] = {}
        self._written_from: dict[int, bool] = {}
        for value in graph.inputs():
            self._of[value] = self._outside(value.type())
        for step in in_order(graph.block()):
            if isinstance(step, Node):
                self._look_at(step)
            elif ends(step):
                self._leave(step.owningNode())  # type: ignore[arg-type]
        self.wild = self._reached(self._wild.values())  # where what comes from outside is, or goes there on the way
        for node in self._opaque_nodes:
            self._writes[node] |= self.wild
        self.writers = self._writers()  # the nodes that write to a place
        self.written = self.writers.keys()
        # What goes out is held by others from then on.
        self.outside = self._reached(_of_all(self, graph.outputs())) | self.wild

    # Questions

    def may_alias(self, one: Value, two: Value) -> bool:
        """Whether two values may be at one place."""
        return not self.places_of(one).isdisjoint(self.places_of(two))

    def may_contain_alias(self, one: Value, two: Value) -> bool:
        """Whether they, or what they hold, may be at one place."""
        return not self.reached(one).isdisjoint(self.reached(two))

    def reached(self, value: Value) -> set[int]:
        """The places of a value, and of all that it holds."""
        return set[int]().union(*map(self.reached_from, self.places_of(value)))

    def reached_from(self, place: int) -> set[int]:
        """A place, and those of all that is held there."""
        if place not in self._reach:
            self._reach[place] = self._reached((place,))
        return self._reach[place]

    def writes(self, node: Node) -> set[int]:
        """The places that a node writes to; those in its blocks count for themselves."""
        return {self._places.find(place) for place in self._writes.get(node, ())}

    def _writers(self) -> dict[int, list[Node]]:
        found: dict[int, list[Node]] = {}
        for node in self._writes:
            for place in self.writes(node):
                found.setdefault(place, []).append(node)
        return found

    def is_written(self, value: Value) -> bool:
        """Whether somebody writes to a value, or to what it holds."""
        return bool(self.written) and any(map(self._is_written_from, self.places_of(value)))

    def _is_written_from(self, place: int) -> bool:
        if place not in self._written_from:
            self._written_from[place] = not self.written.isdisjoint(self.reached_from(place))
        return self._written_from[place]

    def touches_written(self, node: Node) -> bool:
        """Whether somebody writes to what a node reads or gives."""
        return bool(self.written) and any(self.is_written(value) for value in (*node._inputs, *node._outputs))

    def leaves(self, value: Value) -> bool:
        """Whether the caller may have a value, or something that it holds, before or after the graph runs."""
        return not all(self.outside.isdisjoint(self.reached_from(place)) for place in self.places_of(value))

    def may_stand_for(self, one: Value, two: Value) -> bool:
        """Whether two equal values may become one object, and nobody tells."""
        if not (has_memory(one.type()) and has_memory(two.type())):
            return True
        return not (self.is_written(one) or self.is_written(two) or (self.leaves(one) and self.leaves(two)))

    def is_of_one(self, place: int) -> bool:
        """Whether a place is that of one object, and not of several which cannot be told apart."""
        return place not in self._places.united and place not in self.wild

    # What nodes do

    def _look_at(self, node: Node) -> None:
        kind = node.kind()
        if kind == "prim::Loop":
            for ours, given in zip(node._blocks[0].inputs(), [None, *node._inputs[2:]]):
                self._of[ours] = _NOTHING if given is None else self._of.get(given, _NOTHING)
        elif node._blocks and kind not in ("prim::If", "prim::GradOf"):
            self._opaque(node)
            for block in node._blocks:
                self._of |= {value: self._outside(value.type()) for value in block.inputs()}
        elif node._blocks:
            return
        elif kind in _MAKE_CONTAINERS:
            self._fresh(node.output())
            self._put(node.output(), node._inputs)
        elif kind in _TAKE_OUT and any(_holds(value.type()) for value in node._inputs):
            self._taken_out(node)
        elif kind in _PASS_ON:
            for value in node._outputs:
                self._set(value, _of_all(self, node._inputs))
        elif kind in _MAY_PASS_ON:
            places = _of_all(self, node._inputs) | {self._places.new()}
            for value in node._outputs:
                self._set(value, places)
        elif kind == "prim::Constant":
            self._constant(node)
        elif kind == "prim::GetAttr":
            self._of[node.output()] = self._outside(node.output().type())
        elif kind in STRUCTURAL:
            for value in node._outputs:
                self._fresh(value)
        else:
            schema = schema_of(node)
            if schema is None or (kind in EFFECTS and kind not in _ONLY_READ):
                self._opaque(node)
            else:
                self._by_schema(node, schema)

    def _constant(self, node: Node) -> None:
        """Constants that are one tensor are at one place."""
        kind, tensor = node._attributes.get("value", ("", None))
        if kind != "t":
            self._fresh(node.output())
            return
        if id(tensor) not in self._constants:
            self._constants[id(tensor)] = self._places.new()
        self._of[node.output()] = frozenset((self._constants[id(tensor)],))

    def _leave(self, node: Node) -> None:
        """What a node with blocks gives, when those are known."""
        if node.kind() == "prim::Loop":
            carried = zip(node._inputs[2:], node._blocks[0]._return._inputs[1:], node._outputs)
            for before, after, given in carried:
                both = self._of.get(before, _NOTHING) | self._of.get(after, _NOTHING)
                self._places.unite(both)
                self._of[given] = both if len(both) < MOST_PLACES else frozenset(list(both)[:1])
        elif node.kind() in ("prim::If", "prim::GradOf"):
            returned = [block._return._inputs for block in node._blocks]
            for value, results in zip(node._outputs, zip(*returned)):
                self._set(value, _of_all(self, results))

    def _by_schema(self, node: Node, schema: FunctionSchema) -> None:
        named: dict[str, frozenset[int]] = {}
        written, holders, let_in = set[int](), list[Value](), list[Value]()
        for argument, value in zip(schema.arguments, node._inputs):
            info, places = argument.alias_info, self._of.get(value, _NOTHING)
            if _holds(value.type()):
                holders.append(value)
            if info is None or not places:
                continue
            if info.is_write:
                inside = not info.before_set and _holds(value.type())  # the tensors of a list, not the list
                written |= {self._places.parts(place) for place in places} if inside else places
            for name in info.before_set or ("",):
                named[name] = named.get(name, _NOTHING) | places
            if "*" in info.after_set:
                let_in.append(value)
        if written:
            self._writes[node] = written
            for value in holders:
                if not written.isdisjoint(self._of.get(value, _NOTHING)):
                    self._put(value, let_in)
                    for other in holders:
                        if other is not value and other not in let_in:
                            self._share(value, other)
        every = frozenset().union(*named.values()) if named else _NOTHING
        for number, value in enumerate(node._outputs):
            info = schema.returns[number].alias_info if number < len(schema.returns) else None
            if info is None:
                self._fresh(value)
                for other in holders if _holds(value.type()) else ():
                    self._share(value, other)
            elif not has_memory(value.type()):
                continue
            elif "*" in info.after_set or "*" in info.before_set:
                self._of[value] = self._outside(value.type())
                for other in node._inputs:
                    self._escape(other)
            elif not info.before_set:  # a list of parts of what was given
                self._fresh(value)
                for place in self._of.get(value, _NOTHING):
                    self._places.put(place, every)
            else:
                self._set(value, frozenset().union(*[named.get(name, _NOTHING) for name in info.before_set]))
                if not self._of.get(value):
                    self._fresh(value)

    def _opaque(self, node: Node) -> None:
        """It may keep what it takes, write to everything that others know of, and give anything."""
        for value in node._inputs:
            self._escape(value)
        for value in node._outputs:
            self._of[value] = self._outside(value.type())
        self._writes[node] = set(_of_all(self, node._inputs))
        self._opaque_nodes.append(node)

    def _taken_out(self, node: Node) -> None:
        source = next(value for value in node._inputs if _holds(value.type()))
        made = source.node()
        for number, value in enumerate(node._outputs):
            if not has_memory(value.type()):
                continue
            if made.kind() == "prim::TupleConstruct" and node.kind() == "prim::TupleUnpack":
                self._of[value] = self._of.get(made._inputs[number], _NOTHING)
            else:
                inside = frozenset([self._places.parts(place) for place in self._of.get(source, _NOTHING)])
                instead = [other for other in node._inputs if other is not source]  # where nothing is found
                self._set(value, inside | _of_all(self, instead))
        schema = schema_of(node)
        if schema is not None and schema.is_mutable:
            self._writes[node] = set(self._of.get(source, _NOTHING))

    # Places of values

    def _set(self, value: Value, places: frozenset[int]) -> None:
        if not has_memory(value.type()):
            return
        if len(places) > MOST_PLACES:
            self._places.unite(places)
            places = frozenset([self._places.find(next(iter(places)))])
        self._of[value] = places

    def _fresh(self, value: Value) -> None:
        if has_memory(value.type()):
            self._of[value] = frozenset((self._places.new(),))

    def _put(self, container: Value, parts: Iterable[Value]) -> None:
        held = _of_all(self, parts)
        for place in self._of.get(container, _NOTHING) if held else ():
            self._places.put(place, held)

    def _share(self, one: Value, two: Value) -> None:
        """Two containers hold the same."""
        places = {*self._of.get(one, _NOTHING), *self._of.get(two, _NOTHING)}
        self._places.unite([self._places.parts(place) for place in places])

    def _outside(self, kind: Type) -> frozenset[int]:
        """Where values of a type are that come from outside."""
        return frozenset((self._wild_place(kind),)) if has_memory(kind) else _NOTHING

    def _wild_place(self, kind: Type) -> int:
        if isinstance(kind, OptionalType):
            kind = kind.getElementType()
        name = "Tensor" if isinstance(kind, TensorType) else "" if isinstance(kind, _OPAQUE) else kind.str()
        if "" in self._wild:  # something may be of any type: all that is outside is one
            return self._wild[""]
        if name in self._wild:
            return self._wild[name]
        self._wild[name] = place = self._places.new()
        for part in kind.containedTypes() if _holds(kind) else ():
            if has_memory(part):
                self._places.put(place, [self._wild_place(part)])
        if not name:
            self._places.put(place, [place])
            self._places.parts(place)
            self._places.unite(self._wild.values())
        return place

    def _escape(self, value: Value) -> None:
        places = self._of.get(value, _NOTHING)
        if places:
            self._places.unite([*places, self._wild_place(value.type())])

    def places_of(self, value: Value) -> set[int]:
        """The places that a value may be at."""
        return {self._places.find(place) for place in self._of.get(value, _NOTHING)}

    def _reached(self, places: Iterable[int]) -> set[int]:
        find, found, waiting = self._places.find, set[int](), list(places)
        while waiting:
            place = find(waiting.pop())
            if place not in found:
                found.add(place)
                waiting += self._places.held.get(place, ())
        return found


def _of_all(aliases: Aliases, values: Iterable[Value]) -> frozenset[int]:
    return frozenset().union(*[aliases._of.get(value, _NOTHING) for value in values])
