"""What the command line does: run, info, demo, view."""

from .viewer.view import view

__all__ = ["view"]
