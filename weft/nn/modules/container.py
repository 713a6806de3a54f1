"""Modules and parameters in order, or by name."""

__all__: list[str] = []
