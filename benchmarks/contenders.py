#!/usr/bin/env python3
"""One runtime in a process of its own: requests come as lines of JSON, answers go as lines of JSON.

    python benchmarks/contenders.py weft model.onnx 2 /tmp/outputs

The first answer says how long loading took. Then {"seed": 3, "runs": 5} runs on inputs made from
that seed and the next ones, and gives the seconds of each run; {"seed": 3, "save": "y.npy"} writes
the outputs; {"stop": true} ends. Inputs depend on seed, name, shape and dtype only, so that all
runtimes get the same.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import importlib.metadata  # noqa: E402
import importlib.util  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
import zlib  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import numpy as np  # noqa: E402

TOKENS = 1000  # integer inputs are token ids below this

Array = np.ndarray[Any, np.dtype[Any]]
Inputs = dict[str, tuple[tuple[int, ...], str]]  # shape and dtype by name


class Loaded(NamedTuple):
    inputs: Inputs
    run: Callable[[dict[str, Array]], list[Array]]


def make_inputs(specs: Inputs, seed: int) -> dict[str, Array]:
    """Random arrays: normal floats, small non-negative integers."""
    made = {}
    for name, (shape, dtype) in specs.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if np.dtype(dtype).kind == "f":
            made[name] = rng.standard_normal(shape).astype(dtype)
        else:
            made[name] = rng.integers(0, TOKENS, shape).astype(dtype)
    return made


# The runtimes


def load_weft(path: Path, threads: int) -> Loaded:
    import weft

    model = weft.compile(path, threads=threads)
    specs = {s.name: (tuple(map(int, s.shape)), str(s.dtype)) for s in model.inputs}
    return Loaded(specs, model.run)


def load_onnxruntime(path: Path, threads: int) -> Loaded:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
    specs = {i.name: (tuple(i.shape), kinds[i.type]) for i in session.get_inputs()}
    return Loaded(specs, lambda arrays: session.run(None, arrays))


def load_openvino(path: Path, threads: int) -> Loaded:
    import openvino as ov

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = ov.Core().compile_model(str(path), "CPU", settings)
    request = compiled.create_infer_request()
    specs = {port.get_any_name(): (tuple(port.shape), str(port.element_type.to_dtype())) for port in compiled.inputs}

    def run(arrays: dict[str, Array]) -> list[Array]:
        request.infer(arrays)
        return [np.array(request.get_output_tensor(i).data) for i in range(len(compiled.outputs))]

    return Loaded(specs, run)


def load_torch(path: Path, threads: int) -> Loaded:
    """The module the file was exported from, made again from the same seed."""
    import export_networks as exporter
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(exporter.SEED)
    with exporter.declared_operators():
        network, x = exporter.build(path.stem.split(".")[0])
    exporter.disturb(network)
    exporter.calibrate(network, x)
    batch = batch_of(path)
    shape = (batch, *x.shape[1:])
    dtype = str(x.dtype).removeprefix("torch.")

    def run(arrays: dict[str, Array]) -> list[Array]:
        with torch.inference_mode():
            return [network(torch.from_numpy(arrays["input"])).numpy()]

    return Loaded({"input": (shape, dtype)}, run)


def batch_of(path: Path) -> int:
    """From a file name such as resnet50.b8.onnx."""
    parts = path.name.split(".")
    return int(parts[-2].removeprefix("b")) if len(parts) > 2 else 1


LOADERS: dict[str, Callable[[Path, int], Loaded]] = {
    "weft": load_weft,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
    "torch": load_torch,
}
NEEDS = {"openvino": ("openvino",), "torch": ("torch", "torchvision"), "onnxruntime": ()}


def available() -> list[str]:
    """The runtimes that are installed; weft and ONNX Runtime always take part."""
    return [name for name in LOADERS if all(importlib.util.find_spec(package) for package in NEEDS.get(name, ()))]


def version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "-"


# The loop


def answer(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def respond(model: Loaded, request: dict[str, Any]) -> None:
    seed = int(request["seed"])
    if "save" in request:
        np.save(request["save"], model.run(make_inputs(model.inputs, seed))[0])
        answer(saved=True)
        return
    seconds = []
    for number in range(int(request["runs"])):
        arrays = make_inputs(model.inputs, seed + number)
        start = time.perf_counter()
        model.run(arrays)
        seconds.append(time.perf_counter() - start)
    answer(seconds=seconds)


def peak_megabytes() -> float:
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def main() -> None:
    name, path, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    sys.stdout, out = sys.stderr, sys.stdout  # what libraries print must not mix with answers
    start = time.perf_counter()
    try:
        model = LOADERS[name](path, threads)
        loaded = time.perf_counter()
        model.run(make_inputs(model.inputs, 0))
    except Exception as error:
        sys.stdout = out
        answer(error=f"{type(error).__name__}: {error}"[:2000])
        return
    done = time.perf_counter()
    sys.stdout = out
    answer(load=loaded - start, first=done - STARTED, inputs=model.inputs, pid=os.getpid())
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("stop"):
            answer(peak=peak_megabytes())
            return
        respond(model, request)


if __name__ == "__main__":
    main()
