"""The models that commands are given: files of every kind that weft reads, maybe with parameters beside them, opened
with all shapes closed."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .. import frontend
from ..base.errors import Error, FormatError, InvalidValue, NotFound, Unsupported
from ..base.param_dict import LIST_MAGIC, load_param_dict
from ..base.shape import Dim
from ..compiler.model import CompiledModel, opened
from ..core.json_load import graph_from_json
from ..core.symbol import Symbol
from ..frontend.files import from_file, is_program
from .inputs import likely_shapes

Shapes = Mapping[str, Sequence[Dim]]


def read_model(path: Path, params: Path | None, shapes: Shapes) -> tuple[Symbol, Mapping[str, Any]]:
    """A model file, or a graph with parameters of MXNet's or of weft's own format beside it."""
    if params is None:
        return from_file(path, shapes)
    for file in (path, params):
        if not file.is_file():
            raise NotFound(f"there is no file {file}")
    data = params.read_bytes()
    if data[:8] == LIST_MAGIC.to_bytes(8, "little"):
        return _own_graph(path), load_param_dict(data)
    model: tuple[Symbol, Mapping[str, Any]] = frontend.from_mxnet(path, params, shape=shapes)
    return model


def _own_graph(path: Path) -> Symbol:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"cannot read {path}", why=str(error)) from None
    return Symbol(graph_from_json(text).outputs)


def is_script(path: Path) -> bool:
    """Whether a file is an archive of TorchScript, by its contents."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(("/constants.pkl", "/model.json")) for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


def kind_of(model: Any) -> str:
    """What a file holds, in words."""
    if not isinstance(model, (str, os.PathLike)):
        return "model"
    path = Path(model)
    if path.is_file() and is_program(path):
        return "compiled program"
    if path.is_file() and is_script(path):
        return "TorchScript archive"
    name = path.name.lower()
    return "ONNX model" if name.endswith(".onnx") else "MXNet model" if name.endswith("-symbol.json") else "model"


class Opened(NamedTuple):
    """A model with all shapes closed and no code yet, and the shapes that were taken because nobody said others."""

    model: CompiledModel
    taken: dict[str, tuple[int, ...]]


def open_model(
    model: Any,
    shape: Shapes | None = None,
    params: Path | str | None = None,
    threads: int | None = None,
    opt_level: int = 3,
) -> Opened:
    """Reads a model: a file, or what `weft.compile` takes. Dimensions that are open get likely numbers."""
    if isinstance(model, (str, os.PathLike)):
        _check_source(Path(model))
    shapes = dict(shape or {})
    first = _opened(model, shapes, params, threads, opt_level)
    free = {name for name, dims in shapes.items() if None in dims}  # which the caller wants to be so
    taken = {name: dims for name, dims in likely_shapes(first.inputs).items() if name not in free}
    if not taken:
        return Opened(first, {})
    try:
        return Opened(_opened(model, {**shapes, **taken}, params, threads, opt_level), taken)
    except Error as error:
        name, dims = next(iter(taken.items()))
        error.hint = f"the model may need other shapes: --shape {name}={','.join(map(str, dims))}"
        raise


def _opened(model: Any, shapes: Shapes, params: Path | str | None, threads: int | None, level: int) -> CompiledModel:
    source = model if params is None else read_model(Path(model), Path(params), shapes)
    return opened(source, shape=shapes, threads=threads, opt_level=level)


def _check_source(path: Path) -> None:
    """What is compiled already, or is a program of Python, has no graph of weft's that could be looked at."""
    kind = kind_of(path)
    if kind == "compiled program":
        raise InvalidValue(
            f"{path.name!r} is compiled already", hint="give the model file; weft run, info and profile take programs"
        )
    if kind == "TorchScript archive":
        raise Unsupported(
            f"{path.name!r} is a program of TorchScript", hint="weft run and weft info take it; or export it as ONNX"
        )
