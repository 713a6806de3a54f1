"""`weft convert` and `weft quantize`: a model file comes in; an ONNX file goes out that gives the same outputs, or
nearly the same by products of bytes; or a compiled program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .. import frontend
from ..base.dtype import is_float
from ..base.errors import FormatError, InvalidValue, NotFound, RunError, Unsupported
from ..base.shape import Dim
from ..base.shown import Shown, rows
from ..compiler.model import InputSpec, compile
from ..compiler.quantise.entry import QuantiseReport, quantize
from ..core.ir import topo_order
from ..core.symbol import Symbol
from ..runtime.program import Array
from .differences import difference_of
from .inputs import ALONE, complete_inputs, dims_of, likely_shapes, random_array
from .model_files import Shapes, model_as_read, open_model, read_model
from .progress import Stages

TOLERANCE = 1e-3  # of the output's largest magnitude, between two runtimes in float32
TRIES = 3  # sets of random inputs: where boxes are chosen, rounding may decide between two
RUNTIME = "onnxruntime"


@dataclass(frozen=True, repr=False)
class Converted(Shown):
    """What was read, how it was checked, and what was written."""

    source: str
    operators: int
    parameters: int
    opset: int
    compared: str
    file: str
    bytes: int

    def text(self, width: int | None = None) -> str:
        return rows(
            [
                ("read", f"{self.source}: {self.operators} operators, {self.parameters} parameters"),
                ("checked", f"onnx {version('onnx')}, opset {self.opset}; {self.compared}"),
                ("wrote", f"{self.file} ({self.bytes / 1e6:.1f} MB)"),
            ]
        )


@dataclass(frozen=True, repr=False)
class Compiled(Shown):
    """What was read, and the program that was written."""

    source: str
    inputs: list[str]
    kernels: int
    file: str
    bytes: int

    def text(self, width: int | None = None) -> str:
        return rows(
            [
                ("read", f"{self.source}: {', '.join(self.inputs)}"),
                ("code", f"{self.kernels} kernels for this machine; weft run takes it, as weft.runtime.load does"),
                ("wrote", f"{self.file} ({self.bytes / 1e6:.1f} MB)"),
            ]
        )


def convert_model(
    path: Path | str,
    output: Path | str,
    params: Path | str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    opset: int = 17,
    stages: Stages | None = None,
) -> Converted | Compiled:
    """Reads a model, writes it as ONNX, and compares what both give; or, as a file that ends in .weft, compiled."""
    path, output, stages = Path(path), Path(output), stages or Stages()
    if output.suffix.lower() == ".weft":
        return _compiled(path, output, params, shapes, stages)
    if output.suffix.lower() != ".onnx":
        raise InvalidValue(f"{output.name!r} is neither an ONNX file nor a program", hint="end it in .onnx or .weft")
    stages.begin("read")
    symbol, values = read_model(path, None if params is None else Path(params), shapes or {})
    names = set(symbol.list_input_names())
    known = {name: dims for name, dims in (shapes or {}).items() if name in names}
    compared: list[str] = []

    def verify(file: Path) -> None:
        compared.append(compare(symbol, values, known, file, stages))

    stages.begin("write")
    frontend.to_onnx(symbol, values, output, shape=known, opset=opset, verify=verify)
    nodes = sum(node.op is not None for node in topo_order(symbol.outputs))
    return Converted(path.name, nodes, len(values), opset, compared[0], str(output), output.stat().st_size)


def _compiled(path: Path, output: Path, params: Path | str | None, shapes: Shapes | None, stages: Stages) -> Compiled:
    stages.begin("read")
    model = model_as_read(path, shapes, params)
    stages.begin("compile")
    model.prepare_known(stages.progress, complete_inputs(model.inputs, {}, shapes))
    model.save(output)
    inputs, kernels = [str(spec) for spec in model.inputs], len(model.program.kernels)
    return Compiled(path.name, inputs, kernels, str(output), output.stat().st_size)


# What the file gives, against what weft gives for the model it came from.


def compare(
    symbol: Symbol, params: Mapping[str, Any], shapes: Mapping[str, Sequence[Dim]], file: Path, stages: Stages
) -> str:
    """How far apart they are, as text; raises if that is too far."""
    stages.begin("compile")
    model = compile((symbol, dict(params)), shape=shapes, progress=stages.progress)
    stages.begin("compare")
    other = _runner(file, stages)
    if other is None:
        return f"not compared: that needs {RUNTIME}"
    name, run = other
    largest = 0.0
    likely = likely_shapes(model.inputs)  # where dimensions stay open
    specs = [InputSpec(spec.name, likely.get(spec.name, dims_of(spec)), spec.dtype) for spec in model.inputs]
    for seed in range(TRIES):
        rng = np.random.default_rng(seed)
        inputs = {spec.name: random_array(rng, spec) for spec in specs}
        differences = {
            key: difference(output, wanted)
            for key, output, wanted in zip(model.outputs, run(inputs), model.run(inputs), strict=True)
        }
        largest = max(differences.values(), default=0.0)
        if largest <= TOLERANCE:
            return f"{name} gives the same within {largest:.1g}"
    worst = max(differences, key=lambda key: differences[key])
    raise RunError(
        f"the ONNX file gives other outputs than the model: {worst!r} is off by {largest:.2g} of its largest magnitude",
        where=name,
        why="nothing was written",
    )


def difference(output: Array, wanted: Array) -> float:
    """The largest difference, of floats as part of the largest magnitude; inf where shapes or dtypes differ.

    >>> difference(np.array([1.0, 2.5]), np.array([1.0, 2.0]))
    0.25
    """
    if output.dtype != wanted.dtype:
        return float("inf")
    found = difference_of(output, wanted)
    return found.relative if is_float(wanted.dtype) else found.max_abs


def _runner(file: Path, stages: Stages) -> tuple[str, Any] | None:
    """The name of a runtime that runs the file, and a function from inputs to outputs."""
    if find_spec(RUNTIME) is not None:
        run = _by_onnxruntime(file)
        if run is not None:
            return f"{RUNTIME} {version(RUNTIME)}", run
    try:
        model = compile(file, progress=stages.progress)
    except Unsupported:
        return None
    return "weft, reading it again,", model.run


def _by_onnxruntime(file: Path) -> Any:
    ort = import_module(RUNTIME)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        session = ort.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except ort.capi.onnxruntime_pybind11_state.NotImplemented:
        return None  # it lacks an operator for some dtype
    except Exception as error:
        raise RunError(f"{RUNTIME} does not load the ONNX file", why=str(error)[:300]) from None
    names = [item.name for item in session.get_inputs()]
    return lambda inputs: session.run(None, {name: inputs[name] for name in names})


# Models of bytes.


@dataclass(frozen=True, repr=False)
class QuantiseResult(Shown):
    """What was written, and what it costs."""

    model: str
    out: str
    report: QuantiseReport

    def text(self, width: int | None = None) -> str:
        return f"{self.report.text(width)}\n{self.model} -> {self.out}"


def quantize_model(
    model: Any,
    out: Path | str,
    data: Path | str,
    *,
    method: str = "minmax",
    shape: Shapes | None = None,
    activations: str = "uint8",
    least_decibels: float = 20.0,
    threads: int | None = None,
    stages: Stages | None = None,
) -> QuantiseResult:
    """Writes a model of bytes as ONNX, with QuantizeLinear and DequantizeLinear. `data` is an .npz file with an array
    for each input, or an .npy file for the only one; their first axis counts samples, of which the model takes a batch
    at a time."""
    stages = stages or Stages()
    stages.begin("read")
    opened = open_model(model, shape).model
    batches = list(_batches(Path(data), opened.inputs))
    stages.begin("calibrate")
    told = lambda done, total: stages.progress(done, total or done)
    made = quantize(
        model,
        batches,
        method,
        shape={spec.name: spec.shape for spec in opened.inputs if spec.shape is not None},
        activations=activations,
        least_decibels=least_decibels,
        threads=threads,
        progress=told,
    )
    frontend.to_onnx(made.symbol, made.params, out)
    return QuantiseResult(str(model), str(out), made.report)


def _batches(path: Path, specs: Any) -> Iterator[dict[str, Array]]:
    """Samples in batches as large as the inputs say."""
    if not path.exists():
        raise NotFound(f"there is no file {path}")
    try:
        read = np.load(path, allow_pickle=False)
    except (ValueError, OSError) as error:
        hint = "numpy.savez(FILE, NAME=array)"
        raise FormatError(f"{path.name} is no file of arrays", why=str(error), hint=hint) from None
    arrays = {ALONE: read} if isinstance(read, np.ndarray) else dict(read)
    names = [spec.name for spec in specs]
    if len(names) == 1 and len(arrays) == 1:
        arrays = {names[0]: next(iter(arrays.values()))}
    missing = [name for name in names if name not in arrays]
    if missing:
        raise NotFound(f"{path.name} has no array {missing[0]!r}", why="it has " + ", ".join(arrays))
    sizes = {spec.name: spec.shape[0] if spec.shape else 1 for spec in specs}
    count = min(len(arrays[name]) // max(int(sizes[name] or 1), 1) for name in names)
    if not count:
        raise FormatError(f"{path.name} has fewer samples than a batch of the model")
    for number in range(count):
        parts = {name: int(sizes[name] or 1) for name in names}
        yield {name: arrays[name][number * size : (number + 1) * size] for name, size in parts.items()}
