"""Compiled functions on the GPU that is here, against PyTorch on the same values: `python tests/gpu/run_compiled.py`
runs each case in a process of its own with a limit, prints whether both agree and what a step takes, compiled and not,
and then what steps of large networks take here and by PyTorch.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
STEPS = 6  # that are compared
TOLERANCE = 2e-3  # of the largest number, after those
REPEATED = 30  # steps that are timed


# Networks, of either library.


def perceptron(n):
    return n.Sequential(n.Linear(64, 128), n.GELU(), n.LayerNorm(128), n.Linear(128, 128), n.ReLU(), n.Linear(128, 10))


def convolutional(n):
    first = [n.Conv2d(3, 16, 3, padding=1, bias=False), n.BatchNorm2d(16), n.ReLU(), n.MaxPool2d(2)]
    second = [n.Conv2d(16, 32, 3, padding=1, bias=False), n.BatchNorm2d(32), n.ReLU(), n.AdaptiveAvgPool2d(1)]
    return n.Sequential(*first, *second, n.Flatten(), n.Linear(32, 10))


def bottleneck(n, inside, width, stride):
    class Bottleneck(n.Module):
        def __init__(self):
            super().__init__()
            outside = 4 * width
            self.body = n.Sequential(
                *[n.Conv2d(inside, width, 1, bias=False), n.BatchNorm2d(width), n.ReLU()],
                *[n.Conv2d(width, width, 3, stride, 1, bias=False), n.BatchNorm2d(width), n.ReLU()],
                *[n.Conv2d(width, outside, 1, bias=False), n.BatchNorm2d(outside)],
            )
            self.side = n.Identity()
            if stride > 1 or inside != outside:
                self.side = n.Sequential(n.Conv2d(inside, outside, 1, stride, bias=False), n.BatchNorm2d(outside))
            self.act = n.ReLU()

        def forward(self, x):
            return self.act(self.body(x) + self.side(x))

    return Bottleneck()


def residual(n, depths, width, classes):
    layers = [n.Conv2d(3, width, 7, 2, 3, bias=False), n.BatchNorm2d(width), n.ReLU(), n.MaxPool2d(3, 2, 1)]
    inside = width
    for stage, depth in enumerate(depths):
        for number in range(depth):
            layers.append(bottleneck(n, inside, width << stage, 2 if stage and not number else 1))
            inside = 4 * (width << stage)
    return n.Sequential(*layers, n.AdaptiveAvgPool2d(1), n.Flatten(), n.Linear(inside, classes))


def small_residual(n):
    return residual(n, (1, 1), 8, 10)


def encoder(n, layers, width, heads, inner, dropout=0.0):
    class Encoder(n.Module):
        def __init__(self):
            super().__init__()
            make = lambda: n.TransformerEncoderLayer(width, heads, inner, dropout, "gelu", batch_first=True)
            self.layers = n.ModuleList([make() for _ in range(layers)])
            self.norm, self.head = n.LayerNorm(width), n.Linear(width, 10)

        def forward(self, x):
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x).mean(1))

    return Encoder()


def block(n):
    return encoder(n, 1, 64, 4, 128)


# Steps.


def step_of(m, model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = m.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step


def twins(make):
    """The same network of both libraries: PyTorch's on the processor, weft's on the GPU."""
    import torch

    import weft

    torch.manual_seed(0)
    theirs, ours = make(torch.nn), make(weft.nn)
    ours.load_state_dict({name: weft.tensor(value.numpy()) for name, value in theirs.state_dict().items()})
    return torch, weft, theirs, ours.to("cuda")


def seconds_of(m, run):
    """The time of a step among some that are given one after the other; the last is waited for."""
    run()
    m.cuda.synchronize()
    begun = time.perf_counter()
    for _ in range(REPEATED):
        run()
    m.cuda.synchronize()
    return (time.perf_counter() - begun) / REPEATED


def off(found, wanted, least=1e-6):
    """How far numbers are off, of the largest."""
    found, wanted = np.asarray(found, "float64"), np.asarray(wanted, "float64")
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), least)) if wanted.size else 0.0


def said(name, worst, tolerance, more):
    agrees = worst <= tolerance
    print(f"{name}: {'agree' if agrees else 'DIFFER'}, at most {worst:.1e} apart; {more}", flush=True)
    return agrees


def forward(name, make, shape, tolerance=1e-4, **options):
    """A module without gradients."""
    torch, weft, theirs, ours = twins(make)
    theirs.eval(), ours.eval()
    compiled = weft.compile(ours, **options)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    there = weft.tensor(x, device="cuda")
    with torch.no_grad(), weft.no_grad():
        worst = max(off(compiled(there).cpu().numpy(), theirs(torch.tensor(x)).numpy()) for _ in range(3))
        times = [seconds_of(weft, lambda run=run: run(there)) * 1e6 for run in (compiled, ours)]
    return said(name, worst, tolerance, f"{times[0]:.0f} us a call, {times[1]:.0f} not compiled")


def training(name, make, shape, optimiser, tolerance=TOLERANCE, compiling=None, **options):
    """Some steps by both; the times are those of further ones. Where a gradient is zero but for rounding (that of the
    bias of keys), Adam makes steps of it, so its parameters are compared with 1."""
    least = 1.0 if "Adam" in optimiser else 1e-2
    torch, weft, theirs, ours = twins(make)
    rng = np.random.default_rng(0)
    steps = []
    for m, model in ((torch, theirs), (weft, ours)):
        steps.append(step_of(m, model, getattr(m.optim, optimiser)(model.parameters(), **options)))
    compiled = weft.compile(steps[1], fullgraph=True, **(compiling or {}))
    worst = 0.0
    begun = time.perf_counter()
    for _ in range(STEPS):
        x, y = rng.standard_normal(shape).astype("float32"), rng.integers(0, 10, shape[0])
        there = weft.tensor(x, device="cuda"), weft.tensor(y, device="cuda")
        worst = max(worst, off(compiled(*there).item(), steps[0](torch.tensor(x), torch.tensor(y)).item()))
    first = time.perf_counter() - begun
    states = zip(ours.state_dict().items(), theirs.state_dict().values())
    places = {key: off(found.cpu().numpy(), wanted.numpy(), least) for (key, found), wanted in states}
    where = max(places, key=places.get)
    times = [seconds_of(weft, lambda run=run: run(*there)) * 1e6 for run in (compiled, steps[1])]
    told = f"{where}; {times[0]:.0f} us a step, {times[1]:.0f} not compiled; {first:.1f} s for the first {STEPS}"
    return said(name, max(worst, places[where]), tolerance, f"{told}; {compiled.explain().plans} plans")


def outside(name, make, shape):
    """Gradients that are asked for outside of the function."""
    torch, weft, theirs, ours = twins(make)
    compiled = weft.compile(ours)
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    there = weft.tensor(x, device="cuda")
    for m, model, data in ((torch, theirs, torch.tensor(x)), (weft, compiled, there)):
        m.nn.functional.cross_entropy(model(data), m.zeros(shape[0], dtype=m.int64, device=data.device)).backward()
    pairs = zip(ours.parameters(), theirs.parameters())
    worst = max(off(p.grad.cpu().numpy(), q.grad.numpy()) for p, q in pairs)
    return said(name, worst, TOLERANCE, "gradients")


CONVOLUTIONS = [  # images, channels, results, extent, size, stride, padding, dilation
    (4, 64, 64, 28, 3, 1, 1, 1),
    (4, 64, 128, 28, 3, 2, 1, 1),
    (8, 64, 256, 28, 1, 1, 0, 1),
    (8, 256, 128, 29, 1, 2, 0, 1),
    (2, 3, 64, 64, 7, 2, 3, 1),
    (2, 32, 24, 17, 5, 3, 2, 2),
    (3, 7, 13, 15, 4, 1, 1, 1),
    (16, 64, 64, 56, 3, 1, 1, 1),  # sums in many parts
]


def convolutions(name, precision, tolerance):
    """The gradients of convolutions of many kinds, asked for inside of the function."""
    import torch

    import weft

    worst, where = 0.0, None
    for case in CONVOLUTIONS:
        images, channels, results, extent, size, stride, padding, dilation = case
        rng = np.random.default_rng(extent)
        x = rng.standard_normal((images, channels, extent, extent)).astype("float32")
        w = rng.standard_normal((results, channels, size, size)).astype("float32")

        def gradients(m, x, w, stride=stride, padding=padding, dilation=dilation):
            y = m.nn.functional.conv2d(x, w, None, stride, padding, dilation)
            return m.autograd.grad(y, [x, w], y.detach() * 0.01)

        leaves = [torch.tensor(array, requires_grad=True) for array in (x, w)]
        wanted = gradients(torch, *leaves)
        compiled = weft.compile(lambda x, w, run=gradients: run(weft, x, w), precision=precision)
        there = [weft.tensor(array, device="cuda").requires_grad_() for array in (x, w)]
        for found, one in zip(compiled(*there), wanted):
            apart = off(found.detach().cpu().numpy(), one.numpy())
            worst, where = max((worst, where), (apart, case), key=lambda pair: pair[0])
    return said(name, worst, tolerance, f"at {where}")


def dropping(name):
    """Random numbers are those of the processor's generator."""
    torch, weft, theirs, ours = twins(lambda n: encoder(n, 1, 64, 4, 128, 0.1))
    compiled = weft.compile(ours)
    x = np.random.default_rng(0).standard_normal((4, 16, 64)).astype("float32")
    torch.manual_seed(7), weft.manual_seed(7)
    there = weft.tensor(x, device="cuda")
    worst = max(off(compiled(there).detach().cpu().numpy(), theirs(torch.tensor(x)).detach().numpy()) for _ in range(3))
    return said(name, worst, 1e-3, "dropout")


