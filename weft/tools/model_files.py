"""The models that commands are given: files of every kind that weft reads, maybe with parameters beside them, opened
with all shapes closed."""

from __future__ import annotations

import difflib
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import frontend
from ..base.errors import Error, FormatError, InvalidValue, NotFound, ShapeError
from ..base.param_dict import LIST_MAGIC, load_param_dict
from ..base.shape import Dim
from ..compiler.model import CompiledModel, Model, opened
from ..core.json_load import graph_from_json
from ..core.symbol import Symbol
from ..frontend.files import from_file, is_program
from ..runtime.artifact import load
from ..runtime.program import Array
from .inputs import ALONE, RANDOM, Picture, check_compiled_for, complete_inputs, likely_shapes, not_alone
from .progress import Stages
from .scripts import argument_names, likely_script_shapes, load_script, read_script, script_arrays

Shapes = Mapping[str, Sequence[Dim]]


def read_model(path: Path, params: Path | None, shapes: Shapes) -> tuple[Symbol, Mapping[str, Any]]:
    """A model file, or a graph with parameters of MXNet's or of weft's own format beside it."""
    if kind_of(path) == "TorchScript archive":
        return read_script(path, {}, {**shapes, **likely_script_shapes(path, {}, shapes)}).model
    if params is None:
        return from_file(path, shapes)
    for file in (path, params):
        if not file.is_file():
            raise NotFound(f"there is no file {file}")
    if path.suffix.lower() == ".onnx":
        raise InvalidValue(f"{path.name!r} holds its parameters itself", hint="leave --params out")
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
    """A model with all shapes closed and no code yet, the shapes that were taken because nobody said others, and the
    model as it was read, with what it leaves open."""

    model: CompiledModel
    taken: dict[str, tuple[int, ...]]
    read: CompiledModel


def model_as_read(
    model: Any,
    shape: Shapes | None = None,
    params: Path | str | None = None,
    arrays: Mapping[str, Array] | None = None,
    **options: Any,
) -> CompiledModel:
    """Reads a model: a file, or what `weft.compile` takes, with its options. What is open stays so. A program of
    TorchScript is read for inputs like the arrays, or of the shapes that are given, or of likely ones."""
    shapes, dtypes = dict(shape or {}), None
    if kind_of(model) == "TorchScript archive":
        shapes |= likely_script_shapes(Path(model), arrays or {}, shapes)
        model, examples = read_script(Path(model), arrays or {}, shapes)
        shapes = {name: array.shape for name, array in examples.items()}
        dtypes = {name: array.dtype for name, array in examples.items()}
    elif isinstance(model, (str, os.PathLike)):
        _check_source(Path(model))
    source = model if params is None else read_model(Path(model), Path(params), shapes)
    try:
        return opened(source, shape=shapes, dtype=dtypes, **options)
    except (ShapeError, InvalidValue) as error:
        if error.hint is None and shapes:
            error.hint = "give an array or --shape that fits; weft info tells the shapes of inputs"
        raise


def open_model(
    model: Any,
    shape: Shapes | None = None,
    params: Path | str | None = None,
    arrays: Mapping[str, Array] | None = None,
    **options: Any,
) -> Opened:
    """The same, where dimensions that are open get likely numbers, unless the caller says by None that they are to stay
    so."""
    shapes = dict(shape or {})
    if kind_of(model) == "TorchScript archive":
        taken = likely_script_shapes(Path(model), arrays or {}, shapes)
        read = model_as_read(model, {**shapes, **taken}, params, arrays, **options)
        return Opened(read, taken, read)
    first = model_as_read(model, shapes, params, arrays, **options)
    free = {name for name, dims in shapes.items() if None in dims}  # which the caller wants to be so
    taken = {name: dims for name, dims in likely_shapes(first.inputs).items() if name not in free}
    if not taken:
        return Opened(first, {}, first)
    try:
        return Opened(model_as_read(model, {**shapes, **taken}, params, arrays, **options), taken, first)
    except Error as error:
        name, dims = next(iter(taken.items()))
        error.hint = f"the model may need other shapes: --shape {name}={','.join(map(str, dims))}"
        raise


def arrays_of(model: Any, inputs: Mapping[str, Any], shape: Shapes, params: Path | str | None) -> dict[str, Array]:
    """Arrays by name; the model is asked for its inputs only where that is needed to place them."""
    if kind_of(model) == "TorchScript archive":
        return script_arrays(argument_names(load_script(Path(model))), inputs)
    if ALONE not in inputs and not any(isinstance(value, (Picture, str)) for value in inputs.values()):
        return {name: np.asarray(value) for name, value in inputs.items()}
    source = model if params is None else read_model(Path(model), Path(params), shape)
    return placed(inputs, opened(source, shape=shape).inputs)


def placed(inputs: Mapping[str, Any], specs: Sequence[Any]) -> dict[str, Array]:
    """Arrays by the names of inputs, pictures in their shapes."""
    names = [spec.name for spec in specs]
    if ALONE in inputs and len(names) != 1:
        raise not_alone(names)
    given = {names[0]: inputs[ALONE]} if ALONE in inputs else dict(inputs)
    by_name = {spec.name: spec for spec in specs}
    for name in given:
        if name not in by_name:
            raise NotFound(f"the model has no input {name!r}", why="its inputs: " + ", ".join(names))
    return {
        name: value.fitted(by_name[name]) if isinstance(value, Picture) else np.asarray(value)
        for name, value in given.items()
        if not _is_random(value)
    }


def _is_random(value: Any) -> bool:
    return isinstance(value, str) and value == RANDOM


class ReadyModel:
    """A model that can run, and arrays for all of its inputs."""

    def __init__(
        self,
        model: Any,
        inputs: Mapping[str, Any] | None = None,
        shape: Shapes | None = None,
        params: Path | str | None = None,
        threads: int | None = None,
        opt_level: int = 3,
        seed: int = 0,
        stages: Stages | None = None,
        target: str = "cpu",
        precision: str = "fp32",
    ) -> None:
        stages, shapes = stages or Stages(), dict(shape or {})
        stages.begin("read")
        self.taken: dict[str, tuple[int, ...]] = {}
        self.model: Model
        if kind_of(model) == "compiled program":
            loaded = load(model, threads)
            arrays = placed(inputs or {}, loaded.inputs)
            known = {**{name: array.shape for name, array in arrays.items()}, **shapes}
            check_compiled_for(loaded.inputs, known)
            self.model = loaded
        else:
            arrays = arrays_of(model, inputs or {}, shapes, params)
            known = {**{name: array.shape for name, array in arrays.items()}, **shapes}
            how: dict[str, Any] = {"threads": threads, "opt_level": opt_level, "target": target, "precision": precision}
            compiled, self.taken, _ = open_model(model, known, params, arrays, **how)
            stages.begin("compile")
            compiled.prepare_known(stages.progress)
            self.model = compiled
        self.random = [spec.name for spec in self.model.inputs if spec.name not in arrays]
        self.inputs = complete_inputs(self.model.inputs, arrays, known, seed)


def _check_source(path: Path) -> None:
    """What is not there may be called otherwise; what is compiled already has no graph that could be looked at."""
    if not path.exists() and path.parent.is_dir():
        close = difflib.get_close_matches(path.name, [item.name for item in path.parent.iterdir()], 1)
        raise NotFound(f"there is no file {path}", hint=f"did you mean {path.with_name(close[0])}?" if close else None)
    if kind_of(path) == "compiled program":
        raise InvalidValue(
            f"{path.name!r} is compiled already", hint="give the model file; weft run, info and profile take programs"
        )
