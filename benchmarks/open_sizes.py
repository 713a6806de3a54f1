"""What it costs that sizes are open: networks whose batch is open, against the same made for each batch alone.

    python benchmarks/open_sizes.py                  # all of the list below
    python benchmarks/open_sizes.py mobilenet_v2

Rounds of both alternate. `first` is what the first run at a new batch takes beyond those that follow, in memory that a
larger one has left: pages that a process never touched cost their own time.
"""

from __future__ import annotations

import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import weft
from weft import testing

BATCHES = (1, 4, 8)
ROUNDS = 7
SIZES = 40  # that memory is looked at after

NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet50": lambda: testing.resnet.get_workload(num_layers=50),
    "mobilenet_v2": lambda: testing.mobilenet_v2.get_workload(1),
}


class Open(NamedTuple):
    """How fast an open model is, over a static one; what the first run at a batch takes beyond others, in seconds."""

    name: str
    batch: int
    speed: float
    first: float


def measure(name: str) -> Iterator[Open]:
    symbol, params = NETWORKS[name]()
    shape, rng = {"data": ("batch", 3, 224, 224)}, np.random.default_rng(0)
    open_model = weft.compile((symbol, params), shape=shape)
    static = weft.compile((symbol, params), shape=shape, specialise="always")
    open_model(rng.standard_normal((max(BATCHES) + 1, 3, 224, 224), dtype=np.float32))
    for batch in BATCHES:
        x = rng.standard_normal((batch, 3, 224, 224), dtype=np.float32)
        first = seconds(open_model, x)
        static(x)
        times = [[seconds(model, x) for model in (open_model, static)] for _ in range(ROUNDS)]
        ours, theirs = (statistics.median(column) for column in zip(*times))
        yield Open(name, batch, theirs / ours, first - min(row[0] for row in times))
    assert open_model.compilations == 1


def seconds(model: Any, x: Any) -> float:
    start = time.perf_counter()
    model(x)
    return time.perf_counter() - start


def memory_ratio() -> float:
    """Resident memory after many sizes, over that after the largest of them."""
    symbol, params = NETWORKS["mobilenet_v2"]()
    model = weft.compile((symbol, params), shape={"data": ("batch", 3, 224, 224)})
    model(np.zeros((SIZES, 3, 224, 224), "float32"))
    before = resident()
    for batch in range(1, SIZES):
        model(np.zeros((batch, 3, 224, 224), "float32"))
    return resident() / before


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    for name in sys.argv[1:] or NETWORKS:
        for row in measure(name):
            print(f"{row.name:<14} batch {row.batch}: {row.speed:.3f} of static speed, first {row.first * 1e3:.1f} ms")
    print(f"memory after {SIZES} sizes: {memory_ratio():.3f} x")


if __name__ == "__main__":
    main()
