"""The values of an archive: pickles, of which nothing is run, with objects of the classes that its sources define."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from ...base.errors import Unsupported
from ...eager.archive.allowed import find_global
from ...eager.archive.errors import ArchiveError, UnsafeContent, shown
from ...eager.archive.file_reader import PyTorchFileReader
from ...eager.archive.pickle_read import Maker, Unpickler
from ...eager.archive.storages import StorageId, faced, parse_id, place, swap_bytes
from ...eager.tensor.parameter import Parameter
from ...eager.tensor.tensor import Tensor
from ..classes import PARAMETER, EnumType, NamedTupleType, ScriptClass, ScriptObject
from ..modules import ScriptModule
from ..types import Type
from .fitting import misfit
from .program import Program

MOST_BYTES, MOST_GROWTH = 1 << 24, 16  # of a pickle: a byte of it can become an object of a hundred bytes
_ELEMENTS = ("int", "double", "bool", "tensor", "complex")
DEEPEST = 200  # levels of modules in modules
_STATE = ("__getstate__", "__setstate__")
# Names of PyTorch's that values of a program are made of.
_PLAIN = frozenset(["collections.OrderedDict", "builtins.complex", "torch.device"])


def _as_list(values: Any) -> list[Any]:
    if type(values) is not list:
        raise ArchiveError(f"a list is made of a {type(values).__name__}")
    return values


def _tagged(value: Any, tag: Any) -> Any:
    """A container with the text of its type, which the attribute that holds it has as well."""
    if type(tag) is not str or type(value) not in (list, dict):
        raise ArchiveError("a type is given to something that is no container")
    return value


# Names by which pickles make containers of one type.
CONTAINERS = {f"torch.jit._pickle.build_{kind}list": Maker(f"build_{kind}list", _as_list) for kind in _ELEMENTS}
CONTAINERS["torch.jit._pickle.restore_type_tag"] = Maker("restore_type_tag", _tagged)


class Values:
    """Reads the pickles of an archive."""

    def __init__(self, archive: PyTorchFileReader, program: Program, map_location: Any) -> None:
        self._archive, self._program, self._map_location = archive, program, map_location
        self._makers: dict[str, Maker] = {}
        self._foreign = _byte_order(archive) != sys.byteorder
        self._parameters: dict[int, tuple[Tensor, Parameter]] = {}
        self._unfinished: dict[int, Any] = {}  # objects that have no state yet

    def read(self, name: str, folder: str) -> Any:
        """The value of a pickle, whose tensors are in a folder."""
        size, whole = self._archive.get_record_size(name), self._archive.length
        if size > max(MOST_BYTES, MOST_GROWTH * whole):
            raise ArchiveError(f"{name} unpacks to {size} bytes in an archive of {whole} bytes")
        content = self._archive.get_record(name)
        storages: dict[str, tuple[StorageId, Any]] = {}
        machine = Unpickler(content, self._find, lambda identity: self._storage(identity, folder, storages))
        value = machine.load()
        if machine.position != len(content):
            raise ArchiveError(f"{name} has bytes after its end")
        if self._unfinished:
            raise ArchiveError(f"{name} has an object without attributes: {next(iter(self._unfinished.values()))!r}")
        return value

    # Tensors

    def _storage(self, identity: Any, folder: str, storages: dict[str, tuple[StorageId, Any]]) -> Any:
        found = parse_id(identity, 5)
        if found.key not in storages:
            untyped = self._archive.read_storage(f"{folder}/{found.key}", found.numel, found.itemsize)
            if self._foreign:
                swap_bytes(untyped, found)
            storages[found.key] = found, faced(found, place(untyped, found.location, self._map_location))
        known, storage = storages[found.key]
        if known != found:
            raise ArchiveError(f"storage {shown(found.key)} is described in two ways")
        return storage

    # Names

    def _find(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in CONTAINERS:
            return CONTAINERS[full]
        if (
            full in _PLAIN
            or module == "torch._utils"
            or (module == "torch" and name.endswith("Storage"))
            or full == "torch.storage.UntypedStorage"
        ):
            return find_global(module, name)
        if full not in self._makers:
            kind = self._program.find(full) if module.partition(".")[0].startswith("__torch__") else None
            if not isinstance(kind, Type):
                raise UnsafeContent(f"the archive names {full[:200]!r}", why="it is no class of its sources")
            self._makers[full] = self._maker(full, kind)
        return self._makers[full]

    def _maker(self, name: str, kind: Type) -> Maker:
        if isinstance(kind, EnumType):
            return Maker(name, lambda value: _member(kind, value), takes_one=True)
        if isinstance(kind, NamedTupleType):
            return Maker(name, lambda *values: _named(kind, values))
        if not isinstance(kind, ScriptClass):
            raise ArchiveError(f"{name} has no values")
        if any(state in kind.methods for state in _STATE):
            raise Unsupported(f"{name} has a state of its own", why="its __setstate__ would run while it is loaded")
        return Maker(name, _refuse, self._fill, lambda: self._started(kind))

    def _started(self, kind: ScriptClass) -> Any:
        made: Any = ScriptModule(kind) if kind.is_module else ScriptObject(kind)
        self._unfinished[id(made)] = made
        return made

    def _fill(self, made: Any, state: Any) -> None:
        """Gives an object its attributes: all that its class has, and no others, each of its type."""
        kind: ScriptClass = made._type
        if self._unfinished.pop(id(made), None) is None:
            raise ArchiveError(f"a {kind} has two states")
        if type(state) is not dict or not all(type(name) is str for name in state):
            raise ArchiveError(f"the state of a {kind} is no attributes by name")
        for name in state:
            if name not in kind.attributes:
                raise ArchiveError(f"a {kind} has a value for {name!r:.60}, which its class does not name")
        for name, slot in kind.attributes.items():
            if name not in state:
                raise ArchiveError(f"a {kind} has no value for its attribute {name!r:.60}")
            wrong = misfit(state[name], slot.type)
            if wrong is not None:
                raise ArchiveError(f"attribute {name!r:.60} of a {kind} is no {slot.type}", why=wrong)
            made.set_attribute(name, self._parameter(state[name]) if slot.kind == PARAMETER else state[name])

    def _parameter(self, tensor: Any) -> Any:
        """The parameter that a tensor is, the same wherever the file refers to the tensor."""
        if not isinstance(tensor, Tensor):
            return tensor
        if id(tensor) not in self._parameters:
            self._parameters[id(tensor)] = tensor, Parameter(tensor, tensor.requires_grad)
        return self._parameters[id(tensor)][1]


def _refuse(*arguments: Any) -> Any:
    raise UnsafeContent("an object of a program is made without a call")


def _member(kind: EnumType, value: Any) -> Any:
    for member in kind.python:
        if type(member.value) is type(value) and member.value == value:
            return member
    raise ArchiveError(f"enum {kind} has no member of the value {shown(value)}")


def _named(kind: NamedTupleType, values: tuple[Any, ...]) -> Any:
    if len(values) != len(kind.parts):
        raise ArchiveError(f"a {kind} of {len(values)} values", why=f"it has {len(kind.parts)}")
    return kind.made(values)


def _byte_order(archive: PyTorchFileReader) -> str:
    if not archive.has_record("byteorder"):
        return "little"
    order = archive.get_record("byteorder")
    if order not in (b"little", b"big"):
        raise ArchiveError(f"Unknown endianness type: {order.decode('utf-8', 'replace'):.20}")
    return order.decode()


def check_tree(module: ScriptModule) -> None:
    """Refuses a module that is part of itself, and trees that are too deep."""
    inside: dict[int, int] = {}  # modules on the way from the root, by their depth
    stack: list[tuple[Any, Callable[[], Any]]] = [(module, iter(module._modules.values()).__next__)]
    finished: set[int] = set()
    inside[id(module)] = 0
    while stack:
        owner, following = stack[-1]
        try:
            part = following()
        except StopIteration:
            stack.pop()
            del inside[id(owner)]
            finished.add(id(owner))
            continue
        if id(part) in inside:
            raise ArchiveError(f"a {part._type} is part of itself")
        if id(part) not in finished:
            if len(stack) >= DEEPEST:
                raise ArchiveError(f"modules are nested more than {DEEPEST} levels deep")
            inside[id(part)] = len(stack)
            stack.append((part, iter(part._modules.values()).__next__))
