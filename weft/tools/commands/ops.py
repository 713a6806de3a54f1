"""`weft ops [NAME]`."""

from __future__ import annotations

import click

from ...base.errors import NotFound
from ..operators import list_operators, operator_help
from .options import examples, json_option, show


@click.command(epilog=examples("weft ops", "weft ops conv2d", "weft ops --like pool"))
@click.argument("name", required=False)
@click.option("--like", default="", metavar="TEXT", help="only operators with this in their names")
@click.option("--all", "internal", is_flag=True, help="those that passes make, too")
@json_option
def command(name: str | None, like: str, internal: bool, as_json: bool) -> None:
    """The operators that weft has, or all about the one called NAME.

    `docs/onnx.md` lists the operators of ONNX that become these.
    """
    if name is not None:
        show(operator_help(name), as_json)
        return
    found = list_operators(like, internal)
    if not found.operators:
        raise NotFound(f"no operator has {like!r} in its name", hint="weft ops lists all")
    show(found, as_json)
