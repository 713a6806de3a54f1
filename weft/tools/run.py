"""`weft run`: a model comes in; it is compiled, run, and its outputs and times go out."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import dtype_name, is_float
from ..base.errors import Error, FormatError, NotFound
from ..base.shown import Shown, plain, rows, table
from ..eager.autograd.modes import no_grad
from ..eager.functions.create.data import from_numpy
from ..runtime.program import Array
from .model_files import ReadyModel, Shapes, kind_of
from .progress import Stages
from .scripts import argument_names, complete_arrays, likely_script_shapes, load_script, script_arrays

FIRST_VALUES = 6
TOP = 5
MOST_ROWS = 8  # of which the best classes are shown


class Output(NamedTuple):
    """An output: its values, and of scores of classes the best (label, score) of each row."""

    name: str
    value: Array
    top: list[list[tuple[str, float]]]

    @property
    def kind(self) -> str:
        return f"{dtype_name(self.value.dtype)}{list(self.value.shape)}"


@dataclass(frozen=True, repr=False)
class RunResult(Shown):
    """What a model gave, and how long it took. `random` are inputs that were drawn, `taken` shapes nobody gave."""

    file: str
    inputs: list[str]
    outputs: list[Output]
    random: list[str]
    taken: dict[str, tuple[int, ...]]
    seconds: list[float]
    report: str
    written: list[str]
    unnamed: int = 0  # classes behind the last label

    @property
    def best(self) -> float:
        """Seconds of the best run."""
        return min(self.seconds)

    @property
    def median(self) -> float:
        """Seconds of the run in the middle."""
        return float(np.median(self.seconds))

    def to_dict(self) -> dict[str, Any]:
        told = super().to_dict()
        return {**told, "outputs": [*map(_plain, self.outputs)], "best": self.best, "median": self.median}

    def text(self, width: int | None = None) -> str:
        pairs: list[tuple[str, object]] = [("inputs", ", ".join(self.inputs))]
        pairs += [("open", f"taken as {name} {dims}; --shape tells others") for name, dims in self.taken.items()]
        pairs += [("random", ", ".join(self.random) + "; --input NAME=FILE gives one")] if self.random else []
        pairs += [("code", line) for line in self.report.splitlines()[:3]]
        pairs += [("output", f"{o.name}: {o.kind} {_values(o.value)}") for o in self.outputs]
        pairs += [("labels", f"none for the last {self.unnamed} classes")] if self.unnamed else []
        pairs += [("wrote", path) for path in self.written]
        count = len(self.seconds)
        pairs.append(("time", f"best {1e3 * self.best:.3f} ms, median {1e3 * self.median:.3f} ms of {count}"))
        tables = [_top_table(output, width) for output in self.outputs if output.top]
        return "\n\n".join([rows(pairs), *tables])


def _plain(output: Output) -> dict[str, Any]:
    first = output.value.reshape(-1)[:FIRST_VALUES].tolist()
    kind = {"dtype": dtype_name(output.value.dtype), "shape": list(output.value.shape)}
    made: dict[str, Any] = plain({"name": output.name, **kind, "first": first, "top": output.top})
    return made


def _values(value: Array) -> str:
    first = np.array2string(value.reshape(-1)[:FIRST_VALUES], precision=4, separator=", ")
    return first + (" ..." if value.size > FIRST_VALUES else "")


def _top_table(output: Output, width: int | None) -> str:
    shown = output.top[:MOST_ROWS]
    cells = [(row, label, f"{score:.4f}") for row, best in enumerate(shown) for label, score in best]
    more = f"\n... and {len(output.top) - len(shown)} more rows" if len(output.top) > len(shown) else ""
    return f"top of {output.name}\n" + table(("row", "class", "value"), cells, width) + more


def run_model(
    model: Any,
    inputs: Mapping[str, Any] | None = None,
    *,
    shape: Shapes | None = None,
    params: Path | str | None = None,
    threads: int | None = None,
    precision: str = "fp32",
    opt_level: int = 3,
    repeat: int = 10,
    top: int = TOP,
    labels: Path | str | None = None,
    output: Path | str | None = None,
    seed: int = 0,
    stages: Stages | None = None,
    target: str = "cpu",
) -> RunResult:
    """Compiles a model, or loads a compiled one, and runs it `repeat` times after a first run. Inputs that are not
    given are random; an array under the name "" is for the only input.

    >>> import weft
    >>> x = weft.symbol.Variable("x", shape=(2,))
    >>> run_model(weft.symbol.relu(x, name="y"), {"x": [-1.0, 2.0]}, repeat=1).outputs[0].value
    array([0., 2.], dtype=float32)
    """
    named = read_labels(Path(labels)) if labels is not None else []
    stages = stages or Stages()
    how = (params, threads, opt_level, seed, stages, target, precision)
    try:
        run = _model_run(model, dict(inputs or {}), shape or {}, *how)
    except Error:
        if kind_of(model) != "TorchScript archive":
            raise
        run = _script_run(Path(model), dict(inputs or {}), shape or {}, seed)  # of which weft makes no graph
    stages.begin("run")
    values, seconds = _timed(run.call, repeat, stages)
    made = [Output(name, value, top_rows(value, top, named)) for name, value in zip(run.outputs, values)]
    written = [] if output is None else write_outputs(Path(output), made)
    name = Path(model).name if isinstance(model, (str, Path)) else type(model).__name__
    unnamed = max([o.value.shape[1] - len(named) for o in made if named and o.top], default=0)
    return RunResult(name, run.inputs, made, run.random, run.taken, seconds, run.report(), written, max(unnamed, 0))


class _Run(NamedTuple):
    call: Any  # () -> arrays
    inputs: list[str]
    outputs: list[str]
    random: list[str]
    taken: dict[str, tuple[int, ...]]
    report: Any  # () -> text, when it has run


def _model_run(
    model: Any,
    inputs: dict[str, Any],
    shape: Shapes,
    params: Path | str | None,
    threads: int | None,
    opt_level: int,
    seed: int,
    stages: Stages,
    target: str,
    precision: str,
) -> _Run:
    ready = ReadyModel(model, inputs, shape, params, threads, opt_level, seed, stages, target, precision)
    compiled = ready.model
    outputs = compiled.outputs
    if kind_of(model) == "TorchScript archive":  # which has no names for them
        outputs = _numbered(len(outputs))
    listed = [str(spec) for spec in compiled.inputs]
    call, report = (lambda: compiled.run(ready.inputs)), (lambda: str(compiled.report()))
    return _Run(call, listed, outputs, ready.random, ready.taken, report)


def _numbered(count: int) -> list[str]:
    return ["output"] if count == 1 else [f"output{i}" for i in range(count)]


def _script_run(path: Path, inputs: dict[str, Any], shape: Shapes, seed: int) -> _Run:
    """A program of TorchScript on tensors. It tells no shapes, so all that is a tensor must be given, or its shape."""
    module = load_script(path)
    names = argument_names(module)
    given = script_arrays(names, inputs)
    taken = likely_script_shapes(path, given, shape)
    arrays = complete_arrays(names, given, {**shape, **taken}, seed)
    drawn = [name for name in names if name not in given]

    def call() -> list[Array]:
        with no_grad():
            made = module(*[from_numpy(arrays[name]) for name in names])
        results = made if isinstance(made, (tuple, list)) else [made]
        return [result.detach().numpy() for result in results]

    listed = [f"{name}: {dtype_name(array.dtype)}{list(array.shape)}" for name, array in arrays.items()]
    return _Run(call, listed, _numbered(len(call())), drawn, taken, lambda: "a program of TorchScript, run on tensors")


def _timed(call: Any, repeat: int, stages: Stages) -> tuple[list[Array], list[float]]:
    """The outputs, and the seconds of each run after a first one."""
    outputs = call()
    seconds = []
    for number in range(repeat):
        start = time.perf_counter()
        outputs = call()
        seconds.append(time.perf_counter() - start)
        stages.progress(number + 1, repeat)
    return [np.asarray(value) for value in outputs], seconds


def write_outputs(folder: Path, outputs: Sequence[Output]) -> list[str]:
    """A .npy file for each output, named as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, output in enumerate(outputs):
        path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]', '_', output.name) or number}.npy"
        if str(path) in written:
            path = folder / f"{number}_{path.name}"
        np.save(path, output.value.astype(str) if output.value.dtype == object else output.value)
        written.append(str(path))
    return written


