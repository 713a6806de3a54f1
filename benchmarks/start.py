#!/usr/bin/env python3
"""How long a new process takes to the first result of a model file, and the most memory that it had: weft with an empty
cache, weft with the cache that this has filled, and ONNX Runtime. Processes take turns, and medians of rounds are told.

    python benchmarks/start.py                       # nine networks
    python benchmarks/start.py resnet50 bert         # some of them

Model files are looked for in the folder that WEFT_NETWORKS names; those that are not there are made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from models import NETWORKS, model_file

FOLDER = Path(os.environ.get("WEFT_NETWORKS", Path(tempfile.gettempdir()) / "weft-networks"))
ROUNDS = 3
# Prints when the first result is there: the most memory of the process so far, in KiB.
WEFT = """
import resource, sys
import numpy as np
import weft
model = weft.compile(sys.argv[1])
model.run({spec.name: np.zeros(spec.shape, spec.dtype) for spec in model.inputs})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
"""
ONNXRUNTIME = """
import os, resource, sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = len(os.sched_getaffinity(0))
session = onnxruntime.InferenceSession(sys.argv[1], options, ["CPUExecutionProvider"])
kinds = {"tensor(float)": "float32", "tensor(int64)": "int64"}
session.run(None, {spec.name: np.zeros(spec.shape, kinds[spec.type]) for spec in session.get_inputs()})
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, flush=True)
"""


class Start(NamedTuple):
    """Seconds from the start of a process to its first result, and megabytes at most."""

    seconds: float
    megabytes: float


class Measured(NamedTuple):
    """Medians of a network."""

    cold: Start
    cached: Start
    onnxruntime: Start


def started(script: str, path: Path, cache: Path) -> Start:
    """A new process, to its first result."""
    begin = time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "WEFT_CACHE_DIR": str(cache)},
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - begin
    if process.returncode or not line:
        raise RuntimeError(f"a process for {path.name} failed")
    return Start(seconds, int(line) / 1024)


def measured(name: str, rounds: int = ROUNDS) -> Measured:
    """A network, in processes that take turns. Files and modules are read once before, so that all find them
    in memory."""
    path = model_file(name, FOLDER, 1)
    found: list[list[Start]] = [[], [], []]
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        started(WEFT, path, cache)
        started(ONNXRUNTIME, path, cache)
        for _ in range(rounds):
            shutil.rmtree(cache)
            for starts, script in zip(found, (WEFT, WEFT, ONNXRUNTIME)):
                starts.append(started(script, path, cache))
    return Measured(*[Start(*map(median, zip(*starts))) for starts in found])


def main(names: list[str]) -> None:
    print("network           cold s  cached s  ONNX Runtime s   cold MB  cached MB  ONNX Runtime MB")
    for name in names or NETWORKS:
        cold, cached, other = measured(name)
        times = f"{cold.seconds:7.2f} {cached.seconds:9.2f} {other.seconds:15.2f}"
        print(f"{name:<16} {times} {cold.megabytes:9.0f} {cached.megabytes:10.0f} {other.megabytes:16.0f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
