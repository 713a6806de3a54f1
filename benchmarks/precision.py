#!/usr/bin/env python3
"""What lower precision gives and costs: networks in fp32, bf16 and bytes, and ONNX Runtime on the same file of bytes.

    python benchmarks/precision.py                       nine networks, 2 threads
    python benchmarks/precision.py bert --threads 1 --rounds 20
    python benchmarks/precision.py --prepare             writes the files of bytes, and times nothing

Every contender is alone in its own process, and rounds go from one to the next. Ratios are weft's median in fp32 over
theirs; errors are parts of the largest magnitude of weft's output in fp32. The file of bytes is made by `weft.quantize`
from random inputs, beside the model; its decibels are those of outputs on an input that is none of these.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()

from contenders import make_inputs, process  # noqa: E402

NAMES = ("bert", "vit_b_16", "resnet50", "inception_v3", "densenet121", "vgg16", "squeezenet1_1")
NAMES += ("efficientnet_b0", "mobilenet_v2")
CONTENDERS = ("weft", "bf16", "int8", "onnxruntime int8")
BATCHES = 8  # random inputs that ranges are taken from
LEAST = 21.5  # decibels on one of them, so that others have 20


def bytes_file(path: Path) -> Path:
    return path.with_suffix(".int8.onnx")


def load_bf16(path: Path, threads: int, inputs: Any) -> Any:
    import weft

    model = weft.compile(path, threads=threads, precision="bf16")
    specs = {s.name: (tuple(map(int, s.shape)), str(s.dtype)) for s in model.inputs}
    return process.Loaded(specs, model.run)


LOADERS = {
    "weft": process.LOADERS["weft"],
    "bf16": load_bf16,
    "int8": lambda path, *rest: process.LOADERS["weft"](bytes_file(path), *rest),
    "onnxruntime int8": lambda path, *rest: process.LOADERS["onnxruntime"](bytes_file(path), *rest),
}


def quantised(path: Path) -> str:
    """Writes the file of bytes if there is none; what outputs cost, in decibels."""
    import weft
    from weft.frontend import to_onnx

    told = path.with_suffix(".int8.txt")
    if not bytes_file(path).exists() or not told.exists():
        model = weft.compile(path)
        specs = {s.name: (tuple(map(int, s.shape)), str(s.dtype)) for s in model.inputs}
        made = weft.quantize(path, [make_inputs(specs, seed) for seed in range(BATCHES)], least_decibels=LEAST)
        to_onnx(*made, bytes_file(path))
        unseen = make_inputs(specs, BATCHES)
        wanted, found = (m.run(unseen)[0].astype("d") for m in (model, weft.compile(made)))
        decibels = 10 * math.log10((wanted**2).sum() / ((wanted - found) ** 2).sum())
        told.write_text(f"{decibels:.1f} dB, {len(made.report.layers)} products")
    return told.read_text()


def main() -> None:
    import click
    from models import model_file
    from rich.console import Console
    from rich.table import Table

    from weft.base.cpu_target import host
    from weft.tools.race import Rules, measure

    @click.command(help=__doc__)
    @click.argument("networks", nargs=-1)
    @click.option("--models", type=click.Path(path_type=Path), default=Path("/tmp/networks"), show_default=True)
    @click.option("--threads", type=int, default=2, show_default=True)
    @click.option("--rounds", type=int, default=10, show_default=True)
    @click.option("--prepare", is_flag=True)
    def command(networks: tuple[str, ...], models: Path, threads: int, rounds: int, prepare: bool) -> None:
        table = Table(title=f"median ms, fp32's over it, error; {host().cpu}, {threads} threads, batch 1")
        for name in ("network", *CONTENDERS, "bytes"):
            table.add_column(name)
        for network in networks or NAMES:
            path = model_file(network, models, 1)
            told = quantised(path)
            if prepare:
                print(network, told, flush=True)
                continue
            results = measure(network, path, CONTENDERS, threads, 1, rounds, Rules(script=(str(Path(__file__)),)))
            base = results[0].median_ms
            cells = [
                f"{r.median_ms:.1f}  {base / r.median_ms:.2f}x  {r.error:.1e}" if r.median_ms else r.failure
                for r in results
            ]
            table.add_row(network, *cells, told)
        if not prepare:
            Console(width=170).print(table)

    command()


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in LOADERS:
        process.serve(LOADERS, STARTED)
    else:
        main()
