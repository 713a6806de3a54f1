"""Norms over a batch, with running moments."""

__all__: list[str] = []
