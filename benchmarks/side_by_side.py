"""One model file run by weft and by ONNX Runtime, each in a process of its own, and how far they agree.

    python benchmarks/side_by_side.py weft model.onnx FOLDER 2

runs the model on FOLDER/in0.npz, in1.npz and so on with one object, writes FOLDER/weft0.npz and so
on, and prints what happened as a line of JSON. `run_apart` does that with limits of time and memory.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from contenders import process

save_arrays, load_arrays = process.save_arrays, process.load_arrays
Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[Mapping[str, Array]], Sequence[Any]]

CLOSE = 1e-3  # largest difference, as a part of the largest magnitude of an output
ALLOWANCE = 4  # or this many times ONNX Runtime's own error against the same model in float64
REPEAT_SECONDS = 1.0


class Limits(NamedTuple):
    seconds: float = 300
    gigabytes: float = 12


class Ran(NamedTuple):
    """What a runtime did with a model: seconds of the first answer with all that was needed for
    it, of a repetition, and of the first answers to the other inputs; or why there is none."""

    first: float = math.nan
    repeat: float = math.nan
    others: tuple[float, ...] = ()
    error: str = ""


# Outputs


def as_arrays(outputs: Sequence[Any]) -> dict[str, Array]:
    """Outputs by their places; a sequence by those of its items, and a map as its keys and values."""
    named: dict[str, Array] = {}
    pending = [(str(i), output) for i, output in enumerate(outputs)][::-1]
    while pending:
        name, value = pending.pop()
        if isinstance(value, Mapping):
            named |= {f"{name} keys": np.array(list(value)), f"{name} values": np.array(list(value.values()))}
        elif isinstance(value, (list, tuple)):
            pending += [(f"{name}.{i}", item) for i, item in enumerate(value)][::-1]
        else:
            named[name] = np.asarray(value)
    return named


# The runtimes


def load_weft(path: Path) -> Run:
    import weft

    return weft.compile(path).run


def load_onnxruntime(path: Path) -> Run:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda arrays: session.run(None, dict(arrays))


LOADERS: dict[str, Callable[[Path], Run]] = {"weft": load_weft, "ort": load_onnxruntime}


def _answer(runtime: str, model: Path, folder: Path, count: int) -> Ran:
    start = time.perf_counter()
    run = LOADERS[runtime](model)
    seconds, repeat = [], math.nan
    for k in range(count):
        inputs = load_arrays(folder / f"in{k}.npz")
        outputs = run(inputs)
        seconds.append(time.perf_counter() - start)
        save_arrays(folder / f"{runtime}{k}.npz", as_arrays(outputs))
        if k == 0:
            repeat = _repeated(run, inputs)
        start = time.perf_counter()
    return Ran(seconds[0], repeat, tuple(seconds[1:]))


def _repeated(run: Run, inputs: Mapping[str, Array]) -> float:
    seconds: list[float] = []
    while sum(seconds) < REPEAT_SECONDS and len(seconds) < 20:
        start = time.perf_counter()
        run(inputs)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def run_apart(runtime: str, model: Path, folder: Path, count: int, limits: Limits) -> Ran:
    """What the runtime does with the model in a process of its own."""
    command = [sys.executable, __file__, runtime, str(model), str(folder), str(count)]
    try:
        done = ask(command, limits)
    except Failed as failure:
        return Ran(error=str(failure))
    answer = dict(done)
    return Ran(**{**answer, "others": tuple(answer["others"])})


class Failed(Exception):
    """A process that gave no answer; its text is one line that says why."""


def ask(command: Sequence[str], limits: Limits) -> Any:
    """The last line of what a command prints, read as JSON."""
    bytes_allowed = int(limits.gigabytes * 2**30)

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (bytes_allowed, bytes_allowed))

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limits.seconds, preexec_fn=limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"no answer in {limits.seconds:.0f} s") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise Failed(lines[-1][:300] if lines else f"ended with status {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


# Agreement


def difference(got: Array, want: Array) -> float:
    """The largest difference as a part of the largest magnitude; infinite where shapes, types, or
    values that must be the same differ."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return math.inf
    if want.dtype.kind not in "fc":
        return 0.0 if np.array_equal(got, want) else math.inf
    exact, measured = ~np.isfinite(want), np.isfinite(want)
    if not np.array_equal(got[exact], want[exact], equal_nan=True) or not np.isfinite(got[measured]).all():
        return math.inf
    if not measured.any():
        return 0.0
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    off = np.abs(got[measured].astype(wide) - want[measured].astype(wide)).max()
    return float(off / max(np.abs(want[measured].astype(wide)).max(), 1e-30))


def differences(folder: Path, left: str, right: str, count: int) -> list[float]:
    """The largest difference of any output, for each input."""
    found = []
    for k in range(count):
        got, want = load_arrays(folder / f"{left}{k}.npz"), load_arrays(folder / f"{right}{k}.npz")
        same = list(got) == list(want)  # else sequences differ in length
        found.append(max((difference(got[name], want[name]) for name in want), default=0.0) if same else math.inf)
    return found


def milliseconds(seconds: float) -> str:
    return "" if math.isnan(seconds) else f"{1e3 * seconds:.1f}" if seconds < 10 else f"{1e3 * seconds:.0f}"


def main() -> None:
    runtime, model, folder, count = sys.argv[1:]
    try:
        answer = _answer(runtime, Path(model), Path(folder), int(count))
    except Exception as error:  # any error of any runtime is a result, told in one line
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(1)
    print(json.dumps(answer._asdict()))
    sys.stdout.flush()
    os._exit(0)  # the answer is given; what a runtime's threads do at the end is not asked


if __name__ == "__main__":
    main()
