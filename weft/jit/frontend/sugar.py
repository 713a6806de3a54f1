"""What a name or an expression of the source stands for while it is compiled: a value of the program, or something that
only the compiler knows, such as a module of Python, a function, or `range(n)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.errors import RunError
from ...eager.tensor.types import DTYPE_NAMES
from ..classes import EnumType, InterfaceType, NamedTupleType, ScriptClass
from ..functions import Function as Compiled
from ..matching import Mismatch, matched, takes
from ..nodes import Value
from ..operators import names, operators_of
from ..schema import Argument, FunctionSchema
from ..types import (
    BoolType,
    ComplexType,
    DeviceObjType,
    DictType,
    FloatType,
    FunctionType,
    IntType,
    ListType,
    NoneType,
    OptionalType,
    StringType,
    TensorType,
    TupleType,
    Type,
    UnionType,
)
from .builder import Builder
from .calls import as_type, call_inputs, call_operator
from .near import nearest

Arguments = Sequence["Sugar"]
Keywords = Mapping[str, "Sugar"]


class Sugar:
    """Anything that an expression may stand for. `kind` is how messages call it."""

    kind = "value"

    def value(self, builder: Builder) -> Value:
        raise builder.error(f"{self.kind} cannot be used as a value")

    def attribute(self, builder: Builder, name: str) -> Sugar:
        raise builder.error(f"attribute lookup is not defined on {self.kind}")

    def has_attribute(self, builder: Builder, name: str) -> bool:
        try:
            self.attribute(builder, name)
        except RunError:
            return False
        return True

    def set_attribute(self, builder: Builder, name: str, value: Value) -> None:
        raise builder.error(f"attribute assignment is not defined on {self.kind}")

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        raise builder.error(f"cannot call a {self.kind}")

    def items(self, builder: Builder, count: int | None = None) -> list[Sugar]:
        """Its parts, where their number is known while it is compiled; `count` of them, if that is asked."""
        raise builder.error(f"{self.kind} cannot be used as a tuple")

    def iteration(self, builder: Builder) -> Iteration | None:
        """How a loop goes over it; None if it is unrolled."""
        raise builder.error(f"'{self.kind}' object is not iterable")

    def subscript(self, builder: Builder, index: Value) -> Sugar:
        raise builder.error(f"'{self.kind}' object is not subscriptable")


class Iteration(NamedTuple):
    """How a loop goes over something: how often, and what it has each time."""

    length: Callable[[], Value]
    item: Callable[[Value], Sugar]


class Simple(Sugar):
    """A value of the program."""

    def __init__(self, value: Value) -> None:
        self._value = value

    @property
    def kind(self) -> str:  # type: ignore[override]
        return repr(self._value.type())

    def value(self, builder: Builder) -> Value:
        return self._value

    def items(self, builder: Builder, count: int | None = None) -> list[Sugar]:
        kind, order = self._value.type(), _order(self._value)
        if order is not None and getattr(kind, "keys", False):
            return [Simple(builder.constant(name)) for name in order]
        if order is not None:
            return [self.attribute(builder, name) for name in order]
        if isinstance(kind, TupleType):
            return [Simple(part) for part in builder.unpacked(self._value)]
        if isinstance(kind, ListType) and count is not None:
            node = builder.nodes("prim::ListUnpack", [self._value], [kind.getElementType()] * count)
            return [Simple(part) for part in node.outputs()]
        if isinstance(kind, ListType):
            raise builder.error("cannot statically infer the expected size of a list in this context")
        if isinstance(kind, TensorType) and count is not None:
            listed = call_operator(builder, "aten::unbind", [self._value, builder.constant(0)])
            return Simple(listed).items(builder, count)
        raise builder.error(f"{builder.shown_type(self._value)} cannot be used as a tuple")

    def iteration(self, builder: Builder) -> Iteration | None:
        kind, value = self._value.type(), self._value
        if isinstance(kind, TupleType) or _order(value) is not None:
            return None
        if isinstance(kind, TensorType):
            value = call_operator(builder, "aten::unbind", [value, builder.constant(0)])
        elif isinstance(kind, DictType):
            value = call_operator(builder, "aten::keys", [value])
        elif not isinstance(kind, (ListType, StringType)):
            raise builder.error(f"'{kind}' object is not iterable")
        return Iteration(
            lambda: call_operator(builder, "aten::len", [value]),
            lambda index: Simple(call_operator(builder, "aten::__getitem__", [value, index])),
        )

    def attribute(self, builder: Builder, name: str) -> Sugar:
        kind = self._value.type()
        field = _FIELDS.get(type(kind), {}).get(name)
        if field is not None:
            return Simple(call_operator(builder, field, [self._value]))
        fields = getattr(kind, "fields", ())
        if isinstance(kind, TupleType) and name in fields:
            place = fields.index(name)
            index = builder.constant(place)
            return Simple(builder.node("prim::TupleIndex", [self._value, index], kind.parts[place]))
        if isinstance(kind, ScriptClass):
            found = _class_attribute(builder, self._value, kind, name)
            if found is not None:
                return found
        if isinstance(kind, InterfaceType) and name in kind.schemas:
            return Method(self._value, name, kind.schemas[name])
        if isinstance(kind, EnumType) and name in ("value", "name"):
            result = kind.value if name == "value" else StringType.get()
            return Simple(builder.node(f"prim::Enum{name.capitalize()}", [self._value], result))
        if name == "tolist" and isinstance(kind, TensorType):
            return ToList(self._value)
        if name in DTYPE_METHODS and isinstance(kind, TensorType):
            return DtypeMethod(self._value, DTYPE_METHODS[name])
        method = is_method(name, kind)
        if method is not None:
            return Builtin(method, self._value)
        text = f"'{builder.shown_type(self._value)}' object has no attribute or method '{name}'."
        raise builder.error(text + nearest(name, methods_of(kind)))

    def set_attribute(self, builder: Builder, name: str, value: Value) -> None:
        kind = self._value.type()
        if not isinstance(kind, ScriptClass):
            raise builder.error(f"Tried to set an attribute: {name} on a non-class: {kind}")
        if name not in kind.attributes and getattr(kind, "defines", False):
            kind.add_attribute(name, value.type())
        if name not in kind.attributes:
            raise builder.error(
                f"Tried to set nonexistent attribute: {name}. Did you forget to initialize it in __init__()?"
            )
        wanted = kind.attributes[name].type
        value = as_type(builder, value, wanted)
        if not value.type().isSubtypeOf(wanted):
            raise builder.error(f"Wrong type for attribute assignment. Expected {wanted} but got {value.type()}")
        node = builder.nodes("prim::SetAttr", [self._value, value], [])
        node.s_("name", name)  # type: ignore[attr-defined]

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        kind = self._value.type()
        if isinstance(kind, (ScriptClass, InterfaceType)):
            return self.attribute(builder, "forward" if kind.is_module else "__call__").call(builder, args, kwargs)
        raise builder.error(f"cannot call a value of type '{kind}'")

    def subscript(self, builder: Builder, index: Value) -> Sugar:
        order = _order(self._value)
        if order is None:
            return Simple(call_operator(builder, "aten::__getitem__", [self._value, index]))
        place = index.toIValue()
        if isinstance(place, str) and place in order:
            return self.attribute(builder, place)
        if not isinstance(place, int):
            raise builder.error(
                "Expected integer literal for index. ModuleList/Sequential indexing is only supported with integer "
                "literals. Enumeration is supported, e.g. 'for index, v in enumerate(self): ...'"
            )
        if not -len(order) <= place < len(order):
            raise builder.error(f"Index {place} out of range: there are {len(order)} modules")
        return self.attribute(builder, order[place])


_FIELDS: dict[type[Type], dict[str, str]] = {
    TensorType: {
        "dtype": "prim::dtype",
        "device": "prim::device",
        "grad": "prim::grad",
        "data": "prim::data",
        "shape": "aten::size",
        "is_cuda": "prim::is_cuda",
        "is_cpu": "prim::is_cpu",
        "is_sparse": "prim::is_sparse",
        "is_quantized": "prim::is_quantized",
        "is_leaf": "aten::is_leaf",
        "requires_grad": "prim::requires_grad",
        "layout": "prim::layout",
        "T": "aten::numpy_T",
        "mT": "aten::mT",
        "H": "aten::matrix_H",
        "mH": "aten::mH",
        "ndim": "aten::dim",
        "itemsize": "prim::itemsize",
        "nbytes": "prim::nbytes",
        "is_mkldnn": "prim::is_mkldnn",
        "is_meta": "prim::is_meta",
        "is_xpu": "prim::is_xpu",
        "retains_grad": "aten::retains_grad",
        "real": "aten::real",
        "imag": "aten::imag",
    },
    DeviceObjType: {"type": "prim::type", "index": "prim::index"},
}


def _has_self(kind: str, self_type: Type) -> bool:
    """Whether an operator is a method of values of a type: its first argument is called `self`, and takes them."""
    for operator in operators_of(kind):
        arguments = operator.schema.arguments
        if not arguments or arguments[0].name != "self":
            continue
        try:
            matched(_first_alone(operator), [self_type], {}, True)
        except Mismatch:
            continue
        return True
    return False


def _first_alone(operator: Any) -> Any:
    schema = operator.schema
    alone = type(schema)(schema.name, schema.overload_name, schema.arguments[:1], [])
    return operator._replace(schema=alone)


def is_method(name: str, kind: Type) -> str | None:
    """The operator that is a method of a type."""
    for space in ("aten", "prim"):
        if _has_self(f"{space}::{name}", kind):
            return f"{space}::{name}"
    return None


def methods_of(kind: Type) -> list[str]:
    """Names like those of methods: of a tensor, those of operators that have one first."""
    if isinstance(kind, TensorType):
        return [name.removeprefix("aten::") for name in names() if name.startswith("aten::")]
    return []


class Builtin(Sugar):
    """An operator, or a method that is one."""

    kind = "builtin"

    def __init__(self, name: str, first: Value | None = None) -> None:
        self.name, self.first = name, first

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        values = [] if self.first is None else [self.first]
        values += [each.value(builder) for each in args]
        return Simple(call_operator(builder, self.name, values, {k: v.value(builder) for k, v in kwargs.items()}))


class Operators(Sugar):
    """Operators of a namespace by their names, as saved programs have them: `torch.add`, `ops.prim.NumToTensor`."""

    kind = "operators"

    def __init__(self, space: str | None = None) -> None:
        self._space = space

    def attribute(self, builder: Builder, name: str) -> Sugar:
        if self._space is None:
            return Operators(name)
        if not operators_of(f"{self._space}::{name}"):
            raise builder.error(f"Unknown builtin op: {self._space}::{name}")
        return Builtin(f"{self._space}::{name}")


class DtypeMethod(Sugar):
    """`x.double()`, which is `x.to(float64)`."""

    kind = "method"

    def __init__(self, tensor: Value, dtype: Any) -> None:
        self._tensor, self._dtype = tensor, dtype

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        return Simple(call_operator(builder, "aten::to", [self._tensor, builder.constant(self._dtype)]))


DTYPE_METHODS = {
    name: DTYPE_NAMES[dtype]
    for name, dtype in {
        "double": "float64",
        "float": "float32",
        "half": "float16",
        "bfloat16": "bfloat16",
        "long": "int64",
        "int": "int32",
        "short": "int16",
        "char": "int8",
        "byte": "uint8",
        "bool": "bool",
    }.items()
}


class ToList(Sugar):
    """`x.tolist()`, whose type is said by an annotation."""

    kind = "tolist"

    def __init__(self, tensor: Value) -> None:
        self.tensor = tensor

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        raise builder.error("Expected type hint for result of tolist()")

    def typed(self, builder: Builder, hint: Type) -> Value:
        """The list, of a type: lists in lists of numbers."""
        depth, element = 0, hint
        while isinstance(element, ListType):
            depth, element = depth + 1, element.getElementType()
        number = {IntType: 0, FloatType: 1, BoolType: 2, ComplexType: 3}.get(type(element))
        if number is None:
            raise builder.error(
                f"{element} is not one of the supported element types for tolist: int, float, complex, bool"
            )
        inputs = [self.tensor, builder.constant(depth), builder.constant(number)]
        return builder.node("prim::tolist", inputs, hint)


class Cast(Sugar):
    """A type of Python that makes values of others: `int(x)`."""

    kind = "type"

    def __init__(self, operator: str, type_: Type, default: Any) -> None:
        self.operator, self.type, self.default = operator, type_, default

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        if not args and not kwargs:
            return Simple(builder.constant(self.default))
        values = [each.value(builder) for each in args]
        if len(values) == 1 and values[0].type() == self.type and not kwargs:
            return Simple(values[0])
        return Builtin(self.operator).call(builder, args, kwargs)


class Minimum(Builtin):
    """`min` and `max`, of two, of more, or of a list."""

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        if len(args) < 3:
            return super().call(builder, args, kwargs)
        found: Sugar = args[0]
        for each in args[1:]:
            found = super().call(builder, [found, each], kwargs)
        return found


class Length(Builtin):
    """`len`, which is known while a program is compiled for modules of modules."""

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        order = _order(args[0].value(builder)) if len(args) == 1 else None
        return super().call(builder, args, kwargs) if order is None else Simple(builder.constant(len(order)))


def _order(value: Value) -> list[str] | None:
    """The names of the modules in a module that is a list or a dict of them."""
    kind = value.type()
    order: list[str] | None = getattr(kind, "order", None)
    if order is None and isinstance(kind, ScriptClass) and kind.is_module:  # one of an archive has numbers for names
        order = [name for name in kind.attributes if name.isdecimal()] or None
    return order


class Range(Sugar):
    """`range(...)`."""

    kind = "range"

    def __init__(self, bounds: Sequence[Value]) -> None:
        self._bounds = bounds

    @classmethod
    def of(cls, builder: Builder, args: Arguments) -> Range:
        if not 1 <= len(args) <= 3:
            what = "at least 1 argument" if not args else "at most 3 arguments"
            raise builder.error(f"range expected {what}, got {len(args)}")
        values = [each.value(builder) for each in args]
        for value in values:
            if not isinstance(value.type(), IntType):
                raise builder.error(
                    f"all inputs of range must be ints, found {value.type()} in argument {values.index(value)}"
                )
        return cls(values)

    def iteration(self, builder: Builder) -> Iteration | None:
        if len(self._bounds) == 1:
            return Iteration(lambda: self._bounds[0], Simple)
        first, end = self._bounds[:2]
        step = self._bounds[2] if len(self._bounds) == 3 else builder.constant(1)
        return Iteration(
            lambda: call_operator(builder, "aten::__range_length", [first, end, step]),
            lambda index: Simple(call_operator(builder, "aten::__derive_index", [index, first, step])),
        )


class Tuple(Sugar):
    """Parts that are no values of a program together, such as functions or modules."""

    kind = "tuple"

    def __init__(self, parts: Sequence[Sugar]) -> None:
        self._parts = list(parts)

    def value(self, builder: Builder) -> Value:
        return builder.tuple_of([part.value(builder) for part in self._parts])

    def items(self, builder: Builder, count: int | None = None) -> list[Sugar]:
        return list(self._parts)

    def iteration(self, builder: Builder) -> Iteration | None:
        return None

    def subscript(self, builder: Builder, index: Value) -> Sugar:
        place = index.toIValue()
        if isinstance(place, int) and -len(self._parts) <= place < len(self._parts):
            return self._parts[place]
        if isinstance(place, int):
            raise builder.error(f"Tuple index out of range: {place} is out of range for {len(self._parts)} parts")
        return Simple(self.value(builder)).subscript(builder, index)


class Zipped(Sugar):
    """`zip(...)`, and `enumerate(...)`, which is a zip with numbers."""

    kind = "zip"

    def __init__(self, parts: Sequence[Sugar], start: Value | None = None) -> None:
        self._parts, self._start = parts, start

    def items(self, builder: Builder, count: int | None = None) -> list[Sugar]:
        columns = [part.items(builder) for part in self._parts]
        rows = zip(*columns)
        if self._start is None:
            return [Tuple(row) for row in rows]
        start = self._start.toIValue()
        if not isinstance(start, int):
            raise builder.error("enumerate over a tuple starts at a constant")
        return [Tuple([Simple(builder.constant(place)), *row]) for place, row in enumerate(rows, start)]

    def iteration(self, builder: Builder) -> Iteration | None:
        found = [part.iteration(builder) for part in self._parts]
        iterations = [each for each in found if each is not None]
        if len(iterations) < len(found):
            if iterations:
                raise builder.error(
                    "Can not iterate over a module list or tuple with a value that does not have a static length."
                )
            return None

        def length() -> Value:
            lengths = [each.length() for each in iterations]
            if len(lengths) == 1:
                return lengths[0]
            return call_operator(builder, "prim::min", [builder.list_of(IntType.get(), lengths)])

        def item(index: Value) -> Sugar:
            parts = [each.item(index) for each in iterations]
            if self._start is not None:
                number = (
                    index if self._start.toIValue() == 0 else call_operator(builder, "aten::add", [index, self._start])
                )
                parts.insert(0, Simple(number))
            return Tuple(parts)

        return Iteration(length, item)


class Exceptions(Sugar):
    """A class of exceptions, by its full name."""

    kind = "exception"

    def __init__(self, name: str) -> None:
        self.name = name


class GradMode(Sugar):
    """`no_grad()` and `enable_grad()`, for with statements."""

    kind = "context manager"

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        return self

    def enter(self, builder: Builder) -> Value:
        """Begins a block; gives the mode that was before."""
        before = call_operator(builder, "aten::is_grad_enabled", [])
        call_operator(builder, "aten::set_grad_enabled", [builder.constant(self._enabled)])
        return before


class Form(Sugar):
    """Something that looks like a function and is read as part of the language: `isinstance`, `annotate`."""

    def __init__(self, name: str) -> None:
        self.name = self.kind = name


class Function(Sugar):
    """A function with a schema, which is a program of its own."""

    kind = "function"

    bound: tuple[Value, ...] = ()  # arguments that come before those of a call

    def __init__(self, function: Compiled) -> None:
        self.function = function

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        schema = builder.schema_of(self.function)
        values, named = _values(builder, args, kwargs)
        inputs = call_inputs(builder, schema, values, named, builder.place)
        return Simple(called(builder, self.function, self.function.name, inputs, _result(schema)))


def called(builder: Builder, function: Any, name: str, inputs: Sequence[Value], result: Type) -> Value:
    """The call of a function that is a constant of the program."""
    constant = builder.nodes("prim::Constant", [], [FunctionType(function)])
    constant.s_("name", name)  # type: ignore[attr-defined]
    return builder.node("prim::CallFunction", [constant.output(), *inputs], result)


def _values(builder: Builder, args: Arguments, kwargs: Keywords) -> tuple[list[Value], dict[str, Value]]:
    return [each.value(builder) for each in args], {name: each.value(builder) for name, each in kwargs.items()}


def _result(schema: FunctionSchema) -> Type:
    return schema.returns[0].type if schema.returns else NoneType.get()


class Method(Sugar):
    """A method of a value of a class."""

    kind = "method"

    def __init__(self, owner: Value, name: str, schema: FunctionSchema | None = None, function: Compiled | None = None):
        self._owner, self._name, self._schema, self.function = owner, name, schema, function
        self.bound = (owner,)

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        schema = self._schema if self.function is None else builder.schema_of(self.function)
        assert schema is not None
        values, named = _values(builder, args, kwargs)
        inputs = call_inputs(builder, schema, [self._owner, *values], named, builder.place)
        node = builder.nodes("prim::CallMethod", inputs, [_result(schema)])
        node.s_("name", self._name)  # type: ignore[attr-defined]
        return Simple(node.output())


class Overloaded(Sugar):
    """A function that is compiled for several types: the first is called that takes the arguments as they are, or the
    last."""

    kind = "function"

    def __init__(self, choices: Sequence[Function | Method]) -> None:
        self._choices = choices

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        values, named = _values(builder, args, kwargs)
        given, words = [Simple(each) for each in values], {name: Simple(each) for name, each in named.items()}
        kinds = {name: each.type() for name, each in named.items()}
        for choice in self._choices[:-1]:
            assert choice.function is not None
            schema = builder.schema_of(choice.function)
            if takes(schema, [each.type() for each in (*choice.bound, *values)], kinds):
                return choice.call(builder, given, words)
        return self._choices[-1].call(builder, given, words)


def _class_attribute(builder: Builder, owner: Value, kind: ScriptClass, name: str) -> Sugar | None:
    if name in kind.attributes:
        node = builder.nodes("prim::GetAttr", [owner], [kind.attributes[name].type])
        node.s_("name", name)  # type: ignore[attr-defined]
        return Simple(node.output().setDebugName(f"_{name}" if name[:1].isdigit() else name))
    if name in kind.constants:
        return Simple(builder.constant(kind.constants[name].value, kind.constants[name].type))
    fixed = getattr(kind, "fixed", {})
    if name in fixed:
        return Simple(builder.constant(fixed[name]))
    order = _order(owner)
    if order is not None and name in ("keys", "values", "items"):
        return Parts(owner, name)
    if name in kind.methods:
        return Method(owner, name, function=kind.methods[name])
    found: Sugar | None = builder.python_method(owner, kind, name)
    return found


class Parts(Sugar):
    """`keys`, `values` and `items` of a module that is a dict of modules."""

    kind = "method"

    def __init__(self, owner: Value, what: str) -> None:
        self._owner, self._what = owner, what

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        names = _order(self._owner) or []
        keys: list[Sugar] = [Simple(builder.constant(name)) for name in names]
        values = [Simple(self._owner).attribute(builder, name) for name in names]
        pairs: list[Sugar] = [Tuple(pair) for pair in zip(keys, values)]
        return Tuple({"keys": keys, "values": values, "items": pairs}[self._what])


def _constructor(kind: NamedTupleType) -> FunctionSchema:
    """What makes a tuple with names: the last of its elements may have defaults."""
    required = len(kind.fields) - len(kind.defaults)
    arguments = [Argument(name, part) for name, part in zip(kind.fields[:required], kind.parts)]
    arguments += [
        Argument(name, part, default=default)
        for name, part, default in zip(kind.fields[required:], kind.parts[required:], kind.defaults)
    ]
    return FunctionSchema(kind.name(), "", arguments, [Argument("", kind)])


class Class(Sugar):
    """A class of the program: calling it makes a value of it."""

    kind = "class"

    def __init__(self, type_: Type) -> None:
        self.type = type_

    def call(self, builder: Builder, args: Arguments, kwargs: Keywords) -> Sugar:
        if isinstance(self.type, NamedTupleType):
            values, named = _values(builder, args, kwargs)
            inputs = call_inputs(builder, _constructor(self.type), values, named, builder.place)
            return Simple(builder.node("prim::TupleConstruct", inputs, self.type))
        if isinstance(self.type, EnumType):
            raise builder.error(f"Enum values are named, not called: {self.type}")
        made = Simple(builder.node("prim::CreateObject", [], self.type))
        if "__init__" in getattr(self.type, "methods", ()):
            made.attribute(builder, "__init__").call(builder, args, kwargs)
        return made

    def attribute(self, builder: Builder, name: str) -> Sugar:
        if isinstance(self.type, EnumType) and name in self.type.members:
            return EnumMember(self.type, self.type.python[name])
        if name == "__new__":  # how programs that were saved make a value
            return Form("new")
        return super().attribute(builder, name)


class EnumMember(Sugar):
    """One of the values of an enum."""

    kind = "enum value"

    def __init__(self, type_: EnumType, member: Any) -> None:
        self._type, self._member = type_, member

    def value(self, builder: Builder) -> Value:
        node = builder.nodes("prim::Constant", [], [self._type])
        node.ival_("value", self._member)  # type: ignore[attr-defined]
        return node.output()

    def attribute(self, builder: Builder, name: str) -> Sugar:
        return Simple(self.value(builder)).attribute(builder, name)


def present(kind: Type) -> Type:
    """A type without None."""
    if isinstance(kind, OptionalType):
        return kind.getElementType()
    if isinstance(kind, UnionType):
        made: Type = UnionType([choice for choice in kind.choices() if not isinstance(choice, NoneType)])
        return made
    return kind
