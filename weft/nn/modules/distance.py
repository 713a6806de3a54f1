"""Distances and similarities of vectors."""

__all__: list[str] = []
