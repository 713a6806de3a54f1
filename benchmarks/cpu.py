#!/usr/bin/env python3
"""Speed of nine networks against other runtimes, one table and a JSON file.

    python benchmarks/cpu.py                         all networks, 1 and 2 threads, batch 1 and 8
    python benchmarks/cpu.py --quick                 two networks, batch 1, few rounds
    python benchmarks/cpu.py --kernels resnet50      every kernel of one network

Every contender is alone in its own process, and only one of them computes at a time: rounds go from
one to the next. Inputs change with every run; outputs are compared with ONNX Runtime's.
"""

from __future__ import annotations

import json
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from contenders import available, make_inputs, version
from models import NETWORKS, NotThere, model_file
from rich.console import Console
from rich.table import Table

import weft
from weft.base.cpu_target import host
from weft.tools.peak import fma_peak
from weft.tools.race import Result, Rules, measure

HERE = Path(__file__).parent
QUICK = ("squeezenet1_1", "mobilenet_v2")

console = Console(width=None if sys.stdout.isatty() else 150)


# What is shown


def ratio(results: list[Result], of: str = "best_ms") -> float | None:
    """ONNX Runtime's time over weft's."""
    times = {r.contender: getattr(r, of) for r in results if not r.failure}
    if not times.get("weft") or not times.get("onnxruntime"):
        return None
    return float(times["onnxruntime"] / times["weft"])


def row(results: list[Result], contenders: list[str]) -> list[str]:
    first = results[0]
    ours = next(r for r in results if r.contender == "weft")
    cells = [first.network, str(first.batch), str(first.threads)]
    by_name = {r.contender: r for r in results}
    for name in contenders:
        result = by_name[name]
        failed = f"[red]{result.failure.split(':')[0][:24]}[/]"
        cells.append(failed if result.failure else f"{result.best_ms:.2f} / {result.median_ms:.2f}")
    factor = ratio(results)
    cells.append("-" if factor is None else f"{factor:.2f}")
    cells += [f"{ours.load_cold_s:.2f}", f"{ours.load_s:.2f}", f"{ours.first_result_s:.2f}"]
    cells.append(" / ".join(f"{by_name[name].peak_mb:.0f}" for name in contenders))
    return cells


def table(groups: list[list[Result]], contenders: list[str]) -> Table:
    made = Table(title="best / median ms; ratio is ONNX Runtime's best over weft's")
    for name in ("network", "batch", "threads"):
        made.add_column(name)
    for name in contenders:
        made.add_column(name, justify="right")
    for name in ("ratio", "cold s", "cached s", "first result s", "peak MB"):
        made.add_column(name, justify="right")
    for results in groups:
        made.add_row(*row(results, contenders))
    return made


def summary(groups: list[list[Result]]) -> list[dict[str, Any]]:
    """For each number of threads and batch: the geometric mean of the ratios, and the worst."""
    lines = []
    for key in sorted({(g[0].threads, g[0].batch) for g in groups}):
        found = {
            g[0].network: value for g in groups if (g[0].threads, g[0].batch) == key and (value := ratio(g)) is not None
        }
        if found:
            worst = min(found, key=lambda name: found[name])
            mean = statistics.geometric_mean(found.values())
            lines.append(
                {"threads": key[0], "batch": key[1], "geometric_mean": mean, "networks": len(found)}
                | {"worst": worst, "worst_ratio": found[worst]}
            )
    return lines


def machine(threads: tuple[int, ...], contenders: list[str]) -> dict[str, Any]:
    """Where this was measured, with what."""
    target = host()
    return {
        "machine": platform.platform(),
        "cpu": target.cpu,
        "isa": target.isa,
        "cores": target.cores,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in (*contenders, "numpy", "llvmlite")},
        "fma_gflops": {count: fma_peak(count) for count in threads},
        "time": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def kernel_table(network: str, path: Path, rounds: int) -> None:
    """Every kernel of one network, slowest first, on one thread."""
    model = weft.compile(path, threads=1)
    specs = {s.name: (tuple(s.shape), str(s.dtype)) for s in model.inputs}
    found = model.profile(rounds=rounds, **make_inputs(specs, 0))
    peak = fma_peak(1)
    made = Table(title=f"{network}: {found.seconds * 1e3:.2f} ms, FMA peak {peak:.0f} GFLOP/s")
    for name in ("kernel", "from", "ms", "share", "GFLOP/s", "of peak", "GB/s"):
        made.add_column(name, justify="left" if name in ("kernel", "from") else "right")
    for step in found.slowest:
        made.add_row(
            step.name[:48],
            step.sources[0][:28] if step.sources else "",
            f"{step.seconds * 1e3:.3f}",
            f"{step.share:.1%}",
            f"{step.gflops:.1f}" if step.gflops is not None else "",
            f"{step.gflops / peak:.0%}" if step.gflops is not None else "",
            f"{step.gbytes:.1f}",
        )
    console.print(made)


@click.command()
@click.option("--models", type=click.Path(path_type=Path), default=None, help="folder of models")
@click.option("--network", "networks", multiple=True, type=click.Choice(NETWORKS), help="only these")
@click.option("--threads", multiple=True, type=int, default=(1, 2), show_default=True)
@click.option("--batch", multiple=True, type=int, default=(1, 8), show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="write results here")
@click.option("--kernels", type=click.Choice(NETWORKS), help="the kernels of one network")
@click.option("--quick", is_flag=True, help="two networks, batch 1, 3 rounds")
def main(
    models: Path | None,
    networks: tuple[str, ...],
    threads: tuple[int, ...],
    batch: tuple[int, ...],
    rounds: int,
    json_file: Path | None,
    kernels: str | None,
    quick: bool,
) -> None:
    """Measures weft against the runtimes that are installed."""
    folder = models or Path(tempfile.gettempdir()) / "weft-networks"
    if kernels:
        kernel_table(kernels, model_file(kernels, folder, 1), rounds)
        return
    if quick:
        networks, batch, rounds = networks or QUICK, (1,), min(rounds, 3)
    contenders = available()
    facts = machine(threads, contenders)
    console.print(facts)
    groups: list[list[Result]] = []
    try:
        for name in networks or NETWORKS:
            for size in batch:
                groups += measured(name, folder, contenders, threads, size, rounds)
    except KeyboardInterrupt:
        console.print("[yellow]interrupted; what was measured so far:[/]")
    if groups:
        console.print(table(groups, contenders))
    lines = summary(groups)
    for line in lines:
        console.print(line)
    if json_file is not None:
        rows = [asdict(result) for results in groups for result in results]
        json_file.write_text(json.dumps({**facts, "summary": lines, "results": rows}, indent=1))


def measured(
    name: str, folder: Path, contenders: list[str], threads: tuple[int, ...], batch: int, rounds: int
) -> list[list[Result]]:
    try:
        path = model_file(name, folder, batch)
    except NotThere as error:
        console.print(f"[yellow]{name}: {error}[/]")
        return []
    groups = []
    for count in threads:
        results = measure(name, path, contenders, count, batch, rounds, Rules((str(HERE / "contenders.py"),)))
        factor = ratio(results)
        told = "no ratio" if factor is None else f"ratio {factor:.2f}"
        console.print(f"{name}, batch {batch}, {count} threads: {told}")
        for result in results:
            if result.failure:
                console.print(f"  [red]{result.contender}: {result.failure}[/]")
        groups.append(results)
    return groups


if __name__ == "__main__":
    main()
