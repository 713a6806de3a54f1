"""Convolutions and transposed ones."""

__all__: list[str] = []
