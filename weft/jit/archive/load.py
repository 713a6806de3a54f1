"""Programs read from archives: what `weft.jit.save` and PyTorch's `torch.jit.save` wrote. Nothing in a file is run."""

from __future__ import annotations

import io
from collections.abc import MutableMapping
from typing import Any

from ...base.errors import InvalidType
from ...eager.archive.errors import ArchiveError
from ...eager.archive.extra_files import check_extra_files, fill_extra_files
from ...eager.archive.file_reader import PyTorchFileReader
from ..modules import ScriptModule
from .data import Values, check_tree
from .first_format import read_first_format
from .program import Program
from .sources import Sources


def load(
    f: Any,
    map_location: Any = None,
    _extra_files: MutableMapping[str, str] | None = None,
    _restore_shapes: bool = False,
) -> ScriptModule:
    """Reads a module from a path or from a file that can seek.

    Functions are compiled when they are first called. `map_location` says where tensors go, `_extra_files` names text
    files in the archive, whose contents are filled in.

    >>> import weft
    >>> file = io.BytesIO()
    >>> weft.jit.save(weft.jit.script(weft.nn.Linear(2, 1)), file)
    >>> print(load(file).code)
    def forward(self,
        input: Tensor) -> Tensor:
      weight = self.weight
      bias = self.bias
      return torch.linear(input, weight, bias)
    <BLANKLINE>
    """
    if _extra_files is not None:
        check_extra_files(_extra_files)
    with PyTorchFileReader(f) as archive:
        module = _read(archive, map_location)
        if _extra_files is not None:
            fill_extra_files(archive, _extra_files)
    return module


def _read(archive: PyTorchFileReader, map_location: Any) -> ScriptModule:
    if archive.has_record("model.json"):
        module = read_first_format(archive, map_location)
    elif not archive.has_record("constants.pkl") or not archive.has_record("data.pkl"):
        raise ArchiveError(
            "the file is no archive of a program",
            why="it has no constants.pkl",
            hint="weft.load reads what torch.save wrote",
        )
    else:
        module = _read_module(archive, map_location)
    check_tree(module)
    return module


def _read_module(archive: PyTorchFileReader, map_location: Any) -> ScriptModule:
    # All of it now: functions are compiled when somebody calls them, and the file may be closed by then.
    files = {name: archive.get_record(name) for name in archive.get_all_records() if name.startswith("code/")}
    sources = Sources(files.get)
    program = Program(sources, archive.version)
    values = Values(archive, program, map_location)
    constants = values.read("constants.pkl", "constants")
    if not isinstance(constants, tuple):
        raise ArchiveError(f"constants.pkl is a {type(constants).__name__}, not a tuple")
    program.constants = constants
    module = values.read("data.pkl", "data")
    if not isinstance(module, ScriptModule):
        raise ArchiveError(f"data.pkl is a {type(module).__name__}, not a module")
    return module


def import_ir_module(
    cu: Any, filename: str, map_location: Any = None, extra_files: Any = None, restore_shapes: bool = False
) -> ScriptModule:
    """Reads a module from a path."""
    return load(filename, map_location, extra_files, restore_shapes)


def import_ir_module_from_buffer(
    cu: Any, buffer: bytes, map_location: Any = None, extra_files: Any = None, restore_shapes: bool = False
) -> ScriptModule:
    """Reads a module from bytes."""
    if not isinstance(buffer, bytes | bytearray | memoryview):
        raise InvalidType(f"a buffer is bytes, not a {type(buffer).__name__}")
    return load(io.BytesIO(buffer), map_location, extra_files, restore_shapes)
