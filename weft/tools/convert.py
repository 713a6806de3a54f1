"""`weft convert`: a model file comes in; an ONNX file goes out that gives the same outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .. import frontend
from ..base.dtype import is_float
from ..base.errors import InvalidValue, RunError, Unsupported
from ..base.shape import Dim
from ..base.shown import Shown, rows
from ..compiler.model import InputSpec, compile
from ..core.ir import topo_order
from ..core.symbol import Symbol
from ..runtime.program import Array
from .differences import difference_of
from .inputs import dims_of, likely_shapes, random_array
from .model_files import read_model
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


def convert_model(
    path: Path | str,
    output: Path | str,
    params: Path | str | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
    opset: int = 17,
    stages: Stages | None = None,
) -> Converted:
    """Reads a model, writes it as ONNX, and compares what both give."""
    path, output, stages = Path(path), Path(output), stages or Stages()
    if output.suffix.lower() != ".onnx":
        raise InvalidValue(f"{output.name!r} is no name of an ONNX file", hint="end it in .onnx")
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
