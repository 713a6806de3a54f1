#!/usr/bin/env python3
"""What a process needs until its first result: the import, the first training step and the second
one, of weft with its kernels in the disk cache and of PyTorch. Processor time on one thread, since
others share the machine; the best of some processes.

    python benchmarks/first_steps.py
    python benchmarks/first_steps.py weft mlp   one process: its seconds
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from typing import Any

from eager import CASES, LIBRARIES

NAMES = ("mlp", "small network")
PROCESSES = 4
PARTS = ("import", "first step", "second step")


def parts(library: str, case: str) -> list[float]:
    """Seconds of each part, in this process. Interpreter and numpy are there before."""
    times = [time.process_time()]
    loaded: Any = importlib.import_module(library)
    loaded.set_num_threads(1)
    functional = importlib.import_module(f"{library}.nn.functional")
    functional.relu(loaded.zeros(3))
    times.append(time.process_time())
    step = CASES[case].make(loaded)
    made = time.process_time() - times[-1]  # of the parameters, which is no part of a step
    for _ in range(2):
        step()
        times.append(time.process_time())
    times[2:] = [at - made for at in times[2:]]
    return [end - start for start, end in pairwise(times)]


def measure(library: str, case: str) -> list[float]:
    """The best of each part; the first process fills the cache and does not count."""
    command = [sys.executable, __file__, library, case]
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "WEFT_CACHE_DIR": folder}
        runs = [
            json.loads(subprocess.run(command, env=env, capture_output=True, check=True).stdout)
            for _ in range(1 + PROCESSES)
        ]
    return [min(times) for times in zip(*runs[1:])]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(parts(*sys.argv[1:])))
    else:
        print(f"{'':<24}" + "".join(f"{part:>15}" for part in PARTS))
        for case in NAMES:
            for library in LIBRARIES:
                shown = "".join(f"{s * 1e3:>12.1f} ms" for s in measure(library, case))
                print(f"{case + ', ' + library:<24}{shown}", flush=True)
