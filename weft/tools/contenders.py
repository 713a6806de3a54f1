"""One runtime in a process of its own: requests come as lines of JSON, answers go as lines of JSON.

    python -P weft/tools/contenders.py onnxruntime model.onnx 2 '{"inputs": {"x": [[1, 3], "float32"]}}'

The first answer says how long loading took. Then {"seed": 3, "runs": 5} runs on inputs made from
that seed and the next ones, and gives the seconds of each run; {"seed": 3, "save": "y.npy"} writes
the first output; {"stop": true} ends. Inputs depend on seed, name, shape and dtype only, so that all
runtimes get the same; with {"arrays": "x.npz"}, as `save_arrays` writes it, they are those each time.
The file is run as it is, without the package around it: what that takes to load would count against
other runtimes.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

import json  # noqa: E402
import os  # noqa: E402
import resource  # noqa: E402
import sys  # noqa: E402
import zlib  # noqa: E402
from collections.abc import Callable, Mapping  # noqa: E402
from contextlib import suppress  # noqa: E402
from importlib import import_module  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, NamedTuple  # noqa: E402

import numpy as np  # noqa: E402

TOKENS = 1000  # integer inputs are below this, unless told

Array = np.ndarray[Any, np.dtype[Any]]
Inputs = dict[str, tuple[tuple[int, ...], str]]  # shape and dtype by name


class Loaded(NamedTuple):
    """A model that is ready: its inputs, and what runs it."""

    inputs: Inputs
    run: Callable[[dict[str, Array]], list[Array]]


def make_inputs(specs: Inputs, seed: int, integers: int = TOKENS) -> dict[str, Array]:
    """Random arrays: normal floats, small non-negative integers."""
    made = {}
    for name, (shape, dtype) in specs.items():
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        if np.dtype(dtype).kind == "f":
            made[name] = rng.standard_normal(shape).astype(dtype)
        else:
            made[name] = rng.integers(0, integers, shape).astype(dtype)
    return made


def save_arrays(path: Path, arrays: Mapping[str, Array]) -> None:
    """A file of arrays by any names; words are text in it, and objects in memory."""
    numbered = {f"a{k}": plain(array) for k, array in enumerate(arrays.values())}
    np.savez(path, **numbered, names=list(arrays))  # type: ignore[arg-type]


def load_arrays(path: Path) -> dict[str, Array]:
    """What `save_arrays` wrote."""
    with np.load(path) as stored:
        found = {str(name): stored[f"a{k}"] for k, name in enumerate(stored["names"])}
    return {name: array.astype(object) if array.dtype.kind == "U" else array for name, array in found.items()}


def plain(array: Array) -> Array:
    """As files hold it."""
    return array.astype(str) if array.dtype == object else array


# The runtimes: each takes a path, a number of threads, and the inputs where the caller knows better than the file.


def load_weft(path: Path, threads: int, inputs: Inputs) -> Loaded:
    weft = import_module("weft")
    if path.suffix in (".pt", ".pth"):
        arrays = make_inputs(inputs, 0)
        with suppress(weft.Error):  # unless weft makes no graph of it
            made = import_module("weft.tools.model_files").model_as_read(path, arrays=arrays, threads=threads)
            made.run(arrays)
            return Loaded(inputs, made.run)
        module = weft.jit.load(str(path)).eval()
        weft.set_num_threads(threads)

        def run(arrays: Mapping[str, Array]) -> list[Array]:
            with weft.no_grad():
                return _outputs(module(*[weft.from_numpy(arrays[name]) for name in inputs]))

        return Loaded(inputs, run)
    model = weft.compile(path, threads=threads, shape={name: shape for name, (shape, _) in inputs.items()} or None)
    specs = {s.name: (tuple(map(int, s.shape)), str(s.dtype)) for s in model.inputs}
    return Loaded(specs, model.run)


def load_onnxruntime(path: Path, threads: int, inputs: Inputs) -> Loaded:
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = 3
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
    specs = inputs or {i.name: (tuple(i.shape), kinds[i.type]) for i in session.get_inputs()}
    return Loaded(specs, lambda arrays: session.run(None, arrays))


def load_openvino(path: Path, threads: int, inputs: Inputs) -> Loaded:
    ov = import_module("openvino")
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    core = ov.Core()
    model = core.read_model(str(path))
    if inputs:
        model.reshape({name: list(shape) for name, (shape, _) in inputs.items()})
    compiled = core.compile_model(model, "CPU", settings)
    request = compiled.create_infer_request()
    specs = {port.get_any_name(): (tuple(port.shape), str(port.element_type.to_dtype())) for port in compiled.inputs}

    def run(arrays: Mapping[str, Array]) -> list[Array]:
        request.infer(arrays)
        return [np.array(request.get_output_tensor(i).data) for i in range(len(compiled.outputs))]

    return Loaded(specs, run)


def load_torch(path: Path, threads: int, inputs: Inputs) -> Loaded:
    """An archive of TorchScript."""
    torch = import_module("torch")
    torch.set_num_threads(threads)
    module = torch.jit.load(str(path)).eval()

    def run(arrays: Mapping[str, Array]) -> list[Array]:
        with torch.inference_mode():
            return _outputs(module(*[torch.from_numpy(arrays[name]) for name in inputs]))

    return Loaded(inputs, run)


def _outputs(given: Any) -> list[Array]:
    return [tensor.detach().numpy() for tensor in (given if isinstance(given, (tuple, list)) else [given])]


Loader = Callable[[Path, int, Inputs], Loaded]
LOADERS: dict[str, Loader] = {
    "weft": load_weft,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
    "torch": load_torch,
}


# The loop


def answer(**fields: Any) -> None:
    """Writes a line."""
    print(json.dumps(fields), flush=True)


def respond(model: Loaded, request: dict[str, Any], draw: Callable[[int], dict[str, Array]]) -> None:
    """Runs the model as often as a request says, on what is drawn for a seed."""
    seed = int(request["seed"])
    if "save" in request:
        np.save(request["save"], plain(np.asarray(model.run(draw(seed))[0])))
        answer(saved=True)
        return
    seconds = []
    for number in range(int(request["runs"])):
        arrays = draw(seed + number)
        start = time.perf_counter()
        model.run(arrays)
        seconds.append(time.perf_counter() - start)
    answer(seconds=seconds)


def peak_megabytes() -> float:
    """The most memory that this process had."""
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def serve(loaders: Mapping[str, Loader], started: float) -> None:
    """Loads the model that the arguments name, and answers until it is told to stop."""
    name, path, threads = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    told = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    given = load_arrays(Path(told["arrays"])) if told.get("arrays") else None
    inputs = {key: (tuple(shape), dtype) for key, (shape, dtype) in told.get("inputs", {}).items()}
    inputs = inputs if given is None else {name: (array.shape, str(array.dtype)) for name, array in given.items()}
    sys.stdout, out = sys.stderr, sys.stdout  # what libraries print must not mix with answers
    start = time.perf_counter()
    try:
        model = loaders[name](path, threads, inputs)
        loaded = time.perf_counter()

        def draw(seed: int) -> dict[str, Array]:
            return make_inputs(model.inputs, seed, told.get("integers", TOKENS)) if given is None else dict(given)

        model.run(draw(0))
    except Exception as error:
        sys.stdout = out
        answer(error=f"{type(error).__name__}: {error}"[:2000])
        return
    done = time.perf_counter()
    sys.stdout = out
    answer(load=loaded - start, first=done - started, inputs=model.inputs, pid=os.getpid())
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("stop"):
            answer(peak=peak_megabytes())
            return
        respond(model, request, draw)


if __name__ == "__main__":
    serve(LOADERS, STARTED)
