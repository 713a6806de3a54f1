#!/usr/bin/env python3
"""Exports architectures of torchvision and transformers to ONNX, and compares weft with PyTorch and ONNX Runtime.

    pip install torch==2.13.0 onnx onnxscript onnxruntime transformers pillow scipy
    pip install --no-deps torchvision==0.28.0
    python benchmarks/onnx_exports.py                                # all, both exporters
    python benchmarks/onnx_exports.py t5 swin_t --exporter dynamo --sizes open
    python benchmarks/onnx_exports.py --folder /tmp/exports          # where files are kept

Weights are random (architectures.py). Each network is exported by PyTorch's two exporters, with
every size a number, and with batch, sequence and, where it makes sense, image sizes open. A model
with open sizes answers three shapes in a row with one object. Exports have a process of their own,
and so has each run. States: agrees (weft is within 1e-3 of the largest magnitude of PyTorch's outputs, or
of ONNX Runtime's, or within four times the distance between these), differs, or the error in a line.
"""

from __future__ import annotations

import argparse
import inspect
import math
import multiprocessing
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from architectures import ARCHITECTURES, Architecture, Inputs, OpenAxes, Size, torchvision_operators
from export_networks import disturb
from side_by_side import ALLOWANCE, CLOSE, Limits, Ran, differences, milliseconds, run_apart, save_arrays
from torch import Tensor, nn

EXPORTERS = ("torchscript", "dynamo")
SIZES = ("static", "open")
SHAPES = 3  # that an open model answers
SEED = 2024


# Exporting, in a process of its own


