"""Graphs as source: each function as the text that scripting reads again. A value that is read once, right after it is
made, is written where it is read; others get names."""

from __future__ import annotations

import enum
import keyword
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..base.errors import Error, Unsupported
from ..eager.tensor.device import device as Device
from ..eager.tensor.tensor import Tensor
from ..eager.tensor.types import dtype
from .classes import EnumType, NamedTupleType, is_plain_name
from .constants import constant_of
from .graph import Graph
from .matching import operator_for
from .nodes import Block, Node, Value
from .schema import Argument, FunctionSchema
from .source import quoted
from .types import (
    AnyType,
    ClassType,
    DictType,
    FunctionType,
    ListType,
    NoneType,
    OptionalType,
    TupleType,
    Type,
    UnionType,
)
from .while_loops import is_counted, with_source

if TYPE_CHECKING:
    from .functions import Function

INDENT = "  "
LONG = 40  # letters, with those before it, from which on an expression gets a line of its own
DEEPEST = 90  # levels of blocks; Python reads a hundred
_RESERVED = frozenset(
    [*keyword.kwlist, *"_ aten attribute CONSTANTS fork getattr inf nan infj nanj ops torch __torch__".split()]
    + "uninitialized unchecked_cast annotate range print isinstance int float bool str".split()
)
_CONSTANT_LIKE = ("prim::Constant", "prim::Uninitialized")


