"""`weft check MODEL`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ..check import check_model
from ..progress import Stages
from .options import FOUND, examples, given_shapes, json_option, model_argument, params_option, shape_option, show


@click.command(epilog=examples("weft check model.onnx", "weft check model.onnx --json"))
@model_argument
@shape_option
@params_option
@json_option
def command(model: Path, shapes: tuple[str, ...], params: Path | None, as_json: bool) -> None:
    """What stands in the way of compiling MODEL.

    Shows every operator that weft does not have, with the nodes that ask for it; or, if there is none, which nodes
    become native code, which run in Python between kernels, and how much memory a run takes. Nothing is compiled. The
    exit status is 1 if something is missing.
    """
    with Stages() as stages:
        stages.begin("check")
        found = check_model(model, shape=given_shapes(shapes), params=params)
    show(found, as_json)
    if not found.ok:
        sys.exit(FOUND)
