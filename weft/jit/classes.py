"""Types with names that a program defines: classes with attributes and methods, tuples and enums with names, and
interfaces. A value of a class is a `ScriptObject`; of a named tuple, a named tuple of Python's; of an enum, a member of
an `enum.Enum`."""

from __future__ import annotations

import enum
import keyword
from collections import namedtuple
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..base.errors import InvalidType, NameTaken, NoAttribute
from .schema import Argument, FunctionSchema, converted
from .types import AnyEnumType, ClassType, TupleType, Type

if TYPE_CHECKING:
    from .functions import Function

Text = str  # where `str` is a method
ATTRIBUTE, PARAMETER, BUFFER = "attribute", "parameter", "buffer"


def is_plain_name(name: Text) -> bool:
    """Whether a name can follow a point in source."""
    return name.isidentifier() and not keyword.iskeyword(name)


@dataclass
class AttributeSlot:
    """An attribute that every value of a class has: its type, and whether it is a parameter, a buffer or neither."""

    type: Type
    kind: Text = ATTRIBUTE


@dataclass
class Constant:
    """A value that a class has, the same for all of its values."""

    type: Type
    value: Any


@dataclass(eq=False, repr=False)
class ScriptClass(ClassType):
    """A class of a program: attributes with types, constants, and methods, in the order in which they were added.

    >>> from .types import IntType
    >>> counter = ScriptClass("__torch__.Counter")
    >>> counter.add_attribute("count", IntType.get())
    >>> counter.attribute_type("count"), counter
    (int, __torch__.Counter)
    """

    _name: Text
    is_module: bool = False
    attributes: dict[Text, AttributeSlot] = field(default_factory=dict)
    constants: dict[Text, Constant] = field(default_factory=dict)
    methods: dict[Text, Function] = field(default_factory=dict)
    hooks: dict[Text, list[Text]] = field(default_factory=dict)  # names of methods, by `forward` and `forward_pre`

    def _check_free(self, name: Text) -> None:
        for kind, held in (
            ("an attribute", self.attributes),
            ("a constant", self.constants),
            ("a method", self.methods),
        ):
            if name in held:
                raise NameTaken(f"{self._name} has {kind} {name!r} already", hint="give one of them another name")

    def add_attribute(self, name: Text, kind: Type, role: Text = ATTRIBUTE) -> None:
        self._check_free(name)
        self.attributes[name] = AttributeSlot(kind, role)

    def add_constant(self, name: Text, kind: Type, value: Any) -> None:
        self._check_free(name)
        self.constants[name] = Constant(kind, value)

    def add_method(self, function: Function) -> None:
        self._check_free(function.name)
        self.methods[function.name] = function

    def has_attribute(self, name: Text) -> bool:
        return name in self.attributes

    def attribute_type(self, name: Text) -> Type:
        if name not in self.attributes:
            known = ", ".join(self.attributes) or "none"
            raise NoAttribute(f"{self._name} has no attribute {name!r}", why=f"it has {known}")
        return self.attributes[name].type

    def fitted(self, name: Text, value: Any) -> Any:
        """A value as an attribute has it."""
        kind = self.attribute_type(name)
        try:
            return converted(value, kind)
        except InvalidType as error:
            raise error.at(f"attribute {name!r} of {self._name}") from None

    def find_method(self, name: Text) -> Function | None:
        return self.methods.get(name)

    def method_names(self) -> list[Text]:
        return list(self.methods)

    def create_object(self) -> ScriptObject:
        """A value with no attributes yet."""
        return ScriptObject(self)

    def holds(self, value: Any) -> bool:
        return isinstance(getattr(value, "_type", None), ScriptClass) and value._type == self

    def requires_grad(self) -> bool:
        return True

    def isSubtypeOf(self, other: Type) -> bool:
        if isinstance(other, InterfaceType):
            return all(name in self.methods for name in other.schemas)
        return super().isSubtypeOf(other)


@dataclass(eq=False, repr=False)
class InterfaceType(ClassType):
    """What several classes have in common: methods by their schemas."""

    _name: Text
    is_module: bool = False
    schemas: dict[Text, FunctionSchema] = field(default_factory=dict)

    def is_interface_type(self) -> bool:
        return True

    def holds(self, value: Any) -> bool:
        kind = getattr(value, "_type", None)
        return isinstance(kind, ScriptClass) and kind.isSubtypeOf(self)


