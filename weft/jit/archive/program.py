"""The classes and functions of an archive: made of their definitions when they are first asked for, and compiled when
they are first run."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base.errors import Error, NotFound, Unsupported
from ...eager.archive.errors import ArchiveError
from ...eager.tensor.device import device as Device
from ..classes import ATTRIBUTE, BUFFER, PARAMETER, EnumType, InterfaceType, NamedTupleType, ScriptClass, is_plain_name
from ..constants import type_of
from ..frontend.annotations import Annotations
from ..frontend.functions import Origin, SourceFunction
from ..frontend.place import Source
from ..functions import Function
from ..ordered_outputs import order_outputs
from ..passes.dead_code import eliminate_dead_code
from ..passes.tuples import lower_simple_tuples
from ..schema import Argument, FunctionSchema, converted
from ..types import Type
from .names import resolver
from .sources import ROOT, Defined, Sources, lines_of, own_part, parsed
from .versions import upgrade_graph, upgrade_source

DEEPEST = 60  # levels of classes in classes
_HOOKS = ("__forward_hooks__", "__forward_pre_hooks__")


class Namespace:
    """What a dotted name of an archive leads to: a class, a function, or more of a name."""

    def __init__(self, program: Program, name: str) -> None:
        self._program, self._name = program, name

    def __getattr__(self, name: str) -> Any:
        if not is_plain_name(name):
            raise AttributeError(name)
        full = f"{self._name}.{name}"
        found = self._program.find(full)
        return Namespace(self._program, full) if found is None else found

    def __repr__(self) -> str:
        return f"<names of the archive below {self._name}>"


class Constants:
    """`CONSTANTS`: what functions of an archive name by a number."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        place = name.removeprefix("c")
        if name == f"c{place}" and place.isdecimal() and len(place) < 10 and int(place) < len(self._values):
            return self._values[int(place)]
        raise AttributeError(f"the archive has {len(self._values)} constants, and no {name!r}")


class ArchivedFunction(SourceFunction):
    """A function of an archive: what it does is what it did in the version that the archive is of."""

    def __init__(self, name: str, origin: Origin, version: int) -> None:
        super().__init__(name, origin)
        self._version = version

    def _emit(self) -> None:
        super()._emit()
        assert self._graph is not None
        upgrade_graph(self._graph, self._version)
        lower_simple_tuples(self._graph)  # `a, b = c, d`
        eliminate_dead_code(self._graph)
        order_outputs(self._graph)


