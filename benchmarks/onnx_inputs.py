"""Inputs for a model file of which nothing is known but what it declares.

    python benchmarks/onnx_inputs.py model.onnx FOLDER 2

Dimensions that the model leaves open and the range of whole numbers are guessed from names, and
tried until ONNX Runtime runs the model. What it runs goes to FOLDER/in0.npz, and inputs of other
shapes, where the model takes them, to in1.npz and so on. A line of JSON says which shapes.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import onnxruntime as ort
from contenders import process
from side_by_side import Array, save_arrays

LENGTHS = (96, 576, 24, 512, 1280, 16000, 5, 32, 256)  # tokens, frames, samples
SAMPLES = (16000, 24000, 4000)  # of audio
HEIGHTS = (48, 64, 224, 320, 640, 32, 128)  # lines of text are 32 to 64 high
WIDTHS = {48: 320, 64: 256, 32: 160}  # a line is wider than high, other images are square
VALUES_BELOW = (100, 10, 2, 1)  # whole numbers that index something
AUDIO_WORDS = ("wave", "audio", "speech")
MASK_WORDS = ("mask",)
COUNT_WORDS = ("len", "size", "num_")
STATE_NAMES = ("state", "h", "c", "h0", "c0", "hidden", "cell")  # of which only the batch is open
RATES = {"sr": 16000, "sample_rate": 16000, "sampling_rate": 16000}
MOST_TRIALS = 150


class Guess(NamedTuple):
    """One way to fill what is open."""

    batch: int
    length: int
    height: int
    below: int

    @property
    def width(self) -> int:
        return WIDTHS.get(self.height, self.height)


def guesses(names: Sequence[str]) -> Iterator[Guess]:
    """For inputs of these names. The likeliest first: small batches, then other sizes, then other ranges."""
    audio = any(word in name.lower() for word in AUDIO_WORDS for name in names)
    lengths = SAMPLES if audio else LENGTHS
    count = max(len(lengths), len(HEIGHTS))
    sizes = [(lengths[k % len(lengths)], HEIGHTS[k % len(HEIGHTS)]) for k in range(count)]
    for below, batch, (length, height) in product(VALUES_BELOW, (1, 2), sizes):
        yield Guess(batch, length, height, below)


def dims_of(name: str, declared: Sequence[int | str | None], guess: Guess) -> tuple[int, ...]:
    if name.lower() in STATE_NAMES:
        return tuple(dim if isinstance(dim, int) else guess.batch for dim in declared)
    return tuple(dim if isinstance(dim, int) else _open_dim(axis, declared, guess) for axis, dim in enumerate(declared))


def _open_dim(axis: int, declared: Sequence[int | str | None], guess: Guess) -> int:
    if "batch" in str(declared[axis]).lower() or (axis == 0 and len(declared) > 1):
        return guess.batch
    if len(declared) < 4:
        return guess.length
    image = (guess.height, guess.width)
    channels_last = isinstance(declared[-1], int) and not isinstance(declared[1], int)
    return ((*image, 3) if channels_last else (3, *image))[axis - 1]


def array_of(name: str, kind: str, shape: tuple[int, ...], guess: Guess) -> Array:
    rng = np.random.default_rng(zlib.crc32(f"{name} {shape}".encode()))
    word = name.lower()
    dtype = _dtype(kind)
    if dtype.kind == "O":
        words = np.array(["a", "weft", "of", "threads"], dtype=object)
        return rng.choice(words, shape)
    if dtype.kind == "b":
        return np.asarray(rng.random(shape) < 0.7)
    if dtype.kind not in "iu":
        return np.asarray(0.5 * rng.standard_normal(shape), dtype)
    if word in RATES:
        return np.full(shape, RATES[word], dtype)
    if any(part in word for part in MASK_WORDS):
        return np.ones(shape, dtype)
    if any(part in word for part in COUNT_WORDS):
        return np.full(shape, guess.length, dtype)
    below = 256 if dtype.itemsize == 1 and guess.below > 10 else guess.below
    return np.asarray(rng.integers(0, min(below, np.iinfo(dtype).max + 1), shape), dtype)


KINDS = {"float": "float32", "double": "float64", "string": "object"}


def _dtype(kind: str) -> np.dtype[Any]:
    """The numpy type of ONNX Runtime's "tensor(float)"."""
    word = kind.removeprefix("tensor(").removesuffix(")")
    if word == "bfloat16":
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(KINDS.get(word, word))


def find(path: Path, count: int) -> list[dict[str, Array]]:
    """Inputs of different shapes that ONNX Runtime runs, `count` at most."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    declared = session.get_inputs()
    unknown = [item.type for item in declared if not item.type.startswith("tensor(")]
    if unknown:
        raise ValueError(f"an input is of type {unknown[0]}, for which there are no random values")
    found: list[dict[str, Array]] = []
    last = "nothing was tried"
    tried: set[str] = set()
    open_shapes = any(not isinstance(dim, int) for item in declared for dim in item.shape)
    count = count if open_shapes else 1
    for guess in guesses([item.name for item in declared]):
        made = {i.name: array_of(i.name, i.type, dims_of(i.name, i.shape, guess), guess) for i in declared}
        mark = str([(array.shape, zlib.crc32(process.plain(array).tobytes())) for array in made.values()])
        if mark in tried or any(_shapes(made) == _shapes(other) for other in found):
            continue
        tried.add(mark)
        try:
            outputs = session.run(None, made)
        except Exception as error:  # ONNX Runtime has no common class of errors
            last = " ".join(str(error).split())
        else:
            if any(np.size(y) for y in outputs):
                found.append(made)
        if len(found) == count or len(tried) == MOST_TRIALS:
            break
    if not found:
        raise ValueError(f"ONNX Runtime ran none of {len(tried)} inputs: {last}")
    return found


def _shapes(arrays: Mapping[str, Array]) -> list[tuple[int, ...]]:
    return [array.shape for array in arrays.values()]


def main() -> None:
    path, folder, count = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    try:
        found = find(path, count)
    except Exception as error:
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    for k, arrays in enumerate(found):
        save_arrays(folder / f"in{k}.npz", arrays)
    print(json.dumps([{name: list(array.shape) for name, array in arrays.items()} for arrays in found]))


if __name__ == "__main__":
    main()
