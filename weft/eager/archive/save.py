"""save: an object goes to a path or a file, as an archive that PyTorch opens."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from ...base.errors import InvalidValue, Unsupported
from .errors import NotAFile
from .extra_files import check_extra_files, write_extra_files
from .file_writer import PyTorchFileWriter, archive_name
from .legacy import write_legacy
from .pickle_write import Pickler
from .reduce import StorageTable
from .replace import replacing


def save(
    obj: Any,
    f: Any,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
    _extra_files: Mapping[str, str] | None = None,
) -> None:
    """Writes data with tensors in it: to a path, which holds the old file or the new one whatever
    happens, or to an object with a `write` method. `_extra_files` are texts by name that go into
    the archive beside the data; `load` gives them back.

    >>> import io, weft
    >>> file = io.BytesIO()
    >>> weft.save({"weight": weft.tensor([1.0, 2.0])}, file)
    >>> file.getvalue()[:4]
    b'PK\\x03\\x04'
    """
    if pickle_module is not None:
        raise Unsupported("saving by another module than weft's own")
    if pickle_protocol != 2:
        raise InvalidValue(f"weft writes pickle protocol 2, not {pickle_protocol!r}")
    extra = {} if _extra_files is None else _extra_files
    check_extra_files(extra)
    if extra and not _use_new_zipfile_serialization:
        raise InvalidValue("the format before zip has no place for extra files")
    write = _write_zip if _use_new_zipfile_serialization else _write_old
    if isinstance(f, (str, os.PathLike)):
        path = os.fspath(f)
        with replacing(path) as file:
            write(obj, file, archive_name(path), extra)
    elif callable(getattr(f, "write", None)):
        write(obj, f, "archive", extra)
    else:
        raise NotAFile("expected 'f' to be string, path, or a file-like object with a 'write' attribute")


def _write_old(obj: Any, file: Any, name: str, extra: Mapping[str, str]) -> None:
    write_legacy(obj, file)


def _write_zip(obj: Any, file: Any, name: str, extra: Mapping[str, str]) -> None:
    table = StorageTable()
    content = Pickler(table.reduce).dump(obj)
    archive = PyTorchFileWriter(file, name=name)
    archive.write_record("data.pkl", content)
    archive.write_record(".format_version", b"1")
    archive.write_record(".storage_alignment", b"64")
    archive.write_record("byteorder", sys.byteorder.encode())
    for key, storage, _ in table.storages:
        archive.write_record(f"data/{key}", storage)
    write_extra_files(archive, extra)
    archive.write_end_of_file()
