"""The model files that are measured: found in a folder, or made there on first use."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

from weft import testing
from weft.frontend import to_onnx

NETWORKS = (
    "resnet50",
    "mobilenet_v2",
    "vgg16",
    "densenet121",
    "efficientnet_b0",
    "squeezenet1_1",
    "inception_v3",
    "vit_b_16",
    "bert",
)
# Networks of the same name that weft itself builds: (module, arguments, shape of the input).
OWN: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "resnet50": ("resnet", {"num_layers": 50}, (3, 224, 224)),
    "mobilenet_v2": ("mobilenet_v2", {}, (3, 224, 224)),
    "vgg16": ("vgg", {"num_layers": 16}, (3, 224, 224)),
    "densenet121": ("densenet", {"num_layers": 121}, (3, 224, 224)),
    "squeezenet1_1": ("squeezenet", {"version": "1.1"}, (3, 224, 224)),
    "inception_v3": ("inception_v3", {}, (3, 299, 299)),
    "vit_b_16": ("vit", {}, (3, 224, 224)),
    "bert": ("bert", {}, (128,)),
}
EXPORT_SECONDS = 900
NEEDED = {
    "torch": "torch==2.13.0",
    "torchvision": "--no-deps torchvision==0.28.0",
    "onnxscript": "onnxscript",
    "transformers": "transformers",
}


class NotThere(Exception):
    """A model that can neither be found nor made."""


def model_file(name: str, folder: Path, batch: int) -> Path:
    """The file of a network for a batch size."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        path = _exported(name, folder) if not _missing(name) else _own(name, folder)
    return path if batch == 1 else with_batch(path, batch)


def _missing(name: str) -> list[str]:
    packages = ["torch", "onnxscript", "transformers" if name == "bert" else "torchvision"]
    return [package for package in packages if importlib.util.find_spec(package) is None]


def _exported(name: str, folder: Path) -> Path:
    script = Path(__file__).parent / "export_networks.py"
    command = [sys.executable, str(script), str(folder), name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=EXPORT_SECONDS)
    if done.returncode:
        raise NotThere(f"export failed: {done.stderr.strip().splitlines()[-1][:200]}")
    return folder / f"{name}.onnx"


def _own(name: str, folder: Path) -> Path:
    """weft's own network of that name, written as ONNX."""
    hint = ", ".join(f"pip install {NEEDED[package]}" for package in _missing(name))
    if name not in OWN:
        raise NotThere(f"no model file in {folder}; to make it: {hint}")
    path = folder / f"{name}.own.onnx"
    if not path.exists():
        print(f"{name}: weft's own network of that name (for torchvision's: {hint})")
        module, arguments, shape = OWN[name]
        net, params = getattr(testing, module).get_workload(batch_size=1, **arguments)
        dtype = "int64" if name == "bert" else "float32"
        to_onnx(net, params, path, shape={"data": (1, *shape)}, dtype={"data": dtype})
    return path


def with_batch(path: Path, batch: int) -> Path:
    """The model with another first dimension, also in what reshapes to a constant shape."""
    target = path.with_name(f"{path.stem.removesuffix('.own')}.b{batch}.onnx")
    if target.exists() and target.stat().st_mtime >= path.stat().st_mtime:
        return target
    model = onnx.load(str(path))
    graph = model.graph
    for value in (*graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if dims and dims[0].dim_value == 1:
            dims[0].dim_value = batch
    del graph.value_info[:]
    shapes = {node.input[1] for node in graph.node if node.op_type in ("Reshape", "Expand")}
    for initializer in graph.initializer:
        if initializer.name in shapes:
            numbers = numpy_helper.to_array(initializer).copy()
            if numbers.size > 1 and numbers[0] == 1:
                numbers[0] = batch
                initializer.CopyFrom(numpy_helper.from_array(numbers, initializer.name))
    onnx.save(model, str(target))
    return target
