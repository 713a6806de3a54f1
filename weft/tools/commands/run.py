"""`weft run MODEL`."""

from __future__ import annotations

from pathlib import Path

import click

from ..progress import Stages
from ..run import TOP, run_model
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
    epilog=examples(
        "weft run model.onnx",
        "weft run model.onnx --input photo.png --labels classes.txt",
        "weft run model.onnx --input ids=ids.npy --input mask=random --output results",
        "weft run net-symbol.json --shape data=1,3,224,224",
    )
)
@model_argument
@input_option
@shape_option
@params_option
@threads_option
@target_option
@precision_option
@level_option
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="timed runs")
@click.option("--top", type=click.IntRange(min=0), default=TOP, show_default=True, help="best classes of a row")
@click.option("--labels", type=click.Path(path_type=Path), metavar="FILE", help="names of classes, a line each")
@click.option("--output", type=click.Path(path_type=Path), metavar="FOLDER", help="write outputs there, as .npy")
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
    repeat: int,
    top: int,
    labels: Path | None,
    output: Path | None,
    seed: int,
    as_json: bool,
) -> None:
    """Run MODEL on given or random inputs.

    MODEL is an ONNX file, PREFIX-symbol.json of MXNet (with the newest PREFIX-NNNN.params beside
    it, or with --params), an archive of TorchScript, or what CompiledModel.save has written. Pictures become floats
    from 0 to 1 of the size that the model takes.
    """
    with Stages() as stages:
        found = run_model(
            model,
            given_inputs(inputs),
            shape=given_shapes(shapes),
            params=params,
            threads=threads,
            precision=precision,
            opt_level=opt_level,
            repeat=repeat,
            top=top,
            labels=labels,
            output=output,
            seed=seed,
            stages=stages,
            target=target,
        )
    show(found, as_json)
