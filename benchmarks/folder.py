#!/usr/bin/env python3
"""Speed of every ONNX file of a folder against the best of the other runtimes, sorted, with the kernels of losers.

    python benchmarks/folder.py /tmp/further                        # batch 1, two threads
    python benchmarks/folder.py /tmp/further --threads 1 --batch 8 --only swin_t --only vocoder
    python benchmarks/folder.py /tmp/further --cache /tmp/kernels   # kernels that were compiled before are not again

Inputs whose sizes a file leaves open are 1. Every contender is alone in its own process and rounds alternate, as in
benchmarks/cpu.py. benchmarks/further_networks.py makes a folder.
"""

from __future__ import annotations

import json
import os
import statistics
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import click
import onnx
from models import with_batch
from rich.console import Console
from rich.table import Table

import weft
from weft.tools.contenders import make_inputs
from weft.tools.race import Result, Rules, measure

CONTENDERS = ("weft", "onnxruntime", "openvino")
KERNELS = 6  # of a loser that are shown
console = Console(width=150)


class Row(NamedTuple):
    """What was measured of one file."""

    name: str
    path: Path
    results: dict[str, Result]

    @property
    def best(self) -> str:
        """The fastest of the others."""
        others = {name: r.best_ms for name, r in self.results.items() if name != "weft" and not r.failure}
        return min(others, key=lambda name: others[name]) if others else ""

    @property
    def ratio(self) -> float | None:
        """Its time over weft's."""
        ours = self.results["weft"]
        return None if ours.failure or not self.best else self.results[self.best].best_ms / ours.best_ms


def model_files(folder: Path, only: tuple[str, ...]) -> list[Path]:
    """Those of batch 1: others are made from them."""
    found = sorted(path for path in folder.glob("*.onnx") if path.stem.count(".b") == 0)
    return [path for path in found if not only or path.stem in only]


def inputs_of(path: Path) -> dict[str, tuple[tuple[int, ...], str]]:
    graph = onnx.load(str(path), load_external_data=False).graph
    weights = {tensor.name for tensor in graph.initializer}
    found = {}
    for value in graph.input:
        if value.name not in weights:
            kind = value.type.tensor_type
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            found[value.name] = (tuple(dim.dim_value or 1 for dim in kind.shape.dim), str(dtype))
    return found


def told(row: Row) -> str:
    """One line of what happened."""
    times = [
        f"{name} {r.failure[:60] or f'{r.best_ms:.3f} ms'}" for name, r in row.results.items() if r.failure or r.best_ms
    ]
    return f"{row.name}: {'-' if row.ratio is None else f'{row.ratio:.2f}'} ({', '.join(times)})"


def table(rows: list[Row]) -> Table:
    made = Table(title="best ms; ratio: the best of the others over weft")
    for name in ("file", *CONTENDERS, "ratio"):
        made.add_column(name, justify="left" if name == "file" else "right")
    for row in sorted(rows, key=lambda row: row.ratio or 0):
        cells = [r.failure[:24] if r.failure else f"{r.best_ms:.3f}" for r in row.results.values()]
        made.add_row(row.name, *cells, "-" if row.ratio is None else f"{row.ratio:.2f}")
    return made


def kernels(row: Row, threads: int) -> Table:
    """The slowest kernels of a file."""
    model = weft.compile(
        row.path, threads=threads, shape={name: shape for name, (shape, _) in inputs_of(row.path).items()}
    )
    specs = {spec.name: (tuple(map(int, spec.shape)), str(spec.dtype)) for spec in model.inputs}
    found = model.profile(rounds=20, **make_inputs(specs, 0, 100))
    made = Table(title=f"{row.name}: {len(found.slowest)} kernels, {found.seconds * 1e3:.3f} ms")
    for name in ("kernel", "from", "us", "share", "GFLOP/s", "GB/s"):
        made.add_column(name, justify="left" if name in ("kernel", "from") else "right")
    for step in found.slowest[:KERNELS]:
        source = step.sources[0][-40:] if step.sources else ""
        rate = "" if step.gflops is None else f"{step.gflops:.1f}"
        made.add_row(
            step.name[:60], source, f"{1e6 * step.seconds:.0f}", f"{step.share:.0%}", rate, f"{step.gbytes:.1f}"
        )
    return made


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--only", multiple=True, help="files of these names, without .onnx")
@click.option("--threads", type=int, default=2, show_default=True)
@click.option("--batch", type=int, default=1, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--cache", type=click.Path(path_type=Path), help="weft's kernels are kept here")
@click.option("--losers", type=float, default=1.0, show_default=True, help="kernels are shown below this ratio")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="write results here")
def main(
    folder: Path,
    only: tuple[str, ...],
    threads: int,
    batch: int,
    rounds: int,
    cache: Path | None,
    losers: float,
    json_file: Path | None,
) -> None:
    """Measures weft, ONNX Runtime and OpenVINO on the files of FOLDER."""
    if cache is not None:
        os.environ["WEFT_CACHE_DIR"] = str(cache)
    rows = []
    for path in model_files(folder, only):
        file = path if batch == 1 else with_batch(path, batch)
        rules = Rules(inputs=inputs_of(file), integers=100, cache=cache)
        results = measure(path.stem, file, CONTENDERS, threads, batch, rounds, rules)
        rows.append(Row(path.stem, file, {result.contender: result for result in results}))
        console.print(told(rows[-1]))
    console.print(table(rows))
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        console.print(
            f"geometric mean {statistics.geometric_mean(ratios):.3f} of {len(ratios)}, least {min(ratios):.2f}"
        )
    if json_file is not None:
        json_file.write_text(json.dumps([asdict(r) for row in rows for r in row.results.values()], indent=1))
    for row in rows:
        if row.ratio is not None and row.ratio < losers:
            console.print(kernels(row, threads))


if __name__ == "__main__":
    main()
