"""Eager tensors on the GPU that is here, against PyTorch on the processor: `python tests/gpu/run_eager.py` runs samples
of PyTorch's operator database, in several processes with a limit each, then trains two small networks, and prints what
differs.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve()
SAMPLES = HERE.parents[1] / "eager" / "devices" / "samples.py"
PROCESSES = 8
STEPS = 30


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=2, help="of each function, in each dtype")
    parser.add_argument("--limit", type=float, default=240, help="seconds that a process has")
    parser.add_argument("--train", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train()
        return 0
    start = time.perf_counter()
    parts = [f"--part={part}/{PROCESSES}" for part in range(PROCESSES)]
    commands = [[sys.executable, str(SAMPLES), f"--first={options.samples}", part] for part in parts]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for command in commands]
    failed = 0
    for process in running:
        try:
            told, _ = process.communicate(timeout=max(options.limit - (time.perf_counter() - start), 1))
        except subprocess.TimeoutExpired:
            process.kill()
            told = process.communicate()[0] + b"\n(stopped)"
        failed += process.returncode != 0
        print(told.decode()[-4000:])
    print(f"samples took {time.perf_counter() - start:.0f} s", flush=True)
    return failed or subprocess.run([sys.executable, str(HERE), "--train"], timeout=options.limit).returncode


def train() -> None:
    """Trains networks on the same data by both libraries."""
    import numpy as np
    import torch

    import weft

    def perceptron(n):
        return n.Sequential(
            n.Linear(64, 128), n.GELU(), n.LayerNorm(128), n.Linear(128, 128), n.ReLU(), n.Linear(128, 10)
        )

    def convolutional(n):
        first = [n.Conv2d(3, 16, 3, padding=1, bias=False), n.BatchNorm2d(16), n.ReLU(), n.MaxPool2d(2)]
        second = [n.Conv2d(16, 32, 3, padding=1, bias=False), n.BatchNorm2d(32), n.ReLU(), n.AdaptiveAvgPool2d(1)]
        return n.Sequential(*first, *second, n.Flatten(), n.Linear(32, 10))

    rng = np.random.default_rng(0)
    for make, shape in ((perceptron, (128, 64)), (convolutional, (32, 3, 16, 16))):
        for optimiser, options in (("SGD", {"lr": 0.05, "momentum": 0.9}), ("AdamW", {"lr": 0.003})):
            torch.manual_seed(0)
            theirs, ours = make(torch.nn), make(weft.nn)
            ours.load_state_dict({name: weft.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
            ours.to("cuda")
            x, y = rng.standard_normal(shape).astype("float32"), rng.integers(0, 10, shape[0])
            curves, seconds = [], []
            for m, model, where in ((torch, theirs, "cpu"), (weft, ours, "cuda")):
                step = getattr(m.optim, optimiser)(model.parameters(), **options)
                inputs, labels = m.tensor(x, device=where), m.tensor(y, device=where)
                losses = []
                for number in range(STEPS):
                    if number == STEPS // 2:
                        begun = time.perf_counter()
                    loss = m.nn.functional.cross_entropy(model(inputs), labels)
                    step.zero_grad()
                    loss.backward()
                    step.step()
                    losses.append(loss.item())
                curves.append(losses)
                seconds.append((time.perf_counter() - begun) / (STEPS - STEPS // 2))
            off = max(abs(a - b) / max(abs(a), 1e-3) for a, b in zip(*curves))
            print(
                f"{make.__name__:14} {optimiser:6} loss {curves[0][0]:.4f} -> PyTorch {curves[0][-1]:.6f}, "
                f"weft {curves[1][-1]:.6f}; furthest apart {off:.1e}; {seconds[1] * 1e3:.2f} ms a step",
                flush=True,
            )
    calls(weft, torch)


def calls(weft, torch) -> None:
    """What a call costs, with nothing waited for, and with all."""
    for size in (256, 4096):
        for name in ("add", "gelu", "matmul", "sum"):
            cost = []
            for m in (weft, torch):
                if m is torch and not torch.cuda.is_available():
                    cost.append(float("nan"))
                    continue
                a = m.ones(size, size, device="cuda")
                call = {
                    "add": lambda a=a: a + a,
                    "gelu": lambda a=a, m=m: m.nn.functional.gelu(a),
                    "matmul": lambda a=a: a @ a,
                    "sum": lambda a=a: a.sum(),
                }[name]
                for _ in range(5):
                    call()
                m.cuda.synchronize()
                begun = time.perf_counter()
                for _ in range(50):
                    call()
                m.cuda.synchronize()
                cost.append((time.perf_counter() - begun) / 50 * 1e6)
            print(f"{name} of {size}x{size}: weft {cost[0]:.0f} us, PyTorch {cost[1]:.0f} us a call", flush=True)


if __name__ == "__main__":
    sys.exit(main())
