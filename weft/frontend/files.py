"""Model files by their names: which importer reads which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from ..base.errors import NotFound, Unsupported

# end of the name -> (module, function); the first that fits is loaded when a file is opened
IMPORTERS: dict[str, tuple[str, str]] = {
    ".onnx": ("onnx.importer", "from_onnx"),
    "-symbol.json": ("mxnet.importer", "from_mxnet"),
    ".json": ("mxnet.importer", "from_mxnet"),
}


def from_file(path: Path, shape: Mapping[str, Sequence[Any]] | None = None) -> tuple[Any, Any]:
    """The Symbol and parameters of a model file."""
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    name = path.name.lower()
    known = next((row for suffix, row in IMPORTERS.items() if name.endswith(suffix)), None)
    if known is None:
        raise Unsupported(
            f"{path.name!r} is no model file that weft knows",
            why="it reads " + ", ".join(f"*{suffix}" for suffix in IMPORTERS),
        )
    module, function = known
    importer = getattr(import_module(f".{module}", __package__), function)
    return importer(path, shape=shape)
