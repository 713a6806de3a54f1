"""`weft demo`."""

from __future__ import annotations

import click

from .. import demo
from .options import examples


@click.command(epilog=examples("weft demo"))
def command() -> None:
    """Recognise handwritten digits with the network that weft ships."""
    demo.main()
