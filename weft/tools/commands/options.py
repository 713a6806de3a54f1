"""What commands share: options, what is written in them, and how results are shown."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import click

from ...base.shown import Shown
from ...runtime.program import Array
from ..inputs import ALONE, RANDOM, Picture, read_input

FOUND = 1  # exit status of a command that found something wrong

model_argument = click.argument("model", type=click.Path(path_type=Path))
params_option = click.option(
    "--params", type=click.Path(path_type=Path), metavar="FILE", help="the file of parameters, where it is another"
)
shape_option = click.option(
    "--shape", "shapes", multiple=True, metavar="NAME=1,3,8", help="an input's shape; ? in it stays open"
)
input_option = click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="NAME=FILE",
    help="an input: a .npy file, a picture (.png), or the word random; without a name if there is one input",
)
threads_option = click.option(
    "--threads", type=click.IntRange(1, 1024), metavar="N", help="how many threads; default: the cores"
)
target_option = click.option(
    "--target", default="cpu", show_default=True, metavar="TEXT", help='what it runs on: "cpu", "cuda"'
)
precision_option = click.option(
    "--precision",
    default="fp32",
    show_default=True,
    metavar="NAME",
    help="fp32, bf16, fp16-weights; on GPUs fp32, tf32, fp16, bf16",
)
level_option = click.option("--opt-level", type=click.IntRange(0, 3), default=3, show_default=True, help="passes")
json_option = click.option("--json", "as_json", is_flag=True, help="print the result as JSON")
seed_option = click.option("--seed", type=int, default=0, show_default=True, help="of random inputs")


def examples(*lines: str) -> str:
    """The end of a help text."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def show(found: Shown, as_json: bool) -> None:
    """Prints a result; cut to the width of the terminal if it is shown on one."""
    click.echo(json.dumps(found.to_dict(), indent=1) if as_json else found.text(terminal_width()))


def terminal_width() -> int | None:
    """How wide lines may be; None where nobody says so."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdecimal():
        return None
    return shutil.get_terminal_size().columns


def pairs(what: str, texts: tuple[str, ...]) -> dict[str, str]:
    """NAME=VALUE options by name."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"{what} {text!r}: it is written {what} name=value")
        if name in found:
            raise click.UsageError(f"{what} {name!r} is given twice")
        found[name] = value
    return found


def given_shapes(texts: tuple[str, ...]) -> dict[str, tuple[int | None, ...]]:
    """Shapes by the names of inputs."""
    return {name: _shape(name, value) for name, value in pairs("--shape", texts).items()}


def _shape(name: str, text: str) -> tuple[int | None, ...]:
    parts = [part.strip() for part in text.replace("x", ",").split(",")]
    if not all(part.isdecimal() or part == "?" for part in parts):
        raise click.UsageError(
            f"--shape {name}={text}: a shape is whole numbers with commas between them, or ? for what is left open"
        )
    return tuple(None if part == "?" else int(part) for part in parts)


def given_inputs(texts: tuple[str, ...]) -> dict[str, Array | Picture | str]:
    """Arrays and pictures by the names of inputs, or the word random; what has no name is for the only input."""
    named = pairs("--input", tuple(text for text in texts if "=" in text))
    for text in texts:
        if "=" not in text:
            if len(texts) > 1:
                raise click.UsageError(f"--input {text!r}: of several inputs, each is written --input name=value")
            if text != RANDOM and not Path(text).suffix:
                raise click.UsageError(f"--input {text!r}: it is written --input name=value, or --input FILE")
            named = {ALONE: text}
    return {name: value if value == RANDOM else read_input(Path(value)) for name, value in named.items()}