class Program:
    """Types and functions by their qualified names; sources are read as they are needed."""

    def __init__(self, sources: Sources, version: int) -> None:
        self._sources, self._version = sources, version
        self._known: dict[str, Any] = {}
        self._depth = 0  # of classes that are being made
        self.constants: Sequence[Any] = ()

    def find(self, name: str) -> Type | Function | None:
        """A class or a function by its qualified name."""
        if name not in self._known:
            defined = self._sources.find(name)
            if defined is None:
                return None
            if isinstance(defined.node, ast.ClassDef):
                self._make_class(name, defined)
            else:
                self._known[name] = self._function(name, defined.node, defined.source, None)
        found: Type | Function = self._known[name]
        return found

    def class_of(self, name: str) -> Type:
        found = self.find(name)
        if not isinstance(found, Type):
            raise ArchiveError(f"the archive has no class {name!r:.200}")
        return found

    def resolve(self, name: str) -> Any:
        """What a name means in the sources of the archive."""
        if name == "CONSTANTS":
            return Constants(self.constants)
        if name.startswith(ROOT):
            found = self.find(name)
            return Namespace(self, name) if found is None else found
        raise KeyError(name)

    def _types(self, source: Source) -> Annotations:
        return Annotations(source, self.resolve, lambda kind: None)

    # Classes

    def _make_class(self, name: str, defined: Defined) -> None:
        node = defined.node
        assert isinstance(node, ast.ClassDef)
        bases = [base.id if isinstance(base, ast.Name) else "" for base in node.bases]
        if node.keywords or len(bases) > 1 or (bases and bases[0] not in _BASES):
            raise ArchiveError(f"{name} has a base that no class of an archive has", hint=f"it may be {sorted(_BASES)}")
        if self._depth >= DEEPEST:
            raise ArchiveError(f"classes are parts of classes more than {DEEPEST} levels deep", where=name[:200])
        self._depth += 1
        try:
            _BASES[bases[0] if bases else ""](self, name, node, defined.source)
        except Error:
            self._known.pop(name, None)  # it is there before its parts are
            raise
        finally:
            self._depth -= 1

    def _script_class(self, name: str, node: ast.ClassDef, source: Source, is_module: bool = False) -> None:
        made = self._known[name] = ScriptClass(name, is_module)  # before its parts, which may name it
        types, roles, lines = self._types(source), dict[str, str](), lines_of(source.text)
        for statement in node.body:
            if isinstance(statement, ast.FunctionDef):
                full = f"{name}.{statement.name}"
                made.add_method(self._function(full, statement, own_part(statement, lines, source), made))
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                key = statement.target.id
                if statement.value is not None:
                    kind = types.type(statement.annotation)
                    made.add_constant(key, kind, self._converted(statement.value, kind, source))
                else:
                    made.add_attribute(key, types.type(statement.annotation), roles.get(key, ATTRIBUTE))
            elif isinstance(statement, ast.Assign) and _is_annotation(statement.targets[0]):
                key = _subscript(statement.targets[0])
                made.add_attribute(key, types.type(statement.value), roles.get(key, ATTRIBUTE))
            elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                self._listed(made, statement.targets[0].id, self._literal(statement.value, source), roles)
            elif not isinstance(statement, ast.Pass):
                raise ArchiveError(f"class {name} has a {type(statement).__name__} in its body")

    def _listed(self, made: ScriptClass, key: str, names: Any, roles: dict[str, str]) -> None:
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ArchiveError(f"{key} of {made} is no list of names")
        if key in ("__parameters__", "__buffers__"):
            roles |= dict.fromkeys(names, PARAMETER if key == "__parameters__" else BUFFER)
        elif key not in _HOOKS:
            raise ArchiveError(f"class {made} has {key!r:.60}, which no class of an archive has")
        elif names:
            raise Unsupported(f"hooks of {made}: {', '.join(names)}", hint="save the module without its forward hooks")

    def _module(self, name: str, node: ast.ClassDef, source: Source) -> None:
        self._script_class(name, node, source, is_module=True)

    def _named_tuple(self, name: str, node: ast.ClassDef, source: Source) -> None:
        fields, kinds, defaults = [], [], []
        for statement in node.body:
            if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
                raise ArchiveError(f"named tuple {name} has a {type(statement).__name__}")
            fields.append(statement.target.id)
            kinds.append(self._types(source).type(statement.annotation))
            if statement.value is not None:
                defaults.append(self._converted(statement.value, kinds[-1], source))
        if len(set(fields)) != len(fields):
            raise ArchiveError(f"named tuple {name} has a field twice")
        self._known[name] = NamedTupleType(name, fields, kinds, defaults)

    def _enum(self, name: str, node: ast.ClassDef, source: Source) -> None:
        members: dict[str, Any] = {}
        for statement in node.body:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
                raise ArchiveError(f"enum {name} has a {type(statement).__name__}")
            if target.id in members or target.id.startswith("_") or target.id == "mro":
                raise ArchiveError(f"enum {name} cannot have a member {target.id!r}")
            members[target.id] = self._literal(statement.value, source)
        kinds = {type_of(value) for value in members.values()}
        if len(kinds) != 1 or not all(isinstance(value, int | float | str) for value in members.values()):
            raise ArchiveError(f"enum {name} has values of {len(kinds)} types", why="it has those of one")
        self._known[name] = EnumType(name, kinds.pop(), members)

    def _interface(self, name: str, node: ast.ClassDef, source: Source) -> None:
        made = self._known[name] = InterfaceType(name, node.bases[0].id == "ModuleInterface")  # type: ignore[attr-defined]
        for statement in node.body:
            if not isinstance(statement, ast.FunctionDef):
                raise ArchiveError(f"interface {name} has a {type(statement).__name__}")
            made.schemas[statement.name] = self._schema(statement.name, statement, source, made)

    # Functions

    def add_method(self, owner: ScriptClass, name: str, defined: Defined) -> None:
        """A method whose definition stands alone."""
        if not isinstance(defined.node, ast.FunctionDef):
            raise ArchiveError(f"{defined.source.file} has a class {name!r:.60} among methods")
        owner.add_method(self._function(f"{owner.qualified_name()}.{name}", defined.node, defined.source, owner))

    def type_of_text(self, text: str) -> Type:
        """A type of its annotation."""
        tree, _ = parsed(text.encode(), "<type>")
        if len(tree.body) != 1 or not isinstance(tree.body[0], ast.Expr):
            raise ArchiveError(f"{text[:60]!r} is no type")
        return self._types(Source(text, "<type>")).type(tree.body[0].value)

    def _function(self, name: str, node: ast.FunctionDef, source: Source, owner: Type | None) -> Function:
        upgrade_source(node, self._version)
        given = self._schema(node.name, node, source, owner).arguments
        defaults = {argument.name: argument.default_value for argument in given if argument.has_default_value()}
        origin = Origin(node, source, self._types(source), resolver(self), defaults, owner)
        return ArchivedFunction(name, origin, self._version)

    def _schema(self, name: str, node: ast.FunctionDef, source: Source, owner: Type | None = None) -> FunctionSchema:
        """What a function takes and gives, as its definition says: every argument has a type."""
        given, types = node.args, self._types(source)
        if given.vararg or given.kwarg or given.kwonlyargs or given.posonlyargs or node.decorator_list:
            raise ArchiveError(f"{name} takes arguments in a way that no function of an archive does")
        if node.returns is None:
            raise ArchiveError(f"{name} does not say what it gives")
        first = len(given.args) - len(given.defaults)
        arguments = []
        for place, argument in enumerate(given.args):
            if argument.annotation is None and owner is not None and not place:
                arguments.append(Argument(argument.arg, owner))
                continue
            if argument.annotation is None:
                raise ArchiveError(f"argument {argument.arg!r:.60} of {name} has no type")
            kind = types.type(argument.annotation)
            if place < first:
                arguments.append(Argument(argument.arg, kind))
            else:
                value = self._converted(given.defaults[place - first], kind, source)
                arguments.append(Argument(argument.arg, kind, default=value))
        return FunctionSchema(name, "", arguments, [Argument("", types.type(node.returns))])

    # Values that are written down

    def _converted(self, node: ast.expr, kind: Type, source: Source) -> Any:
        return converted(self._literal(node, source), kind)

    def _literal(self, node: ast.expr, source: Source) -> Any:
        """A value that is written down: a number, a text, a container of them, a device, a member of an enum."""
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | complex | str | None):
            return node.value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self._literal(node.operand, source)
            if isinstance(value, int | float | complex):
                return -value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            real, imaginary = self._literal(node.left, source), self._literal(node.right, source)
            if isinstance(real, int | float) and isinstance(imaginary, complex):
                return real + imaginary if isinstance(node.op, ast.Add) else real - imaginary
        if isinstance(node, ast.List):
            return [self._literal(item, source) for item in node.elts]
        if isinstance(node, ast.Tuple):
            return tuple([self._literal(item, source) for item in node.elts])
        if isinstance(node, ast.Dict) and all(key is not None for key in node.keys):
            keys = [self._literal(key, source) for key in node.keys if key is not None]
            return dict(zip(keys, [self._literal(item, source) for item in node.values]))
        if isinstance(node, ast.Name) and node.id in ("inf", "nan"):
            return float(node.id)
        if isinstance(node, ast.Call) and not node.keywords:
            return self._called(node, source)
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith((ROOT, "CONSTANTS")):
            return self._named(ast.unparse(node))
        raise ArchiveError(
            f"{source.file} has {ast.unparse(node)[:60]!r} where a value is", where=f"line {node.lineno}"
        )

    def _called(self, node: ast.Call, source: Source) -> Any:
        name, args = ast.unparse(node.func), node.args
        if name == "annotate" and len(args) == 2:
            return self._converted(args[1], self._types(source).type(args[0]), source)
        values = [self._literal(item, source) for item in args]
        if name == "torch.device" and len(values) == 1 and isinstance(values[0], str):
            return Device(values[0])
        if name == "float" and values in (["inf"], ["-inf"], ["nan"]):
            return float(values[0])
        if name == "complex" and len(values) == 2 and all(isinstance(value, int | float) for value in values):
            return complex(*values)
        if name.startswith(ROOT):
            kind = self._named(name)
            if isinstance(kind, NamedTupleType):
                return converted(tuple(values), kind)
        raise ArchiveError(f"{source.file} calls {name[:60]!r} where a value is", where=f"line {node.lineno}")

    def _named(self, text: str) -> Any:
        first, *others = text.split(".")
        found = self.resolve(first)
        for name in others:
            try:
                found = found.python[name] if isinstance(found, EnumType) else getattr(found, name)
            except (KeyError, AttributeError):
                raise NotFound(f"the archive has no {text[:200]!r}") from None
        return found


def _is_annotation(node: ast.expr) -> bool:
    """`__annotations__["0"]`"""
    return (
        isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Name)
        and node.value.id == "__annotations__"
        and isinstance(node.slice, ast.Constant)
        and isinstance(node.slice.value, str)
    )


def _subscript(node: ast.expr) -> str:
    return node.slice.value  # type: ignore[attr-defined, no-any-return]


_BASES: Mapping[str, Callable[[Program, str, ast.ClassDef, Source], None]] = {
    "": Program._script_class,
    "Module": Program._module,
    "NamedTuple": Program._named_tuple,
    "Enum": Program._enum,
    "Interface": Program._interface,
    "ModuleInterface": Program._interface,
}
