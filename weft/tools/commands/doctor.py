"""`weft doctor`."""

from __future__ import annotations

import sys

import click

from ..doctor import diagnose
from ..progress import Stages
from .options import FOUND, examples, json_option, show


@click.command(epilog=examples("weft doctor", "weft doctor --no-measure"))
@click.option("--measure/--no-measure", default=True, help="measure what a core does (a second)")
@json_option
def command(measure: bool, as_json: bool) -> None:
    """Versions, the processor, threads and why so many, the cache, what is missing.

    Rates of one core are measured beside those of the table that cost models read. The exit status is 1 if something
    is wrong that weft needs.
    """
    with Stages() as stages:
        stages.begin("measure")
        found = diagnose(measure, stages.progress)
    show(found, as_json)
    if not found.ok:
        sys.exit(FOUND)
