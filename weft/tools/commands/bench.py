"""`weft bench MODEL`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..bench import ROUNDS, bench_model
from ..progress import Stages
from .options import FOUND, examples, given_shapes, json_option, model_argument, shape_option, show, threads_option


@click.command(
    epilog=examples(
        "weft bench model.onnx",
        "weft bench model.onnx --against ort,openvino --threads 2 --batch 8",
        "weft bench module.pt --against torch --shape x=1,3,224,224",
    )
)
@model_argument
@click.option("--against", default="", metavar="ort,openvino,torch", help="other runtimes, with commas between them")
@click.option("--batch", type=click.IntRange(1), metavar="N", help="the first dimension of inputs, where it is open")
@shape_option
@threads_option
@click.option("--rounds", type=click.IntRange(1), default=ROUNDS, show_default=True, help="of half a second for each")
@json_option
def command(
    model: Path,
    against: str,
    batch: int | None,
    shapes: tuple[str, ...],
    threads: int | None,
    rounds: int,
    as_json: bool,
) -> None:
    """How long MODEL takes, beside other runtimes.

    Each runtime is alone in its own process, and only one computes at a time: rounds go from one to the next. Inputs
    are random, change with every run and are the same for all; outputs are compared. The exit status is 1 if a runtime
    failed or gave other outputs.
    """
    names = [name.strip() for name in against.split(",") if name.strip()]
    with Stages() as stages:
        found = bench_model(
            model, names, batch=batch, shape=given_shapes(shapes), threads=threads, rounds=rounds, stages=stages
        )
    show(found, as_json)
    if not found.ok:
        sys.exit(FOUND)
