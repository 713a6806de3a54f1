"""Recurrent layers and their cells."""

__all__: list[str] = []
