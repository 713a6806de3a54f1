"""ExtraFilesMap: text files that travel in an archive beside its data, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from ...base.errors import InvalidType, NotFound
from .errors import ArchiveError
from .file_reader import PyTorchFileReader
from .file_writer import PyTorchFileWriter


class ExtraFilesMap(MutableMapping[str, str]):
    """Names and contents. When loading, the names that are there are filled in.

    >>> files = ExtraFilesMap({"a.txt": "hi"})
    >>> files["b.txt"] = ""
    >>> files
    ExtraFilesMap{a.txt: hi, b.txt: }
    """

    __module__ = "weft"
    __slots__ = ("_files",)

    def __init__(self, files: Any = ()) -> None:
        self._files: dict[str, str] = {}
        try:
            given = dict(files)
        except (TypeError, ValueError):
            raise InvalidType(f"extra files are texts by name, not {files!r:.60}") from None
        self.update(given)

    def __getitem__(self, name: str) -> str:
        return self._files[self._known(name)]

    def __setitem__(self, name: str, content: str) -> None:
        _check(name, content)
        self._files[name] = content

    def __delitem__(self, name: str) -> None:
        del self._files[self._known(name)]

    def _known(self, name: Any) -> str:
        if not isinstance(name, str) or name not in self._files:
            raise NotFound(f"no extra file {name!r:.60}", why=f"there are {list(self._files)}")
        return name

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}: {content}" for name, content in self._files.items())
        return f"ExtraFilesMap{{{pairs}}}"


def _check(name: Any, content: Any) -> None:
    if not isinstance(name, str) or not isinstance(content, str):
        raise InvalidType(f"extra files are text by name, not {type(name).__name__} to {type(content).__name__}")


def check_extra_files(files: Any) -> None:
    """Refuses all but a mapping of texts by name."""
    if not isinstance(files, Mapping):
        raise InvalidType(
            f"_extra_files must be a mapping, not {type(files).__name__}", hint="use weft.ExtraFilesMap or a dict"
        )
    for name, content in files.items():
        _check(name, content)


def write_extra_files(archive: PyTorchFileWriter, files: Mapping[str, str]) -> None:
    """Puts files where PyTorch looks for them."""
    for name, content in files.items():
        archive.write_record(f"extra/{name}", content.encode())


def fill_extra_files(archive: PyTorchFileReader, files: MutableMapping[str, str]) -> None:
    """Fills in the contents of the files that are named; those that are not there become empty."""
    for name in list(files):
        record = f"extra/{name}"
        content = archive.get_record(record) if archive.has_record(record) else b""
        try:
            files[name] = content.decode()
        except UnicodeDecodeError as error:
            raise ArchiveError(f"extra file {name!r} is no text", why=str(error)) from None
