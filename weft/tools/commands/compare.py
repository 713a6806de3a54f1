"""`weft compare A [B]`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..compare import REFERENCES, TOLERANCE, compare_model
from ..progress import Stages
from .options import (
    FOUND,
    examples,
    given_inputs,
    given_shapes,
    input_option,
    json_option,
    level_option,
    params_option,
    precision_option,
    seed_option,
    shape_option,
    show,
    threads_option,
)


@click.command(
    epilog=examples("weft compare model.onnx", "weft compare model.onnx --ref ort", "weft compare old.onnx new.onnx")
)
@click.argument("model", type=click.Path(path_type=Path), metavar="A")
@click.argument("other", type=click.Path(path_type=Path), metavar="[B]", required=False)
@click.option("--ref", type=click.Choice(REFERENCES), default="fp64", show_default=True, help="what A is held against")
@click.option("--tolerance", type=click.FloatRange(min=0), default=TOLERANCE, show_default=True, help="of magnitudes")
@input_option
@shape_option
@params_option
@threads_option
@precision_option
@level_option
@seed_option
@json_option
def command(
    model: Path,
    other: Path | None,
    ref: str,
    tolerance: float,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    params: Path | None,
    threads: int | None,
    precision: str,
    opt_level: int,
    seed: int,
    as_json: bool,
) -> None:
    """Where the values of A differ from a reference, layer by layer, or from those of a second model B.

    The program that weft.compile gives is walked by its own kernels: with --shape, the one for those sizes. fp64 is
    each operator's reference in double precision, reference the same in the model's types, fp32 the same model
    compiled in float32 (what --precision costs), ort ONNX Runtime with its optimisations off. Each layer tells the
    largest difference, the same as a part of the largest magnitude, in steps of the float format, and the angle;
    own is what its kernel alone adds. The exit status is 1 if something differs beyond the tolerance.
    """
    with Stages() as stages:
        found = compare_model(
            model,
            other,
            given_inputs(inputs),
            ref=ref,
            tolerance=tolerance,
            shape=given_shapes(shapes),
            params=params,
            threads=threads,
            precision=precision,
            opt_level=opt_level,
            seed=seed,
            stages=stages,
        )
    show(found, as_json)
    if not found.ok:
        sys.exit(FOUND)
