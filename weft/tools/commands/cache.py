"""`weft cache ls` and `weft cache clear`."""

from __future__ import annotations

import click

from ..kernel_cache import SHOWN, clear_cache, list_cache
from .options import examples, json_option, show


@click.group(epilog=examples("weft cache ls", "weft cache clear"))
def command() -> None:
    """Compiled kernels that are kept on disk."""


@command.command("ls", epilog=examples("weft cache ls --most 5"))
@click.option("--most", type=click.IntRange(0), default=SHOWN, show_default=True, help="files to show")
@json_option
def listing(most: int, as_json: bool) -> None:
    """The folder, its size, and the kernels used last."""
    show(list_cache(most), as_json)


@command.command("clear", epilog=examples("weft cache clear"))
@json_option
def clear(as_json: bool) -> None:
    """Remove all of them; they are compiled again when they are needed."""
    show(clear_cache(), as_json)
