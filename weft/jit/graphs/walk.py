"""Runs a program on stand-ins. What values decide becomes nodes: a branch a `cond`, a loop a `while_loop`; other
branches are taken, and other loops take their turns. Blocks are generators on a list of their own, of any length."""

from __future__ import annotations

import linecache
import re
from collections.abc import Generator, Sequence
from typing import Any

from ...base.errors import Error, Unsupported
from ...core.ir import NodeEntry
from ...eager.recording import Storage
from ...eager.tensor.tensor import Tensor
from ...nn.modules.module import Module
from ..compile.recorder import BrokenGraph
from ..compile.scopes import Scope
from ..compile.structure import built
from ..compile.tracing import OneGraph
from ..graph import Graph
from ..matching import operator_for
from ..nodes import Block, Node, Value
from ..run.structure import STRUCTURE
from ..types import BoolType, IntType, TensorType
from .leaves import UNSET, entry_of, is_same, is_state, leaf_for, misfit, paired, shown, spread, together, zeros
from .numbers import COPIES, SPECIAL, OpenNumber, beside_tensors, from_tensor, of_numbers
from .states import States

Values = dict[Value, Any]
Steps = Generator[Any, Any, Any]  # gives other steps, and is sent what they return

DEEPEST = 40  # subgraphs in subgraphs, and calls that values decide
MOST_TURNS = 2**63 - 1
EFFECTS = frozenset(["prim::Print", "prim::RaiseException", "aten::warn", "prim::SetAttr"])
# Nodes that make lists, dicts and objects; others may give what was there before.
MAKERS = frozenset(
    "prim::ListConstruct prim::DictConstruct prim::CreateObject aten::list aten::dict aten::slice aten::add aten::mul "
    "aten::keys aten::split aten::chunk aten::unbind".split()
)
# Nodes that hand numbers on without looking at them.
CARRIERS = frozenset(
    "prim::ListConstruct prim::ListUnpack prim::TupleConstruct prim::TupleUnpack prim::TupleIndex prim::TupleSlice "
    "prim::DictConstruct prim::GetAttr prim::SetAttr prim::unchecked_cast prim::unchecked_unwrap_optional "
    "aten::_unwrap_optional aten::__is__ aten::__isnot__ aten::append aten::__getitem__ aten::len".split()
)


def recorded(graph: Graph, values: Sequence[Any], recorder: OneGraph) -> Any:
    """What a program gives for some inputs, which may be stand-ins: a value, or a tuple of several. Numbers that are
    known when the graph runs are tensors in it."""
    stack: list[Steps] = [_Walk(recorder).call(graph, values)]
    result: Any = None
    while stack:
        try:
            stack.append(stack[-1].send(result))
            result = None
        except StopIteration as end:
            stack.pop()
            result = end.value
    leaves: list[Any] = []
    structure = spread(result[0] if len(result) == 1 else tuple(result), leaves)
    return built(structure, [leaf.tensor if isinstance(leaf, OpenNumber) else leaf for leaf in leaves])


