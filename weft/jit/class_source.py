"""Classes as source, and the files of a program: what a class or a function needs is in the file of its own name."""

from __future__ import annotations

from typing import Any

from ..base.errors import NameTaken, Unsupported
from ..eager.tensor.tensor import Tensor
from .classes import BUFFER, PARAMETER, EnumType, InterfaceType, NamedTupleType, ScriptClass, is_plain_name
from .graph import Graph
from .python_source import INDENT, SourcePrinter
from .source import quoted


class Sources:
    """The files of a program. Each class and each function that is added brings what it uses."""

    def __init__(self) -> None:
        self.constants: list[Tensor] = []
        self.graphs: list[Graph] = []
        self._printers: dict[str, SourcePrinter] = {}
        self._lines: dict[str, list[str]] = {}
        self._known: dict[str, Any] = {}
        self._functions: dict[str, Any] = {}  # by the names that they have here
        self._waiting: list[Any] = []

    def add(self, used: Any) -> None:
        self._waiting.append(used)

    def written(self) -> dict[str, str]:
        """The text of each file, by its path."""
        while self._waiting:
            used = self._waiting.pop(0)
            name = self.name_of(used) if callable(used) else used.qualified_name()
            if name not in self._known:
                self._known[name] = used
                self._write(name, used)
            elif not _is_same(self._known[name], used):
                raise NameTaken(
                    f"two classes are called {name}", why="an archive has one of a name", hint="save them apart"
                )
        return {f"{module.replace('.', '/')}.py": "\n".join([*lines, ""]) for module, lines in self._lines.items()}

    def name_of(self, function: Any) -> str:
        """The name of a function here: another, if a second one has the same."""
        wanted = name = function.qualified_name
        number = 0
        while self._functions.setdefault(name, function) is not function:
            module, _, own = wanted.rpartition(".")
            name = f"{module}.___torch_mangle_{number}.{own}"
            number += 1
        return str(name)

    def _write(self, name: str, used: Any) -> None:
        module, _, own = name.rpartition(".")
        if not module:
            raise Unsupported(f"{name!r} has no place in an archive", why="its name has no module before it")
        printer = self._printers.setdefault(module, SourcePrinter(self.constants, self.name_of))
        lines = self._lines.setdefault(module, [])
        printer.uses = {}
        lines += self._source(printer, used, own)
        self._waiting += printer.uses.values()

    def _source(self, printer: SourcePrinter, used: Any, name: str) -> list[str]:
        if callable(used):  # a function
            self.graphs.append(used.graph)
            return printer.function(used, name)
        if isinstance(used, ScriptClass):
            self.graphs += [method.graph for method in used.methods.values()]
            return class_lines(printer, used)
        if isinstance(used, NamedTupleType):
            return named_tuple_lines(printer, used)
        if isinstance(used, EnumType):
            members = [f"{INDENT}{key} = {printer.literal(value, used.value)}" for key, value in used.members.items()]
            return [f"class {name}(Enum):", *members]
        if isinstance(used, InterfaceType):
            return interface_lines(printer, used)
        raise Unsupported(f"{name} has no source", why=f"it is a {type(used).__name__}")


def _is_same(one: Any, other: Any) -> bool:
    """Whether two uses of a name mean the same; types without methods are the same if they look alike."""
    if one is other:
        return True
    plain = isinstance(one, NamedTupleType | EnumType | InterfaceType)
    return plain and type(one) is type(other) and one.str() == other.str()


def class_lines(printer: SourcePrinter, kind: ScriptClass) -> list[str]:
    """A class: its attributes, constants and methods."""
    lines = [f"class {kind.name()}{'(Module)' if kind.is_module else ''}:"]
    if kind.is_module:
        for title, role in (("__parameters__", PARAMETER), ("__buffers__", BUFFER)):
            names = [f"{quoted(name)}, " for name, slot in kind.attributes.items() if slot.kind == role]
            lines.append(f"{INDENT}{title} = [{''.join(names)}]")
    for name, slot in kind.attributes.items():
        text = printer.type_text(slot.type)
        plain = is_plain_name(name)
        lines.append(f"{INDENT}{name} : {text}" if plain else f"{INDENT}__annotations__[{quoted(name)}] = {text}")
    for name, constant in kind.constants.items():
        value = printer.literal(constant.value, constant.type)
        lines.append(f"{INDENT}{name} : Final[{printer.type_text(constant.type)}] = {value}")
    for name, method in kind.methods.items():
        lines += printer.function(method, name, level=1)
    return lines if len(lines) > 1 else [*lines, f"{INDENT}pass"]


def named_tuple_lines(printer: SourcePrinter, kind: NamedTupleType) -> list[str]:
    first = len(kind.fields) - len(kind.defaults)
    lines = [f"class {kind.name()}(NamedTuple):"]
    for place, (name, part) in enumerate(zip(kind.fields, kind.parts)):
        default = f" = {printer.literal(kind.defaults[place - first], part)}" if place >= first else ""
        lines.append(f"{INDENT}{name} : {printer.type_text(part)}{default}")
    return lines


def interface_lines(printer: SourcePrinter, kind: InterfaceType) -> list[str]:
    lines = [f"class {kind.name()}({'ModuleInterface' if kind.is_module else 'Interface'}):"]
    for name, schema in kind.schemas.items():
        arguments = [
            "self" if argument.name == "self" else f"{argument.name}: {printer.type_text(argument.type)}"
            for argument in schema.arguments
        ]
        lines.append(f"{INDENT}def {name}({', '.join(arguments)}) -> {printer.type_text(schema.returns[0].type)}:")
        lines.append(f"{INDENT * 2}pass")
    return lines