class NamedTupleType(TupleType):
    """A tuple whose elements have names.

    >>> from .types import IntType
    >>> pair = NamedTupleType("__torch__.Pair", ["x", "y"], [IntType.get(), IntType.get()])
    >>> pair.str(), pair
    ('NamedTuple(x : int, y : int)', __torch__.Pair)
    >>> pair.python(1, 2)
    Pair(x=1, y=2)
    """

    def __init__(
        self, name: Text, fields: Sequence[Text], elements: Sequence[Type], defaults: Sequence[Any] = ()
    ) -> None:
        super().__init__(elements)
        self._name, self.fields, self.defaults = name, tuple(fields), tuple(defaults)
        # Python's own named tuples have no fields that begin with a line: those get a number as their name.
        self.python: Any = namedtuple(self.name(), self.fields, rename=True, defaults=self.defaults or None)  # type: ignore[misc]

    def name(self) -> Text:
        return self._name.rpartition(".")[2]

    def qualified_name(self) -> Text:
        return self._name

    def made(self, values: Iterable[Any]) -> Any:
        return self.python(*values)

    def schema(self) -> FunctionSchema:
        """What making one takes."""
        first = len(self.fields) - len(self.defaults)
        arguments = [Argument(name, part) for name, part in zip(self.fields[:first], self.parts)]
        rest = zip(self.fields[first:], self.parts[first:], self.defaults)
        arguments += [Argument(name, part, default=default) for name, part, default in rest]
        return FunctionSchema(self.name(), "", arguments, [Argument("", self)])

    def str(self) -> Text:
        return f"NamedTuple({', '.join([f'{n} : {part.str()}' for n, part in zip(self.fields, self.parts)])})"

    @property
    def annotation_str(self) -> Text:
        return self._name


class EnumType(Type):
    """A type of a few values with names.

    >>> from .types import IntType
    >>> color = EnumType("__torch__.Color", IntType.get(), {"RED": 1, "BLUE": 2})
    >>> color.str(), color, color.python.RED.value
    ('Enum<__torch__.Color>', __torch__.Color, 1)
    """

    def __init__(self, name: Text, value: Type, members: Mapping[Text, Any]) -> None:
        self._name, self.value, self.members = name, value, dict(members)
        make: Any = enum.Enum
        self.python: Any = make(self.name(), self.members)

    def name(self) -> Text:
        return self._name.rpartition(".")[2]

    def qualified_name(self) -> Text:
        return self._name

    def str(self) -> Text:
        return f"Enum<{self._name}>"

    def isSubtypeOf(self, other: Type) -> bool:
        return isinstance(other, AnyEnumType) or super().isSubtypeOf(other)

    def holds(self, value: Any) -> bool:
        return isinstance(value, self.python)

    @property
    def annotation_str(self) -> Text:
        return self._name


class ScriptObject:
    """A value of a class that is no module. Attributes are read and set by name; methods run their graphs."""

    _type: ScriptClass
    _values: dict[Text, Any]
    _own: ClassVar[frozenset[Text]] = frozenset(["_type", "_values"])

    def __init__(self, kind: ScriptClass) -> None:
        object.__setattr__(self, "_type", kind)
        object.__setattr__(self, "_values", {})

    def get_attribute(self, name: Text) -> Any:
        """An attribute as programs read it."""
        if name in self._values:
            return self._values[name]
        if name in self._type.constants:
            return self._type.constants[name].value
        known = ", ".join(self._values) or "none that is set"
        raise NoAttribute(f"a {self._type} has no attribute {name!r}", why=f"it has {known}")

    def set_attribute(self, name: Text, value: Any) -> None:
        """Sets an attribute as programs do: the value has the type that the class says."""
        self._values[name] = value

    def find_method(self, name: Text) -> Function | None:
        return self._type.find_method(name)

    def __getattr__(self, name: Text) -> Any:
        if name in ScriptObject._own:  # of an object that is being made
            raise NoAttribute(name)
        function = self._type.find_method(name)
        return self.get_attribute(name) if function is None else function.bound_to(self)

    def __setattr__(self, name: Text, value: Any) -> None:
        self.set_attribute(name, self._type.fitted(name, value))

    def __dir__(self) -> list[Text]:
        return [*object.__dir__(self), *self._values, *self._type.methods]

    def __repr__(self) -> Text:
        return f"<{self._type} object>"
