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
import os
import platform
import selectors
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np
from contenders import available, make_inputs, version
from models import NETWORKS, NotThere, model_file
from rich.console import Console
from rich.table import Table

import weft
from weft.base.cpu_target import host
from weft.tools.peak import fma_peak

HERE = Path(__file__).parent
QUICK = ("squeezenet1_1", "mobilenet_v2")
START_SECONDS = 240.0  # at most, for loading a model
ANSWER_SECONDS = 120.0
ROUND_SECONDS = 0.5  # what one contender gets in one round
MAX_RUNS = 25
TOLERANCE = 1e-3  # of the output's largest magnitude, between two runtimes in float32

console = Console(width=None if sys.stdout.isatty() else 150)


class Failed(Exception):
    """A contender cannot load or run the model."""


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """That of a contender. Bytecode is kept, as it is of an installed package."""
    kept = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, **settings}


class Contender:
    """A runtime in a process of its own, with a model loaded."""

    def __init__(self, name: str, path: Path, threads: int, cache: Path) -> None:
        self.name = name
        self.cache = cache
        command = [sys.executable, str(HERE / "contenders.py"), name, str(path), str(threads)]
        limits = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_environment({**limits, "WEFT_CACHE_DIR": str(cache)}),
            start_new_session=True,  # so that Ctrl-C reaches this process alone, which ends them
        )
        self.buffer = b""
        try:
            self.start = self.read(START_SECONDS)
        except BaseException:
            self.close()
            raise

    def read(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                if not selector.select(max(end - time.monotonic(), 0)):
                    raise Failed(f"no answer in {seconds:.0f} s")
                data = os.read(self.process.stdout.fileno(), 1 << 16)
                if not data:
                    raise Failed(f"it ended with code {self.process.wait()}")
                self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Failed(answer["error"].splitlines()[0][:150])
        return answer

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed("it ended") from None
        return self.read(ANSWER_SECONDS)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@dataclass
class Result:
    """What was measured of one contender on one network."""

    network: str
    contender: str
    threads: int
    batch: int
    best_ms: float = 0.0
    median_ms: float = 0.0
    runs: int = 0
    load_cold_s: float = 0.0
    load_s: float = 0.0
    first_result_s: float = 0.0
    peak_mb: float = 0.0
    error: float | None = None  # against ONNX Runtime, relative to the largest magnitude
    failure: str = ""
    times: list[float] = field(default_factory=list, repr=False)


def measure(network: str, path: Path, names: list[str], threads: int, batch: int, rounds: int) -> list[Result]:
    """All contenders on one model: started one after the other, then measured in turns."""
    results = {name: Result(network, name, threads, batch) for name in names}
    running: dict[str, Contender] = {}
    folder = Path(tempfile.mkdtemp(prefix="weft-bench-"))
    try:
        for name in names:
            try:
                running[name] = started(name, path, threads, folder / "cache", results[name])
            except Failed as error:
                results[name].failure = str(error)
        verify(running, results, folder)
        alternate(running, results, rounds)
        for name, contender in running.items():
            results[name].peak_mb = contender.ask(stop=True)["peak"]
    finally:
        for contender in running.values():
            contender.close()
        shutil.rmtree(folder, ignore_errors=True)
    return list(results.values())


def started(name: str, path: Path, threads: int, cache: Path, result: Result) -> Contender:
    """weft is started twice: with an empty cache, then with the one this has filled."""
    contender = Contender(name, path, threads, cache)
    result.load_cold_s = contender.start["load"]
    if name == "weft":
        contender.close()
        contender = Contender(name, path, threads, cache)
    result.load_s, result.first_result_s = contender.start["load"], contender.start["first"]
    return contender


def verify(running: dict[str, Contender], results: dict[str, Result], folder: Path) -> None:
    outputs = {}
    for name, contender in list(running.items()):
        file = folder / f"{name}.npy"
        try:
            contender.ask(seed=12345, save=str(file))
            outputs[name] = np.load(file)
        except Failed as error:
            results[name].failure = str(error)
            running.pop(name).close()
    expected = outputs.get("onnxruntime")
    if expected is None:
        return
    scale = float(np.abs(expected).max()) or 1.0
    for name, output in outputs.items():
        same = output.shape == expected.shape
        worst = float(np.abs(output - expected).max()) / scale if same else float("inf")
        results[name].error = worst
        if not worst <= TOLERANCE:
            results[name].failure = f"wrong output: off by {worst:.2g} of the largest magnitude"


def alternate(running: dict[str, Contender], results: dict[str, Result], rounds: int) -> None:
    """Rounds from one contender to the next; who begins changes. The first round warms up."""
    counts = dict.fromkeys(running, 1)
    for number in range(rounds + 1):
        names = list(running)
        shift = number % max(len(names), 1)
        for name in names[shift:] + names[:shift]:
            seconds = running[name].ask(seed=1000 * number, runs=counts[name])["seconds"]
            if number:
                results[name].times += seconds
            counts[name] = int(min(max(ROUND_SECONDS / min(seconds), 2), MAX_RUNS))
    for name in running:
        times = results[name].times
        results[name].runs = len(times)
        results[name].best_ms = 1e3 * min(times)
        results[name].median_ms = 1e3 * statistics.median(times)


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
        results = measure(name, path, contenders, count, batch, rounds)
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
