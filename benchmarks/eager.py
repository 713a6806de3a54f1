#!/usr/bin/env python3
"""Eager tensors against PyTorch: each library in a process of its own, rounds alternating.

    python benchmarks/eager.py              the table
    python benchmarks/eager.py weft 2       one contender, as the table starts it: a line of input
                                            "case runs" gives the seconds of the best run

Programs are written once, with the names both libraries have.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

ROUNDS = 12
LIBRARIES = ("weft", "torch")


class Case(NamedTuple):
    """A program: `make(library)` gives what is timed. `runs` of it make a round."""

    name: str
    make: Callable[[Any], Callable[[], Any]]
    runs: int


def _tensor(lib: Any, rng: np.random.Generator, *shape: int, grad: bool = False) -> Any:
    made = lib.from_numpy(rng.standard_normal(shape).astype("float32") * 0.05)
    return made.requires_grad_() if grad else made


def _mlp(lib: Any) -> Callable[[], Any]:
    """784-1024-1024-10, batch 128: forward, cross entropy, backward."""
    rng = np.random.default_rng(0)
    functional = importlib.import_module(f"{lib.__name__}.nn.functional")
    sizes = (784, 1024, 1024, 10)
    weights = [_tensor(lib, rng, b, a, grad=True) for a, b in pairwise(sizes)]
    biases = [_tensor(lib, rng, b, grad=True) for b in sizes[1:]]
    x = _tensor(lib, rng, 128, 784)
    labels = lib.from_numpy(rng.integers(0, 10, 128))

    def step() -> Any:
        y = x
        for number, (w, b) in enumerate(zip(weights, biases)):
            y = functional.linear(y, w, b)
            y = functional.relu(y) if number < 2 else y
        for parameter in (*weights, *biases):
            parameter.grad = None
        loss = functional.cross_entropy(y, labels)
        loss.backward()
        return loss

    return step


def _small_add(lib: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    a, b = _tensor(lib, rng, 16, grad=True), _tensor(lib, rng, 16)
    return lambda: a + b


def _convolution(lib: Any) -> Callable[[], Any]:
    """3x3, 64 channels, 56x56, batch 8: forward and backward."""
    rng = np.random.default_rng(0)
    functional = importlib.import_module(f"{lib.__name__}.nn.functional")
    x = _tensor(lib, rng, 8, 64, 56, 56, grad=True)
    w, b = _tensor(lib, rng, 64, 64, 3, 3, grad=True), _tensor(lib, rng, 64, grad=True)

    def step() -> Any:
        x.grad = w.grad = b.grad = None
        functional.conv2d(x, w, b, padding=1).sum().backward()

    return step


def _elementwise(lib: Any) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    x = _tensor(lib, rng, 1_000_000)
    return lambda: (x * x + 1).exp().sum()


CASES = {
    case.name: case
    for case in (
        Case("mlp", _mlp, 5),
        Case("add 16", _small_add, 2000),
        Case("conv2d", _convolution, 2),
        Case("elementwise 1e6", _elementwise, 5),
    )
}


def contender(name: str, threads: int) -> None:
    """Answers requests until the input ends."""
    library = importlib.import_module(name)
    library.set_num_threads(threads)
    made: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        case, runs = json.loads(line)
        if case not in made:
            made[case] = CASES[case].make(library)
            made[case]()
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            for _ in range(runs):
                made[case]()
            best = min(best, (time.perf_counter() - start) / runs)
        print(json.dumps(best), flush=True)


def measure(
    names: list[str], threads: int = 2, rounds: int = ROUNDS
) -> dict[str, dict[str, float]]:
    """Seconds by case and library: the best of alternating rounds."""
    running = {
        library: subprocess.Popen(
            [sys.executable, __file__, library, str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for library in LIBRARIES
    }  # fmt: skip
    best: dict[str, dict[str, float]] = {name: {} for name in names}
    try:
        for name in names:
            for _ in range(rounds):
                for library, process in running.items():
                    assert process.stdin is not None
                    assert process.stdout is not None
                    print(json.dumps([name, CASES[name].runs]), file=process.stdin, flush=True)
                    seconds = json.loads(process.stdout.readline())
                    known = best[name].get(library, float("inf"))
                    best[name][library] = min(known, seconds)
    finally:
        for process in running.values():
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
    return best


def main() -> None:
    if len(sys.argv) > 1:
        contender(sys.argv[1], int(sys.argv[2]))
        return
    print(f"{'case':<20} {'weft':>12} {'PyTorch':>12} {'weft / PyTorch':>16}")
    for name, times in measure(list(CASES)).items():
        ours, theirs = times["weft"] * 1e6, times["torch"] * 1e6
        print(f"{name:<20} {ours:>9.1f} us {theirs:>9.1f} us {ours / theirs:>16.2f}")


if __name__ == "__main__":
    main()
