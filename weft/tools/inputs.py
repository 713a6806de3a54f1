"""Inputs of models that commands run: arrays and pictures from files, likely shapes for what is open, random numbers
for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..base.dtype import is_float
from ..base.errors import FormatError, InvalidType, NotFound, ShapeError, Unsupported
from ..base.shape import Dim, Shape, is_static
from ..compiler.model import InputSpec
from ..runtime.program import Array, TensorSpec
from .pictures import read_png

ALONE = ""  # the name of an array that is for the only input
RANDOM = "random"  # in place of a file: draw it
RANDOM_INTEGERS = 2  # random integers are below this: 0 and 1 are valid as ids, masks and counts
LIKELY_BATCH, LIKELY_SIDE, LIKELY_EXTENT = 1, 224, 16  # of inputs whose shapes are open
LEVELS = 255  # of a pixel
_OTHER_PICTURES = (".jpg", ".jpeg", ".webp", ".bmp", ".gif")

Spec = InputSpec | TensorSpec


def dims_of(spec: Spec) -> Shape:
    """The shape of an input, in which dimensions may be names or unknown."""
    return spec.dims if isinstance(spec, TensorSpec) else spec.shape


def read_input(path: Path) -> Array | Picture:
    """The array of a .npy file, or a picture (.png)."""
    name = path.name.lower()
    if not path.exists():
        raise NotFound(f"there is no file {path}", hint=f"--input NAME={RANDOM} draws numbers")
    if name.endswith(".png"):
        return Picture(read_png(path).astype("float32") / LEVELS)
    if name.endswith(_OTHER_PICTURES):
        raise Unsupported(f"{path.name!r} is no picture that weft reads", why="it reads PNG", hint="save it as .png")
    return read_array(path)


class Picture(NamedTuple):
    """Pixels of (height, width, channels), from 0 to 1."""

    pixels: Array

    def fitted(self, spec: Spec) -> Array:
        """As an input of a model: a batch of one, channels first or last, of its size and colours. Where the model
        leaves the size open, the picture keeps its own.

        >>> Picture(np.ones((4, 4, 3), "float32")).fitted(InputSpec("x", ("n", 1, 2, 2), None)).shape
        (1, 1, 2, 2)
        """
        dims = dims_of(spec)
        if dims is None or len(dims) not in (3, 4):
            raise ShapeError(f"input {spec.name!r} is no picture", why=f"it is {spec}", hint="give it as .npy")
        last = dims[-1] in (1, 3) and dims[-3] not in (1, 3)
        height, width = (dims[-3], dims[-2]) if last else (dims[-2], dims[-1])
        pixels = _with_channels(self.pixels, dims[-1] if last else dims[-3])
        pixels = _resized(pixels, *[size if isinstance(size, int) else None for size in (height, width)])
        made = pixels if last else pixels.transpose(2, 0, 1)
        dtype = spec.dtype if spec.dtype is not None and is_float(spec.dtype) else np.dtype("float32")
        if spec.dtype is not None and not is_float(spec.dtype):
            made, dtype = np.round(made * LEVELS), spec.dtype
        return np.ascontiguousarray(made[None] if len(dims) == 4 else made, dtype)


def _with_channels(pixels: Array, wanted: Dim) -> Array:
    if wanted == 1 and pixels.shape[2] == 3:
        bright: Array = pixels @ np.array([[0.299], [0.587], [0.114]], "float32")  # as people see them
        return bright
    return np.repeat(pixels, 3, axis=2) if wanted == 3 and pixels.shape[2] == 1 else pixels


def _resized(pixels: Array, height: int | None, width: int | None) -> Array:
    """Each axis by the mean of what a new pixel covers, or between neighbours where it is made larger."""
    for axis, size in enumerate((height, width)):
        old = pixels.shape[axis]
        if size is None or size == old or not size:
            continue
        centres = (np.arange(size) + 0.5) * old / size - 0.5
        reach = max(old / size, 1.0)
        weights = np.maximum(reach - np.abs(centres[:, None] - np.arange(old)), 0.0)
        weights /= weights.sum(axis=1, keepdims=True)
        pixels = np.moveaxis(np.tensordot(weights.astype("float32"), pixels, axes=(1, axis)), 0, axis)
    return pixels


def read_array(path: Path) -> Array:
    """A .npy file, read without executing anything it holds."""
    try:
        value = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise NotFound(f"there is no file {path}") from None
    except PermissionError:
        raise
    except (OSError, ValueError, EOFError) as error:
        raise FormatError("this is no .npy file", where=str(path), why=str(error)) from None
    if not isinstance(value, np.ndarray):
        raise FormatError("this holds several arrays", where=str(path), hint="save one with np.save")
    return value


def likely_shapes(inputs: Sequence[Spec], given: Mapping[str, Array] | None = None) -> dict[str, tuple[int, ...]]:
    """Shapes for inputs that are open: a batch of one, images of 224 x 224, and 16 of everything else; a name is one
    number wherever it stands, that of the arrays that are given if it is in one of those.

    >>> likely_shapes([InputSpec("x", ("n", 3, None, None), None), InputSpec("y", ("n", "length"), None)])
    {'x': (1, 3, 224, 224), 'y': (1, 16)}
    """
    known = {name: array.shape for name, array in (given or {}).items()}
    pairs = [pair for spec in inputs for pair in zip(dims_of(spec) or (), known.get(spec.name, ()))]
    names = {dim: size for dim, size in pairs if isinstance(dim, str)}
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
    inputs: Sequence[Spec], known: Mapping[str, Array], shapes: Mapping[str, Sequence[Dim]] | None = None, seed: int = 0
) -> dict[str, Array]:
    """What is known, and random numbers for the other inputs, of these shapes where theirs are open."""
    likely: dict[str, Any] = {**likely_shapes(inputs, known), **(shapes or {})}
    rng = np.random.default_rng(seed)
    arrays = dict(known)
    for spec in inputs:
        if spec.name in known:
            arrays[spec.name] = _of_dtype(known[spec.name], spec)
        else:
            shape = likely.get(spec.name, dims_of(spec))
            drawn = InputSpec(spec.name, None if shape is None else tuple(shape), spec.dtype)
            arrays[spec.name] = random_array(rng, drawn)
    return arrays


def _of_dtype(array: Array, spec: Spec) -> Array:
    """Floats of another width, or integers that fit, as the model takes them: numpy's own defaults are wider."""
    wanted = spec.dtype
    if wanted is None or array.dtype == wanted or array.dtype == object:
        return array
    if is_float(array.dtype) and is_float(wanted):
        return array.astype(wanted)
    integers = array.dtype.kind in "iu" and wanted.kind in "iu"
    return array.astype(wanted) if integers and np.array_equal(array, array.astype(wanted)) else array


