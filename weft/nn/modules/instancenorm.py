"""Norms over each image of a batch."""

__all__: list[str] = []
