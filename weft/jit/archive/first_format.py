"""Archives of PyTorch 1.0 and 1.1: a tree of modules as JSON, tensors in records of their own, and for each module that
has methods a file of functions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...base.errors import Unsupported
from ...eager.archive.errors import ArchiveError, shown
from ...eager.archive.file_reader import PyTorchFileReader
from ...eager.archive.pickle_read import Maker, Unpickler
from ...eager.archive.rebuild import strided_tensor
from ...eager.archive.storages import place
from ...eager.tensor.tensor import Tensor
from ...eager.tensor.typed_storage import STORAGE_OF
from ...eager.tensor.types import DTYPE_NAMES
from ..classes import BUFFER, PARAMETER, ScriptClass
from ..modules import ScriptModule
from ..types import BoolType, TensorType
from .data import CONTAINERS, DEEPEST
from .fitting import misfit
from .program import Program
from .sources import ROOT, Sources, definitions

MOST_BYTES = 1 << 24  # of model.json
_DTYPES = {
    "FLOAT": "float32",
    "DOUBLE": "float64",
    "FLOAT16": "float16",
    "INT64": "int64",
    "INT32": "int32",
    "INT16": "int16",
    "INT8": "int8",
    "UINT8": "uint8",
    "BYTE": "uint8",
    "BOOL": "bool",
}


def read_first_format(archive: PyTorchFileReader, map_location: Any) -> ScriptModule:
    """The module of an archive with a `model.json`."""
    model = _json(archive)
    tensors = [_tensor(archive, entry, map_location) for entry in _list(model, "tensors")]
    program = Program(Sources(lambda name: None), archive.version)
    program.constants = tensors
    reader = _Reader(archive, program, tensors)
    return reader.modules(_field(model, "mainModule", dict))


def _json(archive: PyTorchFileReader) -> Any:
    size = archive.get_record_size("model.json")
    if size > MOST_BYTES:
        raise ArchiveError(f"model.json has {size} bytes", why=f"{MOST_BYTES} are the most that are read")
    try:
        model = json.loads(archive.get_record("model.json"))
    except (ValueError, RecursionError) as error:
        raise ArchiveError("model.json is no JSON", why=str(error)) from None
    if not isinstance(model, dict):
        raise ArchiveError("model.json is no object")
    return model


def _field(entry: Any, name: str, kind: type, default: Any = None) -> Any:
    """A field of an object; fields that are what they are by default may be left out."""
    value: Any = entry.get(name, default) if isinstance(entry, dict) else None
    if kind is int and isinstance(value, str) and value.isdecimal() and len(value) < 19:  # numbers of 64 bits are text
        value = int(value)
    if type(value) is not kind or (isinstance(value, int) and value < 0):
        raise ArchiveError(f"model.json has {shown(value)} as {name!r}", why=f"it is a {kind.__name__}")
    return value


def _list(entry: Any, name: str) -> list[Any]:
    found: list[Any] = _field(entry, name, list, [])
    return found


def _tensor(archive: PyTorchFileReader, entry: Any, map_location: Any) -> Tensor:
    name = _field(entry, "dataType", str, "UNDEFINED")
    if name not in _DTYPES:
        raise Unsupported(f"tensors of {name!r:.30} in an archive of the first format")
    kind = DTYPE_NAMES[_DTYPES[name]]
    record = _field(_field(entry, "data", dict), "key", str)
    size = archive.get_record_size(record)
    untyped = archive.read_storage(record, size // kind.itemsize, kind.itemsize)
    storage = STORAGE_OF[kind](wrap_storage=place(untyped, _field(entry, "device", str, "cpu"), map_location))
    sizes, strides = (_numbers(entry, field) for field in ("dims", "strides"))
    return strided_tensor(
        storage, _field(entry, "offset", int, 0), sizes, strides, _field(entry, "requiresGrad", bool, False)
    )


def _numbers(entry: Any, name: str) -> tuple[int, ...]:
    return tuple([_field({name: value}, name, int) for value in _list(entry, name)])


class _Reader:
    """Makes modules: each has a class of its own, which its place in the tree names."""

    def __init__(self, archive: PyTorchFileReader, program: Program, tensors: Sequence[Tensor]) -> None:
        self._archive, self._program, self._tensors = archive, program, tensors
        self._attributes: list[Any] | None = None

    def modules(self, main: Mapping[str, Any]) -> ScriptModule:
        root: list[ScriptModule] = []
        waiting: list[tuple[Any, str, list[ScriptModule] | None, ScriptModule | None, int]] = [
            (main, f"{ROOT}.{_name(main)}", root, None, 0)
        ]
        made: list[tuple[ScriptModule, Any, str]] = []
        while waiting:
            entry, path, top, owner, depth = waiting.pop()
            if depth > DEEPEST:
                raise ArchiveError(f"modules are nested more than {DEEPEST} levels deep")
            module = self._values(entry, path)
            made.append((module, entry, path))
            if top is not None:
                top.append(module)
            if owner is not None:
                owner._type.add_attribute(_name(entry), module._type)
                owner.set_attribute(_name(entry), module)
            for part in _list(entry, "submodules")[::-1]:
                waiting.append((part, f"{path}.{_name(part)}", None, module, depth + 1))
        for module, entry, path in made:  # methods are read when the classes of all parts are known
            self._methods(module._type, entry, path)
        return root[0]

    def _values(self, entry: Any, path: str) -> ScriptModule:
        kind = ScriptClass(path, is_module=True)
        module = ScriptModule(kind)
        for parameter in _list(entry, "parameters"):
            name, place_ = _name(parameter), _field(parameter, "tensorId", int, 0)
            if place_ >= len(self._tensors):
                raise ArchiveError(f"{name!r:.60} is tensor {place_} of {len(self._tensors)}")
            kind.add_attribute(
                name, TensorType.get(), BUFFER if _field(parameter, "isBuffer", bool, False) else PARAMETER
            )
            module.set_attribute(name, self._tensors[place_])
        for attribute in _list(entry, "attributes"):
            name, wanted = _name(attribute), self._program.type_of_text(_field(attribute, "type", str))
            value = self._attribute(_field(attribute, "id", int, 0))
            wrong = misfit(value, wanted)
            if wrong is not None:
                raise ArchiveError(f"attribute {name!r:.60} of {path} is no {wanted}", why=wrong)
            kind.add_attribute(name, wanted)
            module.set_attribute(name, value)
        if "training" not in kind.attributes:
            kind.add_attribute("training", BoolType.get())
        return module

    def _attribute(self, number: int) -> Any:
        if self._attributes is None:
            makers = CONTAINERS | {
                "torch.jit._pickle.build_tensor_from_id": Maker("build_tensor_from_id", self._tensor)
            }
            content = self._archive.get_record("attributes.pkl")

            def find(module: str, name: str) -> Any:
                if f"{module}.{name}" not in makers:
                    raise ArchiveError(f"attributes.pkl names {module}.{name:.100}")
                return makers[f"{module}.{name}"]

            values = Unpickler(content, find, None).load()
            if not isinstance(values, list | tuple):
                raise ArchiveError("attributes.pkl is no list")
            self._attributes = list(values)
        if number >= len(self._attributes):
            raise ArchiveError(f"attribute {number} of {len(self._attributes)}")
        return self._attributes[number]

    def _tensor(self, number: Any) -> Tensor:
        if type(number) is not int or not 0 <= number < len(self._tensors):
            raise ArchiveError(f"tensor {shown(number)} of {len(self._tensors)}")
        return self._tensors[number]

    def _methods(self, kind: ScriptClass, entry: Any, path: str) -> None:
        if "torchscriptArena" not in entry:
            return
        record = _field(_field(entry, "torchscriptArena", dict), "key", str)
        for name, defined in definitions(self._archive.get_record(record), record).items():
            self._program.add_method(kind, name, defined)


def _name(entry: Any) -> str:
    name: str = _field(entry, "name", str)
    if not name or "." in name:
        raise ArchiveError(f"{shown(name)} is no name of a part of a module")
    return name
