"""Channels as pixels, and back."""

__all__: list[str] = []
