#!/usr/bin/env python3
"""Speed of every ONNX file of a folder against the best of the other runtimes, sorted, with the kernels of losers.

    python benchmarks/folder.py /tmp/further                        # batch 1, two threads
    python benchmarks/folder.py /tmp/further --threads 1 --batch 8 --only swin_t --only vocoder
    python benchmarks/folder.py /tmp/further --cache /tmp/kernels   # kernels that were compiled before are not again
    python benchmarks/folder.py /tmp/packages --packages            # files that Python packages carry, fetched to there

Sizes that a file leaves open, and whole numbers, are those of benchmarks/onnx_inputs.py. How far outputs of packages'
files agree is what benchmarks/onnx_files.py tells, and no reason to leave one out. Every contender is alone in
its own process and rounds alternate, as in benchmarks/cpu.py. benchmarks/further_networks.py makes a folder.
"""

from __future__ import annotations

import json
import math
import os
import re
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import click
from models import with_batch
from onnx_files import PACKAGES
from onnx_files import model_files as package_files
from rich.console import Console
from rich.table import Table
from side_by_side import Array, Failed, Limits, ask, load_arrays

import weft
from weft.tools.race import Result, Rules, measure

CONTENDERS = ("weft", "onnxruntime", "openvino")
KERNELS = 6  # of a loser that are shown
console = Console(width=150)


class Row(NamedTuple):
    """What was measured of one file."""

    name: str
    path: Path
    inputs: dict[str, Array]
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


def model_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Those of batch 1, with their names: others are made from them."""
    for path in sorted(folder.glob("*.onnx")):
        if not re.search(r"\.b\d+$", path.stem):
            yield path.stem, path


def files_of_packages(cache: Path) -> Iterator[tuple[str, Path]]:
    """Those that packages carry, each once."""
    for file in package_files(PACKAGES, cache):
        yield f"{file.package.split('==')[0]}/{file.name.removesuffix('.onnx')}", file.path


def inputs_of(path: Path, folder: Path) -> Path:
    """A file with arrays that the model takes."""
    script = Path(__file__).with_name("onnx_inputs.py")
    ask([sys.executable, str(script), str(path), str(folder), "1"], Limits())
    return folder / "in0.npz"


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
    shapes = {name: array.shape for name, array in row.inputs.items()}
    model = weft.compile(row.path, threads=threads, shape=shapes)
    found = model.profile(rounds=20, **row.inputs)
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


def raced(name: str, path: Path, threads: int, batch: int, rounds: int, rules: Rules) -> Row | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            arrays = inputs_of(path, Path(folder))
        except Failed as failure:
            console.print(f"{name}: no inputs: {failure}")
            return None
        results = measure(name, path, CONTENDERS, threads, batch, rounds, rules._replace(arrays=arrays))
        return Row(name, path, load_arrays(arrays), {result.contender: result for result in results})


@click.command()
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--packages", is_flag=True, help="files of packages, which are fetched to FOLDER if they are not there")
@click.option("--only", multiple=True, help="files whose names have this in them")
@click.option("--threads", type=int, default=2, show_default=True)
@click.option("--batch", type=int, default=1, show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--cache", type=click.Path(path_type=Path), help="weft's kernels are kept here")
@click.option("--losers", type=float, default=1.0, show_default=True, help="kernels are shown below this ratio")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="write results here")
def main(
    folder: Path,
    packages: bool,
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
    for name, path in files_of_packages(folder) if packages else model_files(folder):
        if not only or any(part in name for part in only):
            rules = Rules(cache=cache, tolerance=math.inf) if packages else Rules(cache=cache)
            row = raced(name, path if batch == 1 else with_batch(path, batch), threads, batch, rounds, rules)
            if row is not None:
                rows.append(row)
                console.print(told(row))
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
            try:
                console.print(kernels(row, threads))
            except weft.Error as error:  # a model that values cut has no list of kernels
                console.print(f"{row.name}: {error}")


if __name__ == "__main__":
    main()
