"""`weft info [MODEL]`."""

from __future__ import annotations

from pathlib import Path

import click

from ..info import machine_info, model_info
from ..progress import Stages
from .options import examples, given_shapes, json_option, params_option, shape_option, show


@click.command(
    epilog=examples("weft info", "weft info model.onnx", "weft info model.onnx --shape input=8,3,224,224 --json")
)
@click.argument("model", type=click.Path(path_type=Path), required=False)
@shape_option
@params_option
@json_option
def command(model: Path | None, shapes: tuple[str, ...], params: Path | None, as_json: bool) -> None:
    """What MODEL is made of: inputs, outputs, operators, parameters, work, memory, and a table by layer.

    FLOP are counted in the definitions of operators: a product and a sum are two. Without MODEL: versions and this
    machine.
    """
    with Stages() as stages:
        stages.begin("read")
        found = machine_info() if model is None else model_info(model, shape=given_shapes(shapes), params=params)
    show(found, as_json)
