"""Networks of a folder on the GPU of this machine: each NAME.onnx in every precision, against PyTorch's output.

    python benchmarks/export_networks.py /tmp/networks
    python benchmarks/gpu_files.py /tmp/networks                       all of them
    python benchmarks/gpu_files.py /tmp/networks vit_b_16 --peers      one, in fp16, beside PyTorch, too

A line has the seconds of the build, kernels and host steps, the largest difference as a part of the output's largest
magnitude with its bound, and microseconds of a run on arrays that are on the device already. Needs PyTorch with CUDA.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from export_networks import build, declared_operators
from gpu_networks import show, torch_runs

import weft
from weft.runtime.cuda.array import to_device

BOUNDS = {"fp32": 1e-4, "tf32": 1e-2, "fp16": 2e-2, "bf16": 2e-2}
REPEATS, WINDOWS = 20, 5


def check(folder: Path, name: str) -> bool:
    saved = np.load(folder / f"{name}.npz")
    good = True
    for precision, bound in BOUNDS.items():
        begun = time.perf_counter()
        model = weft.compile(folder / f"{name}.onnx", target="cuda", precision=precision)
        (found,) = model.run({model.inputs[0].name: saved["x"]})
        built = time.perf_counter() - begun
        off = np.abs(found - saved["y"]).max() / np.abs(saved["y"]).max()
        report = model.report()
        good &= bool(off <= bound)
        print(
            f"{name:16} {precision:5} {built:5.1f} s  {str(report).splitlines()[0]:50.50} {off:.1e} of {bound:.0e} "
            f"{'ok ' if off <= bound else 'OVER'} {microseconds(on_device(model, saved['x'])):9.1f} us",
            flush=True,
        )
    return good


def on_device(model: Any, data: np.ndarray) -> Callable[[], Any]:
    given = {model.inputs[0].name: to_device(data)}
    held = model.run(given, out="cuda")
    return lambda: model.run(given, out=held)


def microseconds(run: Callable[[], Any]) -> float:
    windows = []
    for _ in range(WINDOWS):
        run()
        weft.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(REPEATS):
            run()
        weft.cuda.synchronize()
        windows.append((time.perf_counter() - begun) * 1e6 / REPEATS)
    return min(windows)


def beside_torch(folder: Path, name: str) -> None:
    saved = np.load(folder / f"{name}.npz")
    model = weft.compile(folder / f"{name}.onnx", target="cuda", precision="fp16")
    with declared_operators():
        module, _ = build(name, 1)
    x = torch.from_numpy(saved["x"]).cuda()
    x = x.half() if x.is_floating_point() else x
    torch.backends.cudnn.benchmark = True
    show({"weft": on_device(model, saved["x"]), **torch_runs(module.half().cuda(), x)})


def main(words: Sequence[str]) -> int:
    folder, *names = [word for word in words if not word.startswith("--")]
    names = names or sorted(path.stem for path in Path(folder).glob("*.onnx"))
    good = [check(Path(folder), name) for name in names]
    if "--peers" in words:
        for name in names:
            print(f"{name}, fp16, beside PyTorch")
            beside_torch(Path(folder), name)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
