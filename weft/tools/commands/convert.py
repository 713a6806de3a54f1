"""`weft convert MODEL OUT`."""

from __future__ import annotations

from pathlib import Path

import click

from ..convert import convert_model
from ..progress import Stages
from .options import examples, given_shapes, json_option, model_argument, params_option, shape_option, show


@click.command(
    epilog=examples(
        "weft convert net-symbol.json net.onnx",
        "weft convert net.json net.onnx --params net.params",
        "weft convert net.onnx net.weft",
    )
)
@model_argument
@click.argument("out", type=click.Path(path_type=Path))
@params_option
@shape_option
@click.option("--opset", type=click.IntRange(17, 23), default=17, show_default=True)
@json_option
def command(model: Path, out: Path, params: Path | None, shapes: tuple[str, ...], opset: int, as_json: bool) -> None:
    """Write MODEL as the ONNX file OUT, or as a compiled program if OUT ends in .weft.

    MODEL is any file that `weft run` takes, or a graph of weft's own as JSON, with its --params.
    The new file is checked by ONNX and compared with MODEL on random inputs, by ONNX Runtime if
    that is installed. Only then it takes its place: an OUT that is there is replaced, and stays as
    it is if anything went wrong. Weights of more than 2 GiB go into a second file beside OUT.
    """
    with Stages() as stages:
        found = convert_model(model, out, params, given_shapes(shapes), opset, stages)
    show(found, as_json)
