"""Networks of a folder on the GPU of this machine: each NAME.onnx in every precision, against PyTorch's output.

    python benchmarks/export_networks.py /tmp/networks
    python benchmarks/gpu_files.py /tmp/networks                       all of them
    python benchmarks/gpu_files.py /tmp/networks vit_b_16 --peers      one, in fp16, beside PyTorch, too

A line has the seconds of the build, kernels and host steps, the largest difference as a part of the output's largest
magnitude with its bound, that of PyTorch in the same precision, and microseconds of a run on arrays that are on the
device already. Needs PyTorch with CUDA.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from export_networks import declared_operators, made
from gpu_networks import show, torch_runs
from torch import nn

import weft
from weft.runtime.cuda.array import to_device

BOUNDS = {"fp32": 1e-4, "tf32": 1e-3, "fp16": 2e-2, "bf16": 2e-2}
SHORT = {"fp16": torch.float16, "bf16": torch.bfloat16}
REPEATS, WINDOWS = 20, 5


def check(folder: Path, name: str) -> bool:
    saved = np.load(folder / f"{name}.npz")
    good, module = True, module_of(name)
    for precision, bound in BOUNDS.items():
        begun = time.perf_counter()
        model = weft.compile(folder / f"{name}.onnx", target="cuda", precision=precision)
        (found,) = model.run({model.inputs[0].name: saved["x"]})
        built = time.perf_counter() - begun
        off, peer = distance(found, saved["y"]), distance(by_torch(module, saved["x"], precision), saved["y"])
        report = model.report()
        good &= bool(off <= bound)
        verdict, spent = "ok " if off <= bound else "OVER", microseconds(on_device(model, saved["x"]))
        print(
            f"{name:16} {precision:5} {built:5.1f} s  {str(report).splitlines()[0]:50.50} {off:.1e} of {bound:.0e} "
            f"{verdict} PyTorch {peer:.1e} {spent:9.1f} us",
            flush=True,
        )
    return good


def distance(found: np.ndarray, wanted: np.ndarray) -> float:
    return float(np.abs(found - wanted).max() / np.abs(wanted).max())


def module_of(name: str) -> nn.Module:
    with declared_operators():
        return made(name)[0].cuda()


@torch.no_grad()
def by_torch(module: nn.Module, data: np.ndarray, precision: str) -> np.ndarray:
    """What PyTorch gives in a precision."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    dtype, x = SHORT.get(precision, torch.float32), torch.from_numpy(data).cuda()
    found = copy.deepcopy(module).to(dtype)(x.to(dtype) if x.is_floating_point() else x)
    return found.float().cpu().numpy()


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
    module = module_of(name)
    x = torch.from_numpy(saved["x"]).cuda()
    x = x.half() if x.is_floating_point() else x
    torch.backends.cudnn.benchmark = True
    show({"weft": on_device(model, saved["x"]), **torch_runs(module.half(), x)})


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
