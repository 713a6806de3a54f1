"""`weft profile MODEL`."""

from __future__ import annotations

from pathlib import Path

import click

from ...runtime.profile import PROFILE_ROUNDS
from ..profile import profile_model
from ..progress import Stages
from .options import (
    examples,
    given_inputs,
    given_shapes,
    input_option,
    json_option,
    level_option,
    model_argument,
    params_option,
    precision_option,
    seed_option,
    shape_option,
    show,
    target_option,
    threads_option,
)


@click.command(
    epilog=examples("weft profile model.onnx", "weft profile model.onnx --threads 1 --trace out.json --html page.html")
)
@model_argument
@input_option
@shape_option
@params_option
@threads_option
@target_option
@precision_option
@level_option
@click.option("--rounds", type=click.IntRange(1), default=PROFILE_ROUNDS, show_default=True, help="the best of so many")
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="write a trace for Perfetto or Chrome")
@click.option("--html", "page", type=click.Path(path_type=Path), metavar="FILE", help="write a page")
@seed_option
@json_option
def command(
    model: Path,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    params: Path | None,
    threads: int | None,
    target: str,
    precision: str,
    opt_level: int,
    rounds: int,
    trace: Path | None,
    page: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """How long each kernel of MODEL takes.

    Steps of the compiled program are run one by one, each by all threads. GFLOP/s stand where a kernel sums products,
    by the estimate of its work; the roofline is what the table of facts tells of machines like this one. A trace has
    the steps one by one, and a whole run with a lane for each thread.
    """
    with Stages() as stages:
        found = profile_model(
            model,
            given_inputs(inputs),
            shape=given_shapes(shapes),
            params=params,
            threads=threads,
            precision=precision,
            opt_level=opt_level,
            rounds=rounds,
            seed=seed,
            stages=stages,
            target=target,
        )
    if trace is not None:
        found.save_trace(trace)
    if page is not None:
        found.save_page(page, model.name)
    show(found, as_json)
