"""`weft quantize MODEL -o OUT --data FILE`."""

from __future__ import annotations

from pathlib import Path

import click

from ..convert import quantize_model
from ..progress import Stages
from .options import examples, given_shapes, json_option, model_argument, shape_option, show, threads_option


@click.command(epilog=examples("weft quantize net.onnx -o net.int8.onnx --data images.npz --method mse"))
@model_argument
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), required=True, help="the ONNX file to write")
@click.option("--data", type=click.Path(path_type=Path), required=True, help="samples: .npz by input, or .npy")
@click.option(
    "--method", type=click.Choice(["minmax", "percentile", "mse", "auto"]), default="minmax", show_default=True
)
@click.option("--activations", type=click.Choice(["uint8", "int8"]), default="uint8", show_default=True)
@click.option("--least-decibels", type=float, default=20.0, show_default=True, help="signal over noise of outputs")
@shape_option
@threads_option
@json_option
def command(
    model: Path,
    out: Path,
    data: Path,
    method: str,
    activations: str,
    least_decibels: float,
    shapes: tuple[str, ...],
    threads: int | None,
    as_json: bool,
) -> None:
    """Write MODEL with products of bytes, as ONNX.

    Convolutions and products with constant weights multiply levels of 8 bits: weights with a scale for each column,
    values with one, from what they reach while the samples run. The table tells by layers what that costs, as signal
    over noise. The products that lose most stay floats as long as outputs are below the wanted decibels.
    """
    with Stages() as stages:
        found = quantize_model(
            model,
            out,
            data,
            method=method,
            shape=given_shapes(shapes),
            activations=activations,
            least_decibels=least_decibels,
            threads=threads,
            stages=stages,
        )
    show(found, as_json)
