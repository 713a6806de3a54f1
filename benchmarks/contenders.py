#!/usr/bin/env python3
"""A runtime in a process of its own, as `weft/tools/contenders.py` has it, and PyTorch on the modules that the files of
`models.py` were exported from.

    python benchmarks/contenders.py torch resnet50.onnx 2
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import importlib.metadata  # noqa: E402
import importlib.util  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


def _process() -> Any:
    """That file of the package alone: loading weft would count against others."""
    found = importlib.util.find_spec("weft")
    assert found is not None and found.submodule_search_locations  # noqa: PT018
    path = Path(found.submodule_search_locations[0]) / "tools" / "contenders.py"
    spec = importlib.util.spec_from_file_location("weft_contenders", path)
    assert spec is not None and spec.loader is not None  # noqa: PT018
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


process = _process()
make_inputs, Loaded = process.make_inputs, process.Loaded


def load_torch(path: Path, threads: int, inputs: Any) -> Any:
    """The module the file was exported from, made again from the same seed."""
    import export_networks as exporter
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(exporter.SEED)
    with exporter.declared_operators():
        network, x = exporter.build(path.stem.split(".")[0], 1)
    exporter.disturb(network)
    exporter.calibrate(network, x)
    batch = batch_of(path)
    shape = (batch, *x.shape[1:])
    dtype = str(x.dtype).removeprefix("torch.")

    def run(arrays: Any) -> Any:
        with torch.inference_mode():
            return [network(torch.from_numpy(arrays["input"])).numpy()]

    return Loaded({"input": (shape, dtype)}, run)


def batch_of(path: Path) -> int:
    """From a file name such as resnet50.b8.onnx."""
    parts = path.name.split(".")
    return int(parts[-2].removeprefix("b")) if len(parts) > 2 else 1


LOADERS = {**process.LOADERS, "torch": load_torch}
NEEDS = {"openvino": ("openvino",), "torch": ("torch", "torchvision"), "onnxruntime": ()}


def available() -> list[str]:
    """The runtimes that are installed; weft and ONNX Runtime always take part."""
    return [name for name in LOADERS if all(importlib.util.find_spec(package) for package in NEEDS.get(name, ()))]


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "-"


if __name__ == "__main__":
    process.serve(LOADERS, STARTED)
