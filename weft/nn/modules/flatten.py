"""Axes made one, and one made several."""

__all__: list[str] = []
