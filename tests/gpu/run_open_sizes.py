"""Models of open sizes on the GPU that is here, against the same models on the CPU:
`python tests/gpu/run_open_sizes.py [--target TEXT] [--only TEXT]` runs a small ViT, a ResNet-18 and a BERT-like encoder
in fp32 and fp16 at several sizes, each in a process of its own with a limit. Of each size it prints the largest error,
how many programs there are by then, and the seconds of the first run and of the next; of the last size, what a run
takes on arrays of the device, beside a program for that size alone. Each size runs once more in the end and must give
the same bits.

    python tests/gpu/run_open_sizes.py
    python tests/gpu/run_open_sizes.py --target "cuda -arch=sm_80"
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))
LIMIT = 150  # seconds that a model has in one precision
BOUNDS = {"fp32": 2e-4, "fp16": 3e-2}  # of the largest output
REPEATED = 30  # runs that are timed


def small_vit():
    from weft.testing import vit

    made = {"num_layers": 4, "hidden": 192, "heads": 3, "intermediate": 768, "num_classes": 100}
    symbol, params = vit.get_workload(1, image_shape=(3, 96, 96), **made)
    return symbol, params, ("n", 3, 96, 96), [(n, 3, 96, 96) for n in (1, 2, 8, 9, 33, 64, 65, 150)]


def resnet18():
    from weft.testing import resnet

    symbol, params = resnet.get_workload(1, num_layers=18)
    return symbol, params, ("n", 3, 224, 224), [(n, 3, 224, 224) for n in (1, 2, 5, 9, 16, 70)]


def bert_like():
    from weft import symbol as sym
    from weft.testing.bert import encoder_layer
    from weft.testing.init import Xavier
    from weft.testing.workload import create_workload

    net = sym.Variable("data")
    for number in range(4):
        net = encoder_layer(net, 256, 4, 1024, f"layer{number}")
    symbol, params = create_workload(net, 2, (16, 256), "float32", Xavier("gaussian", "in", 1), 0)
    sizes = [(1, 1), (1, 7), (2, 16), (3, 100), (8, 128), (9, 64), (16, 300), (1, 600), (32, 128)]
    return symbol, params, ("n", "s", 256), [(*size, 256) for size in sizes]


MODELS = {"small ViT": small_vit, "ResNet-18": resnet18, "BERT-like encoder": bert_like}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cuda", help="what code is made for; the GPU that is here if not told")
    parser.add_argument("--only", default="", help="models with this in their names")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds that a model has in one precision")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--precision", default="fp32", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        return 0 if check(options.case, options.precision, options.target) else 1
    failed = 0
    for name in MODELS:
        for precision in BOUNDS if options.only in name else ():
            failed += run(name, precision, options.target, options.limit)
    print(f"{failed} failed" if failed else "all agree", flush=True)
    return 1 if failed else 0


def run(name: str, precision: str, target: str, limit: float) -> int:
    """A model in a process of its own; gives 1 where it failed."""
    print(f"{name}, {precision}, {target}", flush=True)
    command = [sys.executable, str(HERE), f"--case={name}", f"--precision={precision}", f"--target={target}"]
    try:
        made = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit)
    except subprocess.TimeoutExpired as stopped:
        print(f"{(stopped.stdout or b'').decode()[-2000:]}  stopped after {limit:.0f} s", flush=True)
        return 1
    print(made.stdout.decode()[-4000:], end="", flush=True)
    if made.returncode not in (0, 1):
        print(f"  the process ended with {made.returncode}", flush=True)
    return int(made.returncode != 0)


def check(name: str, precision: str, target: str) -> bool:
    import weft

    symbol, params, shape, sizes = MODELS[name]()
    rng = np.random.default_rng(0)
    known = {"shape": {"data": shape}, "dtype": {"data": "float32"}}
    here = weft.compile((symbol, params), target=target, precision=precision, **known)
    wanted_of = weft.compile((symbol, params), **known)
    given = {size: rng.standard_normal(size).astype("float32") for size in sizes}
    found, worst = {}, 0.0
    for size, x in given.items():
        start = time.perf_counter()
        (found[size],) = here.run({"data": x})
        first = time.perf_counter() - start
        start = time.perf_counter()
        here.run({"data": x})
        second = time.perf_counter() - start
        (wanted,) = wanted_of.run({"data": x})
        error = float(np.abs(found[size].astype(np.float64) - wanted).max() / np.abs(wanted).max())
        worst = max(worst, error if np.isfinite(error) else np.inf)
        told = f"error {error:.1e}, {here.compilations} programs, {first:.3f} s, then {second:.4f} s"
        print(f"  {'x'.join(map(str, size))}: {told}", flush=True)
    same = all(np.array_equal(here.run({"data": x})[0], found[size]) for size, x in reversed(given.items()))
    bound = here._whole._open.bound_names if here.is_whole else "a model in parts"
    print(f"  largest error {worst:.1e}, {here.compilations} programs for {len(sizes)} sizes", flush=True)
    print(f"  the same bits again: {same}; sizes that are bound to numbers: {sorted(bound)}", flush=True)
    alone = weft.compile((symbol, params), target=target, precision=precision, specialise="always", **known)
    x = given[sizes[-1]]
    spent = [f"{milliseconds_of(model, x):.3f} ms" for model in (here, alone)]
    print(f"  a run on the device: {spent[0]}, by a program for the size alone {spent[1]}", flush=True)
    return worst <= BOUNDS[precision] and same and not bound and here.compilations < len(sizes)


def milliseconds_of(model, x: np.ndarray) -> float:
    """What a run takes where arrays stay on the device."""
    from weft.runtime.cuda.array import to_device

    there = to_device(x)
    (made,) = model.run({"data": there}, out="cuda")
    made.numpy()
    start = time.perf_counter()
    for _ in range(REPEATED):
        (made,) = model.run({"data": there}, out="cuda")
    made.numpy()
    return (time.perf_counter() - start) / REPEATED * 1e3


if __name__ == "__main__":
    sys.exit(main())