def export_all(jobs: Sequence[str], root: Path) -> None:
    """Exports each "NAME.EXPORTER.SIZES" to a folder of that name, with the count of inputs in
    count.json; where that fails, error.txt says why."""
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    with torchvision_operators(), torch.no_grad():
        for job in jobs:
            folder = root / job
            folder.mkdir(parents=True, exist_ok=True)
            try:
                count = _export(*job.split("."), folder)
            except Exception as error:  # of an exporter, which may raise anything
                (folder / "error.txt").write_text(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
            else:
                (folder / "count.json").write_text(str(count))


def _export(name: str, exporter: str, sizes: str, folder: Path) -> int:
    """Writes model.onnx, inputs and PyTorch's outputs; how many inputs there are."""
    architecture = ARCHITECTURES[name]
    torch.manual_seed(SEED)
    network = architecture.build().eval()
    if architecture.disturbed:
        disturb(network)
    inputs = [architecture.inputs(size) for size in _sizes(architecture)[: SHAPES if sizes == "open" else 1]]
    for k, given in enumerate(inputs):
        save_arrays(folder / f"in{k}.npz", {key: value.numpy() for key, value in given.items()})
        outputs = network(*given.values())
        outputs = [outputs] if isinstance(outputs, Tensor) else outputs
        save_arrays(folder / f"torch{k}.npz", {str(i): y.numpy() for i, y in enumerate(outputs)})
    _write(network, inputs[0], architecture.open if sizes == "open" else {}, exporter, folder / "model.onnx")
    return len(inputs)


def _sizes(architecture: Architecture) -> list[Size]:
    """Three; sides of images grow where they may be open."""
    step = 32 if any("height" in axes.values() for axes in architecture.open.values()) else 0
    shapes = ((2, 12), (3, 7), (1, 16))
    return [Size(batch, length, architecture.side + step * k) for k, (batch, length) in enumerate(shapes)]


def _write(network: nn.Module, given: Inputs, open_axes: OpenAxes, exporter: str, path: Path) -> None:
    names = {"input_names": list(given), "verbose": False, "external_data": False}
    values = tuple(given.values())
    if exporter == "torchscript":
        torch.onnx.export(network, values, str(path), dynamo=False, opset_version=17, dynamic_axes=open_axes, **names)
        return
    shapes = [dict.fromkeys(open_axes.get(name, {}), torch.export.Dim.DYNAMIC) for name in given]
    dynamic = _by_argument(network, shapes) if open_axes else None
    torch.onnx.export(network, values, str(path), dynamo=True, dynamic_shapes=dynamic, **names)


def _by_argument(network: nn.Module, shapes: list[dict[int, Any]]) -> tuple[Any, ...]:
    """One entry an argument; those that *args takes are one tuple."""
    parameters = list(inspect.signature(network.forward).parameters.values())
    if parameters[-1].kind is not inspect.Parameter.VAR_POSITIONAL:
        return tuple(shapes)
    single = len(parameters) - 1
    return (*shapes[:single], tuple(shapes[single:]))


# Comparing


class Row(NamedTuple):
    ort: Ran
    weft: Ran
    state: str


def compare(folder: Path, count: int, limits: Limits) -> Row:
    model = folder / "model.onnx"
    ort, weft = (run_apart(runtime, model, folder, count, limits) for runtime in ("ort", "weft"))
    if weft.error:
        return Row(ort, weft, f"error: {weft.error}")
    worst = max(differences(folder, "weft", "torch", count))
    if worst <= CLOSE:
        return Row(ort, weft, f"agrees ({worst:.0e})")
    if ort.error:
        return Row(ort, weft, f"differs by {worst:.1e} (ONNX Runtime: {ort.error})")
    own = max(differences(folder, "ort", "torch", count))
    either = max(differences(folder, "weft", "ort", count))
    if either <= CLOSE:
        return Row(ort, weft, f"agrees with ONNX Runtime ({either:.0e}); both are {worst:.0e} from PyTorch")
    if math.isfinite(own) and worst <= ALLOWANCE * own:
        return Row(ort, weft, f"agrees ({worst:.0e}; ONNX Runtime {own:.0e})")
    return Row(ort, weft, f"differs by {worst:.1e} (ONNX Runtime {own:.0e}, from it {either:.0e})")


def missing_exports(jobs: Sequence[str], root: Path) -> list[str]:
    """Those that the folder does not have yet."""
    return [job for job in jobs if not any((root / job / file).exists() for file in ("count.json", "error.txt"))]


def try_export(folder: Path, limits: Limits) -> Row:
    """A row of the table."""
    if (folder / "error.txt").exists():
        return Row(Ran(), Ran(), f"not exported: {(folder / 'error.txt').read_text()}")
    if not (folder / "count.json").exists():
        return Row(Ran(), Ran(), "not exported: the process ended")
    return compare(folder, int((folder / "count.json").read_text()), limits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all")
    parser.add_argument("--exporter", choices=EXPORTERS, help="default: both")
    parser.add_argument("--sizes", choices=SIZES, help="default: both")
    parser.add_argument("--folder", type=Path, help="keeps the exports; default: they are made and dropped")
    parser.add_argument("--seconds", type=float, default=Limits().seconds, help="limit of a run")
    options = parser.parse_intermixed_args()
    unknown = [name for name in options.names if name not in ARCHITECTURES]
    if unknown:
        parser.error(f"no architecture {unknown[0]!r}; there are {', '.join(ARCHITECTURES)}")
    exporters = [options.exporter] if options.exporter else EXPORTERS
    sizes = [options.sizes] if options.sizes else SIZES
    jobs = [".".join(parts) for parts in product(options.names or ARCHITECTURES, exporters, sizes)]
    with tempfile.TemporaryDirectory() as scratch:
        root = options.folder or Path(scratch)
        process = multiprocessing.get_context("spawn").Process(
            target=export_all, args=(missing_exports(jobs, root), root)
        )
        process.start()
        process.join()
        table(jobs, root, Limits(options.seconds))


def table(jobs: Sequence[str], root: Path, limits: Limits) -> None:
    print("| architecture | exporter | sizes | ONNX Runtime ms | weft first ms | weft ms | state |")
    print("|---|---|---|---|---|---|---|")
    states: Counter[str] = Counter()
    for job in jobs:
        row = try_export(root / job, limits)
        states[row.state.partition(":")[0].split()[0]] += 1
        times = map(milliseconds, (row.ort.repeat, row.weft.first, row.weft.repeat))
        print("| " + " | ".join((*job.split("."), *times, row.state)) + " |", flush=True)
    print("\n" + ", ".join(f"{count} {state}" for state, count in sorted(states.items())))


if __name__ == "__main__":
    main()
