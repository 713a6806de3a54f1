"""What takes down the calls of a function that runs: nodes of a graph for functions of tensors, and graphs of their own
for modules."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base.errors import InvalidType, RunError, Unsupported
from ...eager.autograd.node import next_sequence
from ...eager.tensor.device import device as Device
from ...eager.tensor.size import Size
from ...eager.tensor.tensor import Tensor
from ..constants import type_of
from ..functions import Function
from ..graph import Graph
from ..modules import ScriptModule
from ..nodes import Node, Value
from ..operators import Operator
from ..run.tracing_state import TracingState, get_tracing_state, warn_of_value
from ..schema import FunctionSchema
from ..types import (
    DictType,
    FloatType,
    FunctionType,
    FutureType,
    IntType,
    ListType,
    NoneType,
    NumberType,
    OptionalType,
    TensorType,
    TupleType,
    Type,
)
from . import indexing
from .extents import Extent, Origin
from .frames import Frame, reach
from .operators import BEFORE, CONSTANTS, Call, Program, planned, spelled, tensor_of
from .places import user_place

Rest = Callable[[tuple[Any, ...], dict[str, Any]], Any]
_SIZE = TensorType("Long", (), (), None, Device("cpu"))
_NUMBER = TensorType("Long", (), (), False, Device("cpu"))


def _alone(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method during which nothing is taken down: what it does to tensors is not the user's."""

    @functools.wraps(method)
    def call(self: Recorder, *args: Any) -> Any:
        self._busy += 1
        try:
            return method(self, *args)
        finally:
            self._busy -= 1

    return call