class Names:
    """Names that are given to values: each once in a function, by numbers that go on in the functions of a file."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def forget(self) -> None:
        """A new function begins."""
        self._used = set()

    def take(self, wanted: str) -> str:
        wanted = re.sub(r"\W", "_", wanted)
        if wanted[:1].isdigit():
            wanted = f"_{wanted}"
        name = wanted
        while name in self._used or name in _RESERVED:
            number = self._next.get(name, 0)
            self._next[name] = number + 1
            name = f"{wanted}{number}"
        self._used.add(name)
        return name


def function_source(function: Function) -> str:
    """A function as source, alone."""
    return "\n".join([*SourcePrinter().function(function, function.name, typed=False), ""])


FORKED = "__forked_function"  # what functions inside of others are called: those that are forked


class SourcePrinter:
    """Writes functions that go into one file. What they use, other than values, is collected: types with names and
    functions in `uses`, tensors in `tensors`."""

    def __init__(
        self, tensors: list[Tensor] | None = None, name_of: Callable[[Any], str] = attrgetter("qualified_name")
    ) -> None:
        self.tensors: list[Tensor] = [] if tensors is None else tensors
        self._name_of = name_of  # of functions
        self.uses: dict[int, Any] = {}  # by identity
        self._names = Names()
        self._lines: list[str] = []
        self._texts: dict[Value, str] = {}
        self._inlined: set[Node] = set()
        self._pending: dict[Node, None] = {}  # expressions that are not read yet, in the order in which they are made
        self._annotated_values: set[Value] = set()
        self._level = 0

    # What may be written where it is read

    def _choose_inlined(self, graph: Graph) -> None:
        blocks = [graph.block()]
        seen: set[Node] = set()
        while blocks:
            block = blocks.pop()
            nodes = [*block.nodes(), block.returnNode()]
            blocks += [inner for node in nodes for inner in node.blocks()]
            for node in reversed(nodes):
                if node not in seen:
                    self._walk_back(node, seen)

    def _walk_back(self, node: Node, seen: set[Node]) -> None:
        """Goes from a node to what it reads, as long as that is what comes right before: the order stays."""
        point = node
        seen.add(node)
        waiting = [iter(list(node.inputs())[::-1])]
        while waiting:
            value = next(waiting[-1], None)
            if value is None:
                waiting.pop()
            elif _may_be_inlined(value) and _before(point) is value.node():
                point = value.node()
                seen.add(point)
                self._inlined.add(point)
                waiting.append(iter(list(point.inputs())[::-1]))

    # Names and types

    def _name(self, value: Value) -> str:
        base = re.sub(r"\.\d+$", "", value.debugName()) if value.hasDebugName() else "_"
        return self._names.take(base)

    def _assign_names(self, values: Iterable[Value]) -> None:
        for value in values:
            self._texts[value] = self._name(value)

    def _use(self, value: Value) -> str:
        """What stands for a value where it is read."""
        self._pending.pop(value.node(), None)
        return self._texts[value]

    def type_text(self, kind: Type) -> str:
        """An annotation; the types in it that have names are used."""
        left = [kind]
        while left:
            part = left.pop()
            if isinstance(part, (ClassType, NamedTupleType, EnumType)):
                self.uses[id(part)] = part
            else:
                left += part.containedTypes()[::-1]
        return kind.annotation_str

    # Lines

    def _write(self, text: str) -> None:
        self._lines.append(INDENT * self._level + text)

    def _is_long(self, text: str) -> bool:
        return len(text) + len(INDENT) * self._level >= LONG

    def _define(self, node: Node, text: str) -> None:
        """A line that gives what a node makes a name."""
        outputs = list(node.outputs())
        self._assign_names(outputs)
        self._write(f"{self._list(outputs)} = {text}" if outputs else text)

    def _split_long(self, values: Sequence[Value]) -> None:
        """Expressions up to the last that is long get lines of their own; so do those that come before them in time,
        and are read later."""
        waiting = [value.node() for value in values if value.node() in self._pending]
        long = [node for node in waiting if self._is_long(self._texts[node.output()])]
        while long:
            node = next(iter(self._pending))
            del self._pending[node]
            self._define(node, self._texts[node.output()])
            if node is long[-1]:
                return

    def _assign(self, targets: Sequence[Value], values: Sequence[Value]) -> None:
        if targets:
            self._split_long(values)
            self._write(f"{self._targets(targets)} = {self._list(values)}")

    def _targets(self, values: Sequence[Value]) -> str:
        """Names that are assigned to: one that may hold values of several types says so the first time."""
        kind = values[0].type()
        if len(values) > 1 or not isinstance(kind, OptionalType | UnionType) or values[0] in self._annotated_values:
            return self._list(values)
        self._annotated_values.add(values[0])
        return f"{self._use(values[0])} : {self.type_text(kind)}"

    def _list(self, values: Iterable[Value]) -> str:
        return ", ".join([self._use(value) for value in values])

    # Functions

    def function(self, function: Function, name: str, typed: bool = True, level: int = 0) -> list[str]:
        """The lines of a function; those that nobody reads again do not say the type of `self`."""
        graph = with_source(function.graph)
        self._names.forget()
        self._lines, self._texts, self._inlined, self._level = [], {}, set(), level
        self._annotated_values, self._pending = set(), {}
        self._choose_inlined(graph)
        inputs = list(graph.inputs())
        self._assign_names(inputs)
        header = [self._parameter(*pair, typed) for pair in zip(inputs, function.schema.arguments)]
        results = function.schema.returns
        result = self.type_text(results[0].type) if results else "NoneType"
        opened = f"def {name}({f',{chr(10)}    '.join(header)}) -> {result}:"
        self._write(opened)
        self._level += 1
        self._constants(graph)
        self._block(graph.block(), 0)
        self._return(graph.return_node())
        return self._lines

    def _parameter(self, value: Value, argument: Argument, typed: bool) -> str:
        if not typed and argument.name == "self" and isinstance(argument.type, ClassType):
            return self._use(value)
        text = f"{self._use(value)}: {self.type_text(argument.type)}"
        if not argument.has_default_value():
            return text
        return f"{text}={self.literal(argument.default_value, argument.type)}"

    def _constants(self, graph: Graph) -> None:
        """Constants are written where they are read; a long one has a name."""
        for node in _constants_of(graph):
            value = node.output()
            text = self._constant(node)
            if self._is_long(text) or node.kind() == "prim::Uninitialized":
                self._define(node, text)
            else:
                self._texts[value] = text

    def _return(self, node: Node) -> None:
        values = list(node.inputs())
        self._split_long(values)
        self._write(f"return {self._list(values) if values else 'None'}")

    def _block(self, block: Block, depth: int) -> None:
        if depth > DEEPEST:
            raise Unsupported(f"a program with more than {DEEPEST} levels of blocks has no source")
        for node in block.nodes():
            self._node(node, depth)

    def _node(self, node: Node, depth: int) -> None:
        kind = node.kind()
        if _is_constant(node):
            return
        if kind == "prim::If":
            self._if(node, depth)
        elif kind == "prim::Loop":
            self._loop(node, depth)
        elif kind == "prim::fork":
            self._fork(node, depth)
        elif kind in ("prim::TupleUnpack", "prim::ListUnpack"):
            self._split_long(list(node.inputs()))
            source = self._use(node.input())
            self._assign_names(node.outputs())
            targets = "".join([f"{self._use(value)}, " for value in node.outputs()])
            self._write(f"{targets}= {source}" if targets else source)
        elif kind == "prim::SetAttr":
            self._split_long(list(node.inputs()))
            target, value = node.inputs()
            name = node.s("name")  # type: ignore[attr-defined]
            if not is_plain_name(name):
                raise Unsupported(f"an attribute {name!r} that is set", why="source has no way to say it")
            self._write(f"{self._use(target)}.{name} = {self._use(value)}")
        else:
            self._split_long(list(node.inputs()))
            text = self._expression(node)
            if node in self._inlined:
                self._texts[node.output()] = text
                self._pending[node] = None
            else:
                self._define(node, text)

    def _fork(self, node: Node, depth: int) -> None:
        """A function without arguments, which is forked: it reads what is known where it stands."""
        graph = with_source(node._get("g", "Subgraph"))
        self._split_long(list(node.inputs()))
        self._texts |= {inside: self._use(outside) for inside, outside in zip(graph.inputs(), node.inputs())}
        self._choose_inlined(graph)
        name = self._names.take(FORKED)
        self._write(f"def {name}():")
        self._level += 1
        self._constants(graph)
        self._block(graph.block(), depth + 1)
        self._return(graph.return_node())
        self._level -= 1
        self._define(node, f"fork({name})")

    # Control flow

    def _if(self, node: Node, depth: int) -> None:
        self._split_long(list(node.inputs()))
        condition = self._use(node.input())
        outputs = list(node.outputs())
        self._assign_names(outputs)
        for word, block in zip((f"if {condition}:", "else:"), node.blocks()):
            self._write(word)
            self._inner(block, outputs, list(block.outputs()), depth)

    def _inner(self, block: Block, targets: Sequence[Value], values: Sequence[Value], depth: int) -> None:
        self._level += 1
        before = len(self._lines)
        self._block(block, depth + 1)
        self._assign(targets, values)
        if len(self._lines) == before:
            self._write("pass")
        self._level -= 1

    def _loop(self, node: Node, depth: int) -> None:
        limit, condition, *initial = node.inputs()
        (body,) = node.blocks()
        turn, *carried = body.inputs()
        goes_on, *following = body.outputs()
        counted = is_counted(node)
        self._split_long([limit] if counted else [])
        outputs = list(node.outputs())
        self._assign_names(outputs)
        self._texts |= {inside: self._use(outside) for inside, outside in zip(carried, outputs)}
        for target, value in zip(outputs, initial):
            self._assign([target], [value])
        self._assign_names([turn])
        if counted:
            self._write(f"for {self._use(turn)} in range({self._use(limit)}):")
            self._inner(body, carried, following, depth)
        else:  # nobody reads the turn: its name is that of the condition
            self._assign([turn], [condition])
            self._write(f"while {self._use(turn)}:")
            self._inner(body, [turn, *carried], [goes_on, *following], depth)

    # Expressions

    def _expression(self, node: Node) -> str:
        kind, inputs = node.kind(), [self._use(value) for value in node.inputs()]
        if kind in _FORMS:
            return _FORMS[kind].format(*inputs)
        if kind in _SPECIAL:
            return _SPECIAL[kind](self, node, inputs)
        namespace, _, name = kind.partition("::")
        name = f"torch.{name}" if namespace == "aten" else f"ops.{namespace}.{name}"
        if node._attributes:
            raise Unsupported(f"{kind} with attributes ({', '.join(node.attributeNames())}) has no source")
        return f"{name}({', '.join(_arguments(node, inputs, _schema(node)))})"

    def _list_made(self, node: Node, inputs: Sequence[str]) -> str:
        text, kind = f"[{', '.join(inputs)}]", node.output().type()
        element = kind.getElementType() if isinstance(kind, ListType) else kind
        return self._annotated(kind, text, inputs, element)

    def _dict_made(self, node: Node, inputs: Sequence[str]) -> str:
        text = f"{{{', '.join([f'{key}: {value}' for key, value in zip(inputs[::2], inputs[1::2])])}}}"
        kind = node.output().type()
        return self._annotated(kind, text, inputs, kind.getValueType() if isinstance(kind, DictType) else kind)

    def _annotated(self, kind: Type, text: str, inputs: Sequence[str], element: Type) -> str:
        """A container with its type, where what is in it does not tell that."""
        open_kinds = (OptionalType, UnionType, AnyType)
        if inputs and not isinstance(element, open_kinds) and not element.is_interface_type():
            return text
        return f"annotate({self.type_text(kind)}, {text})"

    def _tuple_made(self, node: Node, inputs: Sequence[str]) -> str:
        kind = node.output().type()
        if isinstance(kind, NamedTupleType):
            return f"{self.type_text(kind)}({', '.join(inputs)})"
        return f"({', '.join(inputs)}{',' if len(inputs) == 1 else ''})"

    def _attribute(self, node: Node, inputs: Sequence[str]) -> str:
        name = node.s("name")  # type: ignore[attr-defined]
        return f"{inputs[0]}.{name}" if is_plain_name(name) else f"getattr({inputs[0]}, {quoted(name)})"

    def _call_method(self, node: Node, inputs: Sequence[str]) -> str:
        name = node.s("name")  # type: ignore[attr-defined]
        self.type_text(node.inputsAt(0).type())
        return f"({inputs[0]}).{name}({''.join([f'{text}, ' for text in inputs[1:]])})"

    def _call_function(self, node: Node, inputs: Sequence[str]) -> str:
        return f"{inputs[0]}({''.join([f'{text}, ' for text in inputs[1:]])})"

    def _cast(self, node: Node, inputs: Sequence[str]) -> str:
        return f"unchecked_cast({self.type_text(node.output().type())}, {inputs[0]})"

    def _is_instance(self, node: Node, inputs: Sequence[str]) -> str:
        kinds = [self.type_text(kind) for kind in node.tys("types")]  # type: ignore[attr-defined]
        asked = kinds[0] if len(kinds) == 1 else f"({', '.join(kinds)}{',' if len(kinds) == 1 else ''})"
        return f"isinstance({inputs[0]}, {asked})"

    def _create(self, node: Node, inputs: Sequence[str]) -> str:
        name = self.type_text(node.output().type())
        return f"{name}.__new__({name})"

    def _to_list(self, node: Node, inputs: Sequence[str]) -> str:
        return f"annotate({self.type_text(node.output().type())}, {inputs[0]}.tolist())"

    # Constants

    def _constant(self, node: Node) -> str:
        kind = node.output().type()
        if node.kind() == "prim::Uninitialized":
            return f"uninitialized({self.type_text(kind)})"
        if isinstance(kind, FunctionType):
            name = self._name_of(kind.function)
            self.uses[id(kind.function)] = kind.function
            return name
        return self.literal(constant_of(node), kind)

    def literal(self, value: Any, kind: Type) -> str:
        """A value as source."""
        if value is None:
            return "None" if isinstance(kind, NoneType | OptionalType) else f"annotate({self.type_text(kind)}, None)"
        if isinstance(value, enum.Enum):
            if isinstance(kind, EnumType):
                return f"{self.type_text(kind)}.{value.name}"
            raise Unsupported(f"{value} has no source", why="its type is not known to be an enum")
        if isinstance(value, bool | int | str | float | complex | Device | dtype):
            return _plain_literal(value)
        if isinstance(value, Tensor):
            return f"CONSTANTS.c{self._tensor_place(value)}"
        if isinstance(value, tuple):
            parts = kind.elements() if isinstance(kind, TupleType) else [kind] * len(value)
            inside = [self.literal(item, part) for item, part in zip(value, parts)]
            if isinstance(kind, NamedTupleType):
                return f"{self.type_text(kind)}({', '.join(inside)})"
            return f"({', '.join(inside)}{',' if len(inside) == 1 else ''})"
        if isinstance(value, list) and isinstance(kind, OptionalType | ListType):
            listed = kind.getElementType() if isinstance(kind, OptionalType) else kind
            element = listed.getElementType() if isinstance(listed, ListType) else listed
            text = f"[{', '.join([self.literal(item, element) for item in value])}]"
            return text if value else f"annotate({self.type_text(listed)}, {text})"
        if isinstance(value, dict) and isinstance(kind, DictType):
            key, item = kind.parts
            pairs = [f"{self.literal(k, key)}: {self.literal(v, item)}" for k, v in value.items()]
            return self._annotated(kind, f"{{{', '.join(pairs)}}}", pairs, item)
        raise Unsupported(f"a constant {value!r:.60} of type {kind} has no source")

    def _tensor_place(self, tensor: Tensor) -> int:
        for place, known in enumerate(self.tensors):
            if known is tensor:
                return place
        self.tensors.append(tensor)
        return len(self.tensors) - 1


_FORMS: Mapping[str, str] = {
    "aten::Int": "int({})",
    "aten::Float": "float({})",
    "aten::Bool": "bool({})",
    "aten::str": "str({})",
    "aten::ScalarImplicit": "annotate(number, {})",
    "aten::FloatImplicit": "annotate(float, {})",
    "aten::ComplexImplicit": "annotate(complex, {})",
    "aten::IntImplicit": "annotate(int, {})",
    "prim::TupleIndex": "({})[{}]",
    "prim::EnumValue": "{}.value",
    "prim::EnumName": "{}.name",
}


def _get_item(printer: SourcePrinter, node: Node, inputs: Sequence[str]) -> str:
    return f"{inputs[0]}[{inputs[1]}]"


def _tuple_slice(printer: SourcePrinter, node: Node, inputs: Sequence[str]) -> str:
    return f"({inputs[0]})[{node.i('beg')}:{node.i('end')}]"  # type: ignore[attr-defined]


def _print(printer: SourcePrinter, node: Node, inputs: Sequence[str]) -> str:
    return f"print({', '.join(inputs)})"


_SPECIAL: Mapping[str, Callable[[SourcePrinter, Node, Sequence[str]], str]] = {
    "aten::__getitem__": _get_item,
    "prim::Print": _print,
    "prim::TupleSlice": _tuple_slice,
    "prim::ListConstruct": SourcePrinter._list_made,
    "prim::DictConstruct": SourcePrinter._dict_made,
    "prim::TupleConstruct": SourcePrinter._tuple_made,
    "prim::GetAttr": SourcePrinter._attribute,
    "prim::CallMethod": SourcePrinter._call_method,
    "prim::CallFunction": SourcePrinter._call_function,
    "prim::unchecked_cast": SourcePrinter._cast,
    "prim::isinstance": SourcePrinter._is_instance,
    "prim::CreateObject": SourcePrinter._create,
    "prim::tolist": SourcePrinter._to_list,
}


def _plain_literal(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Device):
        return f'torch.device("{value}")'
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, complex):
        sign = "" if math.copysign(1, value.imag) < 0 else "+"
        return f"{_float_text(value.real)}{sign}{_float_text(value.imag)}j"
    return str(value)


def _float_text(value: float) -> str:
    """All the digits that tell a double from its neighbours, with a point."""
    text = f"{value:.17g}"  # `inf`, `-inf` and `nan` are names of the language
    return text if any(letter in text for letter in ".en") else f"{text}."


def _is_constant(node: Node) -> bool:
    return node.kind() in _CONSTANT_LIKE


def _may_be_inlined(value: Value) -> bool:
    node, uses = value.node(), value.uses()
    if node.outputsSize() != 1 or len(uses) != 1 or _is_constant(node) or any(node.blocks()):
        return False
    user, offset = uses[0].user, uses[0].offset
    if user.owningBlock() is not node.owningBlock():
        return False
    if value.hasDebugName() and user.kind() != "prim::Return":
        return False
    if (user.kind() == "prim::Loop" and offset >= 2) or user.kind() == "prim::fork":
        return False
    if user.kind() == "prim::If" and node.kind() == "prim::isinstance":  # the branch knows more of the value
        return False
    return node.kind() not in ("prim::Param", "prim::fork", "prim::TupleUnpack", "prim::ListUnpack", "prim::SetAttr")


def _before(node: Node) -> Node:
    """The node before, other than constants."""
    found = node.prev()
    while _is_constant(found):
        found = found.prev()
    return found


def _constants_of(graph: Graph) -> Iterator[Node]:
    """Constants in the order in which they are read."""
    seen: set[Node] = set()
    waiting: list[Iterator[Any]] = [iter([*graph.nodes(), graph.return_node()])]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
            continue
        for value in node.inputs():
            made = value.node()
            if _is_constant(made) and made not in seen:
                seen.add(made)
                yield made
        waiting += [iter([*block.nodes(), block.returnNode()]) for block in node.blocks()][::-1]


def _schema(node: Node) -> FunctionSchema | None:
    try:
        return operator_for(node.kind(), [value.type() for value in node.inputs()]).schema
    except Error:
        return None  # an operator that nobody knows: all that it reads is written


def _arguments(node: Node, inputs: Sequence[str], schema: FunctionSchema | None) -> list[str]:
    """The arguments of a call: without those at its end that are what they are if nothing is said."""
    if schema is None or schema.is_vararg or len(schema.arguments) != len(inputs):
        return list(inputs)
    needed = len(inputs)
    values = list(node.inputs())
    while needed and _is_default(values[needed - 1], schema.arguments[needed - 1]):
        needed -= 1
    pairs = list(zip(schema.arguments, inputs))[:needed]
    return [f"{argument.name}={text}" if argument.kwarg_only else text for argument, text in pairs]


def _is_default(value: Value, argument: Argument) -> bool:
    if not argument.has_default_value() or value.node().kind() != "prim::Constant":
        return False
    found, default = constant_of(value.node()), argument.default_value
    return type(found) is type(default) and bool(found == default) if not isinstance(found, Tensor) else False
