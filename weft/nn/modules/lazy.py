"""Modules that learn the sizes of their parameters from the first input."""

__all__: list[str] = []