class Recorder:
    """A trace under way. `tree` has the modules of a program by the identity of those of Python that they are made of,
    and `parents` the module that each is in, with its name there."""

    def __init__(self, graph: Graph, module: Any = None, tree: Mapping[int, Any] | None = None) -> None:
        self.state = TracingState(graph)
        self.state.recorder = self
        self.root = self.frame = Frame(graph, module=module)
        self.tree: Mapping[int, Any] = tree or {}
        self.parents: dict[int, tuple[Any, str]] = {}
        self.attributes: dict[int, tuple[Any, str]] = {}  # which module has a tensor, and its name, by its identity
        self.closed: list[Frame] = []
        self._values: dict[int, tuple[Any, Value, Frame]] = {}  # by the identity of a tensor, with what keeps it alive
        self._busy = 0
        self._since = next_sequence()
        for parent in () if module is None else module.modules():
            for name, inner in parent._modules.items():
                if inner is not None:
                    self.parents.setdefault(id(inner), (parent, name))
            for name, tensor in [*parent._parameters.items(), *parent._buffers.items()]:
                if tensor is not None:
                    self.attributes.setdefault(id(tensor), (parent, name))

    def is_open(self) -> bool:
        """Whether what happens now belongs into the graph."""
        return not self._busy and get_tracing_state() is self.state

    @property
    def graph(self) -> Graph:
        return self.frame.graph

    # Values

    def define(self, tensor: Any, value: Value) -> Value:
        """Has a value of the open graph stand for a tensor."""
        self._values[id(tensor)] = (tensor, value, self.frame)
        return value

    def knows(self, tensor: Tensor) -> bool:
        return id(tensor) in self._values or id(tensor) in self.attributes

    def value_of(self, tensor: Tensor) -> Value:
        """The value of a tensor, in the graph that is open."""
        known = self._values.get(id(tensor))
        if known is not None:
            return reach(known[1], known[2], self.frame)
        if id(tensor) in self.attributes:
            owner, name = self.attributes[id(tensor)]
            return self.attribute(owner, name)
        return self.define(tensor, self._constant(tensor))

    def _constant(self, tensor: Tensor) -> Value:
        made_here = tensor._grad_fn is not None and tensor._grad_fn.sequence_nr >= self._since
        if made_here or (tensor._base is not None and self.knows(tensor._base)):
            raise Unsupported(
                "a tensor was computed in a way that no operator of programs stands for",
                where=user_place(),
                hint="compute it by functions and methods of tensors",
            )
        if tensor._requires_grad or tensor._grad_fn is not None:
            raise RunError(
                "Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or input, or "
                "detaching the gradient",
                where=user_place(),
                hint="trace the module that it is a parameter of",
            )
        return self._noted(self.graph.insertConstant(tensor.detach()))

    def _noted(self, value: Value) -> Value:
        value.node()._source = user_place()
        return value

    def attribute(self, module: Any, *names: str) -> Value:
        """An attribute of a module, as the innermost open graph reads it whose module has that."""
        path = [module]
        while id(path[-1]) in self.parents and path[-1] is not self.root.module:
            parent, name = self.parents[id(path[-1])]
            path.append(parent)
            names = (name, *names)
        for frame in reversed(self.frame.path()):
            if frame.module is not None and any(frame.module is each for each in path):
                above = next(place for place, each in enumerate(reversed(path)) if each is frame.module)
                return reach(self._read(frame, names[above:]), frame, self.frame)
        raise Unsupported("a module is used that is not in the one that is traced")

    def _read(self, frame: Frame, names: tuple[str, ...]) -> Value:
        assert frame.owner is not None
        value = frame.owner
        for count in range(1, len(names) + 1):
            known = frame.attributes.get(names[:count])
            if known is None:
                node = frame.graph.create("prim::GetAttr", [value])
                node._set("s", "name", names[count - 1])
                node.setScope("")
                (frame.graph.prependNode(node) if count == 1 else node.insertAfter(value.node()))
                owner: Any = value.type()
                known = node.output().setType(owner.attribute_type(names[count - 1]))
                name = names[count - 1]
                known.setDebugName(name if name.isidentifier() else f"_{name}")
                frame.attributes[names[:count]] = known
            value = known
        return value

    # Calls of functions of tensors

    def __call__(self, key: str, rest: Rest, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the function table: a layer around it."""
        return self._taken_down(key, rest, args, kwargs) if self.is_open() else rest(args, kwargs)

    @_alone
    def _taken_down(self, key: str, rest: Rest, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name, _ = spelled(key)
        if name in ("getitem", "setitem_"):
            return indexing.getitem(self, *args) if name == "getitem" else indexing.setitem(self, *args)
        if name in CONSTANTS:
            return rest(args, kwargs)
        found = self._planned(key, args, kwargs)
        if found is None:
            return self._unknown(key, rest, args, kwargs)
        if isinstance(found, Program):
            return self._spliced(found, rest, args, kwargs)
        if not any(_is_tensors(result.type) for result in found[-1].operator.schema.returns):
            return rest(args, kwargs)
        return self._recorded(found, rest, args, kwargs)

    def _planned(self, key: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Call] | Program | None:
        try:
            return planned(key, args, kwargs)
        except (RunError, InvalidType) as error:
            raise Unsupported(
                f"{spelled(key)[0]} with such arguments is no operator of programs",
                where=user_place(),
                why=str(error).partition("\n")[0],
            ) from None

    def _recorded(self, calls: list[Call], rest: Rest, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        inputs = self.inputs(calls[0])  # before something is written to them
        result = rest(args, kwargs)
        for call, following in itertools.pairwise(calls):
            value = self.node(call.operator, inputs).addOutput().setType(self._type_of(_first_tensor(result)))
            inputs = self.inputs(following, value)
        self.results(calls[-1].operator, self.node(calls[-1].operator, inputs), result)
        return result

    def record(self, call: Call, result: Any) -> Any:
        """Takes down a call that has been made."""
        self.results(call.operator, self.node(call.operator, self.inputs(call)), result)
        return result

    def inputs(self, call: Call, before: Value | None = None) -> list[Value]:
        """The values that a call reads. `before` is what the call before it gives."""
        arguments = zip(call.values, call.operator.schema.arguments)
        return [
            before if value is BEFORE and before is not None else self.argument(value, argument.type)
            for value, argument in arguments
        ]

    def node(self, operator: Operator, inputs: Sequence[Value]) -> Node:
        made = self.graph.create(operator.schema.name, inputs, 0)
        made._source = user_place()
        return self.graph.appendNode(made)

    def results(self, operator: Operator, node: Node, result: Any) -> None:
        """Has the outputs of a node stand for what a call gave."""
        kinds = [each.real_type for each in operator.schema.returns]
        for kind, given in zip(kinds, [result] if len(kinds) == 1 else result):
            output = node.addOutput()
            if isinstance(given, Tensor):
                self.define(given, output.setType(self._type_of(given)))
            elif isinstance(kind, ListType) and _is_tensors(kind):
                output.setType(ListType.ofTensors())
                self._unpacked(output, given)
            else:
                output.setType(kind)

    def _unpacked(self, values: Value, tensors: Sequence[Tensor]) -> None:
        node = self.graph.appendNode(self.graph.create("prim::ListUnpack", [values], len(tensors)))
        for output, tensor in zip(node.outputs(), tensors):
            self.define(tensor, output.setType(self._type_of(tensor)))

    def _type_of(self, tensor: Tensor | None) -> Type:
        return TensorType.get() if tensor is None else type_of(tensor)

    def _unknown(self, key: str, rest: Rest, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A function that no operator stands for: what it calls inside is taken down, if that is all it does."""
        if key[:1].isupper():  # a node of autograd's, not a row of the table
            raise Unsupported("gradients inside of a traced function are no operator of programs", where=user_place())
        busy, self._busy = self._busy, 0
        try:
            result = rest(args, kwargs)
        finally:
            self._busy = busy
        given = [each for each in _tensors([*args, *kwargs.values()]) if self.knows(each)]
        lost = [each for each in _tensors([result]) if not self.knows(each)]
        if given and lost:
            raise Unsupported(f"{key} is no operator of programs, and does more than call some", where=user_place())
        return result

    def _spliced(self, program: Program, rest: Rest, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Puts a program in the place of a call."""
        inputs = [self.argument(value, TensorType.get()) for value in program.values]
        result = rest(args, kwargs)
        outputs = self._inserted(program.graph, inputs)
        if isinstance(outputs[0].type(), TupleType):
            node = self.graph.appendNode(self.graph.create("prim::TupleUnpack", outputs, len(result)))
            outputs = list(node.outputs())
        for value, given in zip(outputs, result if isinstance(result, tuple) else [result]):
            value.setType(self._kind_of(given))
            if isinstance(given, Tensor):
                self.define(given, value)
        return result

    def _inserted(self, graph: Graph, inputs: Sequence[Value]) -> list[Value]:
        """Puts nodes of a graph at the end; each has constants of its own, as other calls do."""
        place, scope = user_place(), self.state.current_scope()
        known = dict(zip(graph.inputs(), inputs))

        def value_of(value: Value) -> Value:
            if value in known:
                return known[value]
            return self.argument(value.toIValue(), value.type())

        for node in graph.nodes():
            if node.kind() == "prim::Constant":
                continue
            made = self.graph.appendNode(self.graph.createClone(node, value_of))
            made.setScope(scope)
            made._source = place
            known |= zip(node.outputs(), made.outputs())
        return [value_of(value) for value in graph.outputs()]

    # Arguments

    def argument(self, value: Any, kind: Type) -> Value:
        """A value of Python as one of the graph, where a type is expected."""
        if isinstance(kind, OptionalType):
            kind = kind.getElementType()
        if isinstance(value, Tensor):
            return self.value_of(value)
        if isinstance(value, Extent):
            return self._number_of(value, isinstance(kind, NumberType))
        if isinstance(value, (list, tuple)):
            element = kind.getElementType() if isinstance(kind, ListType) else TensorType.get()
            items = [self.argument(item, element) for item in value]
            node = self.graph.appendNode(self.graph.create("prim::ListConstruct", items))
            return node.output().setType(ListType(element))
        if isinstance(kind, FloatType) and isinstance(value, int):
            value = float(value)
        made = self.graph.insertConstant(value)
        return made if value is None else self._noted(made)

    def _number_of(self, extent: Extent, any_number: bool) -> Value:
        """The number of a size, which a node beside the size gives."""
        here = reach(extent.origin.value, extent.origin.home, self.frame)
        kind = "aten::ScalarImplicit" if any_number else "aten::Int"
        for use in here.uses():
            if use.user.kind() == kind:
                return use.user.output()
        node = self.graph.create(kind, [here])
        where = here.node()
        node = self.graph.prependNode(node) if where is self.graph.param_node() else node.insertAfter(where)
        return node.output().setType(NumberType.get() if any_number else IntType.get())

    # Sizes and values that Python asks for

    def answer(self, what: str, tensor: Any, answer: Any) -> Any:
        """A listener of tensors: sizes become values of the graph, and values are warned of."""
        if not self.is_open() or not isinstance(tensor, Tensor) or not self.knows(tensor):
            return answer
        if what == "shape":
            return self._extents(tensor, answer)
        warn_of_value(what)
        return answer

    @_alone
    def _extents(self, tensor: Tensor, sizes: Sequence[int]) -> Size:
        return Size.of([self._extent(tensor, axis, size) for axis, size in enumerate(sizes)])

    def _extent(self, tensor: Tensor, axis: int, size: int) -> Extent:
        graph, place = self.graph, user_place()
        which = self._noted(graph.insertConstant(axis))
        node = graph.appendNode(graph.create("aten::size", [self.value_of(tensor), which]))
        node._source = place
        held = graph.appendNode(graph.create("prim::NumToTensor", [node.output().setType(IntType.get())]))
        return Extent.of(size, self, Origin(held.output().setType(_SIZE), self.frame))

    @_alone
    def computed(self, name: str, pair: tuple[Any, Any], number: int) -> Extent:
        """What follows from sizes."""
        inputs = []
        for given in pair:
            if isinstance(given, Extent):
                inputs.append(reach(given.origin.value, given.origin.home, self.frame))
            else:
                inputs.append(self._noted(self.graph.insertConstant(tensor_of(given))))
        if name in ("add", "sub"):
            inputs.append(self._noted(self.graph.insertConstant(1)))
        node = self.graph.appendNode(self.graph.create(f"aten::{name}", inputs))
        node._source = user_place()
        return Extent.of(number, self, Origin(node.output().setType(_NUMBER), self.frame))

    # Calls of modules and of programs

    def enter(self, module: Any, args: Any) -> None:
        """Before a module is called: a hook of all modules."""
        if (
            not self.is_open()
            or id(module) not in self.tree
            or module is self.root.module
            or isinstance(module, ScriptModule)
        ):
            return
        self._entered(module)

    @_alone
    def _entered(self, module: Any) -> None:
        outside = self.frame
        kind = self.tree[id(module)]._type
        name = "forward"
        while kind.find_method(name) is not None:  # each call is a method of its own
            name = f"forward{1 + int(name.removeprefix('forward') or 0)}"
        call = outside.graph.create("prim::CallMethod", [self.attribute(module)], 0)
        call.setScope("")
        call._set("s", "name", name)
        outside.graph.appendNode(call)
        self.frame = Frame(Graph(), outside, call, module)
        self.frame.owner = self.frame.graph.addInput("self").setType(kind)
        graph = self.frame.graph
        kind.add_method(Function(f"{kind.qualified_name()}.{name}", FunctionSchema(name, "", [], []), lambda: graph))
        self.frame.function = kind.methods[name]
        self.state.set_graph(self.frame.graph)
        self.state.push_scope(".".join(["__module", *self._path(module)]))

    def _path(self, module: Any) -> list[str]:
        names: list[str] = []
        while module is not self.root.module:
            module, name = self.parents[id(module)]
            names.append(name)
        return names[::-1]

    def leave(self, module: Any, args: Any, result: Any) -> None:
        """After a module was called."""
        if not self.is_open() or self.frame.module is not module or self.frame.outside is None:
            return
        self.closed.append(self.frame)
        self.frame = self.frame.outside
        self.state.pop_scope()
        self.state.set_graph(self.frame.graph)

    @_alone
    def call(self, function: Function, values: Sequence[Any], run: Callable[[], Any]) -> Any:
        """A call of a program."""
        arguments = function.schema.arguments
        owner = values[0] if values and id(values[0]) in self.tree else None
        inputs = [self.any_argument(value, each.type) for value, each in zip(values, arguments) if value is not owner]
        result = run()
        if owner is not None:
            node = self.graph.create("prim::CallMethod", [self.attribute(owner), *inputs])
            node._set("s", "name", function.name)
        else:
            constant = self.graph.appendNode(self.graph.create("prim::Constant"))
            constant._set("s", "name", function.name)
            constant.output().setType(FunctionType(function))
            node = self.graph.create("prim::CallFunction", [constant.output(), *inputs])
        kind = function.schema.returns[0].type if function.schema.returns else NoneType.get()
        self.graph.appendNode(node)
        self.scatter(node.output().setType(kind), result)
        return result

    def forked(self, future: Any, run: Callable[[], Any]) -> Any:
        """Takes down a function that is to run beside this one, as a graph of its own."""
        outside, call = self.frame, self.graph.appendNode(self.graph.create("prim::fork", (), 0))
        call._source = user_place()
        self.frame = Frame(Graph(), outside, call)
        self.state.set_graph(self.frame.graph)
        try:
            result = run()
            value = self.gather(result, False)
            self.frame.graph.registerOutput(value)
            call._set("g", "Subgraph", self.frame.graph)
        finally:
            self.frame = outside
            self.state.set_graph(outside.graph)
        self.define(future, call.addOutput().setType(FutureType(value.type())))
        return result

    @_alone
    def waited(self, future: Any, result: Any) -> None:
        """Takes down that the result of a function is waited for."""
        known = self._values.get(id(future))
        if known is not None:
            here = reach(known[1], known[2], self.frame)
            node = self.graph.appendNode(self.graph.create("aten::wait", [here]))
            node._source = user_place()
            self.scatter(node.output().setType(here.type().containedTypes()[0]), result)

    def any_argument(self, value: Any, kind: Type) -> Value:
        """A value of Python with tensors somewhere in it."""
        if isinstance(value, tuple):
            parts = kind.parts if isinstance(kind, TupleType) else [TensorType.get()] * len(value)
            items = [self.any_argument(item, part) for item, part in zip(value, parts)]
            node = self.graph.appendNode(self.graph.create("prim::TupleConstruct", items))
            return node.output().setType(TupleType([item.type() for item in items]))
        return self.argument(value, kind)

    def scatter(self, value: Value, given: Any) -> None:
        """Has what is in a value of the graph stand for the tensors of a value of Python."""
        if isinstance(given, Tensor):
            self.define(given, value)
            return
        if isinstance(given, (tuple, list)) and given:
            tuples = isinstance(given, tuple)
            node = self.graph.create("prim::TupleUnpack" if tuples else "prim::ListUnpack", [value], len(given))
            self.graph.appendNode(node)
            for output, item in zip(node.outputs(), given):
                self.scatter(output.setType(self._kind_of(item)), item)
        elif isinstance(given, dict):
            for key, item in given.items():
                node = self.graph.create("aten::__getitem__", [value, self.graph.insertConstant(key)])
                self.scatter(self.graph.appendNode(node).output().setType(self._kind_of(item)), item)

    def _kind_of(self, value: Any) -> Type:
        return type_of(value)

    @_alone
    def gather(self, result: Any, strict: bool) -> Value:
        """What a function gives, as one value of the graph."""
        if strict and isinstance(result, (list, dict)):
            raise RunError(
                f"Encountering a {type(result).__name__} at the output of the tracer might cause the trace to be "
                "incorrect, this is only valid if the container structure does not change based on the module's "
                "inputs. Consider using a constant container instead (e.g. for `list`, use a `tuple` instead. for "
                "`dict`, use a `NamedTuple` instead). If you absolutely need this and know the side effects, pass "
                "strict=False to trace() to allow this behavior."
            )
        if isinstance(result, Tensor):
            return self.value_of(result)
        if isinstance(result, Extent):
            value: Value = reach(result.origin.value, result.origin.home, self.frame)
            return value
        if isinstance(result, (tuple, list)) and result:
            items = [self.gather(item, strict) for item in result]
            tuples = isinstance(result, tuple)
            node = self.graph.create("prim::TupleConstruct" if tuples else "prim::ListConstruct", items)
            kind: Type = TupleType([item.type() for item in items]) if tuples else ListType(_plain(items[0].type()))
            return self.graph.appendNode(node).output().setType(kind)
        if isinstance(result, dict) and result:
            pairs = []
            for key, item in result.items():
                pairs += [self.graph.insertConstant(key), self.gather(item, strict)]
            node = self.graph.appendNode(self.graph.create("prim::DictConstruct", pairs))
            return node.output().setType(DictType(pairs[0].type(), _plain(pairs[1].type())))
        raise RunError(
            "Only tensors, lists, tuples of tensors, or dictionary of tensors can be output from traced functions",
            why=f"this one gives {type(result).__name__}",
        )


def _is_tensors(kind: Type) -> bool:
    while isinstance(kind, (OptionalType, ListType)):
        kind = kind.getElementType()
    return isinstance(kind, TensorType)


def _plain(kind: Type) -> Type:
    return TensorType.get() if isinstance(kind, TensorType) else kind


def _tensors(values: Sequence[Any]) -> list[Tensor]:
    found: list[Tensor] = []
    stack = list(values)[::-1]
    while stack:
        value = stack.pop()
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (tuple, list)):
            stack += list(value)[::-1]
    return found


def _first_tensor(value: Any) -> Tensor | None:
    return next(iter(_tensors([value])), None)
