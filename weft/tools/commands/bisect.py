"""`weft bisect MODEL`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..bisect import bisect_model
from ..compare import TOLERANCE
from ..progress import Stages
from .options import (
    FOUND,
    examples,
    given_inputs,
    given_shapes,
    input_option,
    json_option,
    level_option,
    model_argument,
    params_option,
    seed_option,
    shape_option,
    show,
    threads_option,
)


@click.command(epilog=examples("weft bisect model.onnx", "weft bisect model.onnx --output repro --tolerance 1e-4"))
@model_argument
@click.option(
    "--output", type=click.Path(path_type=Path), default=Path("weft-repro"), show_default=True, help="folder to write"
)
@click.option("--tolerance", type=click.FloatRange(min=0), default=TOLERANCE, show_default=True, help="of magnitudes")
@input_option
@shape_option
@params_option
@threads_option
@level_option
@seed_option
@json_option
def command(
    model: Path,
    output: Path,
    tolerance: float,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    params: Path | None,
    threads: int | None,
    opt_level: int,
    seed: int,
    as_json: bool,
) -> None:
    """Which pass, kernel or node makes MODEL differ from its reference.

    The few nodes that show it are written to a folder: model.json, params.bin, inputs.npz, and repro.py, which runs
    them. The exit status is 1 if something differs.
    """
    with Stages() as stages:
        found = bisect_model(
            model,
            given_inputs(inputs),
            folder=output,
            tolerance=tolerance,
            shape=given_shapes(shapes),
            params=params,
            threads=threads,
            opt_level=opt_level,
            seed=seed,
            stages=stages,
        )
    show(found, as_json)
    if not found.ok:
        sys.exit(FOUND)