def sizes(name):
    """A program for each size."""
    torch, weft, theirs, ours = twins(perceptron)
    compiled = weft.compile(ours)
    worst = 0.0
    for batch in (8, 3, 17, 8):
        x = np.random.default_rng(batch).standard_normal((batch, 64)).astype("float32")
        found = compiled(weft.tensor(x, device="cuda")).detach().cpu().numpy()
        worst = max(worst, off(found, theirs(torch.tensor(x)).detach().numpy()))
    return said(name, worst, 1e-4, f"{compiled.explain().programs} programs")


# Large networks, which are timed.


def race(name, make, shape, optimiser, precisions, **options):
    """What a step takes, compiled by weft and by PyTorch, if that has the GPU."""
    import torch

    import weft

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape).astype("float32"), rng.integers(0, 10, shape[0])
    for precision in precisions:
        model = make(weft.nn).to("cuda")
        step = step_of(weft, model, getattr(weft.optim, optimiser)(model.parameters(), **options))
        compiled = weft.compile(step, fullgraph=True, precision=precision)
        data = weft.tensor(x, device="cuda"), weft.tensor(y, device="cuda")
        begun = time.perf_counter()
        losses = [compiled(*data).item() for _ in range(3)]
        ready = time.perf_counter() - begun
        taken = seconds_of(weft, partial(compiled, *data))
        after = compiled(*data).item()
        print(
            f"{name} {precision}: weft {taken * 1e3:.2f} ms a step, ready after {ready:.1f} s; "
            f"loss {losses[0]:.4f} -> {after:.4f}",
            flush=True,
        )
        if torch.cuda.is_available():
            peers(name, torch, make, (x, y), optimiser, precision, options)
    return True