def random_array(rng: np.random.Generator, spec: InputSpec) -> Array:
    """Normal numbers, zeros and ones for integers and booleans, or a word for text."""
    shape = likely_shapes([spec]).get(spec.name, spec.shape)
    assert is_static(shape)
    if spec.dtype is None:
        return np.full(shape, "word", object)
    if is_float(spec.dtype):
        return np.asarray(rng.standard_normal(shape)).astype(spec.dtype)
    return np.asarray(rng.integers(0, RANDOM_INTEGERS, shape)).astype(spec.dtype)


def check_compiled_for(inputs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[Dim]]) -> None:
    """Raises if a compiled model has other inputs than those that are given."""
    for spec in inputs:
        given = tuple(shapes.get(spec.name, spec.dims))
        fixed = [(a, b) for a, b in zip(spec.dims, given) if isinstance(a, int)]
        if len(given) != len(spec.dims) or any(a != b for a, b in fixed):
            raise ShapeError(
                f"input {spec.name!r} has shape {shapes[spec.name]}", why=f"the model is compiled for {spec}"
            )


def not_alone(names: Sequence[str]) -> InvalidType:
    """The error for an array without a name where there are several inputs."""
    hint = f"--input {names[0]}=FILE" if names else None
    return InvalidType(f"the model has {len(names)} inputs", why=", ".join(names) or None, hint=hint)
