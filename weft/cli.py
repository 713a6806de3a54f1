"""The command line: `weft run MODEL`, `weft convert MODEL OUT`, `weft info`, `weft demo`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from .base.errors import Error, InvalidValue
from .tools import demo as demo_tool
from .tools.convert import convert_model
from .tools.info import info_rows
from .tools.run import run_model
from .version import __version__


class _Commands(click.Group):
    """Shows errors of weft as text; with WEFT_DEBUG set, as tracebacks."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Error as error:
            if os.environ.get("WEFT_DEBUG"):
                raise
            click.echo(f"error: {error}", err=True)
            sys.exit(1)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="weft")
def main() -> None:
    """weft compiles trained models to native code, and runs them."""


def _pairs(what: str, texts: tuple[str, ...]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise InvalidValue(f"{what} {text!r}", why=f"it is written {what} name=value")
        if name in pairs:
            raise InvalidValue(f"{what} {name!r} is given twice")
        pairs[name] = value
    return pairs


def _shape(name: str, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.replace("x", ",").split(",") if part.strip())
    except ValueError:
        raise InvalidValue(
            f"--shape {name}={text}", why="a shape is whole numbers with commas between them"
        ) from None


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="an input's array")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,8", help="an input's shape")
@click.option("--threads", type=click.IntRange(min=1), help="how many threads; default: the cores")
@click.option("--opt-level", type=click.IntRange(0, 3), default=3, show_default=True)
@click.option("--repeat", type=click.IntRange(min=1), default=10, show_default=True)
def run(
    model: Path,
    inputs: tuple[str, ...],
    shapes: tuple[str, ...],
    threads: int | None,
    opt_level: int,
    repeat: int,
) -> None:
    """Compile MODEL, run it on the given or on random inputs, show outputs and time."""
    files = {name: Path(value) for name, value in _pairs("--input", inputs).items()}
    dims = {name: _shape(name, value) for name, value in _pairs("--shape", shapes).items()}
    run_model(model, files, dims, threads, opt_level, repeat, Console())


@main.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--params", type=click.Path(path_type=Path), help="the file of parameters")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,8", help="an input's shape")
@click.option("--opset", type=click.IntRange(17, 23), default=17, show_default=True)
def convert(
    model: Path, out: Path, params: Path | None, shapes: tuple[str, ...], opset: int
) -> None:
    """Write MODEL as the ONNX file OUT.

    MODEL is any file that `weft run` takes, or a graph of weft's own as JSON, with its --params.
    The new file is checked by ONNX and compared with MODEL on random inputs, by ONNX Runtime if
    that is installed. Only then it takes its place: an OUT that is there is replaced, and stays as
    it is if anything went wrong. Weights of more than 2 GiB go into a second file beside OUT.
    """
    dims = {name: _shape(name, value) for name, value in _pairs("--shape", shapes).items()}
    convert_model(model, out, params, dims, opset, Console())


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
