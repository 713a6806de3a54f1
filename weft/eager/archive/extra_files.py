"""ExtraFilesMap: text files that travel beside a saved module, by name."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any

from ...base.errors import InvalidType


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
        self.update(files)

    def __getitem__(self, name: str) -> str:
        return self._files[name]

    def __setitem__(self, name: str, content: str) -> None:
        if not isinstance(name, str) or not isinstance(content, str):
            raise InvalidType(
                f"extra files are text by name, not {type(name).__name__} to "
                f"{type(content).__name__}"
            )
        self._files[name] = content

    def __delitem__(self, name: str) -> None:
        del self._files[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}: {content}" for name, content in self._files.items())
        return f"ExtraFilesMap{{{pairs}}}"
