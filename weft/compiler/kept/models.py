"""Programs of whole model files, kept on disk for other processes: the content of a file and the options come in; the
program comes out with its constants mapped, and nothing of the model is read but to hash it.

The key is a hash of every byte of the file, the options, the target, and the text of all that makes programs. A file
that is kept holds the key, and checksums of all else (`runtime/artifact.py`)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from weakref import finalize

import numpy as np

from ...base import config
from ...base.dtype import as_dtype, dtype_name
from ...base.errors import Error, RunError
from ...base.file_cache import file_cache
from ...base.machine import installed
from ...base.stages import has_foreign_rules, is_watched
from ...base.target import Target
from ...runtime.artifact import noted_program, write_program
from ...runtime.digests import file_digest
from ...runtime.program import Program
from .fingerprint import MODEL_SOURCES, fingerprint

SUFFIX = ".onnx"  # of files that hold all of a model
SETTINGS = ("kernel_seconds", "isa")  # that decide what is compiled, or refused


class Kept(NamedTuple):
    """A program, and what was noted with it."""

    program: Program
    note: Any


class KeptFile:
    """A model file that stays open: it can be read when others have removed it or put another in its place. Programs
    are kept under its content and the options."""

    def __init__(self, name: str, options: Mapping[str, Any]) -> None:
        self.options = options
        self._given = Path(name).absolute()
        self._handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        finalize(self, os.close, self._handle)
        self._digest = file_digest(self._handle)
        makers = fingerprint(MODEL_SOURCES), installed("llvmlite"), np.__version__
        self._key = json.dumps([self._digest, *makers, _text(options)])

    @property
    def name(self) -> str:
        return self._given.name

    @property
    def path(self) -> Path:
        """Where the file can be read, whatever has its name by now; an error if its content is another."""
        if file_digest(self._handle) != self._digest:
            raise RunError(
                f"the model file {self.name!r} has changed since it was compiled",
                why="its graph and its weights are read again when they are asked for",
                hint="compile it again, or exchange files by renaming",
            )
        return Path(f"/dev/fd/{self._handle}")

    def found(self) -> Kept | None:
        """What is kept for it."""
        disk = file_cache()
        data = None if disk is None else disk.mapped(self._key.encode())
        try:
            made = None if data is None else Kept(*noted_program(data))
            return made if made is not None and made.note["key"] == self._key else None
        except (Error, LookupError, TypeError):
            return None

    def keep(self, program: Program, note: Mapping[str, Any]) -> bool:
        """Keeps a program that was made of the file as it is now, if that is what it was; False if that cannot be."""
        disk = file_cache()
        if disk is None or not self._is_unchanged():
            return False
        size = sum(array.nbytes for array in program.constants) + sum(map(len, program.objects))
        full = {**note, "key": self._key}
        return disk.put_mapped(self._key.encode(), size, lambda file: write_program(program, file, full))

    def _is_unchanged(self) -> bool:
        try:
            same = os.path.samestat(os.fstat(self._handle), os.stat(self._given))
            return same and file_digest(self._handle) == self._digest
        except OSError:
            return False


def kept_file(model: Any, options: Mapping[str, Any]) -> KeptFile | None:
    """The file of a model whose program may be kept; None where there is none, or where more decides about it than its
    content and the options: rules that users registered, parameters that they give. Where somebody wants to see how it
    is compiled, it has to be."""
    if not isinstance(model, (str, os.PathLike)) or not os.fspath(model).lower().endswith(SUFFIX):
        return None
    if options["params"] or options["specialise"] != "never" or has_foreign_rules():
        return None
    if not config.get("cache") or config.get("debug") or is_watched() or not hasattr(os, "preadv"):
        return None
    try:
        return KeptFile(os.fspath(model), options) if Target.create(options["target"]).kind == "cpu" else None
    except (OSError, TypeError, ValueError, AttributeError, Error):  # whoever compiles it will tell
        return None


def _text(options: Mapping[str, Any]) -> str:
    """Options as text: what JSON has, and dtypes by name; TypeError for others."""
    shapes = {name: [_dim(dim) for dim in shape] for name, shape in (options["shape"] or {}).items()}
    dtypes = {name: dtype_name(as_dtype(dtype)) for name, dtype in (options["dtype"] or {}).items()}
    rest = [options["precision"], options["opt_level"], str(Target.create(options["target"]))]
    return json.dumps([shapes, dtypes, *rest, sys.byteorder, *map(config.get, SETTINGS)])


def _dim(dim: Any) -> int | str | None:
    return dim if dim is None or isinstance(dim, str) else int(dim)
