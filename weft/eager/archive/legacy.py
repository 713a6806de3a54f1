"""The format that PyTorch wrote before its zip archives: pickles one after the other, then the
elements of every storage."""

from __future__ import annotations

import struct
from typing import Any

from ...base.errors import Unsupported
from ..tensor.storage import UntypedStorage, allocate
from .allowed import find_global
from .errors import ArchiveError, shown
from .pickle_read import Unpickler
from .pickle_write import Pickler
from .reduce import StorageTable
from .storages import StorageId, faced, parse_id, place

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_SYSTEM = {"protocol_version": _PROTOCOL, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class LegacyReader:
    """One saved object in a buffer; `end` is then where it stops."""

    def __init__(self, data: memoryview, map_location: Any, encoding: str) -> None:
        self._data = data
        self._map_location = map_location
        self._encoding = encoding
        self._storages: dict[str, tuple[StorageId, UntypedStorage, Any]] = {}
        self._views: dict[tuple[str, int, int], Any] = {}
        self.end = 0

    def load(self) -> Any:
        """The object."""
        self._check_head()
        value = self._unpickle(self._storage)
        self._read_elements(self._unpickle(None))
        for identity, untyped, _ in self._storages.values():
            faced(identity, untyped)
        return value

    def _unpickle(self, persistent: Any) -> Any:
        machine = Unpickler(self._data, find_global, persistent, self._encoding, self.end)
        value = machine.load()
        self.end = machine.position
        return value

    def _check_head(self) -> None:
        magic = self._unpickle(None)
        if type(magic) is not int or magic != _MAGIC:
            raise ArchiveError("Invalid magic number; corrupt file?")
        protocol = self._unpickle(None)
        if type(protocol) is not int or protocol != _PROTOCOL:
            raise ArchiveError(f"Invalid protocol version: {shown(protocol)}")
        system = self._unpickle(None)
        if type(system) is not dict or system.get("little_endian") is not True:
            raise Unsupported("an old archive from a machine of the other byte order")

    def _storage(self, identity: Any) -> Any:
        found = parse_id(identity, 6)
        if found.key not in self._storages:
            size = found.numel * found.itemsize
            if size > len(self._data):
                raise ArchiveError(f"a storage of {size} bytes in a file of {len(self._data)}")
            untyped: UntypedStorage = UntypedStorage._over(allocate(size), resizable=True)
            untyped.fill_(0)
            moved = place(untyped, found.location, self._map_location, is_filled=False)
            self._storages[found.key] = (found, moved, faced(found, moved))
        known, untyped, face = self._storages[found.key]
        if known != found:
            raise ArchiveError(f"storage {shown(found.key)} is described in two ways")
        return face if identity[5] is None else self._part(found, untyped, identity[5])

    def _part(self, found: StorageId, untyped: UntypedStorage, view: Any) -> Any:
        """Some neighbouring elements of a storage."""
        if type(view) is not tuple or len(view) != 3:
            raise ArchiveError("a part of a storage is named wrongly")
        _, offset, size = view
        if type(offset) is not int or type(size) is not int:
            raise ArchiveError("a part of a storage is named wrongly")
        if offset < 0 or size < 0 or offset + size > found.numel:
            raise ArchiveError(f"elements {shown(offset)} to {shown(offset + size)} of a storage")
        where = (found.key, offset, size)
        if where not in self._views:
            width = found.itemsize
            part = untyped[offset * width : (offset + size) * width]
            self._views[where] = faced(found, part)
        return self._views[where]

    def _read_elements(self, keys: Any) -> None:
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise ArchiveError("the list of storages is damaged")
        if len(set(keys)) != len(keys) or set(keys) != set(self._storages):
            raise ArchiveError("the list of storages does not fit the object")
        for key in keys:
            identity, untyped, _ = self._storages[key]
            (numel,) = struct.unpack("<q", self._take(8))
            if numel != identity.numel:
                raise ArchiveError(f"storage {key} has {numel} elements, not {identity.numel}")
            content = self._take(numel * identity.itemsize)
            if untyped.nbytes() != len(content):
                raise ArchiveError(f"map_location changed the size of storage {key}")
            untyped._bytes.data[:] = content

    def _take(self, size: int) -> memoryview:
        part = self._data[self.end : self.end + size]
        if len(part) != size:
            raise ArchiveError(f"file ends {size - len(part)} bytes too early")
        self.end += size
        return part


def write_legacy(value: Any, file: Any) -> None:
    """Saves an object in the old format."""
    table = StorageTable(legacy=True)
    body = Pickler(table.reduce).dump(value)
    for head in (_MAGIC, _PROTOCOL, _SYSTEM):
        file.write(Pickler(table.reduce).dump(head))
    file.write(body)
    file.write(Pickler(table.reduce).dump([key for key, _, _ in table.storages]))
    for _, storage, width in table.storages:
        file.write(struct.pack("<q", storage.nbytes() // width))
        file.write(storage._bytes.data)
