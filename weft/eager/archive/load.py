"""load: what `save`, or PyTorch's `torch.save`, wrote to a path or a file comes back. Nothing in
the file is run."""

from __future__ import annotations

import mmap as memory_map
import os
import sys
from collections.abc import MutableMapping
from typing import Any

from ...base.errors import InvalidValue, Unsupported
from ..tensor.storage import UntypedStorage
from .allowed import find_global
from .errors import ArchiveError, NotAFile, shown
from .extra_files import check_extra_files, fill_extra_files
from .file_reader import PyTorchFileReader
from .legacy import LegacyReader
from .pickle_read import Unpickler
from .storages import StorageId, faced, make_booleans, parse_id, place, swap_bytes

_ZIP = b"PK\3\4"
# A byte of a pickle can become an object of a hundred bytes: one that is packed small is a bomb.
_PICKLE_BYTES, _PICKLE_GROWTH = 1 << 24, 16


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    encoding: str = "utf-8",
    _extra_files: MutableMapping[str, str] | None = None,
) -> Any:
    """Reads data with tensors in it from a path or a file that can seek.

    `map_location` says where storages go: a device, a dict of locations, or a function of a storage
    and its location. Classes of your own need `add_safe_globals`, whatever `weights_only` says.

    Every byte that is read is tested against the checksum in the file. With `mmap` the tensors look
    at the file itself, and their bytes are read when they are used: a file that is cut off, sizes
    that lie and all that is damaged outside of tensors are errors here, too, but a flipped bit
    inside a tensor is not looked for; `weft.serialization.check` does that when it is asked to. What
    is packed, in another byte order, or where no element may start is read at once, as without
    `mmap`. The file must not be changed or shortened while its tensors are in use.

    `_extra_files` names text files that `save` put beside the data: their contents are filled in,
    and those that the file does not have become empty.

    >>> import io, weft
    >>> file = io.BytesIO()
    >>> weft.save({"weight": weft.tensor([1.0, 2.0]), "steps": 3}, file)
    >>> _ = file.seek(0)
    >>> weft.load(file)
    {'weight': tensor([1., 2.]), 'steps': 3}
    """
    if pickle_module is not None:
        raise Unsupported("loading by another module than weft's own")
    if _extra_files is not None:
        check_extra_files(_extra_files)
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as file:
            return _load_file(file, map_location, bool(mmap), encoding, _extra_files)
    if mmap:
        raise InvalidValue("f must be a file path in order to use the mmap argument")
    for needed in ("read", "seek", "tell"):
        if not callable(getattr(f, needed, None)):
            raise NotAFile(
                f"{type(f).__name__!r} object has no attribute {needed!r}. "
                "You can only load from a file that is seekable.",
                hint="read it into an io.BytesIO and load from that",
            )
    return _load_file(f, map_location, False, encoding, _extra_files)


def check(f: str | os.PathLike[str]) -> None:
    """Reads an archive of the zip format and tests every checksum in it: what loading by `mmap` leaves for later.

    >>> import tempfile
    >>> from .save import save
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     save([1, 2], file.name)
    ...     check(file.name)
    """
    with open(f, "rb") as file, PyTorchFileReader(file) as archive:
        archive.check()


def _load_file(file: Any, map_location: Any, mmap: bool, encoding: str, extra: Any) -> Any:
    start = file.tell()
    head = file.read(4)
    file.seek(start)
    if not isinstance(head, bytes):
        raise NotAFile("the file is open for text", hint='open it with mode "rb"')
    if head == _ZIP:
        archive = PyTorchFileReader(file)
        value = _ZipLoader(archive, map_location, mmap, encoding).load()
        if extra is not None:
            fill_extra_files(archive, extra)
        return value
    if mmap:
        raise ArchiveError("mmap can only be used with archives of the zip format")
    if not head:
        raise ArchiveError("the file is empty")
    if extra:
        raise ArchiveError("a file of the format before zip has no extra files")
    return _load_legacy(file, start, map_location, encoding)


def _load_legacy(file: Any, start: int, map_location: Any, encoding: str) -> Any:
    head = file.read(265)
    if head[8:9] == b"{" and head[:1] != b"\x80":
        raise ArchiveError("the file looks like safetensors", hint="weft.serialization.load_safetensors reads it")
    if head[257:262] == b"ustar":
        raise Unsupported("an archive of the tar format, which PyTorch left in 2017")
    file.seek(start)
    reader = LegacyReader(memoryview(_content(file)), map_location, encoding)
    value = reader.load()
    file.seek(start + reader.end)
    return value


def _content(file: Any) -> Any:
    """What is left of a file; that of a real file is not copied."""
    try:
        at = file.tell()
        region = memory_map.mmap(file.fileno(), 0, access=memory_map.ACCESS_READ)
        return memoryview(region)[at:]
    except (AttributeError, OSError, ValueError):
        return file.read()


class _ZipLoader:
    def __init__(self, archive: PyTorchFileReader, map_location: Any, mmap: bool, encoding: str) -> None:
        self._archive = archive
        self._map_location = map_location
        self._mmap = mmap
        self._encoding = encoding
        self._storages: dict[str, tuple[StorageId, Any]] = {}

    def load(self) -> Any:
        if self._archive.has_record("constants.pkl"):
            raise Unsupported("a TorchScript archive", hint="weft.jit.load reads it")
        self._foreign = self._byte_order() != sys.byteorder
        size, whole = self._archive.get_record_size("data.pkl"), self._archive.length
        if size > max(_PICKLE_BYTES, _PICKLE_GROWTH * whole):
            raise ArchiveError(f"data.pkl unpacks to {size} bytes in an archive of {whole} bytes")
        content = self._archive.get_record("data.pkl")
        machine = Unpickler(content, find_global, self._storage, self._encoding)
        value = machine.load()
        if machine.position != len(content):
            raise ArchiveError("data.pkl has bytes after its end")
        return value

    def _byte_order(self) -> str:
        if not self._archive.has_record("byteorder"):
            return "little"
        order = self._archive.get_record("byteorder")
        if order not in (b"little", b"big"):
            raise ArchiveError(f"Unknown endianness type: {order.decode('utf-8', 'replace'):.20}")
        return order.decode()

    def _storage(self, identity: Any) -> Any:
        found = parse_id(identity, 5)
        if found.key not in self._storages:
            self._storages[found.key] = (found, faced(found, self._read(found)))
        known, storage = self._storages[found.key]
        if known != found:
            raise ArchiveError(f"storage {shown(found.key)} is described in two ways")
        return storage

    def _read(self, found: StorageId) -> UntypedStorage:
        name = f"data/{found.key}"
        if self._mmap and not self._foreign:
            untyped = self._archive.map_storage(name, found.numel, found.itemsize)
        else:
            untyped = self._archive.read_storage(name, found.numel, found.itemsize)
        if self._foreign:
            swap_bytes(untyped, found)
        make_booleans(untyped, found)
        moved = place(untyped, found.location, self._map_location)
        if moved.nbytes() != untyped.nbytes():
            raise ArchiveError(f"map_location changed the size of storage {shown(found.key)}")
        return moved
