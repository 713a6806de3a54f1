#!/usr/bin/env python3
"""Compiled training steps against eager ones, weft's and PyTorch's, and against torch.compile's: each in a process of
its own, rounds alternating. Then the seconds of the first call: weft's with an empty disk cache, and in the next
process; torch.compile's with an empty one.

    python benchmarks/compiled.py                the table
    python benchmarks/compiled.py mlp            one case
    python benchmarks/compiled.py compiled 2     one contender, as the table starts it: a line of input
                                                 "case runs" gives the seconds of the best run

With one thread, seconds are those of the calling thread: other work on the machine does not count. torch.compile needs
a compiler for C++; where it does not run, its seconds are infinite, and a line says why.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

ROUNDS, THREADS = 6, 2
CONTENDERS = {"compiled": "weft", "weft": "weft", "torch": "torch", "torch.compile": "torch"}
FIRST = "first call"  # a request for its seconds, and how many kernels were compiled
COMPILING = ("compiled", "torch.compile")
BOUND = 0.8  # of PyTorch's time
COMPILED_BOUND, FIRST_BOUND = 1.0, 0.1  # of torch.compile's, and of its first call


def _labels(lib: Any, rng: np.random.Generator, classes: int, count: int) -> Any:
    return lib.from_numpy(rng.integers(0, classes, count))


def _images(lib: Any, rng: np.random.Generator, *shape: int) -> Any:
    return lib.from_numpy(rng.standard_normal(shape).astype("float32"))


def _mlp(lib: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """784-1024-1024-10, batch 128."""
    nn = lib.nn
    layers = [nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)]
    return nn.Sequential(*layers), _images(lib, rng, 128, 784), _labels(lib, rng, 10, 128)


def _cnn(lib: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """Two convolutions with pools and a classifier, images of 32 x 32, batch 32."""
    nn = lib.nn
    blocks = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    blocks += [nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*blocks, nn.Linear(4096, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, _images(lib, rng, 32, 3, 32, 32), _labels(lib, rng, 10, 32)


def _resnet(lib: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """resnet18, images of 64 x 64, batch 8."""
    nn, functional = lib.nn, lib.nn.functional

    def convolution(channels: int, out: int, kernel: int, stride: int) -> Any:
        made = nn.Conv2d(channels, out, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(made, nn.BatchNorm2d(out))

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, channels: int, out: int, stride: int) -> None:
            super().__init__()
            self.first, self.second = convolution(channels, out, 3, stride), convolution(out, out, 3, 1)
            self.short = nn.Identity() if stride == 1 else convolution(channels, out, 1, stride)

        def forward(self, x: Any) -> Any:
            return functional.relu(self.second(functional.relu(self.first(x))) + self.short(x))

    stem = [convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    sizes = [(64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)]
    blocks = [block for a, b, s in sizes for block in (Block(a, b, s), Block(b, b, 1))]
    model = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model, _images(lib, rng, 8, 3, 64, 64), _labels(lib, rng, 10, 8)


def _transformer(lib: Any, rng: np.random.Generator) -> tuple[Any, ...]:
    """An encoder of four layers, 256 wide, 8 heads, 128 tokens, batch 8."""
    nn = lib.nn
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
    model = nn.Sequential(nn.Embedding(1000, 256), encoder, nn.Linear(256, 1000), nn.Flatten(0, 1))
    return model, lib.from_numpy(rng.integers(0, 1000, (8, 128))), _labels(lib, rng, 1000, 1024)


NETWORKS = {"mlp": (_mlp, 5), "cnn": (_cnn, 5), "resnet18": (_resnet, 1), "transformer": (_transformer, 1)}
CASES = {**{name: runs for name, (_, runs) in NETWORKS.items()}, "add 16": 2000}


def made(contender: str, lib: Any, case: str) -> Callable[[], Any]:
    """What is timed: forward, cross entropy, backward and a step of Adam; or one small sum."""
    rng = np.random.default_rng(0)
    if case == "add 16":
        a, b = _images(lib, rng, 16), _images(lib, rng, 16)
        add = lib.compile(lambda x, y: x + y) if contender in COMPILING else lambda x, y: x + y
        return lambda: add(a, b)
    lib.manual_seed(0)
    model, x, labels = NETWORKS[case][0](lib, rng)
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any, labels: Any) -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        return loss

    # torch.compile makes graphs of what is before and after `backward()`.
    options = {"fullgraph": True} if contender == "compiled" else {}
    call = lib.compile(step, **options) if contender in COMPILING else step
    return lambda: call(x, labels)


def answer(contender: str, threads: int) -> None:
    """Answers requests until the input ends."""
    library = importlib.import_module(CONTENDERS[contender])
    library.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.perf_counter
    calls: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        case, runs = json.loads(line)
        if runs == FIRST:
            print(json.dumps(_first(made(contender, library, case), library)), flush=True)
            continue
        if case not in calls:
            calls[case] = made(contender, library, case)
            calls[case]()
        best = float("inf")
        for _ in range(3):
            start = clock()
            for _ in range(runs):
                calls[case]()
            best = min(best, (clock() - start) / runs)
        print(json.dumps(best), flush=True)


def _first(call: Callable[[], Any], library: Any) -> tuple[float, int | None]:
    """The seconds of a first call, and how many kernels were compiled, where that is known."""
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    is_ours = library.__name__ == "weft"
    return seconds, importlib.import_module("weft.compiler.kernels").kernel_cache.misses if is_ours else None


class Process:
    """A contender that answers requests; one that ended gives None, and `why` is its last error."""

    def __init__(self, contender: str, threads: int, **environment: str) -> None:
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  closed in `end`
        self.running = subprocess.Popen(
            [sys.executable, __file__, contender, str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={**os.environ, **environment},
        )
        self.why = ""

    def ask(self, case: str, runs: int | str) -> Any:
        assert self.running.stdin is not None
        assert self.running.stdout is not None
        if self.why:
            return None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps([case, runs]), file=self.running.stdin, flush=True)
        line = self.running.stdout.readline()
        if line:
            return json.loads(line)
        self.errors.seek(0)
        lines = self.errors.read().strip().splitlines()
        self.why = ([line for line in lines if "Error:" in line] or lines or ["it ended"])[-1]
        return None

    def end(self) -> None:
        assert self.running.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.running.stdin.close()
        self.running.wait()
        self.errors.close()


def measure(names: list[str], threads: int = THREADS, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Seconds by case and contender: the best of alternating rounds, infinity for one that does not run."""
    running = {contender: Process(contender, threads) for contender in CONTENDERS}
    best: dict[str, dict[str, float]] = {name: dict.fromkeys(CONTENDERS, math.inf) for name in names}
    try:
        for name in names:
            for _ in range(rounds):
                for contender, process in running.items():
                    seconds = process.ask(name, CASES[name])
                    best[name][contender] = min(best[name][contender], math.inf if seconds is None else seconds)
    finally:
        for contender, process in running.items():
            process.end()
            if process.why:
                print(f"# {contender} does not run: {process.why}", flush=True)
    return best


