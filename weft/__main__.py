"""`python -m weft` is the command line."""

from .cli import main

main(prog_name="weft")
