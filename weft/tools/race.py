"""Runtimes race on a model: every contender is alone in its own process, and only one of them computes at a time:
rounds go from one to the next. Inputs change with every run; outputs are compared."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

START_SECONDS = 240.0  # at most, for loading a model
ANSWER_SECONDS = 120.0
ROUND_SECONDS = 0.5  # what one contender gets in one round
MAX_RUNS = 25
TOLERANCE = 1e-3  # of the output's largest magnitude, between two runtimes in float32
SCRIPT = ("-P", str(Path(__file__).parent / "contenders.py"))  # without its folder on the path


class Rules(NamedTuple):
    """What is run, what inputs are where the caller knows better than the file, below what integers are drawn, who
    is told of rounds that are done, where kernels are kept, a file with all inputs, in place of drawn ones, and how
    far outputs may be apart."""

    script: tuple[str, ...] = SCRIPT
    inputs: Mapping[str, tuple[tuple[int, ...], str]] | None = None
    integers: int = 1000
    look: Callable[[int, int], None] | None = None
    cache: Path | None = None  # weft's kernels are kept here; else compiled anew
    arrays: Path | None = None  # as contenders' `save_arrays` writes it
    tolerance: float = TOLERANCE


class Failed(Exception):
    """A contender cannot load or run the model."""


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """That of a contender. Bytecode is kept, as it is of an installed package."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **settings}


class Contender:
    """A runtime in a process of its own, with a model loaded."""

    def __init__(self, name: str, path: Path, threads: int, cache: Path, rules: Rules) -> None:
        self.name = name
        self.cache = cache
        arrays = None if rules.arrays is None else str(rules.arrays)
        told = json.dumps({"inputs": rules.inputs or {}, "integers": rules.integers, "arrays": arrays})
        command = [sys.executable, *rules.script, name, str(path), str(threads), told]
        limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment({**limits, "WEFT_CACHE_DIR": str(cache)}),
            start_new_session=True,  # so that Ctrl-C reaches this process alone, which ends them
        )
        self.buffer = b""
        try:
            self.start = self.read(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def read(self, seconds: float) -> dict[str, Any]:
        """The next answer, for which it has so many seconds."""
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(end - time.monotonic(), 0)):
                    raise Failed(f"no answer in {seconds:.0f} s")
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    raise Failed(f"it ended with code {self.process.wait()}")
                self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"].splitlines()[0][:150])
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed("it ended") from None
        return self.read(ANSWER_SECONDS)

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class Result:
    """What was measured of one contender on one network."""

    network: str
    contender: str
    threads: int
    batch: int
    best_ms: float = 0.0
    median_ms: float = 0.0
    runs: int = 0
    load_cold_s: float = 0.0
    load_s: float = 0.0
    first_result_s: float = 0.0
    peak_mb: float = 0.0
    error: float | None = None  # against ONNX Runtime, relative to the largest magnitude
    failure: str = ""
    times: list[float] = field(default_factory=list, repr=False)


def measure(
    network: str, path: Path, names: Sequence[str], threads: int, batch: int, rounds: int, rules: Rules
) -> list[Result]:
    """All contenders on one model: started one after the other, then measured in turns."""
    results = {name: Result(network, name, threads, batch) for name in names}
    running: dict[str, Contender] = {}
    folder = Path(tempfile.mkdtemp(prefix="weft-bench-"))
    try:
        for name in names:
            try:
                running[name] = started(name, path, threads, rules.cache or folder / "cache", results[name], rules)
            except Failed as error:
                results[name].failure = str(error)
        verify(running, results, folder, rules.tolerance)
        alternate(running, results, rounds, rules.look)
        for name, contender in running.items():
            results[name].peak_mb = contender.ask(stop=True)["peak"]
    finally:
        for contender in running.values():
            contender.close()
        shutil.rmtree(folder, ignore_errors=True)
    return list(results.values())


def started(name: str, path: Path, threads: int, cache: Path, result: Result, rules: Rules) -> Contender:
    """weft is started twice: with an empty cache, then with the one this has filled."""
    contender = Contender(name, path, threads, cache, rules)
    result.load_cold_s = contender.start["load"]
    if name == "weft" and rules.cache is None:
        contender.close()
        contender = Contender(name, path, threads, cache, rules)
    result.load_s, result.first_result_s = contender.start["load"], contender.start["first"]
    return contender


def verify(running: dict[str, Contender], results: dict[str, Result], folder: Path, tolerance: float) -> None:
    """Holds outputs against ONNX Runtime's, or weft's where that is not there."""
    outputs = {}
    for name, contender in list(running.items()):
        file = folder / f"{name}.npy"
        try:
            contender.ask(seed=12345, save=str(file))
            outputs[name] = np.load(file)
        except Failed as error:
            results[name].failure = str(error)
            running.pop(name).close()
    expected = outputs.get("onnxruntime", outputs.get("weft"))
    if expected is None:
        return
    for name, output in outputs.items():
        results[name].error = worst = _off(output, expected)
        if not worst <= tolerance:
            results[name].failure = f"wrong output: off by {worst:.2g} of the largest magnitude"


def _off(output: Any, expected: Any) -> float:
    """By how much at most, relative to the largest magnitude. Words are equal or not, and so is what is no number."""
    if output.shape != expected.shape:
        return float("inf")
    if expected.dtype.kind == "U":
        return 0.0 if np.array_equal(output, expected) else float("inf")
    wide = expected.astype(np.float64)
    numbers = np.isfinite(wide)
    if not np.array_equal(output[~numbers], wide[~numbers], equal_nan=True):
        return float("inf")
    return float(np.abs(output - wide)[numbers].max(initial=0)) / (float(np.abs(wide[numbers]).max(initial=0)) or 1.0)


def alternate(
    running: dict[str, Contender],
    results: dict[str, Result],
    rounds: int,
    look: Callable[[int, int], None] | None = None,
) -> None:
    """Rounds from one contender to the next; who begins changes. The first round warms up."""
    counts = dict.fromkeys(running, 1)
    for number in range(rounds + 1):
        names = list(running)
        shift = number % max(len(names), 1)
        for name in names[shift:] + names[:shift]:
            seconds = running[name].ask(seed=1000 * number, runs=counts[name])["seconds"]
            if number:
                results[name].times += seconds
            counts[name] = int(min(max(ROUND_SECONDS / min(seconds), 2), MAX_RUNS))
        if look is not None:
            look(number + 1, rounds + 1)
    for name in running:
        times = results[name].times
        results[name].runs = len(times)
        results[name].best_ms = 1e3 * min(times)
        results[name].median_ms = 1e3 * statistics.median(times)
