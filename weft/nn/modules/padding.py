"""Borders around images."""

__all__: list[str] = []
