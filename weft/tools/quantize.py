"""`quantize_model`: a model and a file of sample data become an ONNX file of levels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..base.errors import FormatError, NotFound
from ..base.shown import Shown
from ..compiler.quantise.entry import QuantiseReport, quantize
from ..frontend.onnx.exporter import to_onnx
from ..runtime.program import Array
from .inputs import ALONE
from .model_files import Shapes, open_model
from .progress import Stages


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
    to_onnx(made.symbol, made.params, out)
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
