"""Programs written as archives that PyTorch reads: their sources, the values of modules, constants, extra files."""

from __future__ import annotations

import enum
import io
import os
import sys
from collections.abc import Mapping
from typing import Any

from ...base.errors import InvalidType, Unsupported
from ...eager.archive.errors import NotAFile
from ...eager.archive.extra_files import check_extra_files, write_extra_files
from ...eager.archive.file_writer import PyTorchFileWriter, archive_name
from ...eager.archive.pickle_write import Pickler, Reduced
from ...eager.archive.reduce import StorageTable
from ...eager.archive.replace import replacing
from ...eager.tensor.parameter import Parameter
from ..class_source import Sources
from ..classes import EnumType, NamedTupleType, ScriptClass
from ..types import DictType, ListType, OptionalType, TupleType, Type
from .versions import version_of

_LISTS = {"int": "build_intlist", "float": "build_doublelist", "bool": "build_boollist", "Tensor": "build_tensorlist"}


def save(m: Any, f: Any, _extra_files: Mapping[str, str] | None = None) -> None:
    """Writes a module, or a function, with all that it needs, to a path or to an object with a `write` method."""
    extra = {} if _extra_files is None else _extra_files
    check_extra_files(extra)
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        with replacing(path) as file:
            _write(m, file, archive_name(path), extra)
    elif callable(getattr(f, "write", None)):
        _write(m, f, "archive", extra)
    else:
        raise NotAFile("expected 'f' to be string, path, or a file-like object with a 'write' attribute")


def saved(m: Any, _extra_files: Mapping[str, str] | None = None) -> bytes:
    """The bytes of the archive of a module."""
    file = io.BytesIO()
    save(m, file, _extra_files)
    return file.getvalue()


def _write(m: Any, file: Any, name: str, extra: Mapping[str, str]) -> None:
    module = m.as_module() if hasattr(m, "as_module") else m
    if not isinstance(getattr(module, "_type", None), ScriptClass):
        raise InvalidType(
            f"a {type(m).__name__} cannot be saved as a program",
            hint="weft.jit.script and weft.jit.trace make programs",
        )
    sources = Sources()
    sources.add(module._type)
    texts = sources.written()
    archive = PyTorchFileWriter(file, name=name)
    archive.set_min_version(version_of(sources.graphs))
    _write_values(archive, "data", module, module._type)
    for path, text in texts.items():
        archive.write_record(f"code/{path}", text.encode())
    _write_values(archive, "constants", tuple(sources.constants), TupleType([]))
    archive.write_record("byteorder", sys.byteorder.encode())
    write_extra_files(archive, extra)
    archive.write_end_of_file()


def _write_values(archive: PyTorchFileWriter, name: str, value: Any, kind: Type) -> None:
    table = StorageTable()
    content = Pickler(_Reducer(table).reduce).dump(_typed(value, kind))
    for key, storage, _ in table.storages:
        archive.write_record(f"{name}/{key}", storage)
    archive.write_record(f"{name}.pkl", content)


class _Reducer:
    """Values of programs as calls of names that PyTorch knows."""

    def __init__(self, table: StorageTable) -> None:
        self._table = table

    def reduce(self, value: Any) -> Any:
        if isinstance(value, Parameter):
            return self._table._tensor(value, value.requires_grad)
        if isinstance(getattr(value, "_type", None), ScriptClass):
            return _object(value)
        if isinstance(value, enum.Enum):
            raise Unsupported(f"{value} cannot be saved", why="its type is not known where it is")
        return self._table.reduce(value)


def _object(value: Any) -> Reduced:
    kind: ScriptClass = value._type
    state = {name: _typed(value.get_attribute(name), slot.type) for name, slot in kind.attributes.items()}
    return Reduced(kind.qualified_name(), (), state, new=True, late=True)


def _typed(value: Any, kind: Type) -> Any:
    """A value as a pickle of a program has it: containers say what they hold."""
    if isinstance(kind, OptionalType):
        return None if value is None else _typed(value, kind.getElementType())
    if isinstance(kind, NamedTupleType):
        return Reduced(kind.qualified_name(), tuple([_typed(item, part) for item, part in zip(value, kind.parts)]))
    if isinstance(value, complex):
        return Reduced("builtins.complex", (value.real, value.imag))
    if isinstance(kind, EnumType):
        return Reduced(kind.qualified_name(), value.value)
    if isinstance(kind, TupleType) and kind.parts:
        return tuple([_typed(item, part) for item, part in zip(value, kind.parts)])
    if isinstance(kind, ListType):
        element = kind.getElementType()
        items = [_typed(item, element) for item in value]
        if str(element) in _LISTS:
            return Reduced(f"torch.jit._pickle.{_LISTS[str(element)]}", (items,))
        return Reduced("torch.jit._pickle.restore_type_tag", (items, kind.annotation_str))
    if isinstance(kind, DictType):
        key, item = kind.parts
        pairs = {_typed(k, key): _typed(v, item) for k, v in value.items()}
        return Reduced("torch.jit._pickle.restore_type_tag", (pairs, kind.annotation_str))
    return value
