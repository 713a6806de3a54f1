"""Activations, and attention of many heads."""

__all__: list[str] = []