class _Walk:
    def __init__(self, recorder: OneGraph) -> None:
        self.recorder = recorder
        self.calls: dict[Node, Any] = {}  # what nodes do
        self.owned: list[dict[int, Any]] = []  # by scope, lists, dicts and objects that were made in it

    def call(self, graph: Graph, given: Sequence[Any]) -> Steps:
        values: Values = dict(zip(graph.inputs(), given))
        return (yield self.block(graph.block(), values))

    def block(self, block: Block, values: Values) -> Steps:
        for node in block.nodes():
            kind = node.kind()
            if kind == "prim::If":
                results = yield self.branch(node, values)
            elif kind == "prim::Loop":
                results = yield self.loop(node, values)
            elif kind in ("prim::CallFunction", "prim::CallMethod"):
                results = yield self.called(node, [values[each] for each in node._inputs])
            else:
                try:
                    result = self.operator(node, kind, [values[each] for each in node._inputs])
                except Error as error:
                    raise _located(error, node) from None
                results = [result] if node.outputsSize() == 1 else result or ()
            values.update(zip(node._outputs, results))
        return [values[each] for each in block._return._inputs]

    def called(self, node: Node, given: list[Any]) -> Steps:
        if node.kind() == "prim::CallFunction":
            callee, given = given[0], given[1:]
        else:
            callee = given[0].find_method(node._get("s", "name"))
        if not hasattr(callee, "executable"):
            result = callee(*given)
            return [result] if node.outputsSize() == 1 else result
        results = yield self.call(callee.graph, given)
        return results if len(results) == node.outputsSize() else [tuple(results)]

    # Operators

    def operator(self, node: Node, kind: str, given: list[Any]) -> Any:
        if kind == "prim::Uninitialized":
            return UNSET
        if kind in EFFECTS:
            self._check_effect(kind, given)
        if any(value is UNSET for value in given) and kind not in CARRIERS:
            raise Unsupported("a variable may have no value here", why="whether it has one follows from values")
        number = from_tensor(kind, given)
        if number is not None:
            return number
        if any(isinstance(value, OpenNumber) for value in given) and kind not in CARRIERS:
            return self._of_open(node, kind, given)
        if kind not in STRUCTURE:
            self._check_writes(node, kind, given)
        result = self._call_of(node, kind)(*given)
        if self.owned and kind in MAKERS:
            self.owned[-1][id(result)] = result
        return result

    def _call_of(self, node: Node, kind: str) -> Any:
        found = self.calls.get(node)
        if found is None:
            if kind in STRUCTURE:
                found = STRUCTURE[kind](node)
            elif kind == "prim::RaiseException" or kind == "prim::fork":
                raise Unsupported(f"{kind} is not part of a graph", why="a graph has operators alone")
            else:
                found = operator_for(kind, [value.type() for value in node._inputs]).call
            self.calls[node] = found
        return found

    def _of_open(self, node: Node, kind: str, given: list[Any]) -> Any:
        """What an operator does to numbers that are open."""
        result = of_numbers(kind, given, node.output().type()) if node.outputsSize() == 1 else None
        if result is not None:
            return result
        if kind in SPECIAL and not any(isinstance(value, OpenNumber) for value in given[:-1] if kind in COPIES):
            made = SPECIAL[kind](*given)
            if kind in COPIES:
                self.recorder.share(made, given[0])
            return made
        types = [TensorType.get() if isinstance(v, OpenNumber) else each.type() for v, each in zip(given, node._inputs)]
        if kind in STRUCTURE or not any(isinstance(value, Tensor) for value in given):
            raise Unsupported(f"{kind} of a number that is not known", why="it follows from values of tensors")
        return operator_for(kind, types).call(*beside_tensors(given))

    def _check_effect(self, kind: str, given: Sequence[Any]) -> None:
        if kind == "prim::SetAttr" and not isinstance(given[0], Module) and self._is_owned(given[0]):
            return
        if kind == "prim::SetAttr" or self.recorder.scopes:
            what = {"prim::Print": "printing", "prim::SetAttr": "setting an attribute", "aten::warn": "a warning"}
            raise Unsupported(
                f"{what.get(kind, 'an exception')} is not part of a graph", why="a graph computes values alone"
            )

    def _check_writes(self, node: Node, kind: str, given: Sequence[Any]) -> None:
        """Refuses changes of lists and dicts that were there before a branch or a turn."""
        if not self.owned or not any(isinstance(value, (list, dict)) for value in given):
            return
        schema = operator_for(kind, [value.type() for value in node._inputs]).schema
        for argument, value in zip(schema.arguments, given):
            if argument.is_write and isinstance(value, (list, dict)) and not self._is_owned(value):
                raise Unsupported(
                    f"a {type(value).__name__} from outside is changed where values decide",
                    why="how many elements it has would follow from values",
                )

    def _is_owned(self, value: Any) -> bool:
        return not self.owned or id(value) in self.owned[-1]

    # Scopes

    def _enter(self, states: Sequence[Storage] | None = None) -> Scope:
        if len(self.owned) >= DEEPEST:
            raise Unsupported(f"branches and loops are nested more than {DEEPEST} deep", hint="does a recursion end?")
        self.owned.append({})
        return self.recorder.enter(states)

    def _leave(self) -> None:
        made = self.owned.pop()
        if self.owned:
            self.owned[-1].update(made)
        self.recorder.leave()

    # Branches

    def branch(self, node: Node, values: Values) -> Steps:
        condition = values[node._inputs[0]]
        if condition is UNSET:
            raise Unsupported("the condition may have no value here", why="whether it has one follows from values")
        if not isinstance(condition, OpenNumber):
            return (yield self.block(node._blocks[0 if condition else 1], values))
        ways = []
        for block in node._blocks:
            scope = self._enter()
            results = yield self.block(block, values)
            ways.append(_Way(self.recorder, scope, results))
            self._leave()
        try:
            return _joined(self.recorder, condition, *ways)
        except Unsupported as error:
            raise _located(error, node) from None

    # Loops

    def loop(self, node: Node, values: Values) -> Steps:
        """Takes turns as long as it is known whether there is one more."""
        (block,) = node._blocks
        most, going, *carried = [values[each] for each in node._inputs]
        turn = 0
        while isinstance(most, OpenNumber) or turn < most:
            if isinstance(going, OpenNumber) or (going and isinstance(most, OpenNumber)):
                return (yield self.open_loop(node, values, most, going, turn, carried))
            if not going:
                break
            values.update(zip(block._param._outputs, [turn, *carried]))
            going, *carried = yield self.block(block, values)
            turn += 1
        return carried

    def open_loop(self, node: Node, values: Values, most: Any, going: Any, turn: int, carried: list[Any]) -> Steps:
        """The turns that are left, as one node. A turn is recorded again when it has told what variables will be that
        have no value before."""
        (block,) = node._blocks
        recorder = self.recorder
        while True:
            states = States(recorder, [going, turn, *carried])
            scope = self._enter(states.storages)
            more, count, *inner = states.inside
            values.update(zip(block._param._outputs, [count, *inner]))
            on, *results = yield self.block(block, values)
            try:
                filled = states.filled([going, turn, *results])
                if filled is None:
                    ends = states.ends([on, of_numbers("aten::add", [count, 1], IntType.get()), *results])
                    break
            except Unsupported as error:
                raise _located(error, node) from None
            self._leave()
            carried = filled[2:]
        entries = [entry_of(recorder, leaf) for leaf in ends]
        written = set(scope.written)
        self._leave()
        test = self._enter()
        if isinstance(most, OpenNumber):
            less = of_numbers("aten::lt", [count, most], BoolType.get())
            more = of_numbers("aten::__and__", [more, less], BoolType.get())
        question = entry_of(recorder, more)
        self._leave()
        try:
            states.check_writes(ends, written, scope.read)
            inputs = dict(states.places)
            subgraphs = [test.closed([question], inputs), scope.closed(entries, inputs)]
            given = [*states.first, *list(inputs)[len(states.first) :]]
            turns = MOST_TURNS if isinstance(most, OpenNumber) else most - turn
            attrs = {"num_states": len(states.first), "num_outputs": 0, "max_iterations": turns}
            control = recorder.control("while_loop", given, subgraphs, **attrs)
            return states.after(control, written)[2:]
        except Unsupported as error:
            raise _located(error, node) from None


