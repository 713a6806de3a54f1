"""A graph as a list of instructions: registers instead of values, jumps instead of blocks.

| instruction | does |
|---|---|
| `OP` | reads registers, calls the operator, writes what it gives |
| `MOVE` | writes registers with what others hold |
| `JUMP` | goes on elsewhere |
| `UNLESS` | goes on elsewhere if a register is false |
| `TURN` | counts a turn of a loop, or goes on after it |
| `CALL` | runs the instructions of a function, of a method or of the node's graph |
| `RAISE` | raises an exception of the program |
| `RETURN` | gives what registers hold to the caller |

An instruction empties the registers that nobody reads after it, so that memory is free as early as it can be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ...base.errors import RunError
from ..graph import Graph
from ..matching import operator_for
from ..nodes import Block, Node, Value
from .structure import STRUCTURE

OP, MOVE, JUMP, UNLESS, TURN, CALL, RAISE, RETURN = range(8)
NAMES = "OP MOVE JUMP UNLESS TURN CALL RAISE RETURN".split()
SUBGRAPHS = frozenset(("prim::FusionGroup", "prim::DifferentiableGraph", "prim::TensorExprGroup"))


class Instruction(NamedTuple):
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    drops: tuple[int, ...] = ()  # registers that are empty afterwards
    target: int = -1  # of a jump
    call: Any = None  # the function of an OP; what a CALL runs, unless an input tells it
    node: Node | None = None  # that it was made from

    def __str__(self) -> str:
        kept = [f"*{register}" if register in self.drops else str(register) for register in self.inputs]
        others = [f"*{register}" for register in self.drops if register not in self.inputs]
        what = f" {self.node.kind()}" if self.node is not None and self.code in (OP, CALL) else ""
        jump = f" -> {self.target}" if self.target >= 0 else ""
        text = f"{NAMES[self.code]}{what}({', '.join(kept)}){jump}"
        text += f" = {', '.join(map(str, self.outputs))}" if self.outputs else ""
        return f"{text}; drop {', '.join(others)}" if others else text


class Code:
    """The instructions of a graph. A star is before a register that is read for the last time.

    >>> from weft.jit.parse import parse_ir
    >>> print(Code(parse_ir('''
    ... graph(%x : Tensor, %y : Tensor):
    ...   %z : Tensor = aten::mul(%x, %y)
    ...   %w : Tensor = aten::mul(%z, %x)
    ...   return (%w)
    ... '''), "f"))
    f: 4 registers
    0 OP aten::mul(0, *1) = 2
    1 OP aten::mul(*2, *0) = 3
    2 RETURN(*3)
    """

    def __init__(self, graph: Graph, name: str = "<graph>") -> None:
        self.name, self.graph = name, graph
        self.input_count = len(list(graph.inputs()))
        writer = _Writer()
        writer.write(graph)
        self.instructions, self.registers = writer.instructions, writer.count
        self.gradient_executors: Callable[[], Sequence[Any]] = list  # which the plan of an executor sets

    def __str__(self) -> str:
        lines = [f"{place} {instruction}" for place, instruction in enumerate(self.instructions)]
        return "\n".join([f"{self.name}: {self.registers} registers", *lines])

    __repr__ = __str__

    def grad_executor_states(self) -> list[Any]:
        """The states of the executors of gradients, one for each differentiable graph in it."""
        return [executor.get_debug_state() for executor in self.gradient_executors()]


class Subprogram:
    """A graph that is an attribute of a node; its instructions are made when it is called first."""

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name
        self._code: Code | None = None

    def executable(self) -> Code:
        if self._code is None:
            self._code = Code(self.graph, self.name)
        return self._code


class Forked(Subprogram):
    """A graph that runs beside the program."""


Step = Callable[[], None]


class _Writer:
    """Writes instructions block by block. What is left to be done is on a stack: nodes, and steps after them."""

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.count = 0
        self.places: dict[Value, int] = {}
        self.todo: list[Iterator[Node] | Step] = []
        self.ends: dict[Node, list[Value]] = {}  # by node, the values that are read there for the last time
        self.ends_inside: dict[Node, list[Value]] = {}  # the same of values that something in its blocks reads

    def write(self, graph: Graph) -> None:
        for each in _with_params(graph.block()):
            for value in each._outputs:
                self.note_last_reader(value)
        for value in graph.inputs():
            self.place(value)
        self.todo = [lambda: self.give(graph.return_node()), graph.nodes()]
        while self.todo:
            step = self.todo[-1]
            if callable(step):
                self.todo.pop()
                step()
            elif (node := next(step, None)) is None:
                self.todo.pop()
            else:
                self.node(node)

    def give(self, node: Node) -> None:
        self.emit(RETURN, self.read(node._inputs), (), self.drops(node))

    # Registers

    def register(self) -> int:
        self.count += 1
        return self.count - 1

    def place(self, value: Value) -> int:
        self.places[value] = self.register()
        return self.places[value]

    def defined(self, values: Sequence[Value]) -> tuple[int, ...]:
        return tuple([self.place(value) for value in values])

    def read(self, values: Sequence[Value]) -> tuple[int, ...]:
        return tuple([self.places[value] for value in values])

    def note_last_reader(self, value: Value) -> None:
        """Finds the node in the block of a value that reads it last, or has a reader in its blocks."""
        home, inside = value._node._owner, False
        last: Node | None = None
        for use in value._uses.values():
            node, nested = use.user, False
            while node._owner is not home:
                assert node._owner is not None
                assert node._owner._owner is not None
                node, nested = node._owner._owner, True
            if last is None or last._position < node._position:
                last, inside = node, nested
            elif last is node:
                inside = inside or nested
        if last is not None:
            (self.ends_inside if inside else self.ends).setdefault(last, []).append(value)

    def drops(self, node: Node) -> tuple[int, ...]:
        """The registers of the inputs of a node that nobody reads after it, nor inside it."""
        return self.read(self.ends.get(node, ()))

    def emit(self, code: int, inputs: Sequence[int] = (), outputs: Sequence[int] = (), *rest: Any, **named: Any) -> int:
        self.instructions.append(Instruction(code, tuple(inputs), tuple(outputs), *rest, **named))
        return len(self.instructions) - 1

    def aim(self, jump: int) -> None:
        """Has a jump lead to the next instruction."""
        self.instructions[jump] = self.instructions[jump]._replace(target=len(self.instructions))

    # Nodes

    def node(self, node: Node) -> None:
        kind = node.kind()
        if kind == "prim::If":
            self.branches(node)
        elif kind == "prim::Loop":
            self.loop(node)
        elif kind == "prim::GradOf":
            self.gradient(node)
        else:
            code, call = self.meaning(node)
            inputs, drops, outputs = self.read(node._inputs), self.drops(node), self.defined(node._outputs)
            unread = [place for place, value in zip(outputs, node._outputs) if not value._uses]
            self.emit(code, inputs, outputs, drops, call=call, node=node)
            if unread:
                self.emit(MOVE, drops=tuple(unread))

    def meaning(self, node: Node) -> tuple[int, Any]:
        kind = node.kind()
        if kind in STRUCTURE:
            return OP, STRUCTURE[kind](node)
        if kind in SUBGRAPHS:
            return CALL, Subprogram(node.g("Subgraph"), kind)  # type: ignore[attr-defined]
        if kind == "prim::fork":
            return CALL, Forked(node.g("Subgraph"), kind)  # type: ignore[attr-defined]
        if kind in ("prim::CallFunction", "prim::CallMethod"):
            return CALL, None
        if kind == "prim::RaiseException":
            return RAISE, None
        return OP, operator_for(kind, [value.type() for value in node._inputs]).call

    def branches(self, node: Node) -> None:
        """UNLESS condition -> other; first block; JUMP -> end; other: second block; end:"""
        if len(node._blocks) != 2:
            raise RunError(f"prim::If has {len(node._blocks)} blocks, not two")
        first, second = node._blocks
        head = self.emit(UNLESS, self.read(node._inputs), (), self.drops(node), node=node)
        outputs = self.defined(node._outputs)

        def between() -> None:
            jump = self.emit(JUMP)
            self.aim(head)
            self.todo.append(lambda: end(jump))
            self.block(second, outputs)

        def end(jump: int) -> None:
            self.aim(jump)
            self.after(node)

        self.todo.append(between)
        self.block(first, outputs)

    def gradient(self, node: Node) -> None:
        """there = whether an input is; empty the results; UNLESS there -> end; the block; end:"""
        there, outputs = self.register(), self.defined(node._outputs)
        self.emit(OP, self.read(node._inputs), (there,), call=_any_there, node=node)
        self.emit(MOVE, drops=outputs)
        head = self.emit(UNLESS, (there,), (), self.drops(node), node=node)

        def end() -> None:
            self.aim(head)
            self.after(node)

        self.todo.append(end)
        self.block(node._blocks[0], outputs)

    def block(self, block: Block, outputs: Sequence[int]) -> None:
        """The nodes of a block, then its results as those of its node."""
        node = block._return
        if len(node._inputs) != len(outputs):
            raise RunError(f"a block gives {len(node._inputs)} values for {len(outputs)} of its node")
        self.todo.append(lambda: self.move(node, outputs))
        self.todo.append(block.nodes())

    def move(self, node: Node, outputs: Sequence[int]) -> None:
        if node._inputs:
            self.emit(MOVE, self.read(node._inputs), outputs, self.drops(node))

    def loop(self, node: Node) -> None:
        """count = 0; top: TURN (count, most, condition) -> end; the block; JUMP -> top; end:"""
        if len(node._blocks) != 1 or len(node._inputs) < 2:
            raise RunError("prim::Loop has one block and takes the most turns, a condition and what turns carry")
        (block,) = node._blocks
        turn, *carried = block._param._outputs
        most, condition, *first = node._inputs
        count, going = self.register(), self.register()
        states = self.defined(carried)
        start = self.read([condition, *first])
        drops = [place for place in self.drops(node) if place != self.places[most]]
        self.emit(OP, (), (count,), call=_zero)
        self.emit(MOVE, start, (going, *states), tuple(drops))
        top = self.emit(TURN, (count, self.places[most], going), (self.place(turn),), node=node)

        def end() -> None:
            self.emit(JUMP, target=top)
            self.aim(top)
            outputs = self.defined(node._outputs)
            self.emit(MOVE, states, outputs, (count, going, *states))
            self.after(node, *[self.places[most]] * (most in self.ends.get(node, ())))

        self.todo.append(end)
        self.block(block, (going, *states))

    def after(self, node: Node, *others: int) -> None:
        """Empties registers that were read inside a node for the last time, or are never read."""
        unread = [value for value in node._outputs if not value._uses]
        drops = {*others, *self.read(self.ends_inside.get(node, ())), *self.read(unread)}
        if drops:
            self.emit(MOVE, drops=tuple(sorted(drops)))


def _any_there(*values: Any) -> bool:
    return any(value is not None for value in values)


def _zero() -> int:
    return 0


def _with_params(block: Block) -> Iterator[Node]:
    """The nodes in a block and in the blocks of its nodes, with those that stand for what the blocks take."""
    stack = [block]
    while stack:
        inner = stack.pop()
        yield inner._param
        for node in inner.nodes():
            yield node
            stack += node._blocks
