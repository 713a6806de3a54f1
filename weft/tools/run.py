"""`weft run`: a model file comes in; it is compiled, run, and its outputs and times are shown."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..base.dtype import dtype_name, is_float
from ..base.errors import Error, FormatError, NotFound, ShapeError
from ..base.shape import Dim, Shape, is_static
from ..compiler.model import InputSpec, Model, compile
from ..frontend.files import is_program
from ..runtime.artifact import load
from ..runtime.program import Array, TensorSpec
from .model_files import read_model

FIRST_VALUES = 6
TOP = 5
RANDOM_INTEGERS = 2  # random integers are below this: 0 and 1 are valid as ids, masks and counts
LIKELY_BATCH, LIKELY_SIDE, LIKELY_EXTENT = 1, 224, 16  # of inputs whose shapes are open


def run_model(
    path: Path,
    inputs: Mapping[str, Path],
    shapes: Mapping[str, Sequence[Dim]],
    params: Path | None,
    threads: int | None,
    opt_level: int,
    repeat: int,
    console: Console,
) -> list[Array]:
    """Compiles a model file, or loads a compiled one, runs it `repeat` times and shows what came
    out."""
    arrays = {name: read_array(file) for name, file in inputs.items()}
    known = {**{name: array.shape for name, array in arrays.items()}, **shapes}
    model: Model
    if path.is_file() and is_program(path):
        model = load(path, threads)
        check_compiled_for(model.inputs, known)
    else:
        model = compiled_with_progress(path, known, params, threads, opt_level, console)
    listed = ", ".join(map(str, model.inputs))
    console.print(f"inputs   {listed}", highlight=False, markup=False, soft_wrap=True)
    outputs, seconds = timed(model, complete_inputs(model, arrays, known, console), repeat)
    console.print(str(model.report()), highlight=False, markup=False)
    for name, value in zip(model.outputs, outputs):
        show_output(name, value, console)
    console.print(
        f"time     best {1e3 * min(seconds):.3f} ms, median {1e3 * float(np.median(seconds)):.3f} ms of {repeat}",
        highlight=False,
    )
    return outputs


def read_array(path: Path) -> Array:
    """A .npy file, read without executing anything it holds."""
    try:
        value = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except (OSError, ValueError, EOFError) as error:
        raise FormatError("this is no .npy file", where=str(path), why=str(error)) from None
    if not isinstance(value, np.ndarray):
        raise FormatError("this holds several arrays", where=str(path), hint="save one with np.save")
    return value


def compiled_with_progress(
    path: Path,
    shapes: Mapping[str, Sequence[Dim]],
    params: Path | None,
    threads: int | None,
    opt_level: int,
    console: Console,
) -> Model:
    """The model compiled while a bar counts its kernels; for open shapes likely ones are taken."""
    columns = (TextColumn("compile "), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    hidden = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("compile", total=None)

        def progress(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        def compiled(known: Mapping[str, Sequence[Dim]]) -> Model:
            model = path if params is None else read_model(path, params, known)
            return compile(model, shape=known, threads=threads, opt_level=opt_level, progress=progress)

        model = compiled(shapes)
        free = {name for name, dims in shapes.items() if None in dims}  # which the caller wants to be so
        closed = {name: shape for name, shape in likely_shapes(model.inputs).items() if name not in free}
        if closed:
            note = ", ".join(f"{name} {shape}" for name, shape in closed.items())
            console.print(f"open     taken as {note}; --shape tells others", highlight=False)
            try:
                model = compiled({**shapes, **closed})
            except Error as error:
                name, shape = next(iter(closed.items()))
                error.hint = f"the model may need other shapes: --shape {name}={','.join(map(str, shape))}"
                raise
    return model


def check_compiled_for(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Dim]]) -> None:
    """Raises if a compiled model has other inputs than those that are given."""
    for spec in inputs:
        given = tuple(shapes.get(spec.name, spec.dims))
        fixed = [(a, b) for a, b in zip(spec.dims, given) if isinstance(a, int)]
        if len(given) != len(spec.dims) or any(a != b for a, b in fixed):
            raise ShapeError(
                f"input {spec.name!r} has shape {shapes[spec.name]}", why=f"the model is compiled for {spec}"
            )


def dims_of(spec: InputSpec | TensorSpec) -> Shape:
    """The shape of an input, in which dimensions may be names or unknown."""
    return spec.dims if isinstance(spec, TensorSpec) else spec.shape


def likely_shapes(inputs: Sequence[InputSpec | TensorSpec]) -> dict[str, tuple[int, ...]]:
    """Shapes for inputs that are open: a batch of one, images of 224 x 224, and 16 of everything else; a name is one
    number wherever it stands.

    >>> likely_shapes([InputSpec("x", ("n", 3, None, None), None), InputSpec("y", ("n", "length"), None)])
    {'x': (1, 3, 224, 224), 'y': (1, 16)}
    """
    names: dict[str, int] = {}
    shapes = {}
    for spec in inputs:
        shape = dims_of(spec)
        if is_static(shape):
            continue
        dims: Sequence[Dim] = (None,) if shape is None else shape
        likely = [LIKELY_BATCH, *[LIKELY_SIDE if len(dims) == 4 else LIKELY_EXTENT] * (len(dims) - 1)]
        extents = [names.setdefault(dim, size) if isinstance(dim, str) else size for dim, size in zip(dims, likely)]
        shapes[spec.name] = tuple(dim if isinstance(dim, int) else size for dim, size in zip(dims, extents))
    return shapes


def complete_inputs(
    model: Model, known: Mapping[str, Array], shapes: Mapping[str, Sequence[Dim]], console: Console
) -> dict[str, Array]:
    """What is known, and random numbers for the other inputs, of these shapes where theirs are open."""
    likely = {**likely_shapes(model.inputs), **shapes}
    rng = np.random.default_rng(0)
    arrays = dict(known)
    drawn = [spec for spec in model.inputs if spec.name not in known]
    for spec in drawn:
        shape = likely.get(spec.name, dims_of(spec))
        arrays[spec.name] = random_array(rng, InputSpec(spec.name, None if shape is None else tuple(shape), spec.dtype))
    if drawn:
        console.print("random   " + ", ".join(spec.name for spec in drawn), highlight=False)
    return arrays


def random_array(rng: np.random.Generator, spec: InputSpec) -> Array:
    """Normal numbers, zeros and ones for integers and booleans, or a word for text."""
    shape = likely_shapes([spec]).get(spec.name, spec.shape)
    assert is_static(shape)
    if spec.dtype is None:
        return np.full(shape, "word", object)
    if is_float(spec.dtype):
        return np.asarray(rng.standard_normal(shape)).astype(spec.dtype)
    return np.asarray(rng.integers(0, RANDOM_INTEGERS, shape)).astype(spec.dtype)


def timed(model: Model, inputs: Mapping[str, Array], repeat: int) -> tuple[list[Array], list[float]]:
    """The outputs, and the seconds of each run after a first one."""
    outputs = model.run(inputs)
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        outputs = model.run(inputs)
        seconds.append(time.perf_counter() - start)
    return outputs, seconds


def show_output(name: str, value: Array, console: Console) -> None:
    """Shape, dtype and the first values; of what looks like logits, the largest ones."""
    first = np.array2string(value.reshape(-1)[:FIRST_VALUES], precision=4, separator=", ")
    more = " ..." if value.size > FIRST_VALUES else ""
    kind = f"{dtype_name(value.dtype)}{list(value.shape)}"
    console.print(f"output   {name}: {kind} {first}{more}", highlight=False, markup=False, soft_wrap=True)
    if is_logits(value):
        console.print(f"top {TOP} of {name}", highlight=False, markup=False, soft_wrap=True)
        table = Table("class", "value")
        for label, score in top_classes(value.reshape(-1, value.shape[-1])[0]):
            table.add_row(str(label), f"{score:.4f}")
        console.print(table)


def is_logits(value: Array) -> bool:
    """Whether an output may be scores of classes: a row of floats for each sample."""
    return value.ndim == 2 and value.shape[0] > 0 and value.shape[1] > TOP and is_float(value.dtype)


def top_classes(scores: Array) -> list[tuple[int, float]]:
    """The classes with the highest scores.

    >>> top_classes(np.array([0.1, 3, 2, -1, 5, 0.2]))[:2]
    [(4, 5.0), (1, 3.0)]
    """
    order = np.argsort(-scores.astype("float64"), kind="stable")[:TOP]
    return [(int(label), float(scores[label])) for label in order]