class _Way:
    """What a branch gave: results, entries of those that are tensors and numbers, and what it wrote."""

    def __init__(self, recorder: OneGraph, scope: Scope, results: list[Any]) -> None:
        self.recorder, self.scope, self.results = recorder, scope, results
        leaves: list[Any] = []
        for value in results:
            spread(value, leaves)
        self._entries = {id(leaf): entry_of(recorder, leaf) for leaf in leaves if is_state(leaf)}
        self.after = {storage: storage.entry for storage in scope.written}

    def entry(self, leaf: Any, like: Any) -> NodeEntry:
        """A leaf as an output; one without a value as zeros."""
        return entry_of(self.recorder, zeros(like)) if leaf is UNSET else self._entries[id(leaf)]


def _joined(recorder: OneGraph, condition: OpenNumber, then: _Way, other: _Way) -> list[Any]:
    """The results of both ways as those of one node."""
    structures, ones, twos = [], list[Any](), list[Any]()
    for one, two in zip(then.results, other.results):
        structure, ours, theirs = paired(one, two)
        structures.append((structure, len(ours)))
        ones += ours
        twos += theirs
    leaves = [two if one is UNSET else one for one, two in zip(ones, twos)]
    differ = [place for place, (one, two) in enumerate(zip(ones, twos)) if not is_same(one, two)]
    for place in differ:
        one, two = ones[place], twos[place]
        why = misfit(leaves[place], leaves[place] if two is UNSET else two)
        if why is not None:
            raise Unsupported(f"{shown(one)} on one way, {shown(two)} on the other", why=why)
    written = list({**then.after, **other.after})
    outputs = []
    for way, given in ((then, ones), (other, twos)):
        entries = [way.entry(given[place], leaves[place]) for place in differ]
        outputs.append(entries + [way.after.get(storage, storage.entry) for storage in written])
    if outputs[0]:
        inputs = {recorder.entry_of(condition.tensor): 0}
        subgraphs = [then.scope.closed(outputs[0], inputs), other.scope.closed(outputs[1], inputs)]
        node = recorder.control("cond", list(inputs), subgraphs, num_outputs=len(outputs[0]))
        for number, place in enumerate(differ):
            leaves[place] = leaf_for(recorder, leaves[place], NodeEntry(node, number))
            for way, leaf in ((then, ones[place]), (other, twos[place])):
                if isinstance(leaf, Tensor) and recorder.is_outer(leaf, way.scope):
                    recorder.share(leaves[place], leaf)
        for number, storage in enumerate(written, len(differ)):
            recorder.writes(storage)
            storage.entry, storage.real = NodeEntry(node, number), None
    return together(structures, leaves)


# Where it went wrong


def _located(error: Error, node: Node) -> Error:
    """An error with the line of the program that it is about."""
    if isinstance(error, BrokenGraph):
        error = Unsupported("a program is not one graph", why=f"{node.kind()}: {error.why or error.what}")
    where = _line(node)
    return error if where is None or (error.where or "").startswith(where) else error.at(where)


def _line(node: Node) -> str | None:
    found = re.fullmatch(r"(.*):(\d+):(\d+)", node.sourceRange())
    if found is None:
        return None
    text = linecache.getline(found.group(1), int(found.group(2))).strip()
    return f"{found.group(1)}:{found.group(2)}" + (f", {text}" if text else "")
