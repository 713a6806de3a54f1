"""What a graph is made of: values that are defined once, nodes that read and give them, and blocks, which are nodes in
order; a node may have blocks of its own. Edits keep all of it consistent, or are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ..base.errors import InvalidType, RunError
from .attributes import Attributes
from .constants import constant_of, type_of
from .matching import find_operator, fits
from .operators import Operator
from .printing import node_text
from .schema import parse_schema
from .types import NoneType, TensorType, Type

if TYPE_CHECKING:
    from .graph import Graph

GAP = 1 << 24  # between the positions of nodes that were put one after the other at an end of a block
END = 1 << 80  # beyond the position of every node
NONDETERMINISTIC = frozenset(
    f"aten::{name}"
    for name in (
        "dropout _fused_dropout _standard_gamma bernoulli multinomial native_dropout normal poisson binomial rrelu "
        "rrelu_with_noise rand rand_like randint randint_like randn randn_like randperm"
    ).split()
)


class Use:
    """A place where a value is read: an input of a node."""

    __slots__ = ("offset", "user")

    def __init__(self, user: Node, offset: int) -> None:
        self.user, self.offset = user, offset

    def isAfter(self, other: Use) -> bool:
        if self.user is other.user:
            return self.offset > other.offset
        return self.user.isAfter(other.user)

    def __repr__(self) -> str:
        return f"Use(user={self.user.kind()}, offset={self.offset})"


def _refuse(cls: type, *args: Any, **kwargs: Any) -> NoReturn:
    raise InvalidType(f"weft._C.{cls.__name__}: No constructor defined!", hint="a Graph makes them")


class Value:
    """What a node gives, or a block takes."""

    if not TYPE_CHECKING:
        __new__ = _refuse
    _node: Node
    _offset: int
    _type: Type
    _name: str | None
    _unique: int
    _uses: dict[tuple[int, int], Use]  # by the node's identity and the offset

    @classmethod
    def _made(cls, node: Node, offset: int) -> Value:
        value = object.__new__(cls)
        value._node, value._offset, value._type, value._name = node, offset, TensorType.get(), None
        value._unique, value._uses = node._graph._next_unique(), {}
        return value

    def node(self) -> Node:
        return self._node

    def offset(self) -> int:
        return self._offset

    def unique(self) -> int:
        return self._unique

    def type(self) -> Type:
        return self._type

    def setType(self, kind: Type) -> Value:
        if not isinstance(kind, Type):
            raise InvalidType(f"the type of a value is a type, not {kind!r:.60}")
        self._type = kind
        return self

    def setTypeAs(self, other: Value) -> Value:
        return self.setType(other.type())

    def inferTypeFrom(self, value: Any) -> None:
        """Has the type of a tensor, with all that it tells."""
        self.setType(type_of(value))

    def debugName(self) -> str:
        return str(self._unique) if self._name is None else self._name

    uniqueName = debugName

    def hasDebugName(self) -> bool:
        return self._name is not None

    def setDebugName(self, name: str) -> Value:
        """Has a name. Another value that has it gets the next free one."""
        if name.isdecimal():
            raise RunError(f"Invalid name: '{name}'", why="numbers are for values without a name")
        names = self._node._graph._names
        if self._name is not None:
            names.pop(self._name, None)
        self._name = None
        if name:
            older = names.get(name)
            if older is not None:
                older._name = self._node._graph._free_name(name)
                names[older._name] = older
            self._name, names[name] = name, self
        return self

    setUniqueName = setDebugName

    def uses(self) -> list[Use]:
        return list(self._uses.values())

    def replaceAllUsesWith(self, other: Value) -> None:
        """Everybody who reads this reads the other."""
        same_graph(self._node, other._node)
        for use in self.uses():
            use.user._put(use.offset, other)

    def replaceAllUsesAfterNodeWith(self, node: Node, other: Value) -> None:
        """The same, of those that come after a node."""
        same_graph(self._node, other._node)
        for use in self.uses():
            if use.user.isAfter(node):
                use.user._put(use.offset, other)

    def copyMetadata(self, other: Value) -> Value:
        """Has the type of another value, and its name, if that has one."""
        self.setType(other.type())
        if other._name is not None:
            self.setDebugName(other._name)
        return self

    def isCompleteTensor(self) -> bool:
        """Whether all is known of it that a tensor has."""
        kind = self._type
        return isinstance(kind, TensorType) and None not in (kind.scalar, kind.place, kind.sizes(), kind.strides())

    def requires_grad(self) -> bool:
        return self._type.requires_grad()

    def requiresGrad(self) -> bool:
        """Whether it is known to."""
        return isinstance(self._type, TensorType) and self._type.needs_grad is True

    def toIValue(self) -> Any:
        """What a constant is; None of other values."""
        return constant_of(self._node) if self._node.kind() == "prim::Constant" else None

    def __repr__(self) -> str:
        return f"{self.debugName()} defined in ({self._node})"


class Node(Attributes):
    """An operation: what it reads, what it gives, its attributes, and blocks that it runs."""

    if not TYPE_CHECKING:
        __new__ = _refuse
    _graph: Graph
    _kind: str
    _inputs: list[Value]
    _outputs: list[Value]
    _blocks: list[Block]
    _owner: Block | None  # the block that it is in
    _previous: Node | None
    _next: Node | None
    _position: int
    _scope: str
    _source: str
    _destroyed: bool

    @classmethod
    def _made(cls, graph: Graph, kind: str) -> Node:
        name, colons, _ = kind.partition("::")
        if not colons or not name:
            raise RunError(f"all symbols must have a namespace, <namespace>::<string>, but found: {kind}")
        node = object.__new__(cls)
        node._graph, node._kind, node._attributes = graph, kind, {}
        node._inputs, node._outputs, node._blocks = [], [], []
        node._owner = node._previous = node._next = None
        node._position, node._scope, node._source, node._destroyed = 0, graph._scope, "", False
        return node

    def kind(self) -> str:
        return self._kind

    # Inputs and outputs

    def inputs(self) -> Iterator[Value]:
        return iter(list(self._inputs))

    def outputs(self) -> Iterator[Value]:
        return iter(list(self._outputs))

    def inputsSize(self) -> int:
        return len(self._inputs)

    def outputsSize(self) -> int:
        return len(self._outputs)

    def inputsAt(self, offset: int) -> Value:
        return self._inputs[self._checked(offset, self._inputs, "inputs")]

    def outputsAt(self, offset: int) -> Value:
        return self._outputs[self._checked(offset, self._outputs, "outputs")]

    def _checked(self, offset: int, values: Sequence[Value], what: str) -> int:
        if not 0 <= offset < len(values):
            raise RunError(f"{what} of {self._kind} go from 0 to {len(values) - 1}: there is none at {offset}")
        return offset

    def input(self) -> Value:
        return self._alone(self._inputs, "input")

    def output(self) -> Value:
        return self._alone(self._outputs, "output")

    def _alone(self, values: Sequence[Value], what: str) -> Value:
        if len(values) != 1:
            raise RunError(
                f"Tried to access a single {what} on node '{self._kind}' which has {len(values)} {what}s. "
                f"You may consider using node.{what}s() instead."
            )
        return values[0]

    def hasUses(self) -> bool:
        return any(output._uses for output in self._outputs)

    def hasMultipleOutputs(self) -> bool:
        return len(self._outputs) > 1

    def addInput(self, value: Value) -> Value:
        same_graph(self, value._node)
        self._inputs.append(value)
        value._uses[id(self), len(self._inputs) - 1] = Use(self, len(self._inputs) - 1)
        return value

    def _put(self, offset: int, value: Value) -> None:
        del self._inputs[offset]._uses[id(self), offset]
        self._inputs[offset] = value
        value._uses[id(self), offset] = Use(self, offset)

    def replaceInput(self, offset: int, value: Value) -> Value:
        """Reads another value there; gives the one that it read."""
        same_graph(self, value._node)
        old = self._inputs[self._checked(offset, self._inputs, "inputs")]
        self._put(offset, value)
        return old

    def replaceInputWith(self, old: Value, new: Value) -> None:
        same_graph(self, new._node)
        for offset, value in enumerate(self._inputs):
            if value is old:
                self._put(offset, new)

    def removeInput(self, offset: int) -> None:
        self._checked(offset, self._inputs, "inputs")
        self._set_inputs([*self._inputs[:offset], *self._inputs[offset + 1 :]])

    def removeAllInputs(self) -> None:
        self._set_inputs([])

    def _set_inputs(self, values: Sequence[Value]) -> None:
        for offset, value in enumerate(self._inputs):
            del value._uses[id(self), offset]
        self._inputs = []
        for value in values:
            self.addInput(value)

    def addOutput(self) -> Value:
        made = Value._made(self, len(self._outputs))
        self._outputs.append(made)
        return made

    def eraseOutput(self, offset: int) -> None:
        value = self.outputsAt(offset)
        if value._uses:
            raise RunError(
                f"output {offset} of {self._kind} cannot be erased",
                why=f"%{value.debugName()} is used by {', '.join([use.user.kind() for use in value.uses()])}",
                hint="replaceAllUsesWith(another) first",
            )
        value.setDebugName("")
        del self._outputs[offset]
        for place in range(offset, len(self._outputs)):
            self._outputs[place]._offset = place

    def replaceAllUsesWith(self, other: Node) -> None:
        """Everybody who reads its outputs reads those of another node."""
        if len(self._outputs) != len(other._outputs):
            raise RunError(f"{self._kind} has {len(self._outputs)} outputs and {other._kind} {len(other._outputs)}")
        for ours, theirs in zip(self._outputs, other._outputs):
            ours.replaceAllUsesWith(theirs)

    # Its place

    def blocks(self) -> Iterator[Block]:
        return iter(list(self._blocks))

    def addBlock(self) -> Block:
        block = Block._made(self._graph, self)
        self._blocks.append(block)
        return block

    def owningBlock(self) -> Block | None:
        return self._owner

    def prev(self) -> Node:
        return self._in_place()._previous  # type: ignore[return-value]

    def next(self) -> Node:
        return self._in_place()._next  # type: ignore[return-value]

    def _in_place(self) -> Node:
        if self._owner is None:
            raise RunError(f"{self._kind} is in no block", hint="insert it first")
        return self

    def insertBefore(self, other: Node) -> Node:
        other._in_place()
        return self._insert(other._previous, other)  # type: ignore[arg-type]

    def insertAfter(self, other: Node) -> Node:
        other._in_place()
        if other is other._owner._return:  # type: ignore[union-attr]
            raise RunError("nothing comes after the return of a block")
        return self._insert(other, other._next)  # type: ignore[arg-type]

    def _insert(self, previous: Node, following: Node) -> Node:
        if self._owner is not None:
            raise RunError(
                f"{self._kind} is in a block already", hint="moveBefore or moveAfter take it to another place"
            )
        self._alive()
        same_graph(self, previous)
        if any(block is self._owner_of(block, following) for block in self._blocks):
            raise RunError(f"{self._kind} cannot be put into a block of its own")
        self._owner, self._previous, self._next = following._owner, previous, following
        previous._next = following._previous = self
        self._owner._place(self)  # type: ignore[union-attr]
        return self

    @staticmethod
    def _owner_of(block: Block, node: Node) -> Block | None:
        """A block, if a node is somewhere in it."""
        inner = node._owner
        while inner is not None and inner is not block:
            inner = inner._owner._owner if inner._owner is not None else None
        return inner

    def _take_out(self) -> None:
        if self in (self._in_place()._owner._param, self._owner._return):  # type: ignore[union-attr]
            raise RunError(f"{self._kind} belongs to its block")
        self._previous._next, self._next._previous = self._next, self._previous  # type: ignore[union-attr]
        self._owner = self._previous = self._next = None

    def moveBefore(self, other: Node) -> None:
        self._move(other, self.insertBefore)

    def moveAfter(self, other: Node) -> None:
        self._move(other, self.insertAfter)

    def _move(self, other: Node, insert: Callable[[Node], Node]) -> None:
        if other is self:
            return
        other._in_place()
        self._take_out()
        insert(other)

    def isBefore(self, other: Node) -> bool:
        """Whether it runs before the other: in its block, or in the blocks that they are in."""
        one, two = _in_one_block(self, other)
        if one is two:  # one is inside the other
            return len(_path(self)) < len(_path(other))
        return one._position < two._position

    def isAfter(self, other: Node) -> bool:
        return self is not other and not self.isBefore(other)

    def destroy(self) -> None:
        """Takes it out of the graph, for good. Nobody may read what it gives."""
        self._alive()
        for value in self._outputs:
            if value._uses:
                raise RunError(
                    f"{self._kind} cannot be destroyed",
                    why=f"%{value.debugName()} is used by {', '.join([use.user.kind() for use in value.uses()])}",
                    hint="replaceAllUsesWith(another) first",
                )
        if self._owner is not None:
            self._take_out()
        within = [inner for block in self._blocks for inner in inside(block)]
        for block in [block for node in (self, *within) for block in node._blocks]:
            block._return.removeAllInputs()
        for node in within:
            node.removeAllInputs()
            for value in node._outputs:
                value.setDebugName("")
            node._destroyed = True
            self._graph._created.pop(node, None)
        while self._outputs:
            self.eraseOutput(len(self._outputs) - 1)
        self.removeAllInputs()
        self._blocks = []
        self._destroyed = True
        self._graph._created.pop(self, None)

    def _alive(self) -> None:
        if self._destroyed:
            raise RunError(f"{self._kind} has been destroyed")

    # What it is

    def _operator(self) -> Operator | None:
        return find_operator(self._kind, [value._type for value in self._inputs])

    def schema(self) -> str:
        """The schema of its operator, which follows from its kind and the types of its inputs."""
        operator = self._operator()
        return "(no schema)" if operator is None else str(operator.schema)

    def matches(self, schema: str) -> bool:
        """Whether it is of the kind that a schema tells, and reads what that takes."""
        wanted = parse_schema(schema)
        return wanted.name == self._kind and fits(wanted, [value._type for value in self._inputs])

    def namedInput(self, name: str) -> Value:
        """What it reads as the argument of a name."""
        operator = self._operator()
        if operator is None:
            kinds = ", ".join([value._type.str() for value in self._inputs])
            raise RunError(
                f"Schema not found for node: {self._kind}",
                why=f"no overload takes ({kinds})",
                hint="weft._C._jit_get_schemas_for_operator(kind) has all of them",
            )
        for argument, value in zip(operator.schema.arguments, self._inputs):
            if argument.name == name:
                return value
        raise RunError(f"Couldn't find an argument called {name}", why=f"the schema is {operator.schema}")

    def isNondeterministic(self) -> bool:
        """Whether it may give something else each time: it draws random numbers."""
        if self._kind == "aten::dropout" and self._operator() is not None:
            return self.namedInput("train").toIValue() is not False
        return self._kind in NONDETERMINISTIC

    def mustBeNone(self) -> bool:
        """Whether it is the constant None."""
        return self._kind == "prim::Constant" and not self._attributes and isinstance(self.output().type(), NoneType)

    def scopeName(self) -> str:
        return self._scope

    def setScope(self, scope: str) -> None:
        self._scope = scope

    def sourceRange(self) -> str:
        return self._source

    def copyMetadata(self, other: Node) -> None:
        """Has the scope and the place in the source of another node."""
        self._scope, self._source = other._scope, other._source

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        return next((node for block in self._blocks for node in block._find(kind, recurse)), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        return [node for block in self._blocks for node in block._find(kind, recurse)]

    def __repr__(self) -> str:
        return node_text(self)


def _path(node: Node) -> list[Node]:
    """A node and the nodes that it is in, the outermost first."""
    found = []
    inner: Node | None = node
    while inner is not None:
        found.append(inner)
        inner = inner._in_place()._owner._owner  # type: ignore[union-attr]
    return found[::-1]


def _in_one_block(one: Node, two: Node) -> tuple[Node, Node]:
    """The two nodes, or nodes that they are in, that stand in one block."""
    same_graph(one, two)
    for first, second in zip(_path(one), _path(two)):
        if first is not second:
            return first, second
    return one, one


def same_graph(one: Node, two: Node) -> None:
    if one._graph is not two._graph:
        raise RunError(
            f"{one._kind} and {two._kind} are of two graphs", why="what a graph has is read in that graph alone"
        )


class Block:
    """Nodes in order, with values that come in and values that go out."""

    if not TYPE_CHECKING:
        __new__ = _refuse
    _graph: Graph
    _owner: Node | None  # the node whose block it is; None for that of the graph
    _param: Node
    _return: Node

    @classmethod
    def _made(cls, graph: Graph, owner: Node | None) -> Block:
        block = object.__new__(cls)
        block._graph, block._owner = graph, owner
        block._param, block._return = Node._made(graph, "prim::Param"), Node._made(graph, "prim::Return")
        for node, other in ((block._param, block._return), (block._return, block._param)):
            node._owner, node._previous, node._next = block, other, other
        block._param._position, block._return._position = -END, END
        return block

    def inputs(self) -> Iterator[Value]:
        return self._param.outputs()

    def outputs(self) -> Iterator[Value]:
        return self._return.inputs()

    def nodes(self) -> Iterator[Node]:
        node = self._param._next
        while node is not None and node is not self._return:
            following = node._next  # the node may be taken out while it is looked at
            yield node
            node = following if node._owner is not self else node._next

    def paramNode(self) -> Node:
        return self._param

    param_node = paramNode

    def returnNode(self) -> Node:
        return self._return

    return_node = returnNode

    def owningNode(self) -> Node | None:
        return self._owner

    def addInputToBlock(self) -> Value:
        return self._param.addOutput()

    def registerOutput(self, value: Value) -> int:
        self._return.addInput(value)
        return len(self._return._inputs) - 1

    def addNode(self, kind: str, inputs: Sequence[Value]) -> Node:
        """A node at the end."""
        return self._graph.create(kind, list(inputs)).insertBefore(self._return)

    def findNode(self, kind: str, recurse: bool = True) -> Node | None:
        return next(self._find(kind, recurse), None)

    def findAllNodes(self, kind: str, recurse: bool = True) -> list[Node]:
        return list(self._find(kind, recurse))

    def _find(self, kind: str, recurse: bool) -> Iterator[Node]:
        return (node for node in (inside(self) if recurse else self.nodes()) if node._kind == kind)

    def _place(self, node: Node) -> None:
        """Gives a node that was put in a position between its neighbours."""
        before, after = node._previous._position, node._next._position  # type: ignore[union-attr]
        if before == -END:
            node._position = 0 if after == END else after - GAP
            return
        node._position = before + min(GAP, (after - before) // 2)
        if node._position == before:  # the space for many more, so that most insertions find some
            for number, each in enumerate(self.nodes()):
                each._position = number * GAP * GAP


def inside(block: Block) -> Iterator[Node]:
    """All nodes in a block and in the blocks of its nodes, each before those in it."""
    stack = [block.nodes()]
    while stack:
        node = next(stack[-1], None)
        if node is None:
            stack.pop()
            continue
        yield node
        stack += [inner.nodes() for inner in reversed(node._blocks)]
