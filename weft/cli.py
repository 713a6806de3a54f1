"""The command line: `weft run MODEL`, `weft convert MODEL OUT`, `weft view MODEL`, `weft info`, `weft demo`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from .base import config
from .base.errors import Error, OpenShapes
from .base.shape import Shape, show_dims
from .tools import demo as demo_tool
from .tools.convert import convert_model
from .tools.info import info_rows
from .tools.run import run_model
from .tools.viewer.command import view_models
from .version import __version__

FAILURE = 1  # the exit status; click's own for a command that is not written as it should be is 2


class _Commands(click.Group):
    """Shows errors of weft as text; with WEFT_DEBUG set, as tracebacks."""

    def invoke(self, ctx: click.Context) -> Any:
        traced: Any = ()
        try:
            traced = config.get("debug")
            return super().invoke(ctx)
        except Error as error:
            if traced:
                raise
            if isinstance(error, OpenShapes) and error.inputs:
                error.hint = f"give numbers where it is open: {_shape_options(error.inputs)}"
            click.echo(f"error: {error}", err=True)
            sys.exit(FAILURE)


def _shape_options(inputs: Mapping[str, Shape]) -> str:
    """What to write on the command line for inputs whose shapes are open."""
    return " ".join(f"--shape {n}={show_dims(dims).replace(' ', '')}" for n, dims in inputs.items())


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 if all went well, 1 if something failed, 2 if a command is not written "
    "as it should be. WEFT_DEBUG=1 prints what is compiled, and tracebacks of errors.",
)
@click.version_option(__version__, prog_name="weft")
def main() -> None:
    """weft compiles trained models to native code, and runs them."""


def _pairs(what: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"{what} {text!r}: it is written {what} name=value")
        if name in pairs:
            raise click.UsageError(f"{what} {name!r} is given twice")
        pairs[name] = value
    return pairs


def _shapes(texts: tuple[str, ...]) -> dict[str, tuple[int | None, ...]]:
    return {name: _shape(name, value) for name, value in _pairs("--shape", texts).items()}


def _shape(name: str, text: str) -> tuple[int | None, ...]:
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isdecimal() or part == "?" for part in parts):
        raise click.UsageError(
            f"--shape {name}={text}: a shape is whole numbers with commas between them, or ? for what is left open"
        )
    return tuple(None if part == "?" else int(part) for part in parts)


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="an input's array")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,8", help="an input's shape")
@click.option("--params", type=click.Path(path_type=Path), help="the file of parameters")
@click.option("--threads", type=click.IntRange(min=1), help="how many threads; default: the cores")
@click.option("--opt-level", type=click.IntRange(0, 3), default=3, show_default=True, help="passes")
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True, help="timed runs")
def run(
    model: Path,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    params: Path | None,
    threads: int | None,
    opt_level: int,
    repeat: int,
) -> None:
    """Run MODEL on given or random inputs.

    MODEL is an ONNX file, PREFIX-symbol.json of MXNet (with the newest PREFIX-NNNN.params beside
    it, or with --params), or what CompiledModel.save has written.
    """
    files = {name: Path(value) for name, value in _pairs("--input", inputs).items()}
    run_model(model, files, _shapes(shapes), params, threads, opt_level, repeat, Console())


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--params", type=click.Path(path_type=Path), help="the file of parameters")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,8", help="an input's shape")
@click.option("--opset", type=click.IntRange(17, 23), default=17, show_default=True)
def convert(model: Path, out: Path, params: Path | None, shapes: tuple[str, ...], opset: int) -> None:
    """Write MODEL as the ONNX file OUT.

    MODEL is any file that `weft run` takes, or a graph of weft's own as JSON, with its --params.
    The new file is checked by ONNX and compared with MODEL on random inputs, by ONNX Runtime if
    that is installed. Only then it takes its place: an OUT that is there is replaced, and stays as
    it is if anything went wrong. Weights of more than 2 GiB go into a second file beside OUT.
    """
    convert_model(model, out, params, _shapes(shapes), opset, Console())


@main.command()
@click.argument("models", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("-o", "--out", type=click.Path(path_type=Path), help="the page; default: MODEL.html")
@click.option("--svg", type=click.Path(path_type=Path, file_okay=False), help="a folder for pictures")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,8", help="an input's shape")
@click.option("--params", type=click.Path(path_type=Path), help="the file of parameters")
@click.option("--threads", type=click.IntRange(min=1), help="how many threads; default: the cores")
@click.option("--opt-level", type=click.IntRange(0, 3), default=3, show_default=True, help="passes")
@click.option("--profile", is_flag=True, help="run on random inputs, and show times")
def view(models: tuple[Path, ...], shapes: tuple[str, ...], **options: Any) -> None:
    """Write a page that shows MODELS, and what weft makes of them.

    The page is one HTML file, which a browser opens without a network: graphs after every pass, kernels with their
    code, memory, a timeline. Of two models it shows the differences.
    """
    view_models(models, _shapes(shapes), console=Console(), **options)


@main.command()
def info() -> None:
    """Versions, the target, threads and the kernel cache."""
    table = Table(show_header=False, box=None)
    for what, value in info_rows():
        table.add_row(what, value)
    Console().print(table)


@main.command()
def demo() -> None:
    """Recognise handwritten digits with the network that weft ships."""
    demo_tool.main()