class FirstCalls(NamedTuple):
    """Seconds of first calls, and how many kernels weft compiled in the second process."""

    empty: float
    next: float
    compiled_next: int
    torch: float


def first_calls(name: str, threads: int = THREADS) -> FirstCalls:
    """First calls of a case, each in a new process."""

    def first(contender: str, **environment: str) -> Any:
        process = Process(contender, threads, **environment)
        answer = process.ask(name, FIRST)
        process.end()
        if answer is None:
            print(f"# {contender} does not run: {process.why}", flush=True)
        return answer or (math.inf, None)

    with tempfile.TemporaryDirectory() as folder:
        empty, _ = first("compiled", WEFT_CACHE_DIR=folder)
        again, count = first("compiled", WEFT_CACHE_DIR=folder)
    with tempfile.TemporaryDirectory() as folder:
        theirs, _ = first("torch.compile", TORCHINDUCTOR_CACHE_DIR=folder)
    return FirstCalls(empty, again, count, theirs)


def main() -> None:
    if sys.argv[1:2] and sys.argv[1] in CONTENDERS:
        answer(sys.argv[1], int(sys.argv[2]))
        return
    names = sys.argv[1:] or list(CASES)
    titles = " ".join(f"{name:>13}" for name in ("compiled", "weft", "PyTorch", "torch.compile"))
    print(f"{'case':<14} {titles} {'over weft':>10} {'over PyTorch':>13} {'over torch.compile':>19}")
    for name in names:
        times = measure([name])[name]
        ours = times["compiled"]
        shown = " ".join(f"{times[contender] * 1e6:>10.1f} us" for contender in CONTENDERS)
        ratios = f"{ours / times['weft']:>10.2f} {ours / times['torch']:>13.2f} {ours / times['torch.compile']:>19.2f}"
        late = "" if ours / times["torch"] <= BOUND else f"  above {BOUND}"
        print(f"{name:<14} {shown} {ratios}{late}", flush=True)
    titles = " ".join(f"{name:>13}" for name in ("compiled", "next process", "kernels then", "torch.compile"))
    print(f"\n{'first call':<14} {titles} {'over':>6}")
    for name in names:
        found = first_calls(name)
        shown = f"{found.empty:>11.2f} s {found.next:>11.2f} s {found.compiled_next:>13} {found.torch:>11.2f} s"
        print(f"{name:<14} {shown} {found.empty / found.torch:>6.2f}", flush=True)


if __name__ == "__main__":
    main()
