"""The command line: `weft run MODEL` and the others of `COMMANDS`, each loaded when it is asked for."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import click

from .base import config
from .base.errors import Error, OpenShapes
from .base.shape import Shape, show_dims
from .version import __version__

FAILURE = 1  # the exit status; click's own for a command that is not written as it should be is 2

# A command's name, which is also that of its module in weft.tools.commands -> what it does.
COMMANDS: dict[str, str] = {
    "run": "Run a model on given or random inputs.",
    "info": "What a model is made of; without one, this machine.",
    "check": "What stands in the way of compiling a model.",
    "profile": "How long each kernel of a model takes.",
    "bench": "How long a model takes, beside other runtimes.",
    "compare": "Where the values of a model differ from a reference.",
    "bisect": "Which pass, kernel or node makes a model differ.",
    "view": "Write a page that shows a model, and what weft makes of it.",
    "convert": "Write a model as ONNX, or compiled.",
    "quantize": "Write a model with products of bytes.",
    "ops": "The operators that weft has.",
    "doctor": "What weft found on this machine, and what is missing.",
    "cache": "Compiled kernels that are kept on disk.",
    "demo": "Recognise handwritten digits.",
}


class _Commands(click.Group):
    """Commands by name; shows errors of weft as text, or with WEFT_DEBUG set as tracebacks."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        made: click.Command = import_module(f".tools.commands.{cmd_name}", __package__).command
        made.name = cmd_name
        return made

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """A file in place of a command is a model to run."""
        name = args[0]
        if name not in COMMANDS and Path(name).exists():
            return super().resolve_command(ctx, ["run", *args])
        if name not in COMMANDS and name[0] != "-":
            raise click.UsageError(_unknown_command(name), ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:  # of help, which click takes for a failure
            _read_by_nobody()

    def invoke(self, ctx: click.Context) -> Any:
        traced: Any = ()
        try:
            traced = config.get("debug")
            return super().invoke(ctx)
        except (Error, OSError) as error:
            if isinstance(error, BrokenPipeError):
                _read_by_nobody()
            if traced:
                raise
            if isinstance(error, OpenShapes) and error.inputs:
                error.hint = f"give numbers where it is open: {_shape_options(error.inputs)}"
            click.echo(f"error: {_about_file(error) if isinstance(error, OSError) else error}", err=True)
            sys.exit(FAILURE)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs a command. Who reads its output may go away before the end: that is no error."""
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(AttributeError, ValueError):
                stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # of names that a terminal cannot show
        try:
            return _flushed(lambda: super(_Commands, self).main(*args, **kwargs))
        except BrokenPipeError:
            _read_by_nobody()


def _read_by_nobody() -> NoReturn:
    """Ends the process: nobody reads what it writes."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(0)


def _flushed(run: Any) -> Any:
    """Has output written before the process ends, where a reader that is gone can still be told from a failure."""
    try:
        return run()
    finally:
        if not sys.stdout.closed:
            sys.stdout.flush()


def _unknown_command(name: str) -> str:
    if Path(name).suffix or os.sep in name:
        return f"There is no file {name!r}, and no such command."
    close = difflib.get_close_matches(name, COMMANDS, 1)
    return f"No such command {name!r}." + (f" Did you mean {close[0]!r}?" if close else "")


def _about_file(error: OSError) -> str:
    """What the system says of a file that cannot be read or written, without its numbers."""
    if not isinstance(error.filename, str) or not error.strerror:
        return str(error)
    folder = Path(error.filename).absolute().parent
    missing = "" if folder.is_dir() else f"\n  try:   make the folder {folder} first"
    return f"{error.filename!r}: {error.strerror}{missing}"


def _shape_options(inputs: Mapping[str, Shape]) -> str:
    """What to write on the command line for inputs whose shapes are open."""
    return " ".join(f"--shape {n}={show_dims(dims).replace(' ', '')}" for n, dims in inputs.items())


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 if all went well, 1 if something failed or was found wrong, 2 if a command is not written "
    "as it should be. WEFT_DEBUG=1 prints what is compiled, and tracebacks of errors.",
)
@click.version_option(__version__, prog_name="weft")
def main() -> None:
    """weft compiles trained models to native code, and runs them."""