def read_labels(path: Path) -> list[str]:
    """Names of classes: a line each, or JSON: a list, or a dict from numbers."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError("these are no labels", where=str(path), why=str(error)) from None
    if not text.lstrip().startswith(("[", "{")):
        return text.splitlines()
    try:
        found = json.loads(text)
        names = found if isinstance(found, list) else [found[str(number)] for number in range(len(found))]
    except (ValueError, KeyError, RecursionError) as error:
        raise FormatError("these are no labels", where=str(path), why=f"{type(error).__name__}: {error}") from None
    return [str(name[-1] if isinstance(name, list) and name else name) for name in names]


def is_scores(value: Array) -> bool:
    """Whether an output may be scores of classes: a row of floats for each sample."""
    return value.ndim == 2 and value.shape[0] > 0 and value.shape[1] > TOP and is_float(value.dtype)


def top_rows(value: Array, top: int, labels: Sequence[str] = ()) -> list[list[tuple[str, float]]]:
    """The classes with the highest scores, of each row.

    >>> top_rows(np.array([[0.1, 3, 2, -1, 5, 0.2]]), 2, ["a", "b"])
    [[('4', 5.0), ('b', 3.0)]]
    """
    if not top or not is_scores(value):
        return []
    best = np.argsort(-value.astype("float64"), axis=1, kind="stable")[:, :top]
    return [[(_label(int(i), labels), float(row[i])) for i in order] for row, order in zip(value, best)]


def _label(number: int, labels: Sequence[str]) -> str:
    return labels[number] if number < len(labels) else str(number)
