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


Program = Callable[[Any], Callable[[], Any]]  # of a library: what is timed


class Case(NamedTuple):
    """A program, `runs` of which make a round."""

    name: str
    make: Program
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


def _convolution(channels: int, size: int, kernel: int, stride: int = 1) -> Program:
    """Batch 8, as many channels out as in: forward and backward."""

    def make(lib: Any) -> Callable[[], Any]:
        rng = np.random.default_rng(0)
        functional = importlib.import_module(f"{lib.__name__}.nn.functional")
        x = _tensor(lib, rng, 8, channels, size, size, grad=True)
        w = _tensor(lib, rng, channels, channels, kernel, kernel, grad=True)
        b = _tensor(lib, rng, channels, grad=True)

        def step() -> Any:
            x.grad = w.grad = b.grad = None
            functional.conv2d(x, w, b, stride, kernel // 2).sum().backward()

        return step

    return make


def _small_network(lib: Any) -> Callable[[], Any]:
    """Two convolutions with batch norm and pools, then a classifier, batch 32: a training step."""
    rng = np.random.default_rng(0)
    functional = importlib.import_module(f"{lib.__name__}.nn.functional")
    shapes = [(16, 1, 3, 3), (16,), (16,), (32, 16, 3, 3), (32,), (32,), (10, 32 * 49), (10,)]
    w1, g1, b1, w2, g2, b2, w3, b3 = parameters = [_tensor(lib, rng, *shape, grad=True) for shape in shapes]
    x, labels = _tensor(lib, rng, 32, 1, 28, 28), lib.from_numpy(rng.integers(0, 10, 32))

    def block(y: Any, w: Any, g: Any, b: Any) -> Any:
        y = functional.conv2d(y, w, padding=1)
        y = functional.batch_norm(y, None, None, g, b, training=True)
        return functional.max_pool2d(functional.relu(y), 2)

    def step() -> Any:
        for parameter in parameters:
            parameter.grad = None
        y = block(block(x, w1, g1, b1), w2, g2, b2)
        loss = functional.cross_entropy(functional.linear(y.flatten(1), w3, b3), labels)
        loss.backward()
        return loss

    return step


def _attention(lib: Any) -> Callable[[], Any]:
    """12 heads of 64, 128 queries, batch 4: forward and backward."""
    rng = np.random.default_rng(0)
    functional = importlib.import_module(f"{lib.__name__}.nn.functional")
    q, k, v = inputs = [_tensor(lib, rng, 4, 12, 128, 64, grad=True) for _ in range(3)]

    def step() -> Any:
        for tensor in inputs:
            tensor.grad = None
        functional.scaled_dot_product_attention(q, k, v).sum().backward()

    return step


def _chain(lib: Any, x: Any) -> Any:
    return (x * x + 1).exp().sum()


def _on(*shape: int, call: Callable[[Any, Any], Any]) -> Program:
    """A call on one tensor."""

    def make(lib: Any) -> Callable[[], Any]:
        x = _tensor(lib, np.random.default_rng(0), *shape)
        return lambda: call(lib, x)

    return make


def _optimiser(kind: str, **options: Any) -> Program:
    """A step over 200 parameters of 64 elements, whose gradients are there."""

    def make(lib: Any) -> Callable[[], Any]:
        rng = np.random.default_rng(0)
        parameters = [_tensor(lib, rng, 64, grad=True) for _ in range(200)]
        for parameter in parameters:
            parameter.grad = _tensor(lib, rng, 64)
        optimizer = getattr(importlib.import_module(f"{lib.__name__}.optim"), kind)(parameters, **options)
        step: Callable[[], Any] = optimizer.step
        return step

    return make


def _trained(lib: Any, model: Any, loss_of: Callable[[], Any]) -> Callable[[], Any]:
    """Forward, backward and a step of Adam."""
    optimizer = importlib.import_module(f"{lib.__name__}.optim").Adam(model.parameters(), lr=1e-4)

    def step() -> Any:
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        optimizer.step()
        return loss

    return step


def _lstm(lib: Any) -> Callable[[], Any]:
    """Two layers of 200 cells, 35 steps, batch 20, as small language models have them: a training step."""
    nn = importlib.import_module(f"{lib.__name__}.nn")
    lib.manual_seed(0)
    model = nn.LSTM(200, 200, 2)
    x = _tensor(lib, np.random.default_rng(0), 35, 20, 200)
    return _trained(lib, model, lambda: model(x)[0].square().mean())


def _transformer(lib: Any) -> Callable[[], Any]:
    """An encoder of two layers, 256 wide, 8 heads, 128 tokens, batch 8: a training step."""
    nn = importlib.import_module(f"{lib.__name__}.nn")
    lib.manual_seed(0)
    layer = nn.TransformerEncoderLayer(256, 8, 1024, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    x = _tensor(lib, np.random.default_rng(0), 8, 128, 256)
    return _trained(lib, model, lambda: model(x).square().mean())


CASES = {
    case.name: case
    for case in (
        Case("mlp", _mlp, 5),
        Case("add 16", _small_add, 2000),
        Case("small network", _small_network, 3),
        Case("conv 3x3, 64@56", _convolution(64, 56, 3), 2),
        Case("conv 3x3, 256@14", _convolution(256, 14, 3), 2),
        Case("conv 1x1, 256@28", _convolution(256, 28, 1), 2),
        Case("attention", _attention, 3),
        Case("lstm", _lstm, 2),
        Case("transformer", _transformer, 1),
        Case("matmul 512", _on(512, 512, call=lambda lib, x: x @ x), 10),
        Case("x + x, 1e6", _on(1_000_000, call=lambda lib, x: x + x), 20),
        Case("exp(x), 1e6", _on(1_000_000, call=lambda lib, x: x.exp()), 20),
        Case("sum(x), 1e6", _on(1_000_000, call=lambda lib, x: x.sum()), 20),
        Case("mean over axis 0", _on(1000, 1000, call=lambda lib, x: x.mean(0)), 20),
        Case("softmax", _on(1000, 1000, call=lambda lib, x: x.softmax(-1)), 10),
        Case("(x * x + 1).exp().sum()", _on(1_000_000, call=_chain), 5),
        Case("SGD, 200 parameters", _optimiser("SGD", lr=0.01, momentum=0.9), 20),
        Case("Adam, 200 parameters", _optimiser("Adam"), 10),
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


def measure(names: list[str], threads: int = 2, rounds: int = ROUNDS) -> dict[str, dict[str, float]]:
    """Seconds by case and library: the best of alternating rounds."""
    running = {
        library: subprocess.Popen(
            [sys.executable, __file__, library, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for library in LIBRARIES
    }
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
    print(f"{'case':<24} {'weft':>12} {'PyTorch':>12} {'weft / PyTorch':>16}")
    for name, times in measure(list(CASES)).items():
        ours, theirs = times["weft"] * 1e6, times["torch"] * 1e6
        print(f"{name:<24} {ours:>9.1f} us {theirs:>9.1f} us {ours / theirs:>16.2f}")


if __name__ == "__main__":
    main()
