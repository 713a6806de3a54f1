"""Models by what they are: which importer reads which file, and what stands in memory."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from ..base.errors import FormatError, InvalidValue, NotFound, Unsupported
from ..base.ndarray import NDArray
from ..base.shape import Dim
from ..core.bulk import collector_paused
from ..core.symbol import Symbol

# end of the name -> (module, function); the first that fits is loaded when a file is opened
IMPORTERS: dict[str, tuple[str, str]] = {
    ".onnx": ("onnx.importer", "from_onnx"),
    "-symbol.json": ("mxnet.importer", "from_mxnet"),
    ".json": ("mxnet.importer", "from_mxnet"),
}
# what other files hold, and what to do
_OTHERS: dict[str, str] = {
    ".params": "parameters are read with the graph beside them: give PREFIX-symbol.json",
    ".pt": "weights alone are no model: torch.onnx.export writes one, as does torch.jit.trace(...).save",
    ".pth": "weights alone are no model: torch.onnx.export writes one, as does torch.jit.trace(...).save",
    ".pb": "write it as ONNX with tf2onnx",
    ".h5": "write it as ONNX with tf2onnx",
    ".keras": "write it as ONNX with tf2onnx",
    ".tflite": "write it as ONNX with tf2onnx",
}

Shapes = Mapping[str, Sequence[Dim]]
Importer = Callable[..., tuple[Symbol, dict[str, NDArray]]]


@collector_paused
def from_file(path: Path, shape: Shapes | None = None, name: str = "") -> tuple[Symbol, dict[str, NDArray]]:
    """The Symbol and parameters of a model file, which may have had another name."""
    _check_file(path)
    name = (name or path.name).lower()
    known = next((row for suffix, row in IMPORTERS.items() if name.endswith(suffix)), None)
    if known is None:
        raise Unsupported(
            f"{path.name!r} is no model file that weft knows",
            why="it reads " + ", ".join(f"*{suffix}" for suffix in IMPORTERS) + "; commands also TorchScript archives",
            hint=_OTHERS.get(path.suffix.lower()),
        )
    module, function = known
    importer: Importer = getattr(import_module(f".{module}", __package__), function)
    return importer(path, shape=shape)


def _check_file(path: Path) -> None:
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    if path.is_dir():
        raise InvalidValue(f"{path} is a folder", hint="give the model file in it")
    if is_program(path):
        raise InvalidValue(f"{path.name!r} is compiled already", hint="weft.runtime.load(path), or weft run")
    if not path.stat().st_size:
        raise FormatError(f"the file {path} is empty")


def is_program(path: Path) -> bool:
    """Whether a file is what `CompiledModel.save` writes, by its contents."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "program.json" in archive.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def from_memory(model: object, shape: Shapes | None = None) -> tuple[Symbol, dict[str, NDArray]] | None:
    """The Symbol and parameters of an ONNX model as bytes or a ModelProto; None of others."""
    onnx = sys.modules.get("onnx")  # it is loaded if there is a ModelProto
    is_proto = onnx is not None and isinstance(model, onnx.ModelProto)
    if not is_proto and not isinstance(model, (bytes, bytearray, memoryview)):
        return None
    importer: Importer = import_module(".onnx.importer", __package__).from_onnx
    return importer(model, shape=shape)
