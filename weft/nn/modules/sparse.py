"""Rows of a table by number."""

__all__: list[str] = []
