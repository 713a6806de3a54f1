"""`weft view MODEL`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from ...base.errors import NotFound
from ..model_files import kind_of, read_model
from ..progress import Stages
from ..viewer.view import view
from .options import examples, given_shapes, json_option, level_option, params_option, shape_option, threads_option


@click.command(epilog=examples("weft view model.onnx -o page.html", "weft view before.onnx after.onnx --profile"))
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="the page; default: MODEL.html")
@click.option("--svg", type=click.Path(path_type=Path, file_okay=False), metavar="FOLDER", help="write pictures, too")
@shape_option
@params_option
@threads_option
@level_option
@click.option("--profile", is_flag=True, help="run on random inputs, and show times")
@json_option
def command(
    models: tuple[Path, ...],
    out: Path | None,
    svg: Path | None,
    shapes: tuple[str, ...],
    params: Path | None,
    threads: int | None,
    opt_level: int,
    profile: bool,
    as_json: bool,
) -> None:
    """Write a page that shows MODELS, and what weft makes of them.

    The page is one HTML file, which a browser opens without a network: graphs after every pass, kernels with their
    code, memory, a timeline. Of two models it shows the differences.
    """
    for path in models:
        if not path.is_file():
            raise NotFound(f"there is no file {path}")
    shape = given_shapes(shapes)
    read = [
        path if params is None and kind_of(path) != "TorchScript archive" else read_model(path, params, shape)
        for path in models
    ]
    titles = [path.stem for path in models]
    page = out if out is not None else Path(f"{'-'.join(titles)}.html")
    how: dict[str, Any] = {"threads": threads, "opt_level": opt_level, "measure": profile}
    with Stages() as stages:
        stages.begin("compile")
        made = view(*read, titles=titles, shape=shape, progress=stages.progress, **how)
        stages.begin("write")
        made.save(page)
        written = {str(path): path.stat().st_size for path in (page, *([] if svg is None else made.save_svg(svg)))}
    if as_json:
        click.echo(json.dumps({"written": written}, indent=1))
        return
    for name, size in written.items():
        click.echo(f"wrote    {name} ({size / 1024:.0f} kB)")