def peers(name, torch, make, data, optimiser, precision, options):
    """PyTorch's step, as it is and compiled."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.benchmark = True
    there = [torch.tensor(array, device="cuda") for array in data]
    for way in ("eager", "torch.compile"):
        model = make(torch.nn).to("cuda")
        optimizer = getattr(torch.optim, optimiser)(model.parameters(), **options)

        def compute(x, y, model=model):
            with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
                return torch.nn.functional.cross_entropy(model(x).float(), y)

        try:
            loss_of = compute if way == "eager" else torch.compile(compute)

            def step(loss_of=loss_of, optimizer=optimizer):
                optimizer.zero_grad()
                loss_of(*there).backward()
                optimizer.step()

            for _ in range(3):
                step()
            print(f"{name} {precision}: {way} {seconds_of(torch, step) * 1e3:.2f} ms a step", flush=True)
        except Exception as error:  # what is not installed there says so
            print(f"{name} {precision}: {way} failed: {str(error).splitlines()[0]}", flush=True)


CASES = {
    "forward of a perceptron": lambda name: forward(name, perceptron, (128, 64)),
    "forward of a transformer block": lambda name: forward(name, block, (8, 32, 64)),
    "forward of a transformer block in bf16": lambda name: forward(name, block, (8, 32, 64), 5e-2, precision="bf16"),
    "forward of a convolutional network": lambda name: forward(name, convolutional, (16, 3, 16, 16)),
    "perceptron, SGD": lambda name: training(name, perceptron, (128, 64), "SGD", lr=0.05, momentum=0.9),
    "perceptron, Adam": lambda name: training(name, perceptron, (128, 64), "Adam", lr=0.003, tolerance=1e-2),
    "convolutional, SGD": lambda name: training(name, convolutional, (32, 3, 16, 16), "SGD", lr=0.05, momentum=0.9),
    "convolutional, AdamW": lambda name: training(
        name, convolutional, (32, 3, 16, 16), "AdamW", lr=0.003, tolerance=2e-2
    ),
    "residual blocks, SGD": lambda name: training(name, small_residual, (8, 3, 32, 32), "SGD", lr=0.01, tolerance=1e-2),
    "transformer block, SGD": lambda name: training(name, block, (8, 32, 64), "SGD", lr=0.05),
    "transformer block, AdamW": lambda name: training(name, block, (8, 32, 64), "AdamW", lr=0.0003, tolerance=1e-2),
    "transformer block, SGD in bf16": lambda name: training(
        name, block, (8, 32, 64), "SGD", lr=0.05, tolerance=5e-2, compiling={"precision": "bf16"}
    ),
    "residual blocks, SGD in bf16": lambda name: training(
        name, small_residual, (8, 3, 32, 32), "SGD", lr=0.01, tolerance=8e-2, compiling={"precision": "bf16"}
    ),
    "gradients of convolutions": lambda name: convolutions(name, "fp32", 1e-4),
    "gradients of convolutions in tf32": lambda name: convolutions(name, "tf32", 5e-3),
    "gradients of convolutions in fp16": lambda name: convolutions(name, "fp16", 1e-2),
    "gradients of convolutions in bf16": lambda name: convolutions(name, "bf16", 5e-2),
    "gradients from outside": lambda name: outside(name, perceptron, (32, 64)),
    "dropout": dropping,
    "sizes": sizes,
}
RACES = {
    "BERT-like, 32 x 128": lambda name: race(
        name, lambda n: encoder(n, 12, 768, 12, 3072), (32, 128, 768), "AdamW", ("fp32", "bf16"), lr=1e-4
    ),
    "ResNet-50-like, 32 images": lambda name: race(
        name, lambda n: residual(n, (3, 4, 6, 3), 64, 10), (32, 3, 224, 224), "SGD", ("fp32", "bf16"), lr=0.01
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=90, help="seconds that a case has")
    parser.add_argument("--race", type=float, default=150, help="seconds that a large network has; 0 leaves them out")
    parser.add_argument("--only", default="", help="cases with this in their names")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        return 0 if {**CASES, **RACES}[options.case](options.case) else 1
    failed = 0
    limits = {**dict.fromkeys(CASES, options.limit), **dict.fromkeys(RACES if options.race else (), options.race)}
    for name, limit in limits.items():
        if options.only in name:
            failed += run(name, limit)
    print(f"{failed} of {len(limits)} failed" if failed else "all agree", flush=True)
    return 1 if failed else 0


def run(name: str, limit: float) -> int:
    """A case in a process of its own; gives 1 where it failed."""
    try:
        command = [sys.executable, str(HERE), f"--case={name}"]
        made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
    except subprocess.TimeoutExpired as stopped:
        told = (stopped.stdout or b"").decode()[-2000:]
        print(f"{told}{name}: stopped after {limit:.0f} s", flush=True)
        return int(name in CASES)
    print(made.stdout.decode()[-3000:], end="", flush=True)
    return int(made.returncode != 0)


if __name__ == "__main__":
    sys.exit(main())
